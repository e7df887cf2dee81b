"""A processed graph on disk: where its files are (folder or zip), its tensors and its dicts of names."""

from __future__ import annotations

import pickle
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.sources.stark.unpickling import foreign_class, load_pickle


@dataclass(frozen=True)
class Graph:
    """Files of one processed graph.

    Attributes:
        at: the folder ``processed``, or the zip file that holds it.
        inside: path of the graph's files in it, such as ``cache/brand-category-color``.
        names: file names that are there.
    """

    at: Path
    inside: str
    names: tuple[str, ...]

    @property
    def paths(self) -> list[Path]:
        """The files on disk: those of the folder, or the zip."""
        return [self.at] if self.at.is_file() else [self.at / self.inside / name for name in self.names]

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """A path from which the file can be read; out of a zip a temporary copy is made."""
        if not self.at.is_file():
            yield self.at / self.inside / name
            return
        with zipfile.ZipFile(self.at) as archive, tempfile.TemporaryDirectory(prefix="stark-") as folder:
            member = str(PurePosixPath("processed", self.inside, name))
            copy = Path(folder) / name
            try:
                with archive.open(member) as source, copy.open("wb") as target:
                    while block := source.read(1 << 24):
                        target.write(block)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise SourceError(f"{self.at.name}: {member} is damaged ({error}); was it copied whole?") from error
            yield copy


def find_graph(folder: Path, flavour: Flavour) -> Graph:
    """The processed graph below ``folder``: ``skb/FLAVOUR/processed`` (as on the hub), ``FLAVOUR/processed`` or
    ``processed``, as a folder or as ``processed.zip``. Of Amazon's two graphs the one with brands, categories and
    colours is preferred.

    Raises:
        FileNotFoundError: there is none, or it lacks files.
        SourceError: the zip file is damaged.
    """
    places = [folder / "skb" / flavour, folder / flavour, folder]
    for place in places:
        for at in (place / "processed", place / "processed.zip"):
            if at.exists():
                return _graph_at(at, flavour)
    tried = ", ".join(str(place / "processed[.zip]") for place in places)
    raise FileNotFoundError(f"no processed STaRK graph {flavour!r}; looked for {tried}")


def _graph_at(at: Path, flavour: Flavour) -> Graph:
    wanted = layout.files_of(flavour)
    insides = [layout.AMAZON_CACHE, ""] if flavour == "amazon" else [""]
    present = _listed(at)
    for inside in insides:
        prefix = f"{inside}/" if inside else ""
        names = tuple(name for name in wanted if prefix + name in present)
        if layout.NODE_INFO not in names:
            continue
        # Amazon's base graph has products only, and no file says so.
        needed = set(wanted) - (
            {layout.NODE_TYPES, layout.NODE_TYPE_DICT} if len(insides) == 2 and not inside else set()
        )
        missing = sorted(needed - set(names))
        if missing:
            raise FileNotFoundError(f"{at / inside} lacks {', '.join(missing)}")
        return Graph(at, inside, names)
    raise FileNotFoundError(f"{at} holds no {layout.NODE_INFO}")


def _listed(at: Path) -> set[str]:
    """Paths of files in a folder or zip, relative to ``processed``."""
    if at.is_dir():
        return {path.relative_to(at).as_posix() for path in at.rglob("*") if path.is_file()}
    try:
        with zipfile.ZipFile(at) as archive:
            return {name.removeprefix("processed/") for name in archive.namelist() if name.startswith("processed/")}
    except zipfile.BadZipFile as error:
        raise SourceError(f"{at.name}: is no zip file ({error}); was its download cut short?") from error


def read_tensor(path: Path, *, dimensions: int) -> np.ndarray:
    """A tensor of integers as int64 array; nothing but tensors is unpickled.

    Raises:
        SourceError: refused (it holds objects of other classes; the first is named), damaged, or of another form.
    """
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the protocol of what is refused anyway
            tensor = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch raises on damaged input
        # Torch's own text advises to switch the safety off, so nothing of it is repeated.
        wanted = foreign_class(path)
        if wanted is not None:
            raise SourceError(
                f"{path.name}: refused, as it wants {wanted}; only tensors are read. {_save_again(path)}"
            ) from None
        if isinstance(error, pickle.UnpicklingError):
            reason = "it holds something else than a tensor that torch.save wrote, or is damaged"
        else:
            reason = f"it is damaged ({type(error).__name__})"
        raise SourceError(f"{path.name}: cannot be read as a tensor: {reason}. {_save_again(path)}") from None
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != dimensions or tensor.is_sparse:
        raise SourceError(f"{path.name}: a tensor of {dimensions} dimensions was expected, not {_described(tensor)}")
    values = tensor.numpy()
    if values.dtype.kind not in "iu" and not (values == np.floor(values)).all():
        raise SourceError(f"{path.name}: whole numbers were expected, not {values.dtype}")
    return values.astype(np.int64, copy=False)


def _save_again(path: Path) -> str:
    return f"Where the file comes from, save its numbers anew: torch.save(torch.as_tensor(numbers), {path.name!r})"


def _described(value: object) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {list(shape)}" if shape is not None else "")


def read_names(path: Path) -> dict[int, str]:
    """A dict from code to name.

    Raises:
        SourceError: it is something else.
    """
    found = load_pickle(path)
    if not isinstance(found, dict) or not all(isinstance(k, int) and isinstance(v, str) for k, v in found.items()):
        raise SourceError(f"{path.name}: a dict from codes to names was expected")
    return found


@dataclass(frozen=True)
class Structure:
    """Everything but the texts of a graph.

    Attributes:
        node_types: int64 [nodes], codes; None where every node has code 0 (Amazon's base graph).
        edge_index: int64 [2, edges], heads and tails by node number.
        edge_types: int64 [edges], codes.
        type_names, relation_names: code -> name.
    """

    node_types: np.ndarray | None
    edge_index: np.ndarray
    edge_types: np.ndarray
    type_names: dict[int, str]
    relation_names: dict[int, str]

    def codes_of(self, numbers: np.ndarray) -> np.ndarray:
        """Type codes (int64) of nodes; -1 for a number the tensor has no entry for."""
        if self.node_types is None:
            return np.zeros(len(numbers), dtype=np.int64)
        known = (numbers >= 0) & (numbers < len(self.node_types))
        codes = np.full(len(numbers), -1, dtype=np.int64)
        codes[known] = self.node_types[numbers[known]]
        return codes


def read_structure(graph: Graph, flavour: Flavour) -> Structure:
    """Tensors and names of a graph.

    Raises:
        SourceError: a file is refused or damaged, or the tensors do not fit together.
    """

    def tensor(name: str, dimensions: int) -> np.ndarray:
        with graph.file(name) as path:
            return read_tensor(path, dimensions=dimensions)

    def names(name: str, known: tuple[str, ...]) -> dict[int, str]:
        if name not in graph.names:
            return dict(enumerate(known))
        with graph.file(name) as path:
            return read_names(path)

    index, types = tensor(layout.EDGE_INDEX, 2), tensor(layout.EDGE_TYPES, 1)
    if index.shape != (2, len(types)):
        raise SourceError(f"{layout.EDGE_INDEX} has shape {list(index.shape)} for {len(types)} {layout.EDGE_TYPES}")
    return Structure(
        node_types=tensor(layout.NODE_TYPES, 1) if layout.NODE_TYPES in graph.names else None,
        edge_index=index,
        edge_types=types,
        type_names=names(layout.NODE_TYPE_DICT, layout.TYPES[flavour]),
        relation_names=names(layout.EDGE_TYPE_DICT, layout.RELATIONS[flavour]),
    )
