"""Your own tables: nodes, edges and (optionally) questions from Parquet, CSV and JSONL files.

``arguments`` says what a spec may state, ``reading`` turns files into rows and columns, ``adapter`` makes nodes, edges
and questions of them.
"""

from skb_pipeline.datasets.sources.tables.adapter import TablesSource
from skb_pipeline.datasets.sources.tables.arguments import TablesArgs

__all__ = ["TablesArgs", "TablesSource"]
