"""The catalogue: built-in specs plus the YAML files a user puts into the catalogue folder.

The folder is ``$SKB_CATALOGUE`` when set, else ``catalogue/`` in the home folder (``.skb``). A user's file named
like a built-in dataset replaces it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from skb_pipeline.datasets.loading import SpecError, load_spec
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UnknownNameError, unknown_name
from skb_pipeline.storage.paths import UnsafeNameError, check_dataset_name, skb_home

_LOG = logging.getLogger(__name__)
_BUILTIN = Path(__file__).parent / "builtin"


class UnknownDatasetError(UnknownNameError):
    """No spec has this name."""


def catalogue_folder() -> Path:
    """The folder searched for the user's own specs; it need not exist."""
    configured = os.environ.get("SKB_CATALOGUE")
    return Path(configured).expanduser() if configured else skb_home() / "catalogue"


def spec_files() -> dict[str, Path]:
    """Dataset name -> spec file, sorted by name. The name is the file's name without ``.yaml``.

    A file whose name is not an allowed dataset name is left out with a warning.
    """
    found: dict[str, Path] = {}
    for folder in (_BUILTIN, catalogue_folder()):
        for path in sorted(folder.glob("*.yaml")):
            try:
                found[check_dataset_name(path.stem)] = path
            except UnsafeNameError as error:
                _LOG.warning("%s is no dataset: %s", path, error)
    return dict(sorted(found.items()))


def get_spec(name: str) -> DatasetSpec:
    """Load the spec of one dataset.

    Raises:
        UnknownDatasetError: there is no such dataset; the message lists those there are.
        SpecError: its file is faulty, or its ``name`` differs from the file's name.
    """
    files = spec_files()
    if name not in files:
        raise UnknownDatasetError(unknown_name(f"unknown dataset {name!r}", name, files))
    spec = load_spec(files[name])
    if spec.name != name:
        raise SpecError(f"{files[name]}:1: name: is {spec.name!r} but the file is called {files[name].name!r}")
    return spec
