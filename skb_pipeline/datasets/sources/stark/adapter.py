"""Adapter ``stark``: STaRK's Amazon, MAG and Prime from their processed files.

Node ids are STaRK's own numbers. Edges keep their relation: two products joined by also_buy and by also_view have two
edges, where STaRK's loader leaves one (see :class:`StarkArgs`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from skb_pipeline.datasets.records import RAW_EDGE_SCHEMA, RawNode, RawQuery, SourceError
from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.compat import is_symmetric, merge_pairs
from skb_pipeline.datasets.sources.stark.hub import download
from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.sources.stark.questions import QuestionFiles, find_questions, read_questions
from skb_pipeline.datasets.sources.stark.reading import Graph, Structure, find_graph, read_structure
from skb_pipeline.datasets.sources.stark.unpickling import iterate_dict
from skb_pipeline.storage.paths import skb_home

VERSION = "2"


_EDGE_BATCH = 500_000


class StarkArgs(BaseModel):
    """Arguments in ``source.args``.

    Attributes:
        flavour: which data set.
        folder: folder with STaRK's files, laid out as on the hub (``skb/FLAVOUR/processed``, ``qa/FLAVOUR``);
            environment variables are filled in. Default: ``$STARK_DATA``, else ``stark`` in the home folder.
        revision: of the hub repository, for the download of what is not there.
        stark_compat: join nodes as STaRK's loader does, for comparison with published numbers: edges between the same
            two nodes become one, whose relation is the mean of their codes, cut to an integer. Relations get lost.
        questions: which kinds to use.
        test_sample: of the synthesized test questions only STaRK's fixed tenth.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    flavour: Flavour
    folder: str | None = None
    revision: str = "main"
    stark_compat: bool = False
    questions: tuple[Literal["synthesized", "human"], ...] = Field(default=("synthesized", "human"), min_length=1)
    test_sample: bool = False


class StarkSource:
    """Adapter ``stark``."""

    Args = StarkArgs
    own_ids = True

    def __init__(self, args: StarkArgs) -> None:
        self.args = args
        self.out_of_scope: Counter[str] = Counter()

    @property
    def folder(self) -> Path:
        """Where the files are, or are downloaded to.

        Raises:
            FileNotFoundError: the argument names an environment variable that is not set.
        """
        text = os.path.expandvars(self.args.folder or os.environ.get("STARK_DATA") or str(skb_home() / "stark"))
        if "$" in text:
            raise FileNotFoundError(f"source.args.folder: {text!r} names an environment variable that is not set")
        return Path(text).expanduser()

    def fetch(self) -> None:
        """Download what is not on disk. With graph and questions there, the hub is never contacted."""
        try:
            find_graph(self.folder, self.args.flavour)
            absent = find_questions(self.folder, self.args.flavour) is None
        except FileNotFoundError:
            absent = True
        if absent:
            download(self.folder, self.args.flavour, self.args.revision)

    def files(self) -> list[Path]:
        """Files of the graph (or the zip that holds them) and of the questions."""
        try:
            questions = self._questions
            return [*self._graph.paths, *(questions.paths if questions is not None else [])]
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error}. A run downloads it from the hub ({layout.HUB_REPOSITORY}); to use a copy, set "
                "source.args.folder or the environment variable STARK_DATA"
            ) from error

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know about the graph."""
        notes = []
        if self.args.flavour == "amazon":
            if self._graph.inside == layout.AMAZON_CACHE:
                notes.append(f"graph of {layout.AMAZON_CACHE}: products with brands, categories and colours")
            else:
                notes.append(
                    f"base graph: products, also_buy and also_view only. {layout.AMAZON_CACHE}, which has brands, "
                    "categories and colours, was not found; published numbers are not about this graph"
                )
        if self.args.stark_compat:
            notes.append("stark_compat: edges between the same nodes merged as in STaRK's loader; relations are lost")
        return notes

    def nodes(self) -> Iterator[RawNode]:
        """Every node of ``node_info``, in its order.

        Raises:
            SourceError: a file is refused or damaged, or an entry is no dict.
        """
        with self._graph.file(layout.NODE_INFO) as path:
            for row, (number, info) in enumerate(iterate_dict(path), start=1):
                if not isinstance(info, dict):
                    raise SourceError(f"{path.name}: entry {number!r} is no dict but {type(info).__name__}")
                node_type = self._type_of(number)
                if node_type is not None and info.get("type", node_type) != node_type:
                    raise SourceError(
                        f"{path.name}: entry {number!r} is of type {info['type']!r}, "
                        f"but {layout.NODE_TYPES} says {node_type!r}"
                    )
                yield RawNode(path.name, row, node_type, str(number), _FIELDS[self.args.flavour](info, node_type))

    def edges(self) -> Iterator[pa.RecordBatch]:
        """Every edge. Of Prime, where each stands in both directions, both rows are turned the same way, so that
        ingest drops one as a duplicate. With stark_compat one for each pair of nodes.
        """
        structure = self._structure
        (heads, tails), relations = structure.edge_index, structure.edge_types
        rows = np.arange(len(relations))
        if self.args.stark_compat and not is_symmetric(heads, tails):
            rows, relations = merge_pairs(heads, tails, relations)
            self.out_of_scope["edges merged into another of the same nodes (stark_compat)"] = len(heads) - len(rows)
        type_names, relation_names = _Names(structure.type_names), _Names(structure.relation_names)
        for start in range(0, len(rows), _EDGE_BATCH):
            part = rows[start : start + _EDGE_BATCH]
            head, tail = heads[part], tails[part]
            head_type, tail_type = structure.codes_of(head), structure.codes_of(tail)
            if self.args.flavour == "prime":
                turned = _is_backward(structure.type_names, head_type, tail_type)
                head, tail = np.where(turned, tail, head), np.where(turned, head, tail)
                head_type, tail_type = np.where(turned, tail_type, head_type), np.where(turned, head_type, tail_type)
            columns = [
                pa.repeat(pa.scalar(layout.EDGE_INDEX), len(part)),
                pa.array(part + 1),
                type_names.of(head_type),
                pc.cast(pa.array(head), pa.string()),
                relation_names.of(relations[start : start + _EDGE_BATCH]),
                type_names.of(tail_type),
                pc.cast(pa.array(tail), pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=RAW_EDGE_SCHEMA)

    def queries(self) -> Iterator[RawQuery] | None:
        """STaRK's questions; None when there are none on disk. ``template`` is their kind."""
        if self._questions is None:
            return None
        return read_questions(
            self._questions,
            kinds=self.args.questions,
            test_sample=self.args.test_sample,
            out_of_scope=self.out_of_scope,
        )

    @cached_property
    def _graph(self) -> Graph:
        return find_graph(self.folder, self.args.flavour)

    @cached_property
    def _questions(self) -> QuestionFiles | None:
        return find_questions(self.folder, self.args.flavour)

    @cached_property
    def _structure(self) -> Structure:
        return read_structure(self._graph, self.args.flavour)

    def _type_of(self, number: object) -> str | None:
        """Type of a node; None where the tensor has no entry for it."""
        types, names = self._structure.node_types, self._structure.type_names
        if types is None:
            return names[0]
        if not isinstance(number, int) or not 0 <= number < len(types):
            return None
        return names.get(int(types[number]))


class _Names:
    """Codes to names, many at a time; a code without a name gives null."""

    def __init__(self, names: dict[int, str]) -> None:
        self._codes = np.array(sorted(names), dtype=np.int64)
        self._names = pa.array([names[code] for code in sorted(names)], type=pa.string())

    def of(self, codes: np.ndarray) -> pa.Array:
        """Names (Arrow strings) of codes (int64)."""
        at = np.searchsorted(self._codes, codes)
        known = at < len(self._codes)
        known[known] = self._codes[at[known]] == codes[known]
        return self._names.take(pa.array(at, mask=~known))


def _is_backward(type_names: dict[int, str], head_types: np.ndarray, tail_types: np.ndarray) -> np.ndarray:
    """Which edges (bool) run against ``PRIME_DIRECTION``. Types that are not in it are left as they stand."""
    places = {
        code: layout.PRIME_DIRECTION.index(name) for code, name in type_names.items() if name in layout.PRIME_DIRECTION
    }
    place = np.full(max(type_names, default=-1) + 2, -1, dtype=np.int64)  # the last entry is that of code -1
    place[list(places)] = list(places.values())
    heads, tails = place[head_types], place[tail_types]
    return (tails >= 0) & (heads > tails)


def _amazon_fields(info: dict[Any, Any], node_type: str | None) -> dict[str, Any]:
    """As stored, features and description as lists: a single text there would be read letter by letter."""
    single = {key: [info[key]] for key in ("feature", "description") if isinstance(info.get(key), str) and info[key]}
    return {**info, **single} if single else info


def _mag_fields(info: dict[Any, Any], node_type: str | None) -> dict[str, Any]:
    """Without what is missing, which MAG writes as -1, "-1" or NaN, and without its other numbers and the type."""
    return {k: v for k, v in info.items() if k not in ("type", "id", "new_id") and v not in (-1, "-1") and v == v}


def _prime_fields(info: dict[Any, Any], node_type: str | None) -> dict[str, Any]:
    """As stored, without the type. Other names of a gene are repeated as ``aliases``."""
    fields = {k: v for k, v in info.items() if k != "type"}
    details = info.get("details")
    if node_type == "gene/protein" and isinstance(details, dict) and details.get("alias"):
        fields["aliases"] = details["alias"]
    return fields


_FIELDS = {"amazon": _amazon_fields, "mag": _mag_fields, "prime": _prime_fields}
