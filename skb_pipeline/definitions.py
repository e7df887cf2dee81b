"""The code location: ``defs`` for Dagster, ``build_defs`` for tests and special builds."""

from skb_pipeline.orchestration.build import build_defs

__all__ = ["build_defs", "defs"]

defs = build_defs()
