"""Fixtures shared by several test packages."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from skb_pipeline.orchestration.running import materialise, prepare_home
from skb_pipeline_tests.bolt_server import bolt_server  # noqa: F401 (a fixture)
from skb_pipeline_tests.examples import load_profile
from skb_pipeline_tests.llm_servers import small_model  # noqa: F401 (a fixture)

load_profile()


def pytest_configure(config: pytest.Config) -> None:
    """A test without a home of its own must not see the user's: his systems, his catalogue."""
    os.environ["SKB_HOME"] = tempfile.mkdtemp(prefix="skb-tests-")
    os.environ.pop("SKB_CATALOGUE", None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it."""
    shutil.rmtree(os.environ["SKB_HOME"], ignore_errors=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what Hypothesis runs, so that `make test-deep` finds it."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.property)


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


def enter_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make ``folder`` the home with the dataset ``mini`` in its catalogue, and take away what a server is known by."""
    patch.setenv("SKB_HOME", str(folder))
    patch.delenv("SKB_CATALOGUE", raising=False)
    for name in ("OPENAI_BASE_URL", "OPENAI_MODEL", "OPENAI_API_KEY"):
        patch.delenv(name, raising=False)
    patch.delenv("NEO4J_URI", raising=False)  # so that the job writes to no server unless a test wants it
    patch.setenv("DAGSTER_HOME", "")  # so that the value set by prepare_home is undone too
    prepare_home()
    write_mini_spec(folder / "catalogue")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with the dataset ``mini`` in its catalogue."""
    enter_home(tmp_path / "home", monkeypatch)
    return tmp_path / "home"


@pytest.fixture(scope="session")
def materialised_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which all assets of ``mini`` were made by one run. Not to be changed: see :func:`finished_home`."""
    folder = tmp_path_factory.mktemp("materialised") / "home"
    with pytest.MonkeyPatch.context() as patch:
        enter_home(folder, patch)
        outcomes = materialise("mini")
    assert not any(o.reused for o in outcomes)
    return folder


@pytest.fixture
def finished_home(materialised_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of :func:`materialised_home` that a test may do anything with."""
    shutil.copytree(materialised_home, tmp_path / "home")
    enter_home(tmp_path / "home", monkeypatch)
    return tmp_path / "home"
