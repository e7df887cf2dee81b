"""Stage ``evaluation``: metrics per question and system, and the table people read."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.evaluation.metrics import METRICS, evaluate_ranking
from skb_pipeline.evaluation.plan_quality import causes_table, judge_plans, plan_quality_markdown, plan_quality_table
from skb_pipeline.evaluation.plan_risk import risk_markdown, risk_plot, risk_table
from skb_pipeline.evaluation.tables import difference_table, markdown_rows, markdown_table, metric_table, write_duckdb
from skb_pipeline.evaluation.traces import TRACES_SCHEMA, build_traces
from skb_pipeline.graph.branch import branch_hits, outcomes_frame
from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.assets.ranking import PLANS, graph_hits_for_fusion, plans_of
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.planning.frames import validated_plans
from skb_pipeline.skb.store import node_table
from skb_pipeline.storage.artifacts import Draft, stable_hash
from skb_pipeline.storage.duck import connect, frame_hash, write_tables
from skb_pipeline.storage.frames import read_frame, write_frame
from skb_pipeline.workspace import (
    METRICS_FILE,
    OUTCOMES_FILE,
    PLAN_QUALITY_FILE,
    PLANS_FILE,
    QUERIES_FILE,
    QUERY_METRICS_FILE,
    RANKING_FILE,
    SKB_FILE,
    TRACES_FILE,
)

CODE_VERSION = "3"
SYSTEMS = ("bm25", "dense", "graph", "fused")
"""Rankings that are evaluated, in the order of the table."""
_QUERY_METRICS_SCHEMA = pa.schema(
    [("query_id", pa.string()), ("split", pa.string()), *[(m, pa.float64()) for m in METRICS],
     ("n_answers", pa.int64()), ("n_hits_listed", pa.int64())]
)  # fmt: skip


def _query_metrics_asset(system: str) -> dg.AssetsDefinition:
    ranking = f"ranking/{system}"

    @pipeline_asset(
        f"evaluation/query_metrics_{system}",
        deps=[ranking, "questions/queries", "skb/store"],
        code_version=CODE_VERSION,
        kinds={"parquet"},
        description=f"Hit@1, Hit@5, Recall@20 and MRR of every question under the ranking `{system}`.",
    )
    def query_metrics_of_system(
        context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig
    ) -> dg.MaterializeResult:
        step = Step(
            context, workspace, config, code_version=CODE_VERSION,
            inputs=[ranking, "questions/queries", "skb/store"], sections=["retrieval"],
        )  # fmt: skip

        def build(draft: Draft) -> None:
            queries = read_frame(step.input("questions/queries").file(QUERIES_FILE))
            with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
                known = con.execute("SELECT node_id FROM nodes").fetchnumpy()["node_id"]
            frame, report = evaluate_ranking(
                read_frame(step.input(ranking).file(RANKING_FILE)), queries, known_node_ids=known
            )
            write_frame(
                draft.path / QUERY_METRICS_FILE, types.check_frame(types.QUERY_METRICS, frame), _QUERY_METRICS_SCHEMA
            )
            means = {f"test {m}": round(float(frame.loc[frame["split"] == "test", m].mean()), 4) for m in METRICS}
            draft.finish(frame_hash(frame), {"dagster/row_count": len(frame), **means, **report.as_metadata()})

        return step.run(build)

    return query_metrics_of_system


query_metrics_assets = [_query_metrics_asset(system) for system in SYSTEMS]
_PER_SYSTEM = {system: f"evaluation/query_metrics_{system}" for system in SYSTEMS}


@pipeline_asset(
    "evaluation/metrics",
    deps=[*_PER_SYSTEM.values(), "questions/queries"],
    code_version=CODE_VERSION,
    kinds={"duckdb"},
)
def metrics(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """The metric table: every system, split and slice with 95 % intervals, and paired differences between systems.

    Stored as the DuckDB tables `metrics` and `differences`; each row carries the data versions of all it was
    computed from.
    """
    spec = workspace.spec(context.partition_key)
    step = Step(
        context, workspace, config, code_version=CODE_VERSION,
        inputs=[*_PER_SYSTEM.values(), "questions/queries"], sections=["evaluation"], seed=spec.evaluation.seed,
    )  # fmt: skip

    def build(draft: Draft) -> None:
        queries = read_frame(step.input("questions/queries").file(QUERIES_FILE))
        frames = {s: read_frame(step.input(key).file(QUERY_METRICS_FILE)) for s, key in _PER_SYSTEM.items()}
        settings: dict[str, Any] = {"dataset": step.dataset, "samples": spec.evaluation.bootstrap_samples,
                                    "seed": spec.evaluation.seed}  # fmt: skip
        rows = types.check_frame(types.METRICS, metric_table(frames, queries, **settings))
        pairs = [(later, earlier) for i, later in enumerate(SYSTEMS) for earlier in SYSTEMS[:i]]
        differences = difference_table(frames, queries, baseline_pairs=pairs, **settings)
        version = frame_hash(rows)
        rows = with_provenance(step, rows)
        write_duckdb(draft.path / METRICS_FILE, rows, with_provenance(step, differences))
        tables = {f"table {split}": markdown_table(rows, split=split) for split in ("test", "val")
                  if (rows["split"] == split).any()}  # fmt: skip
        draft.finish(version, {"dagster/row_count": len(rows), "systems": len(SYSTEMS)}, markdown=tables)

    return step.run(build)


def with_provenance(step: Step, rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with the data version of every artefact behind the row's system, the run and the code version."""

    artifacts = {system: step.input(key) for system, key in _PER_SYSTEM.items()}
    lineage = {
        system: json.dumps({**a.manifest["lineage"], _PER_SYSTEM[system]: a.data_version}, sort_keys=True)
        for system, a in artifacts.items()
    }
    return rows.assign(
        depth=rows["system"].map({system: a.metadata["depth"] for system, a in artifacts.items()}),
        run_id=step.context.run_id,
        lineage=rows["system"].map(lineage),
    )


_PLAN_INPUTS = [PLANS, "ranking/graph", "graph/anchors", "graph/csr", "questions/queries", "skb/store"]


@pipeline_asset("evaluation/plan_quality", deps=_PLAN_INPUTS, code_version=CODE_VERSION, kinds={"duckdb"})
def plan_quality(
    context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig
) -> dg.MaterializeResult:
    """How good the plans of each engine are: do they execute, how many candidates do they leave, is an answer among
    them, and does the risk level they state go with that.

    Denominators are all questions that an engine was asked. Tables `plan_quality`, `causes` and `risk` in a DuckDB
    file, and `risk_SPLIT.png`.
    """
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=_PLAN_INPUTS, sections=["retrieval", "linking"]
    )

    def build(draft: Draft) -> None:
        queries = read_frame(step.input("questions/queries").file(QUERIES_FILE))
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            nodes = node_table(con)
        node_type = nodes["node_type"].to_dict()
        judged = {
            engine: judge_plans(queries, outcomes, hits, node_type, plans_agree)
            for engine, outcomes, hits in _executed(step, queries, nodes)
        }
        table = plan_quality_table(judged, queries, dataset=step.dataset)
        causes, risk = causes_table(judged), risk_table(judged)
        write_tables(draft.path / PLAN_QUALITY_FILE, {"plan_quality": table, "causes": causes, "risk": risk})
        first = next(iter(judged))
        test = table[(table["split"] == "test") & (table["slice"] == "all") & (table["engine"] == first)]
        shown = {}
        for split in ("test", "val"):
            shown[f"{split} plans"] = plan_quality_markdown(table, split=split, slices=_PLAN_SLICES)
            image = risk_plot(risk, split=split)
            (draft.path / f"risk_{split}.png").write_bytes(image)
            picture = f"![candidates by risk level](data:image/png;base64,{base64.b64encode(image).decode()})"
            shown[f"{split} risk"] = f"{risk_markdown(risk, split=split)}\n\n{picture}"
        draft.finish(
            stable_hash([frame_hash(table), frame_hash(causes), frame_hash(risk)]),
            {
                f"test {measure}": round(float(value), 4)
                for measure, value in test.set_index("measure")["value"].dropna().items()
            },
            markdown={**shown, "causes": markdown_rows(causes)},
        )

    return step.run(build)


def _executed(
    step: Step, queries: pd.DataFrame, nodes: pd.DataFrame
) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Per engine its name, outcomes, and hits of executed plans; those of the first are there already."""
    plans, ranked = step.input(PLANS), step.input("ranking/graph")
    first = str(plans.manifest["engine"])
    yield first, read_frame(ranked.file(OUTCOMES_FILE)), graph_hits_for_fusion(ranked)
    query_ids = queries["query_id"].tolist()
    others = [e for e in read_frame(plans.file(PLANS_FILE), ["engine"])["engine"].unique() if e != first]
    branch = step.workspace.open_graph_branch(step.spec) if others else None
    for engine in others:
        assert branch is not None
        rows = plans_of(plans, engine).set_index("query_id").loc[query_ids].reset_index()
        answers = branch.answer(queries["query"].tolist(), validated_plans(rows))
        hits = branch_hits(answers)
        kept = ~np.array([a.fallback for a in answers])[hits.query]
        found = pd.DataFrame({"query_id": np.array(query_ids)[hits.query[kept]], "node_id": hits.node_id[kept]})
        yield engine, outcomes_frame(query_ids, rows, answers, nodes), found


_PLAN_SLICES = ("all", "wording=known", "wording=held_out", "template=one_hop")


@pipeline_asset(
    "evaluation/traces",
    deps=["questions/queries", "skb/store", *[f"ranking/{system}" for system in SYSTEMS]],
    code_version=CODE_VERSION,
    kinds={"parquet"},
)
def traces(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """For each question: its plan and links, and where every branch put each answer.

    `skb-pipeline trace --dataset D QUERY_ID` prints one.
    """
    rankings = {system: f"ranking/{system}" for system in SYSTEMS}
    step = Step(
        context, workspace, config, code_version=CODE_VERSION,
        inputs=["questions/queries", "skb/store", *rankings.values()], sections=["fusion"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            nodes = node_table(con)
        frame = build_traces(
            read_frame(step.input("questions/queries").file(QUERIES_FILE)),
            read_frame(step.input("ranking/graph").file(OUTCOMES_FILE)),
            {system: read_frame(step.input(key).file(RANKING_FILE)) for system, key in rankings.items()},
            nodes,
            step.spec.fusion,
            fused_graph=graph_hits_for_fusion(step.input("ranking/graph")),
        )
        write_frame(draft.path / TRACES_FILE, frame, TRACES_SCHEMA)
        draft.finish(frame_hash(frame), {"dagster/row_count": len(frame)})

    return step.run(build)
