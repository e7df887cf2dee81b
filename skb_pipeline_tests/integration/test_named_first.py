"""A question that is nothing but a node's name, in every system of a real dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from skb_pipeline.search import SearchSession


@pytest.mark.parametrize("system", ["bm25", "dense", "graph", "text", "fused"])
def test_a_name_as_question_finds_its_node_first(finished_home: Path, system: str) -> None:
    with SearchSession.open("mini") as session:
        names = session.nodes[session.nodes["node_type"].isin(session.spec.candidate_types)]["name"]
        # One word, many words, with punctuation; written as people write and letter by letter.
        shortest, longest = min(names, key=len), max(names, key=len)
        signs = next(name for name in names if any(c in name for c in ",/()-") and name not in (shortest, longest))
        for name in (shortest, longest, signs):
            for question in (name, name.upper(), f" {name.lower()}? "):
                first = session.search(question, system=system, k=3)[0]
                assert (first["name"].lower(), first["rank"]) == (name.lower(), 1), question


def test_other_questions_are_ranked_as_ever(finished_home: Path) -> None:
    with SearchSession.open("mini") as session:
        ranked = session.ranked("bm25", "genes of a tachycardia that is catecholaminergic")
        assert "questions that are a name" not in ranked.metadata
        assert len(ranked.ranking) > 3
