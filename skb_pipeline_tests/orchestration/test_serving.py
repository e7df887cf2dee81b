"""What stands on the import path of Dagster's processes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

import skb_pipeline
from skb_pipeline.orchestration.serving import ui_environment, workspace_file
from skb_pipeline_tests.live.dagster_dev import LiveDagster
from skb_pipeline_tests.live.shop import Shop

FOREIGN = ["torch.py", "json.py", "skb_pipeline/__init__.py", "dagster/__init__.py"]
LOAD = """
import os, sys
from dagster._core.workspace.load import location_origins_from_yaml_paths
from dagster._grpc.utils import get_loadable_targets
(origin,) = location_origins_from_yaml_paths([sys.argv[1]])
target = origin.loadable_target_origin
get_loadable_targets(
    python_file=None, module_name=target.module_name, package_name=None, autoload_defs_module_name=None,
    # As `dagster code-server start` does, which `dagster dev` starts.
    working_directory=target.working_directory or os.getcwd(), attribute=None, resolve_lazy_defs=True,
)
import importlib.util, json, skb_pipeline
print(json.dumps([json.__file__, skb_pipeline.__file__, importlib.util.find_spec("torch").origin, os.getcwd()]))
"""


def leave_foreign_modules(folder: Path) -> None:
    """Modules that leave a trace when they are imported."""
    for name in FOREIGN:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        trace = folder / "imported"
        path.write_text(f"open({str(trace)!r}, 'a').write(__name__ + chr(10))\nraise ImportError(__file__)\n")


@pytest.mark.parametrize("python_path", [None, str(Path(skb_pipeline.__file__).parents[1])])
def test_the_code_location_imports_nothing_from_where_it_is_started(tmp_path: Path, python_path: str | None) -> None:
    leave_foreign_modules(tmp_path)
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment = ui_environment(plain if python_path is None else {**plain, "PYTHONPATH": python_path})
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(workspace_file())],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *modules, folder = json.loads(done.stdout)
    assert not any(Path(module).is_relative_to(tmp_path) for module in modules)
    assert not (tmp_path / "imported").exists()
    assert folder == str(tmp_path)  # where relative paths of specs begin
    if python_path is not None:
        assert modules[1] == skb_pipeline.__file__


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_the_whole_ui_imports_nothing_from_where_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SKB_HOME", "DAGSTER_HOME", "NEO4J_URI"):
        monkeypatch.delenv(name, raising=False)
    here, home = tmp_path / "here", tmp_path / "home"
    leave_foreign_modules(here)
    (home / "catalogue").mkdir(parents=True)
    shop = Shop.of(here / "files")
    relative = replace(shop, folder=Path("files"))
    with LiveDagster(home, tmp_path / "log", folder=here) as live:
        live.switch_on("catalogue_changes")
        (home / "catalogue" / "shop.yaml").write_text(relative.spec(refresh="watch"))
        live.wait(lambda: any(run.is_finished for run in live.runs("shop")), 400, "no run was finished")
        (run,) = live.runs("shop")
        assert run.status is dg.DagsterRunStatus.SUCCESS
    assert not (here / "imported").exists()
