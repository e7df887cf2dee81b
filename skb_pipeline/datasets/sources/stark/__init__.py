"""STaRK's own files (Wu et al., "STaRK: Benchmarking LLM Retrieval on Textual and Relational Knowledge Bases", 2024).

``adapter`` reads them, ``writing`` and ``synthetic`` write the same format, ``layout`` says where everything lies.
"""

from skb_pipeline.datasets.sources.stark.adapter import StarkArgs, StarkSource

__all__ = ["StarkArgs", "StarkSource"]
