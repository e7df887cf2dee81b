"""The package ``stark-qa`` as a peer of ``documents.py``: its own constructors and its own ``get_doc_info``.

The SKB is written as STaRK's files, with every edge in both directions. The package's own way to add the other
direction merges edges of two relations between the same nodes and is therefore switched off: documents could not be
equal.

Packages that ``stark-qa`` imports only for downloads, raw data and other models need not be installed; a name from
one of them fails when it is called, not when it is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np

from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.sources.stark.writing import write_stark

_UNUSED = (
    "bs4", "gdown", "langchain.text_splitter", "langdetect", "nltk.corpus", "ogb.nodeproppred", "ogb.utils.url",
    "tdc.resource", "torch_geometric.utils.num_nodes",
)  # fmt: skip
_CLASSES: dict[Flavour, str] = {"amazon": "AmazonSKB", "mag": "MagSKB", "prime": "PrimeSKB"}


def find_package(folder: Path | None) -> Path | None:
    """The package's folder: below ``folder``, else where it is installed; None if it is not.

    Raises:
        FileNotFoundError: ``folder`` does not hold it.
    """
    if folder is not None:
        if not (folder / "stark_qa" / "skb").is_dir():
            raise FileNotFoundError(f"no package stark_qa in {folder}")
        return folder / "stark_qa"
    spec = importlib.util.find_spec("stark_qa")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def write_files(con: duckdb.DuckDBPyConnection, folder: Path, flavour: Flavour) -> None:
    """STaRK's files of an SKB in ``folder``, edges in both directions."""
    import torch

    write_stark(con, folder, flavour)
    place = folder / "skb" / flavour / "processed" / (layout.AMAZON_CACHE if flavour == "amazon" else "")
    index, types = (torch.load(place / name) for name in (layout.EDGE_INDEX, layout.EDGE_TYPES))
    if flavour != "prime":  # whose files have both directions anyhow
        torch.save(torch.cat([index, index.flip(0)], dim=1), place / layout.EDGE_INDEX)
        torch.save(torch.cat([types, types]), place / layout.EDGE_TYPES)
    (folder / "skb" / flavour / "schema").mkdir(exist_ok=True)  # else the package downloads it


def open_peer(package: Path, folder: Path, flavour: Flavour) -> Any:
    """The package's SKB over the files of :func:`write_files`."""
    if "stark_qa" not in sys.modules:
        for name in _UNUSED:
            _stand_in(name)
        # Without the package's __init__, which imports all its models.
        root = ModuleType("stark_qa")
        root.__path__ = [str(package)]
        sys.modules["stark_qa"] = root
    classes = importlib.import_module("stark_qa.skb")
    with redirect_stdout(StringIO()):
        return getattr(classes, _CLASSES[flavour])(
            root=str(folder / "skb" / flavour), download_processed=False, indirected=False
        )


def documents(skb: Any, node_ids: np.ndarray, relations: bool) -> list[str]:
    """Documents of the nodes, as the package's own scripts make them: one call per node."""
    return [skb.get_doc_info(int(i), add_rel=relations) for i in node_ids]


def _stand_in(name: str) -> None:
    """Empty modules for ``name`` and the packages above it, where the outermost is not installed."""
    parts = name.split(".")
    if parts[0] not in sys.modules and importlib.util.find_spec(parts[0]) is not None:
        return
    for end in range(1, len(parts) + 1):
        full = ".".join(parts[:end])
        if full not in sys.modules:
            module = ModuleType(full)
            module.__path__ = []
            module.__getattr__ = lambda attribute: None  # type: ignore[method-assign]
            sys.modules[full] = module
