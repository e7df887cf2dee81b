"""The spec's section ``evaluation``."""

from __future__ import annotations

from pydantic import Field

from skb_pipeline.section import Section


class EvaluationSpec(Section):
    """Bootstrap settings of the metric table."""

    bootstrap_samples: int = Field(default=2000, ge=100)
    seed: int = 20
