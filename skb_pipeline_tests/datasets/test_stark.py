"""The STaRK adapter on tiny folders of all three flavours."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.records import Fetching, SourceError
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.sources.stark import StarkArgs, StarkSource, layout
from skb_pipeline.datasets.sources.stark.compat import is_symmetric, merge_pairs
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.questions.from_source import queries_from_source
from skb_pipeline.skb.documents import build_documents
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.datasets import stark_files
from skb_pipeline_tests.datasets.stark_files import write_amazon, write_mag, write_prime, write_questions

EDGES = """SELECT h.external_id::INT, e.relation, t.external_id::INT FROM edges e
           JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail ORDER BY ALL"""


def spec_for(flavour: str, folder: Path, **args: Any) -> DatasetSpec:
    spec = get_spec(flavour)
    source = spec.source.model_copy(update={"args": {"flavour": flavour, "folder": str(folder), **args}})
    return spec.model_copy(update={"source": source})


def load(flavour: str, folder: Path, **args: Any) -> tuple[Path, LoadReport]:
    spec, path = spec_for(flavour, folder, **args), folder / "skb.duckdb"
    path.unlink(missing_ok=True)
    return path, ingest(spec, open_source(spec), path)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with connect(path, read_only=True) as con:
        return con.execute(query).fetchall()


def fields(path: Path) -> dict[int, dict[str, Any]]:
    return {number: json.loads(text) for number, text in rows(path, "SELECT node_id, fields::VARCHAR FROM nodes")}


def test_amazon_keeps_numbers_fields_and_relations(tmp_path: Path) -> None:
    write_amazon(tmp_path)
    path, report = load("amazon", tmp_path)
    assert rows(path, "SELECT node_id, external_id, node_type FROM nodes ORDER BY 1") == [
        (i, str(i), layout.TYPES["amazon"][code]) for i, code in enumerate(stark_files.AMAZON_TYPES)
    ]
    names = layout.RELATIONS["amazon"]
    assert rows(path, EDGES) == sorted((h, names[code], t) for h, t, code in stark_files.AMAZON_EDGES)
    found = fields(path)
    assert found[0]["review"][0] == {
        "reviewerID": "A1", "summary": "Good", "style": {"Color:": "Red"}, "reviewText": "Works.", "vote": "1,204",
        "overall": 5.0, "verified": True, "reviewTime": "01 1, 2018",
    }  # fmt: skip
    assert found[0]["review"][1]["vote"] is None
    assert found[0]["feature"] == ["light", "", "green"]
    assert (found[0]["price"], found[0]["brand"]) == ("$12 - $19", "Acme")
    assert found[1] == {
        "asin": "B1",
        "title": "NA",
        "feature": ["one text"],
        "description": ["alone"],
        "rank": "#1 in A; #2 in B",
    }
    assert found[6] == {"color_name": "red"}
    assert report.notes == ["graph of cache/brand-category-color: products with brands, categories and colours"]
    assert report.quarantine_reasons == {}


def test_amazons_base_graph_is_used_only_when_it_is_alone_and_then_says_so(tmp_path: Path) -> None:
    write_amazon(tmp_path, base_only=True)
    path, report = load("amazon", tmp_path)
    assert report.nodes_by_type == {"product": 3, "brand": 0, "category": 0, "color": 0}
    assert {relation for _, relation, _ in rows(path, EDGES)} == {"also_buy", "also_view"}
    assert len(report.notes) == 1
    assert report.notes[0].startswith("base graph")


def test_mag_has_no_minus_ones_but_keeps_them_within_texts(tmp_path: Path) -> None:
    write_mag(tmp_path)
    path, report = load("mag", tmp_path)
    found = fields(path)
    assert found[0] == {"mag_id": 11, "Rank": 9, "DisplayName": "Ann", "PaperCount": 3}
    assert found[1] == {"mag_id": 12, "Rank": 9}
    assert found[2]["DisplayName"] == "COVID-19"
    assert found[3] == {
        "mag_id": 14,
        "title": "HIV-1 genes",
        "abstract": "On HIV-1.",
        "Date": "2015-01-01",
        "Year": 2015,
    }
    assert found[4] == {"mag_id": 15, "title": "Cited", "OriginalVenue": "Venue"}
    assert rows(path, EDGES) == sorted((h, layout.RELATIONS["mag"][code], t) for h, t, code in stark_files.MAG_EDGES)
    assert report.coerced == {}


def test_prime_edges_are_turned_one_way_and_stored_once(tmp_path: Path) -> None:
    write_prime(tmp_path)
    path, report = load("prime", tmp_path)
    assert rows(path, EDGES) == [
        (1, "associated with", 0),
        (1, "expression present", 4),
        (1, "ppi", 3),
        (2, "enzyme", 1),
        (2, "target", 1),
    ]
    assert report.edges == {
        "rows_in": 11, "stored": 5, "quarantined": 0, "duplicates_dropped": 6, "reciprocal_folded": 1,
        "reciprocal_kept": 0, "self_loops": 0,
    }  # fmt: skip
    found = fields(path)
    assert found[0]["id"] == "13924_12592"
    assert found[0]["details"] == {"mondo_definition": "Heat.", "orphanet_prevalence": None}
    assert found[1]["aliases"] == ["DYRK1AP3", "KIAA0273"]
    assert list(found[1]["details"]) == ["_id", "alias", "interpro"]
    assert rows(path, "SELECT name FROM nodes WHERE node_id = 2") == [("None",)]
    assert rows(path, "SELECT alias FROM aliases ORDER BY 1") == [("DYRK1AP3",), ("KIAA0273",)]


@pytest.mark.parametrize(("flavour", "write"), [("amazon", write_amazon), ("mag", write_mag), ("prime", write_prime)])
def test_documents_are_built_from_every_flavour(tmp_path: Path, flavour: str, write: Any) -> None:
    write(tmp_path)
    path, _ = load(flavour, tmp_path)
    with connect(path, read_only=True) as con:
        documents = build_documents(con, get_spec(flavour))
    assert len(documents) == {"amazon": 3, "mag": 2, "prime": 5}[flavour]


@pytest.mark.parametrize("layout_of", ["skb/amazon", "amazon", "."])
def test_a_zip_reads_like_the_folder(tmp_path: Path, layout_of: str) -> None:
    write_amazon(tmp_path / "a")
    _, report = load("amazon", tmp_path / "a")
    place = tmp_path / "b" / layout_of
    place.mkdir(parents=True)
    shutil.make_archive(str(place / "processed"), "zip", tmp_path / "a" / "skb" / "amazon", "processed")
    spec = spec_for("amazon", tmp_path / "b")
    assert open_source(spec).files() == [place / "processed.zip"]
    assert load("amazon", tmp_path / "b")[1].data_version == report.data_version


def test_questions(tmp_path: Path) -> None:
    write_amazon(tmp_path)
    write_questions(tmp_path, "amazon")
    path, _ = load("amazon", tmp_path)
    source = open_source(spec_for("amazon", tmp_path))
    with connect(path, read_only=True) as con:
        frame, report = queries_from_source(con, source.queries() or [], ["product"])
    assert frame[
        ["query_id", "query", "split", "answer_ids", "template", "seen_answer", "sample"]
    ].to_numpy().tolist() == [
        ["0", "NA", "test", [0], "synthesized", True, None],
        ["1", 'Two\nlines, "quoted"', "train", [0, 2], "synthesized", None, None],
        ["2", "third", "val", [1], "synthesized", None, None],
        ["3", "fourth", "test", [1, -1], "synthesized", False, "test-0.1"],
        ["human-0", "mine", "test", [2], "human", True, None],
    ]
    assert (report.repeated_answers, report.absent_answers) == (1, {"test": 1})
    assert len(source.files()) == 6 + 6


def test_kinds_of_questions_and_the_sample_of_the_test_split(tmp_path: Path) -> None:
    write_mag(tmp_path)
    write_questions(tmp_path, "mag")
    source = open_source(spec_for("mag", tmp_path, questions=["synthesized"], test_sample=True))
    assert [q.query_id for q in source.queries() or []] == ["1", "2", "3"]
    assert source.out_of_scope == {"test questions outside test-0.1": 1}
    human = open_source(spec_for("mag", tmp_path, questions=["human"]))
    assert [q.query_id for q in human.queries() or []] == ["human-0"]


def test_a_sample_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    write_mag(tmp_path)
    (write_questions(tmp_path, "mag") / "split" / "test-0.1.index").unlink()
    assert len(list(open_source(spec_for("mag", tmp_path)).queries() or [])) == 5
    with pytest.raises(SourceError, match=r"test-0\.1\.index is not there"):
        list(open_source(spec_for("mag", tmp_path, test_sample=True)).queries() or [])


def test_a_graph_without_questions_has_none(tmp_path: Path) -> None:
    write_mag(tmp_path)
    assert open_source(spec_for("mag", tmp_path)).queries() is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("stark_qa/stark_qa.csv", "id,query,answer_ids\n0,a,__import__('os').system('touch x')\n",
         r"stark_qa\.csv:2: answer_ids: not a JSON"),
        ("stark_qa/stark_qa.csv", 'id,query,answer_ids\n0,a,"[1, 2"\n', r"stark_qa\.csv:2: answer_ids: not a JSON"),
        ("stark_qa/stark_qa.csv", "id,query,answer_ids\n0,a,[13924_12592]\n", "not a JSON list"),
        ("stark_qa/stark_qa.csv", 'id,query,answer_ids\n0,a,"[""1""]"\n', "a list of whole numbers was expected"),
        ("stark_qa/stark_qa.csv", "id,query,answer_ids\n0,a,[true]\n", "a list of whole numbers was expected"),
        ("stark_qa/stark_qa.csv", "id,query,answer_ids\n0,a,[1.0]\n", "a list of whole numbers was expected"),
        ("stark_qa/stark_qa.csv", "id,query,answer_ids\n0_1,a,[1]\n", r"stark_qa\.csv:2: id: a whole number"),
        ("stark_qa/stark_qa.csv", "id,query\n0,a\n", r"columns \['answer_ids'\] are missing"),
        ("stark_qa/stark_qa.csv", "id,query,answer_ids\n0,a\n", r"stark_qa\.csv:2: the row does not have"),
        ("stark_qa/stark_qa.csv", 'id,query,answer_ids\n0,"a,[1]\n', r"stark_qa\.csv:\d: unexpected end"),
        ("split/val.index", "2\n1\n", r"val\.index: question 1 is also in train\.index"),
        ("split/val.index", "", r"stark_qa\.csv:\d: question 2 is in none of the splits"),
        ("split/val.index", "2\n77\n", r"val\.index: question 77 is not in stark_qa\.csv"),
        ("split/test-0.1.index", "3\n1\n", r"test-0\.1\.index: 1 questions are not in test\.index, such as 1"),
        ("split/val.index", "two\n", r"val\.index:1: a whole number was expected"),
    ],
)  # fmt: skip
def test_faulty_questions_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_mag(tmp_path)
    (write_questions(tmp_path, "mag") / name).write_text(text)
    with pytest.raises(SourceError, match=message):
        list(open_source(spec_for("mag", tmp_path)).queries() or [])


def test_the_merge_of_starks_loader(tmp_path: Path) -> None:
    write_amazon(tmp_path)
    path, report = load("amazon", tmp_path, stark_compat=True)
    # 0-1: codes 0, 1, 1 of both directions give also_buy; 0-2: 1 and 0 also; the rest stays.
    assert [edge for edge in rows(path, EDGES) if edge[2] < 3] == [(0, "also_buy", 1), (2, "also_buy", 0)]
    assert report.edges["stored"] == 7
    assert report.out_of_scope == {"edges merged into another of the same nodes (stark_compat)": 3}
    assert report.notes[1].startswith("stark_compat")


def test_the_merge_leaves_prime_alone(tmp_path: Path) -> None:
    write_prime(tmp_path)
    # One row is stored once more than its mirror, which STaRK's files do not have.
    place = tmp_path / "skb" / "prime" / "processed"
    torch.save(torch.load(place / layout.EDGE_INDEX)[:, :-1].clone(), place / layout.EDGE_INDEX)
    torch.save(torch.load(place / layout.EDGE_TYPES)[:-1].clone(), place / layout.EDGE_TYPES)
    assert load("prime", tmp_path, stark_compat=True)[1].edges["stored"] == 5
    assert load("prime", tmp_path, stark_compat=True)[1].data_version == load("prime", tmp_path)[1].data_version


def upstream(heads: list[int], tails: list[int], codes: list[int]) -> set[tuple[int, int, int]]:
    """What to_undirected with the reduction mean and a cut to integers gives, by its definition."""
    found: dict[tuple[int, int], list[int]] = {}
    for h, t, code in zip(heads, tails, codes, strict=True):
        for pair in ((h, t), (t, h)):
            found.setdefault(pair, []).append(code)
    return {(h, t, int(sum(own) / len(own))) for (h, t), own in found.items()}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 5)), max_size=25))
def test_merged_pairs_equal_the_definition(edges: list[tuple[int, int, int]]) -> None:
    heads, tails, codes = (np.array(column, dtype=np.int64) for column in zip(*edges, strict=True)) if edges else (
        np.zeros(0, np.int64) for _ in range(3)
    )  # fmt: skip
    kept, merged = merge_pairs(heads, tails, codes)
    one_way = set(zip(heads[kept].tolist(), tails[kept].tolist(), merged.tolist(), strict=True))
    assert one_way | {(t, h, code) for h, t, code in one_way} == upstream(
        heads.tolist(), tails.tolist(), codes.tolist()
    )
    assert len(one_way) == len({frozenset((h, t)) for h, t, _ in edges})
    mirrored = sorted((t, h) for h, t, _ in edges) == sorted((h, t) for h, t, _ in edges)
    assert is_symmetric(heads, tails) == mirrored


def test_edges_to_nowhere_are_quarantined_not_followed(tmp_path: Path) -> None:
    place = write_amazon(tmp_path)
    torch.save(torch.tensor([[0, 0, 50, -1], [1, 50, 0, 0]]), place / layout.EDGE_INDEX)
    torch.save(torch.tensor([0, 0, 0, 9]), place / layout.EDGE_TYPES)
    spec = spec_for("amazon", tmp_path)
    spec = spec.model_copy(update={"source": spec.source.model_copy(update={"max_bad_edge_rate": 1.0})})
    report = ingest(spec, open_source(spec), tmp_path / "s.duckdb")
    assert (report.edges["stored"], report.edges["quarantined"]) == (1, 3)
    assert rows(tmp_path / "s.duckdb", 'SELECT "row" FROM quarantine ORDER BY 1') == [(2,), (3,), (4,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: torch.save(torch.zeros(2, 3, dtype=torch.int64), p / layout.EDGE_INDEX),
            r"edge_index\.pt has shape",
        ),
        (lambda p: torch.save(torch.tensor([3, 3, 3, 3, 3]), p / layout.NODE_TYPES), r"entry 0 is of type 'author'"),
        (lambda p: (p / layout.NODE_INFO).write_bytes(pickle.dumps({0: [1]})), r"node_info\.pkl: entry 0 is no dict"),
        (lambda p: (p / layout.NODE_INFO).write_bytes(pickle.dumps([1])), r"node_info\.pkl: a dict was expected"),
    ],
)
def test_files_that_do_not_fit_together_are_named(tmp_path: Path, change: Any, message: str) -> None:
    change(write_mag(tmp_path))
    with pytest.raises(SourceError, match=message):
        load("mag", tmp_path)


def test_what_is_missing_is_named_with_a_way_out(tmp_path: Path) -> None:
    source = open_source(spec_for("prime", tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no processed STaRK graph 'prime'.*STARK_DATA"):
        source.files()
    place = write_prime(tmp_path)
    (place / layout.EDGE_TYPES).unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks edge_types\.pt"):
        open_source(spec_for("prime", tmp_path)).files()
    (tmp_path / "qa").mkdir()
    write_prime(tmp_path)
    shutil.rmtree(tmp_path / "qa")
    shutil.rmtree(write_questions(tmp_path, "prime") / "split")
    with pytest.raises(FileNotFoundError, match=r"has no splits"):
        open_source(spec_for("prime", tmp_path)).files()


def test_a_damaged_zip_is_named(tmp_path: Path) -> None:
    (tmp_path / "processed.zip").write_bytes(b"PK cut short")
    with pytest.raises(SourceError, match=r"processed\.zip: is no zip file"):
        open_source(spec_for("mag", tmp_path)).files()
    with zipfile.ZipFile(tmp_path / "processed.zip", "w") as archive:
        archive.writestr("processed/other.txt", "")
    with pytest.raises(FileNotFoundError, match=r"holds no node_info\.pkl"):
        open_source(spec_for("mag", tmp_path)).files()


def test_folders_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mag(tmp_path)
    monkeypatch.setenv("STARK_DATA", str(tmp_path))
    assert len(StarkSource(StarkArgs(flavour="mag")).files()) == 4
    monkeypatch.delenv("STARK_DATA")
    monkeypatch.setenv("SKB_HOME", str(tmp_path / "home"))
    assert StarkSource(StarkArgs(flavour="mag")).folder == tmp_path / "home" / "stark"
    with pytest.raises(FileNotFoundError, match="not set"):
        StarkSource(StarkArgs(flavour="mag", folder="$NOT_SET_AT_ALL/x")).files()


def test_only_what_is_absent_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *args, **named: calls.append((args, named)))
    write_mag(tmp_path)
    open_source(spec_for("mag", tmp_path, revision="abc")).fetch()  # type: ignore[attr-defined]
    assert calls == [
        (
            ("snap-stanford/stark",),
            {
                "repo_type": "dataset",
                "revision": "abc",
                "local_dir": tmp_path,
                "allow_patterns": ["skb/mag/processed.zip", "qa/mag/stark_qa/*.csv", "qa/mag/split/*.index"],
            },
        )
    ]
    write_questions(tmp_path, "mag")
    open_source(spec_for("mag", tmp_path)).fetch()  # type: ignore[attr-defined]
    assert len(calls) == 1


def test_a_snapshot_knows_which_sources_can_fetch() -> None:
    assert isinstance(open_source(get_spec("mag")), Fetching)
    assert not isinstance(open_source(get_spec("hpo")), Fetching)


@pytest.mark.parametrize("name", ["amazon", "mag", "prime"])
def test_built_in_specs_name_every_type_and_relation(name: Any) -> None:
    spec = get_spec(name)
    assert sorted(spec.node_types) == sorted(layout.TYPES[name])
    assert {relation.name for relation in spec.relations} == set(layout.RELATIONS[name])
    assert set(spec.planner.type_words) == set(spec.node_types)
    assert set(spec.planner.relation_words) == set(layout.RELATIONS[name])
    assert spec.documents.format == f"stark_{name}"


def test_built_in_encoders_pool_as_their_models_were_trained() -> None:
    prime = get_spec("prime").encoder
    assert (prime.model, prime.pooling, prime.max_length) == (
        "cambridgeltl/SapBERT-from-PubMedBERT-fulltext", "cls", 256
    )  # fmt: skip
    for name in ("amazon", "mag"):
        encoder = get_spec(name).encoder
        assert (encoder.model, encoder.pooling, encoder.max_length) == ("Qwen/Qwen3-Embedding-4B", "last_token", 512)
        assert re.fullmatch(r"Instruct: [^\n]+\nQuery:", encoder.query_prefix)
        assert encoder.document_prefix == ""
