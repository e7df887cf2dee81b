"""Where things lie: the home folder (``.skb``), the artefact store and the catalogue inside it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from skb_pipeline.errors import UserError

_DATASET_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class UnsafeNameError(UserError, ValueError):
    """A name that may not become part of a path or a partition key."""


def check_dataset_name(name: str) -> str:
    """Return ``name`` if it matches ``[a-z0-9][a-z0-9_-]{0,39}``.

    Raises:
        UnsafeNameError: the name has other characters, is empty or longer than 40.
    """
    if not isinstance(name, str) or not _DATASET_NAME.fullmatch(name):
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
    """The folder that holds Dagster's home and all artefacts: ``$SKB_HOME``, else ``.skb`` in the project."""
    configured = os.environ.get("SKB_HOME")
    if configured:
        return Path(configured).expanduser().resolve()
    return (project_root() or Path.cwd()) / ".skb"
