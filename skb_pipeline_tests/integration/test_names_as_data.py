"""Names that look like syntax go through the whole graph branch as what they are: no condition is lost on the way."""

from pathlib import Path

import numpy as np
import pytest

from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.sql import execute_sql
from skb_pipeline.planning.rules.planner import RulesPlanner
from skb_pipeline.plans.plan import PlanStatus
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import Edge, ListSource, toy_spec

BRANDS = ["Levi's", "Coleman (USA)", 'O"Neill', "`tick`", "A\\B Corp", "Ben & Jerry's", "{acme}"]


@pytest.mark.parametrize("name", BRANDS)
def test_the_condition_on_a_brand_is_kept(tmp_path: Path, name: str) -> None:
    spec = toy_spec(candidates=["product"])
    nodes = [("brand", str(i), {"name": brand}) for i, brand in enumerate(BRANDS)]
    nodes += [("product", str(i), {"title": f"Thing {i}"}) for i in range(len(BRANDS))]
    edges: list[Edge] = [("product", str(i), "has_brand", "brand", str(i)) for i in range(len(BRANDS))]
    ingest(spec, ListSource(nodes, edges), tmp_path / "s.duckdb")
    schema = GraphSchema.from_spec(spec)
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        planned = RulesPlanner(con, spec).plan(f"Which product has the brand {name}?")
        assert planned.validated.status is PlanStatus.VALID, planned.explanation
        assert planned.validated.dropped == []
        plan = planned.validated.plan
        assert plan is not None
        (mention,) = planned.mentions
        (anchor,) = plan.anchors
        bindings = {anchor.var: (mention.nodes["brand"], np.ones(len(mention.nodes["brand"])))}
        results = [
            execute_sql(con, plan, schema, bindings),
            MemoryExecutor(CsrGraph.from_skb(con), schema).execute(plan, bindings),
        ]
        for result in results:
            names = con.execute(
                "SELECT name FROM nodes WHERE list_contains(?, node_id)", [result.node_ids.tolist()]
            ).fetchall()
            assert names == [(f"Thing {BRANDS.index(name)}",)]
