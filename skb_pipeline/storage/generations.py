"""Generations: of each dataset the newest complete set of versions that fit each other, with what they were made by.

Versions of artefacts are switched one by one while a run goes on, and the spec is edited before it starts. Readers
therefore use the versions that one file names, ``generation.json`` in the dataset's folder of the store. It is replaced
in one step when a run has made a whole new set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from skb_pipeline.storage import atomic

GENERATION = "generation.json"
_FORM = 1


@dataclass(frozen=True)
class Generation:
    """One complete set.

    Attributes:
        dataset: whose.
        versions: asset -> name of the folder of its version.
        data_versions: asset -> data version.
        spec: the dataset's spec that they were made by, as plain JSON values.
        systems: system -> its settings when it was made; those that were not made are not in it.
        files: path, size in bytes and modification time in ns of each source file as it was read; a time of None where
            a file was changed meanwhile. None where it is not known.
        run_id: the run that made the last of it.
        created: when it was complete, ISO 8601.
    """

    dataset: str
    versions: Mapping[str, str]
    data_versions: Mapping[str, str]
    spec: Mapping[str, Any]
    systems: Mapping[str, Mapping[str, Any]]
    files: Sequence[Sequence[Any]] | None
    run_id: str | None
    created: str

    @classmethod
    def read(cls, path: Path, dataset: str) -> Self | None:
        """The generation that a file names; None if there is no file, or one of another form."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            found = cls(**told["generation"]) if told["form"] == _FORM else None
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
            return None
        return found if found is not None and found.dataset == dataset else None

    def write(self, path: Path) -> bool:
        """Replace the file in one step, unless it says the same already; whether it was replaced.

        Raises:
            OSError: the place cannot be written.
        """
        old = self.read(path, self.dataset)
        if old is not None and old._content() == json.loads(json.dumps(self._content())):
            return False
        atomic.write_json(path, {"form": _FORM, "generation": asdict(self)})
        return True

    def _content(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("run_id", "created")}
