"""The asset graph as Dagster sees it."""

import subprocess
import sys
from typing import Any

import pytest

from skb_pipeline.definitions import build_defs
from skb_pipeline.orchestration.partitions import DATASETS


@pytest.fixture(scope="module")
def graph() -> Any:
    return build_defs().resolve_asset_graph()


def test_no_dependency_is_misspelt(graph: Any) -> None:
    assert graph.external_asset_keys == set()


def test_every_asset_is_described_and_owned(graph: Any) -> None:
    assert len(graph.materializable_asset_keys) >= 11
    for key in graph.materializable_asset_keys:
        node = graph.get(key)
        assert len(key.path) == 2, key
        assert node.group_name == key.path[0], key
        assert len(node.description or "") > 30, key
        assert node.kinds, key
        assert node.owners == ["team:retrieval"], key
        assert node.code_version, key
        assert node.partitions_def == DATASETS, key


def test_checks_are_partitioned_and_structural_ones_block() -> None:
    checks = [spec for check in build_defs().asset_checks or [] for spec in check.check_specs]  # type: ignore[union-attr]
    assert all(spec.partitions_def == DATASETS for spec in checks)
    assert {spec.name: spec.blocking for spec in checks}.items() >= {
        "store_is_sound": True,
        "every_candidate_has_a_document": True,
        "questions_are_sound": True,
        "keeps_the_ranking_contract": True,
        "fields_are_filled": False,
    }.items()


def test_what_shares_a_card_or_a_server_takes_turns(graph: Any) -> None:
    pools = {"/".join(key.path): pool for key in graph.materializable_asset_keys for pool in graph.get(key).pools or ()}
    assert pools == {
        "index/dense": "gpu",
        "graph/anchors": "gpu",
        "planning/query_plans": "llm",
        "graph/neo4j": "neo4j",
        "ranking/graph_neo4j": "neo4j",
    }


def test_nothing_starts_by_itself_beside_the_sensors(graph: Any) -> None:
    # A condition per asset asked for children before all of their ancestors were fresh: see docs/refresh.md.
    assert {key for key in graph.materializable_asset_keys if graph.get(key).automation_condition is not None} == set()


def test_loading_the_code_location_pulls_in_nothing_heavy() -> None:
    script = (
        "import sys, warnings; warnings.simplefilter('error', category=__import__('dagster').BetaWarning); "
        "import skb_pipeline.definitions; "
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'peft', 'faiss', 'bm25s', 'numba', 'neo4j'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_starts_without_dagster() -> None:
    script = "import sys; import skb_pipeline.cli, skb_pipeline.search; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
