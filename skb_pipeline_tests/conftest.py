"""Fixtures shared by several test packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from skb_pipeline.orchestration.running import prepare_home
from skb_pipeline_tests.bolt_server import bolt_server  # noqa: F401 (a fixture)
from skb_pipeline_tests.llm_servers import small_model  # noqa: F401 (a fixture)

# The same examples in every run, whatever the load of the machine; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

MINI = "HP:0004756"
"""Ventricular tachycardia with its diseases and genes: 142 nodes, the smallest slice with questions in every split."""


def write_mini_spec(folder: Path, name: str = "mini") -> None:
    """Put a small slice of the ontology into a catalogue folder."""
    from skb_pipeline.datasets.catalogue import spec_files

    folder.mkdir(parents=True, exist_ok=True)
    text = spec_files()["demo"].read_text()
    replaced = text.replace("name: demo", f"name: {name}", 1).replace("HP:0030956", MINI)
    assert replaced.count(MINI) >= 1
    (folder / f"{name}.yaml").write_text(replaced)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with the dataset ``mini`` in its catalogue."""
    monkeypatch.setenv("SKB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SKB_CATALOGUE", raising=False)
    for name in ("OPENAI_BASE_URL", "OPENAI_MODEL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("NEO4J_URI", raising=False)  # so that the job writes to no server unless a test wants it
    monkeypatch.setenv("DAGSTER_HOME", "")  # so that the value set by prepare_home is undone too
    prepare_home()
    write_mini_spec(tmp_path / "home" / "catalogue")
    return tmp_path / "home"
