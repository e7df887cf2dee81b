"""Where things lie: the home folder (``.skb``), the artefact store and the catalogue inside it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from skb_pipeline.errors import UserError

_DATASET_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_UNFIT = re.compile(r"[?\\\ud800-\udfff]|%[0-9A-Fa-f]{2}")
"""What the databases in the home folder read as something else than part of a path: DuckDB cuts a path at a question
mark and turns backslashes, Dagster's SQLite address has ``%20`` for a blank; and bytes that are no UTF-8."""


class UnsafeNameError(UserError, ValueError):
    """A name that may not become part of a path or a partition key."""


class HomeError(UserError, OSError):
    """The home folder cannot be used as it stands."""


def is_dataset_name(name: str) -> bool:
    """Whether :func:`check_dataset_name` lets a name pass."""
    return isinstance(name, str) and _DATASET_NAME.fullmatch(name) is not None


def check_dataset_name(name: str) -> str:
    """Return ``name`` if it matches ``[a-z0-9][a-z0-9_-]{0,39}``.

    Raises:
        UnsafeNameError: the name has other characters, is empty or longer than 40.
    """
    if not is_dataset_name(name):
        raise UnsafeNameError(
            f"dataset name {name!r} is not allowed: use 1 to 40 of a-z, 0-9, '_' and '-', "
            "starting with a letter or digit"
        )
    return name


def inside(root: Path, *parts: str) -> Path:
    """Join ``parts`` under ``root`` and return the path.

    Raises:
        UnsafeNameError: the resolved path would lie outside ``root``.
    """
    root = root.resolve()
    path = root.joinpath(*parts).resolve()
    if root != path and root not in path.parents:
        raise UnsafeNameError(f"{'/'.join(parts)!r} leads outside {root}")
    return path


def project_root() -> Path | None:
    """The checkout this package runs from, or None when it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "dagster.yaml").is_file() else None


def skb_home() -> Path:
    """The folder that holds Dagster's home and all artefacts: ``$SKB_HOME``, else ``.skb`` in the project.

    Raises:
        HomeError: it is a file, or its path has characters that databases read as something else.
    """
    configured = os.environ.get("SKB_HOME")
    try:
        home = Path(configured).expanduser().resolve() if configured else (project_root() or Path.cwd()) / ".skb"
    except RuntimeError as error:
        raise HomeError(f"the home folder (SKB_HOME) cannot be '{configured}': {error}") from error
    unfit = _UNFIT.search(str(home))
    if unfit:
        raise HomeError(
            f"the home folder (SKB_HOME) cannot be '{home}': databases do not take '{unfit.group()}' in a path; "
            "use a folder without it"
        )
    if home.is_file():
        raise HomeError(f"the home folder (SKB_HOME) cannot be '{home}': that is a file")
    return home


def home_fault(error: OSError, *, making: bool = False) -> HomeError | None:
    """One sentence on a file or folder of the home that could not be made, written or read; None for other places.

    Args:
        error: as raised.
        making: the home was being made, so that folders above it count too.
    """
    if isinstance(error, HomeError):
        return error
    place, home = str(error.filename or ""), str(skb_home())
    if not making and place != home and not place.startswith(home + os.sep):
        return None
    return HomeError(f"the home folder '{home}' cannot be used: {place}: {error.strerror}; SKB_HOME names another one")
