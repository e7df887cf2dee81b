"""Source adapters by name. An adapter is a class with a pydantic model ``Args``; see ``datasets.records``."""

from __future__ import annotations

from pydantic import ValidationError

from skb_pipeline.datasets.loading import SpecError
from skb_pipeline.datasets.records import SourceAdapter
from skb_pipeline.datasets.sources.hpo import HpoSource
from skb_pipeline.datasets.sources.stark import StarkSource
from skb_pipeline.datasets.sources.tables import TablesSource
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import unknown_name

ADAPTERS: dict[str, type[HpoSource] | type[StarkSource] | type[TablesSource]] = {
    "hpo": HpoSource,
    "stark": StarkSource,
    "tables": TablesSource,
}


def open_source(spec: DatasetSpec) -> SourceAdapter:
    """The adapter a spec names, with its arguments checked. Reads no file yet.

    Raises:
        SpecError: unknown adapter, or arguments it does not take.
    """
    adapter = ADAPTERS.get(spec.source.adapter)
    if adapter is None:
        named = spec.source.adapter
        raise SpecError(unknown_name(f"dataset {spec.name!r}: source.adapter: {named!r} is unknown", named, ADAPTERS))
    try:
        args = adapter.Args.model_validate(spec.source.args)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SpecError(f"dataset {spec.name!r}: source.args: {faults}") from error
    return adapter(args)  # type: ignore[arg-type]
