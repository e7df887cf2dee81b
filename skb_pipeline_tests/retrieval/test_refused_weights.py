"""Weights that are a program: refused in our words, with the class they want."""

import datetime
from pathlib import Path

import pytest
import torch

from skb_pipeline.retrieval.encoder import Encoder, EncoderError
from skb_pipeline.retrieval.settings import EncoderSpec


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"embedding.weight": datetime.timedelta(3)}, "as they want datetime.timedelta; only tensors are read"),
        (torch.nn.Linear(1, 1), "as they want torch.nn.modules.linear.Linear; only tensors are read"),
    ],
)
def test_pickled_weights_are_refused_without_advice_to_trust_them(tmp_path: Path, weights: object, told: str) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    tokenizer = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)]).save(str(tmp_path))
    (kept,) = tmp_path.rglob("*.safetensors")
    kept.unlink()
    torch.save(weights, kept.with_name("pytorch_model.bin"))
    with pytest.raises(EncoderError, match=r"weights of .* are refused") as failure:
        Encoder(EncoderSpec(model=str(tmp_path))).encode_documents(["a"])
    message = str(failure.value)
    assert told in message
    assert "weights_only" not in message
    assert "trust" not in message.replace(str(tmp_path), "")
    assert failure.value.__cause__ is None
