"""Which nodes a whole question names, and that they stand first in any ranking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from skb_pipeline.linking.named import NAMES, Named, names_hash, names_of, nodes_named
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.ranking import check_ranking, rank_hits
from skb_pipeline.retrieval.settings import LexicalSpec
from skb_pipeline.skb.documents import build_documents
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.skb.store import canonical_positions
from skb_pipeline.storage.duck import connect
from skb_pipeline.systems.named_first import named_first
from skb_pipeline.systems.ranked import Questions, Ranked
from skb_pipeline_tests.toy import Edge, ListSource, buy, toy_spec

NODES: list[tuple[str, str, dict[str, Any]]] = [
    ("product", "1", {"title": "Ridge lamp"}),
    ("product", "2", {"title": "Ridge lamp bag for a ridge lamp", "aliases": ["lamp bag"]}),
    ("product", "3", {"title": "Lamp bag"}),
    ("product", "4", {"title": "कमल"}),
    ("product", "5", {"title": "कमला"}),
    ("product", "6", {"title": "C++ (2nd ed.)"}),
    ("product", "7", {"title": "RIDGE LAMP"}),
    ("product", "8", {"title": "?!"}),
    ("product", "9", {"title": "Lamp", "aliases": ["Ridge lamp"]}),
    ("brand", "1", {"name": "Ridge"}),
]
EDGES: list[Edge] = [buy(a, "1") for a in "234567"]


class _Shop:
    """What a lexical system reads, of real parts."""

    def __init__(self, folder: Path) -> None:
        spec = toy_spec(candidates=["product"])
        ingest(spec, ListSource(NODES, EDGES), folder / "s.duckdb")
        with connect(folder / "s.duckdb", read_only=True) as con:
            self.canonical = canonical_positions(con)
            self.names = names_of(con, spec)
            self.ids = con.execute("SELECT node_id, external_id FROM nodes").df().set_index("node_id")["external_id"]
            documents = build_documents(con, spec)
        NAMES.write(folder, self.names)
        self.path = folder / NAMES.file
        self.index = BM25Index.build(documents["node_id"].to_numpy(), documents["document"].tolist(), LexicalSpec())

    def artifact(self, key: str) -> Any:
        assert key == "index/names"
        return SimpleNamespace(file=lambda name: self.path)

    def search(self, *texts: str, depth: int = 20) -> pd.DataFrame:
        questions = Questions([f"q{i}" for i in range(len(texts))], list(texts))
        hits = self.index.search(texts, depth, canonical=self.canonical)
        before = rank_hits(hits, canonical=self.canonical, depth=depth, query_order=questions.ids)
        ranked = named_first(Ranked(before), self, questions, depth)  # type: ignore[arg-type]
        checked: dict[str, Any] = {"query_order": questions.ids, "depth": depth, "canonical": self.canonical}
        assert check_ranking(ranked.ranking, **checked) == []
        others = ~ranked.ranking["query_id"].isin([f"q{i}" for i in range(len(texts))])
        assert not others.any()
        return ranked.ranking.assign(external_id=self.ids.loc[ranked.ranking["node_id"]].to_numpy())

    def first(self, text: str, n: int) -> list[str]:
        return self.search(text)["external_id"].tolist()[:n]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> _Shop:
    return _Shop(tmp_path_factory.mktemp("shop"))


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Ridge lamp", ["1", "7", "9"]),  # by letter, by folded name, by another name
        ("RIDGE LAMP", ["7", "1", "9"]),
        ("ridge lamp?", ["1", "7", "9"]),  # both folded: canonical order, then the alias
        ("lamp bag", ["3", "2"]),  # a name before another name, though that agrees letter by letter
        ("कमला", ["5"]),
        ("कमल", ["4"]),
        ("c++ 2nd ed", ["6"]),
        ("?!", ["8"]),
    ],
)
def test_what_a_question_names_stands_first(shop: _Shop, question: str, first: Sequence[str]) -> None:
    assert shop.first(question, len(first)) == list(first)


def test_every_node_is_found_by_its_own_name(shop: _Shop) -> None:
    titles = {external_id: fields["title"] for kind, external_id, fields in NODES if kind == "product"}
    found = shop.search(*titles.values())
    assert found[found["rank"] == 1]["external_id"].tolist() == list(titles)


def test_other_questions_keep_ranks_and_scores(shop: _Shop) -> None:
    alone, beside = shop.search("bag of a lamp"), shop.search("bag of a lamp", "Lamp bag")
    pd.testing.assert_frame_equal(alone, beside[beside["query_id"] == "q0"].reset_index(drop=True))
    assert alone["external_id"].tolist()[0] in ("2", "3")


def test_scores_of_others_stay_and_named_ones_are_just_above(shop: _Shop) -> None:
    found = shop.search("Ridge lamp").set_index("external_id")["score"]
    others = found.drop(["1", "7", "9"])
    assert (found[["1", "7", "9"]].diff().dropna() < 0).all()
    assert (found[["1", "7", "9"]] > others.max()).all()
    assert found.max() < others.max() * 3


def test_a_name_without_hits_and_a_depth_of_one(shop: _Shop) -> None:
    assert shop.search("?!")[["external_id", "rank"]].values.tolist() == [["8", 1]]
    assert shop.search("Ridge lamp", depth=1)["external_id"].tolist() == ["1"]


def test_only_candidates_are_named_and_nothing_is_guessed(shop: _Shop) -> None:
    named = nodes_named(shop.path, ["Ridge", "Ridge lamps", "Ridge lam", "lamp", "", "  "])
    assert [list(nodes.values()) for nodes in named] == [[], [], [], [Named.FOLDED_NAME], [], []]


def test_the_hash_knows_no_node_ids(shop: _Shop) -> None:
    moved = shop.names.assign(node_id=shop.names["node_id"] + 5)
    assert names_hash(moved) == names_hash(shop.names)
    assert names_hash(shop.names.assign(is_alias=True)) != names_hash(shop.names)
    assert np.all(shop.names["folded"].to_numpy()[1:] >= shop.names["folded"].to_numpy()[:-1])
