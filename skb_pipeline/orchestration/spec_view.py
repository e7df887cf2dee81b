"""A spec that shows declared sections only, so that a forgotten one is an error and never a stale artefact."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skb_pipeline.datasets.spec import ALWAYS, DatasetSpec


class UndeclaredSectionError(RuntimeError):
    """A step read a section of the spec that it does not declare."""


class _DeclaredSpec(DatasetSpec):
    """A ``DatasetSpec`` with some sections taken out."""

    def __getattr__(self, name: str) -> Any:
        if name in DatasetSpec.model_fields:
            raise UndeclaredSectionError(
                f"{self.__dict__['_asset']} reads the section {name!r} of the spec without declaring it"
            )
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def stark_compat(self) -> bool:
        """See ``DatasetSpec``; the section ``documents`` tells it too."""
        return bool(self.__dict__["_stark_compat"])


def declared_spec(spec: DatasetSpec, sections: Iterable[str], asset: str) -> DatasetSpec:
    """``spec`` with the named sections.

    Args:
        spec: the whole.
        sections: names of top-level sections.
        asset: who declares them, for the message.

    Raises:
        ValueError: there is no such section.
    """
    wanted = ALWAYS | set(sections)
    unknown = wanted - set(DatasetSpec.model_fields)
    if unknown:
        raise ValueError(f"{asset} declares sections that no spec has: {sorted(unknown)}")
    view = _DeclaredSpec.model_construct()
    shown = {name: value for name, value in spec.__dict__.items() if name in wanted}
    object.__setattr__(view, "__dict__", {**shown, "_asset": asset, "_stark_compat": spec.stark_compat})
    return view
