"""Small encoders of two architectures."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory) -> dict[str, Path]:
    """Folders of a plain BERT and a plain Qwen3, of two layers, random; the Qwen3 pads on the left."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "heart", "attack", "of", "the", "old", "cat"]
    sizes = {"vocab_size": len(words), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(3)
    built = {
        "bert": (BertModel(BertConfig(**sizes, intermediate_size=32)), "[CLS] $A [SEP]", "right"),
        "qwen": (
            Qwen3ForCausalLM(Qwen3Config(**sizes, intermediate_size=32, head_dim=8, num_key_value_heads=2)),
            "$A [SEP]", "left",
        ),
    }  # fmt: skip
    folders = {}
    for name, (model, template, side) in built.items():
        tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(word, words.index(word)) for word in ("[CLS]", "[SEP]")]
        )
        folders[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(folders[name])
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, padding_side=side, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
            sep_token="[SEP]", model_input_names=["input_ids", "attention_mask"],
        ).save_pretrained(folders[name])  # fmt: skip
    return folders
