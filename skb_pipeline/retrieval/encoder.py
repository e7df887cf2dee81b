"""Sentence encoders: where a model lies, what identifies it, and texts to unit vectors.

An ``Encoder`` knows its fingerprint without loading the model; torch is imported when the first text is encoded.

A text's vector is meant to be a function of the text, the model and the settings alone, to the last bit, whatever is
encoded beside it. How the sums in a model's layers are cut into pieces depends on the shape of the batch, so every
batch has one of few shapes: as many tokens as :func:`padded_length` says, which follows from the text's own length, and
as many rows as :func:`rows_of` says, filled up where there are fewer texts.

Measured on x86-64 (AVX-512, MKL, float32), with 1 to 7 threads and any place in the batch: equal bits. In one of seven
processes of a busy machine 26 of 360 vectors differed from an earlier round all the same; it was not seen again and its
reason not found, so equal bits are not guaranteed. Another processor or another torch may differ in last bits, too. On
a GPU batches have fixed shapes of ``batch_size`` rows; that was not run there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import numpy as np

from skb_pipeline.errors import PassingError, UserError
from skb_pipeline.retrieval.settings import EncoderSpec
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import stable_hash
from skb_pipeline.text.sinks import progress_bar

VERSION = "3"
SHAPES = "1"
"""Version of the shapes of batches. It is in the fingerprint: vectors from other shapes differ in their last bits, and
those that are kept must not be mixed with new ones."""
ENCODER_LIBRARIES = ("sentence-transformers", "torch", "transformers")
"""Distributions whose version may change a vector; the recipes of what holds or compares vectors name them."""


Role = Literal["document", "query"]

_POOLING_MODES = {"mean": "mean", "cls": "cls", "last_token": "lasttoken"}
_NOT_WEIGHTS = {".md", ".py", ".png", ".gitattributes"}
_PROMPTS = "config_sentence_transformers.json"
_PROMPT_NAMES: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Under which names models keep the prompt of a role, the first one first (as sentence-transformers looks them up)."""
_SPECIAL_TOKENS = 8
"""More than any model adds to a text, such as ``[CLS]``."""
_LEAST_TOKENS = 8
_LEAST_ROWS, _MOST_ROWS, _TOKENS_AT_ONCE = 2, 8, 512


class EncoderError(UserError, RuntimeError):
    """A model that cannot be found or used, or one whose output is no usable vector."""


class HubAwayError(EncoderError, PassingError):
    """The model hub does not answer now."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from: a folder on this machine, or a hub id with a revision."""

    folder: Path | None = None
    hub_id: str | None = None
    revision: str | None = None


def find_model(spec: EncoderSpec) -> ModelSource:
    """Resolve ``spec.model`` without loading or downloading anything.

    Raises:
        EncoderError: the package is not installed or carries no model, the folder is absent, or a hub id comes without
            a revision (what it stands for could change under stored vectors).
    """
    if spec.model.startswith("package:"):
        return ModelSource(folder=_package_folder(spec.model.removeprefix("package:")))
    folder = Path(spec.model).expanduser()
    if folder.is_dir():
        return ModelSource(folder=folder.resolve())
    if spec.model.startswith((".", "/", "~")) or spec.model.count("/") > 1:
        raise EncoderError(f"encoder folder {spec.model!r} does not exist")
    if spec.revision is None:
        raise EncoderError(
            f"encoder {spec.model!r} is a hub id and needs a revision, so that its vectors can be traced"
        )
    return ModelSource(hub_id=spec.model, revision=spec.revision)


def _package_folder(name: str) -> Path:
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise EncoderError(f"encoder package {name!r} is not installed ({error})") from error
    if not hasattr(package, "get_model_path"):
        raise EncoderError(f"package {name!r} carries no model: it has no get_model_path()")
    return Path(package.get_model_path())


def content_hash(folder: Path, known: Path | None = None) -> str:
    """sha256 over names and contents of all files of a model folder, except readmes and code.

    Args:
        folder: the model folder.
        known: a JSON file that remembers file hashes by path, size and modification time, so that weights are read
            once; made when absent.
    """
    remembered: dict[str, list[Any]] = json.loads(known.read_text()) if known is not None and known.is_file() else {}
    before = dict(remembered)
    digests = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if path.suffix in _NOT_WEIGHTS or any(part.startswith((".", "__")) for part in name.parts):
            continue
        stat = path.stat()
        entry = remembered.get(str(path.resolve()))
        if entry is None or entry[:2] != [stat.st_size, stat.st_mtime_ns]:
            with path.open("rb") as file:
                entry = [stat.st_size, stat.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest()]
            remembered[str(path.resolve())] = entry
        digests[name.as_posix()] = entry[2]
    if not digests:
        raise EncoderError(f"model folder {folder} holds no files")
    if known is not None and remembered != before:
        with suppress(OSError):  # who may only read hashes again next time
            atomic.write_json(known, remembered)
    return stable_hash(digests)


def model_fingerprint(spec: EncoderSpec, known_hashes: Path | None = None) -> dict[str, Any]:
    """What a vector depends on besides the text put into the model; plain JSON values, torch is not loaded.

    A folder or package is identified by the hash of its files, a hub model by id and revision. The dimension is not in
    it: it follows from the model, and indexes and caches record it themselves. Neither is the batch size: on a CPU it
    changes nothing. The version of the batches' shapes is in it. The pooling is in it where the spec gives one;
    otherwise it follows from the model.

    Args:
        spec: the encoder.
        known_hashes: see :func:`content_hash`.
    """
    source = find_model(spec)
    identity: dict[str, Any] = (
        {"model": spec.model, "content": content_hash(source.folder, known_hashes)}
        if source.folder is not None
        else {"model": source.hub_id, "revision": source.revision}
    )
    pooling = {} if spec.pooling is None else {"pooling": spec.pooling}
    return {**identity, "max_length": spec.max_length, "normalised": True, "shapes": SHAPES, **pooling}


def model_file(source: ModelSource, name: str) -> Path | None:
    """A file of a model; None where it has no such file. Of a hub model, only this file is fetched if it is not here.

    Raises:
        EncoderError: the file is not on this machine and the hub cannot be asked. HubAwayError if it may answer later.
    """
    if source.folder is not None:
        path = source.folder / name
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    cache = os.environ.get("SENTENCE_TRANSFORMERS_HOME")  # where sentence-transformers puts models, if set
    here = [
        try_to_load_from_cache(str(source.hub_id), wanted, cache_dir=cache, revision=source.revision)
        for wanted in (name, "config.json")
    ]
    if isinstance(here[0], str):
        return Path(here[0])
    if isinstance(here[1], str):  # the model is on this machine, without such a file
        return None
    try:
        return Path(hf_hub_download(str(source.hub_id), name, revision=source.revision, cache_dir=cache))
    except LocalEntryNotFoundError as error:  # the hub was not to be asked, or did not answer
        offline = error.__cause__ is None or isinstance(error.__cause__, OfflineModeIsEnabled)
        kind = EncoderError if offline else HubAwayError
        raise kind(f"{name} of {source.hub_id!r} is not on this machine: {error}") from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError) as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        kind = HubAwayError if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500 else EncoderError
        raise kind(f"{name} of {source.hub_id!r} cannot be fetched: {error}") from error


def own_prompts(source: ModelSource) -> dict[Role, str]:
    """The text a model wants before the texts of each role, as its files say; empty where they say nothing.

    It is the prompt called ``query``, and for documents ``document``, ``passage`` or ``corpus``; without one of these
    names the one that ``default_prompt_name`` names, for either role.

    Raises:
        EncoderError: the file that would say it is no such file, or cannot be fetched.
    """
    path = model_file(source, _PROMPTS)
    try:
        config = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
        prompts = config.get("prompts") or {}
        default = config.get("default_prompt_name")
        given = {str(name): text or "" for name, text in prompts.items()}
    except (ValueError, AttributeError) as error:
        raise EncoderError(f"{path}: no prompts of a model can be read from it: {error}") from error
    if not all(isinstance(text, str) for text in given.values()):
        raise EncoderError(f"{path}: a prompt is no text: {prompts}")
    if default is not None and default not in given:
        raise EncoderError(f"{path}: default_prompt_name is {default!r}, which is none of the prompts {sorted(given)}")
    fallback = "" if default is None else given[default]
    return {
        role: next((given[name] for name in names if name in given), fallback) for role, names in _PROMPT_NAMES.items()
    }


def may_exceed(text: str, max_length: int) -> bool:
    """Whether a text can have more than ``max_length`` tokens; False is certain.

    A token stands for a byte or more of what the text is normalised to. Plain ASCII stays as it is; other letters may
    become several, and twice their bytes are more than any normalisation makes of them.
    """
    size = len(text) if text.isascii() else 2 * len(unicodedata.normalize("NFKD", text).encode("utf-8", "replace"))
    return size + _SPECIAL_TOKENS > max_length


def batch_positions(texts: Sequence[str], batch_size: int) -> list[list[int]]:
    """Positions of ``texts`` cut into batches after sorting by (length in characters, text).

    Texts of similar length come together, so that few rows are filled up when they are cut into batches of one shape.
    """
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), texts[i]))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def padded_length(tokens: int, max_length: int) -> int:
    """Tokens of every row of the batch that a text belongs to: few different numbers, at most a quarter more.

    They are multiples of 8, from 64 on of 16, from 128 on of 32 and so on, but never more than ``max_length``.

    Args:
        tokens: of the text, cut at ``max_length``.
        max_length: what the model reads at most.
    """
    step = max(_LEAST_TOKENS, 1 << max(0, (tokens - 1).bit_length() - 3))
    return min(-(-tokens // step) * step, max_length)


def rows_of(length: int) -> int:
    """Rows of every batch of texts padded to ``length`` tokens, on a CPU: more are hardly faster, and one text alone
    costs as much as all of them."""
    return max(_LEAST_ROWS, min(_MOST_ROWS, _TOKENS_AT_ONCE // length))


class Encoder:
    """Texts to unit vectors with the model of an ``EncoderSpec``.

    Attributes:
        spec: its settings.
        encode_calls: texts put through the model so far.
    """

    def __init__(self, spec: EncoderSpec, known_hashes: Path | None = None) -> None:
        """Cheap: nothing is loaded. ``known_hashes`` is a file as in :func:`content_hash`."""
        self.spec = spec
        self.encode_calls = 0
        self._known_hashes = known_hashes

    @cached_property
    def model_fingerprint(self) -> dict[str, Any]:
        """See :func:`model_fingerprint`: what a cache of vectors must agree on."""
        return model_fingerprint(self.spec, self._known_hashes)

    def fingerprint(self) -> dict[str, Any]:
        """The model's fingerprint and both prefixes: what an index and its queries must agree on."""
        return {
            **self.model_fingerprint,
            "query_prefix": self.prefix("query"),
            "document_prefix": self.prefix("document"),
        }

    def prefix(self, role: Role) -> str:
        """The text put before every text of this role: what the spec says or, where it is silent, the model's files.

        Raises:
            EncoderError: the spec is silent, and the model's files cannot be read.
        """
        said = self.spec.document_prefix if role == "document" else self.spec.query_prefix
        return self._own_prompts[role] if said is None else said

    @cached_property
    def _own_prompts(self) -> dict[Role, str]:
        try:
            return own_prompts(find_model(self.spec))
        except EncoderError as error:
            told = 'encoder.query_prefix and encoder.document_prefix in the spec make it needless ("" for none)'
            raise type(error)(f"{error}; {told}") from error

    def token_counts(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """Tokens of each text with its prefix and the model's special tokens, before anything is cut off.

        Only the tokeniser is loaded, unless the model keeps none in a file of its own.

        Returns:
            int64 [n].

        Raises:
            EncoderError: the model's files cannot be read.
        """
        prefix = self.prefix(role)
        return np.array([len(ids) for ids in self._tokenised([prefix + text for text in texts])], dtype=np.int64)

    def _tokenised(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        if self._tokeniser is not None:
            return [encoding.ids for encoding in self._tokeniser.encode_batch(texts)]
        found = self._model.tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
        return [list(ids) for ids in found]

    @cached_property
    def _tokeniser(self) -> Any:
        """The model's tokeniser without torch; None where its files hold none of this kind."""
        from tokenizers import Tokenizer

        source = find_model(self.spec)
        modules = model_file(source, "modules.json")
        first = json.loads(modules.read_text(encoding="utf-8"))[0].get("path", "") if modules is not None else ""
        path = model_file(source, f"{first}/tokenizer.json" if first else "tokenizer.json")
        if path is None:
            return None
        tokeniser = Tokenizer.from_file(str(path))
        tokeniser.no_truncation()
        tokeniser.no_padding()
        return tokeniser

    def encode_documents(self, texts: Sequence[str], keys: Sequence[object] | None = None) -> np.ndarray:
        """Vectors of documents; see :meth:`encode`."""
        return self.encode(texts, "document", keys)

    def encode_queries(self, texts: Sequence[str], keys: Sequence[object] | None = None) -> np.ndarray:
        """Vectors of queries; see :meth:`encode`."""
        return self.encode(texts, "query", keys)

    def encode(self, texts: Sequence[str], role: Role, keys: Sequence[object] | None = None) -> np.ndarray:
        """Vectors of texts, L2-normalised.

        Args:
            texts: text [n]; none may be blank.
            role: decides the prefix.
            keys: names of the texts in error messages, such as node ids; default is their position.

        Returns:
            float32 [n, dim]; [0, 0] for no texts, in which case no model is loaded.

        Raises:
            ValueError: a text is blank.
            EncoderError: the model is unusable, or gave NaN, an infinity or a zero vector; the key is named.
        """
        keys = range(len(texts)) if keys is None else keys
        for key, text in zip(keys, texts, strict=True):
            if not text.strip():
                raise ValueError(f"text of {key!r} is blank: blank texts have no vector")
        prefix = self.prefix(role)
        given = [prefix + text for text in texts]
        vectors = np.empty((len(texts), 0), dtype=np.float32)
        batches = self._batches(given)
        for batch, rows in progress_bar(batches, what=f"encode {role}s", unit="batch"):
            raw = self._forward([given[i] for i in batch], rows)
            if not vectors.shape[1]:
                vectors = np.empty((len(texts), raw.shape[1]), dtype=np.float32)
            vectors[batch] = _unit_rows(raw, [keys[i] for i in batch])
        return vectors

    def _batches(self, texts: list[str]) -> list[tuple[list[int], int]]:
        """Positions of texts of one padded length, and how many rows their batch has, the shortest first."""
        by_length: dict[int, list[int]] = defaultdict(list)
        for i, tokens in enumerate(self._tokens_read(texts)):
            by_length[padded_length(tokens, self.spec.max_length)].append(i)
        cut = []
        for length, chosen in sorted(by_length.items()):
            rows = rows_of(length) if self._model.device.type == "cpu" else self.spec.batch_size
            cut += [(chosen[start : start + rows], rows) for start in range(0, len(chosen), rows)]
        return cut

    def _tokens_read(self, texts: list[str]) -> list[int]:
        """Tokens of each text as the model gets it, cut; 1 for models that do not pad, whose batches are all alike."""
        if not texts:
            return []
        tokenise = getattr(self._model, "preprocess", None) or self._model.tokenize  # its older name
        mask = tokenise(texts).get("attention_mask")
        return [1] * len(texts) if mask is None else mask.sum(dim=1).tolist()

    def _forward(self, texts: list[str], rows: int) -> np.ndarray:
        """Raw vectors of texts that belong to one batch of ``rows`` rows, filled up with one of them."""
        self.encode_calls += len(texts)
        filled = texts + texts[:1] * (rows - len(texts))
        # The empty prompt keeps the library from adding a default one that fingerprints do not know of.
        vectors = self._model.encode(filled, batch_size=rows, prompt="", show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(vectors[: len(texts)], dtype=np.float32)

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # loading takes no time worth a bar of its own
        source = find_model(self.spec)
        try:
            model = SentenceTransformer(str(source.folder or source.hub_id), revision=source.revision)
        except pickle.UnpicklingError as error:
            # Torch's own text advises to switch the safety off, so nothing of it is repeated but the class.
            wanted = re.search(r"GLOBAL (\S+)", str(error))
            told = f"want {wanted[1]}" if wanted else "hold something else than tensors"
            raise EncoderError(
                f"the weights of {self.spec.model!r} are refused, as they {told}; only tensors are read. Use a model "
                "whose weights are kept as safetensors, or save them anew where they come from"
            ) from None
        config = getattr(getattr(model[0], "auto_model", None), "config", None)
        positions = getattr(config, "max_position_embeddings", None)
        if positions is not None and self.spec.max_length > positions:
            raise EncoderError(
                f"max_length {self.spec.max_length} is more than the {positions} positions of {self.spec.model!r}"
            )
        if self.spec.pooling is not None:
            _set_pooling(model, self.spec)
        roles: tuple[Role, ...] = ("query", "document")
        if any(getattr(module, "include_prompt", True) is False for module in model) and any(map(self.prefix, roles)):
            raise EncoderError(
                f"{self.spec.model!r} leaves the prompt out when it pools, which is not supported: set "
                'encoder.query_prefix and encoder.document_prefix to ""'
            )
        model.max_seq_length = self.spec.max_length
        model[0].register_forward_pre_hook(partial(_pad, tokenizer=model.tokenizer, max_length=self.spec.max_length))
        return model


def _pad(_module: Any, arguments: tuple[Any, ...], *, tokenizer: Any, max_length: int) -> tuple[Any, ...] | None:
    """Pad a batch, which the library pads to its longest text, to its :func:`padded_length`: a hook before the model.

    Models that do not pad, such as those that look up words, are left as they are.
    """
    features, *others = arguments
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if ids is None or mask is None or ids.ndim != 2 or ids.shape != mask.shape:
        return None
    from torch.nn.functional import pad

    more = padded_length(ids.shape[1], max_length) - ids.shape[1]
    sides = (more, 0) if tokenizer.padding_side == "left" else (0, more)
    fillings = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
    padded = {
        name: pad(value, sides, value=fillings.get(name, 0)) if getattr(value, "shape", None) == ids.shape else value
        for name, value in features.items()
    }
    return (padded, *others)


def _set_pooling(model: Any, spec: EncoderSpec) -> None:
    """Pool as the spec says, whatever the model's files say. Later layers of the model stay.

    First and last tokens are those that are no padding, on either side: a text's vector does not depend on its batch.
    """
    # By name, since the module that holds the class has moved between versions, and so has the attribute below.
    places = [place for place, module in enumerate(model) if type(module).__name__ == "Pooling"]
    if len(places) != 1:
        raise EncoderError(f"pooling {spec.pooling!r} cannot be set: {spec.model!r} has {len(places)} pooling layers")
    old = model[places[0]]
    dimension = old.embedding_dimension if hasattr(old, "embedding_dimension") else old.word_embedding_dimension
    model[places[0]] = type(old)(dimension, pooling_mode=_POOLING_MODES[str(spec.pooling)])


def _unit_rows(vectors: np.ndarray, keys: Sequence[object]) -> np.ndarray:
    """Rows divided by their norms (float32); the one place where vectors are normalised."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(bad):
        what = "a zero vector" if norms[bad[0]] == 0 else "NaN or an infinity"
        raise EncoderError(f"the encoder gave {what} for {keys[bad[0]]!r} ({len(bad)} such texts in this batch)")
    return (vectors / norms[:, None]).astype(np.float32)
