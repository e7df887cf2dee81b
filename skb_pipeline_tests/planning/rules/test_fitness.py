from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skb_pipeline.planning.rules.fitness import TextFitness
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.planning.rules.test_planner import spec_with
from skb_pipeline_tests.toy import ListSource

NODES = [
    ("drug", "1", {"name": "Aspirin", "other": ["ASA", "pain reliever"]}),
    ("drug", "2", {"name": "Naïve-β blocker"}),
    ("drug", "3", {"name": "Pain pills"}),
    ("gene", "1", {"name": "PTGS1"}),
]


@pytest.fixture(scope="module")
def fitness_and_ids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TextFitness, dict[str, int]]]:
    path = tmp_path_factory.mktemp("skb") / "fitness.duckdb"
    ingest(spec_with(), ListSource(NODES, []), path)
    with connect(path, read_only=True) as con:
        ids = dict(con.execute("SELECT name, node_id FROM nodes").fetchall())
        yield TextFitness(con), ids


def fit(fitness_and_ids: Any, name: str, *words: str) -> float:
    fitness, ids = fitness_and_ids
    return float(fitness.pick(fitness.of_words(words), np.array([ids[name]]))[0])


def test_value_is_the_shared_weight_over_the_length(fitness_and_ids) -> None:
    shared, alone = math.log(4 / 2) ** 2, math.log(4 / 1) ** 2
    # pain; aspirin, asa, reliever: no name of a field is a word.
    assert fit(fitness_and_ids, "Aspirin", "pain") == pytest.approx(shared / math.sqrt(shared + 3 * alone))
    # pain; pill.
    assert fit(fitness_and_ids, "Pain pills", "pain") == pytest.approx(shared / math.sqrt(shared + alone))


def test_words_are_folded_singular_and_counted_once(fitness_and_ids) -> None:
    one = fit(fitness_and_ids, "Pain pills", "pill")
    assert one > 0
    assert fit(fitness_and_ids, "Pain pills", "pills", "pill") == one
    assert fit(fitness_and_ids, "Naïve-β blocker", "naive") > 0
    assert fit(fitness_and_ids, "Naïve-β blocker", "beta") > 0
    assert fit(fitness_and_ids, "PTGS1", "pain", "unheard", "the") == 0
    assert fit(fitness_and_ids, "PTGS1") == 0


def test_nodes_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(spec_with(), ListSource(NODES, []), tmp_path / "fitness.duckdb")
    words = ["pain", "pill", "naive", "asa", "ptgs1"]
    with connect(tmp_path / "fitness.duckdb", read_only=True) as con:
        whole = TextFitness(con).of_words(words)
        monkeypatch.setattr("skb_pipeline.planning.rules.fitness._NODES_AT_ONCE", 3)
        assert TextFitness(con).of_words(words).tolist() == whole.tolist()
    assert np.count_nonzero(whole) == 4
