"""Stage ``evaluation``: metrics per question and system, and the table people read."""

import base64
import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd

from skb_pipeline.evaluation import buckets, tables, traces
from skb_pipeline.evaluation import metrics as measuring
from skb_pipeline.evaluation import plan_quality as judging
from skb_pipeline.evaluation.buckets import BUCKET_ROWS, MISSES, Listed, Reach, bucket_table, build_misses
from skb_pipeline.evaluation.history import append_history, history_plot, history_rows, joined, read_history
from skb_pipeline.evaluation.metrics import METRICS, QUERY_METRICS, evaluate_ranking
from skb_pipeline.evaluation.plan_quality import causes_table, judge_plans, plan_quality_markdown, plan_quality_table
from skb_pipeline.evaluation.plan_risk import risk_markdown, risk_plot, risk_table
from skb_pipeline.evaluation.tables import (
    METRIC_ROWS,
    difference_table,
    markdown_rows,
    markdown_table,
    metric_table,
    missing_table,
    write_duckdb,
)
from skb_pipeline.evaluation.traces import TRACES, Traced, build_traces
from skb_pipeline.graph.branch import branch_hits, outcomes_frame
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.assets.ranking import if_wanted
from skb_pipeline.orchestration.lineage import Made, behind, lineage_markdown, trace_back
from skb_pipeline.orchestration.sources import plans_of
from skb_pipeline.orchestration.steps import Opened, Opens, Step, optional, pipeline_asset
from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.planning.frames import PLANS, validated_plans
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.retrieval.encoder import ENCODER_LIBRARIES
from skb_pipeline.skb.store import node_table
from skb_pipeline.storage.artifacts import Artifact, Draft, stable_hash
from skb_pipeline.storage.duck import connect, frame_hash, write_tables
from skb_pipeline.systems.ranked import Ranked
from skb_pipeline.systems.registry import Registry
from skb_pipeline.workspace import CSR_FOLDER, METRICS_FILE, PLAN_QUALITY_FILE, SKB_FILE, skb_of


def query_metrics_key(system: str) -> str:
    """Key of the asset that holds a system's metrics per question."""
    return f"evaluation/query_metrics_{system}"


def query_metrics_asset(system: str, registry: Registry) -> dg.AssetsDefinition:
    """The metrics of one system, question by question."""
    ranking = f"ranking/{system}"

    @pipeline_asset(
        query_metrics_key(system),
        inputs=[ranking, "questions/queries", "skb/store"],
        partly=["systems"],
        opens=if_wanted(system, registry, registry[system]),
        code=[measuring],
        writes=[QUERY_METRICS],
        kinds={"parquet"},
        description=f"Hit@1, Hit@5, Recall@20 and MRR of every question under the ranking `{system}`.",
    )
    def query_metrics(step: Step, draft: Draft) -> None:
        if step.opened is not None:
            draft.finish(stable_hash(["absent", step.opened]), {"absent": step.opened}, absent=step.opened)
            return
        queries = QUERIES.read(step.input("questions/queries"))
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            known = con.execute("SELECT node_id FROM nodes").fetchnumpy()["node_id"]
        frame, report = evaluate_ranking(Ranked.read(step.input(ranking)).ranking, queries, known_node_ids=known)
        QUERY_METRICS.write(draft.path, types.check_frame(QUERY_METRICS, frame))
        means = {f"test {m}": round(float(frame.loc[frame["split"] == "test", m].mean()), 4) for m in METRICS}
        draft.finish(frame_hash(frame), {"dagster/row_count": len(frame), **means, **report.as_metadata()})

    return query_metrics


def _compared(registry: Registry) -> Opens:
    """The order of the rows and the comparisons are declared with the systems, and the seed by the spec."""
    baselines = [[name, registry.baselines_of(name)] for name in registry.shown]

    @contextmanager
    def opens(step: Step) -> Iterator[Opened]:
        yield Opened(config={"systems": baselines}, seed=step.spec.evaluation.seed)

    return opens


def metrics_asset(registry: Registry) -> dg.AssetsDefinition:
    """The metric table of all systems there are for a dataset."""
    per_system = {system: query_metrics_key(system) for system in registry.shown}

    @pipeline_asset(
        "evaluation/metrics",
        inputs=["questions/queries", *(optional(key) for key in per_system.values())],
        sections=["evaluation"],
        opens=_compared(registry),
        then=_into_history,
        code=[tables],
        kinds={"duckdb"},
        revision="2",
    )
    def metrics(step: Step, draft: Draft) -> None:
        """The metric table: every system, split and slice with 95 % intervals, and paired differences between systems.

        Stored as the DuckDB tables `metrics` and `differences`; each row carries the data versions of all it was
        computed from. A system that is missing takes no other's row away; the table `missing` says why it is.
        """
        made, missing = made_and_missing(step, per_system)
        queries = QUERIES.read(step.input("questions/queries"))
        frames = {system: QUERY_METRICS.read(artifact) for system, artifact in made.items()}
        evaluation = step.spec.evaluation
        settings: dict[str, Any] = {
            "dataset": step.dataset, "samples": evaluation.bootstrap_samples, "seed": evaluation.seed,
        }  # fmt: skip
        rows = types.check_frame(METRIC_ROWS, metric_table(frames, queries, **settings))
        pairs = [(name, other) for name in made for other in registry.baselines_of(name) if other in made]
        differences = difference_table(frames, queries, baseline_pairs=pairs, **settings)
        version = frame_hash(rows)
        found, now = stable_hash([version, missing]), dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        rows = with_provenance(step, rows, made)
        write_duckdb(
            draft.path / METRICS_FILE, rows, with_provenance(step, differences, made),
            missing=missing_table(step.dataset, missing),
        )  # fmt: skip
        shown = {f"table {split}": markdown_table(rows, split=split) for split in ("test", "val")
                 if (rows["split"] == split).any()}  # fmt: skip
        this = Made.now(step.recipe, found, step.context.run_id, now)
        shown["lineage"] = lineage_markdown([*trace_back(step.store, step.dataset, this.inputs), this], step.dataset)
        entry = history_rows(rows, time=now, run_id=this.run_id, table_version=found, provenance=None)
        past = joined(read_history(step.workspace.history(step.dataset)), entry)
        drawn = next((split for split in ("test", "val") if (rows["split"] == split).any()), "train")
        shown["history"] = _picture(history_plot(past, split=drawn), f"mrr on {drawn} over time")
        if missing:
            shown["missing"] = markdown_rows(missing_table(step.dataset, missing))
        draft.finish(
            found,
            {"dagster/row_count": len(rows), "systems": len(made), "systems missing": len(missing)},
            markdown=shown,
        )

    return metrics


def _into_history(step: Step, table: Artifact) -> None:
    """Keep the rows of a table, which its versions are not."""
    with connect(table.file(METRICS_FILE), read_only=True) as con:
        rows = con.execute("SELECT * FROM metrics").df()
    entry = history_rows(
        rows,
        time=table.manifest["created"],
        run_id=table.manifest["run_id"],
        table_version=table.data_version,
        provenance=[made.as_json() for made in behind(table, step.store)],
    )
    append_history(step.workspace.history(step.dataset), entry)


def _picture(image: bytes, what: str) -> str:
    """A PNG inside Markdown."""
    return f"![{what}](data:image/png;base64,{base64.b64encode(image).decode()})"


def made_and_missing(step: Step, keys: dict[str, str]) -> tuple[dict[str, Artifact], dict[str, str]]:
    """Of some systems' artefacts those there are, and why the others are missing: system -> artefact, system -> why."""
    made, missing = {}, {}
    for system, key in keys.items():
        if key in step.lacking:
            missing[system] = step.lacking[key]
            continue
        artifact = step.input(key)
        absent = artifact.manifest.get("absent")
        if absent is None:
            made[system] = artifact
        else:
            missing[system] = str(absent)
    return made, missing


def with_provenance(step: Step, rows: pd.DataFrame, made: dict[str, Artifact]) -> pd.DataFrame:
    """``rows`` with the data version of every artefact behind the row's system, the run and the code version."""
    lineage = {
        system: json.dumps({**a.manifest["lineage"], query_metrics_key(system): a.data_version}, sort_keys=True)
        for system, a in made.items()
    }
    return rows.assign(
        depth=rows["system"].map({system: a.metadata["depth"] for system, a in made.items()}),
        run_id=step.context.run_id,
        lineage=rows["system"].map(lineage),
    )


def plan_quality_asset(system: str, registry: Registry) -> dg.AssetsDefinition:
    """How good the plans are that one system of the kind ``plans`` executes."""
    ranking = f"ranking/{system}"

    @pipeline_asset(
        "evaluation/plan_quality",
        inputs=["planning/query_plans", ranking, "graph/anchors", "graph/csr", "questions/queries", "skb/store"],
        sections=["retrieval", "linking"],
        partly=["encoder", "node_types", "relations", "candidates", "systems"],
        opens=if_wanted(system, registry, registry[system]),
        code=[judging],
        libraries=ENCODER_LIBRARIES,
        kinds={"duckdb"},
    )
    def plan_quality(step: Step, draft: Draft) -> None:
        """How good the plans of each engine are: do they execute, how many candidates do they leave, is an answer among
        them, and does the risk level they state go with that.

        Denominators are all questions that an engine was asked. Tables `plan_quality`, `causes` and `risk` in a DuckDB
        file, and `risk_SPLIT.png`.
        """
        if step.opened is not None:
            draft.finish(stable_hash(["absent", step.opened]), {"absent": step.opened}, absent=step.opened)
            return
        _judge(step, draft, ranking)

    return plan_quality


def _judge(step: Step, draft: Draft, ranking: str) -> None:
    queries = QUERIES.read(step.input("questions/queries"))
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        nodes = node_table(con)
    node_type = nodes["node_type"].to_dict()
    agree = partial(plans_agree, schema=GraphSchema.from_spec(step.spec))  # a direction without effect is none
    judged = {
        engine: judge_plans(queries, outcomes, hits, node_type, agree)
        for engine, outcomes, hits in _executed(step, ranking, queries, nodes)
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
        picture = _picture(image, "candidates by risk level")
        shown[f"{split} risk"] = f"{risk_markdown(risk, split=split)}\n\n{picture}"
    draft.finish(
        stable_hash([frame_hash(table), frame_hash(causes), frame_hash(risk)]),
        {
            f"test {measure}": round(float(value), 4)
            for measure, value in test.set_index("measure")["value"].dropna().items()
        },
        markdown={**shown, "causes": markdown_rows(causes)},
    )


def _executed(
    step: Step, ranking: str, queries: pd.DataFrame, nodes: pd.DataFrame
) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Per engine its name, outcomes, and hits of executed plans; those of the first are there already."""
    plans, ranked = step.input("planning/query_plans"), Ranked.read(step.input(ranking))
    first = str(plans.manifest["engine"])
    assert ranked.outcomes is not None
    yield first, ranked.outcomes, ranked.for_fusion()
    query_ids = queries["query_id"].tolist()
    others = [e for e in PLANS.read(plans, ["engine"])["engine"].unique() if e != first]
    branch = step.workspace.open_graph_branch(step.spec) if others else None
    for engine in others:
        assert branch is not None
        rows = plans_of(plans, engine).set_index("query_id").loc[query_ids].reset_index()
        answers = branch.answer(queries["query"].tolist(), validated_plans(rows))
        hits = branch_hits(answers)
        kept = ~np.array([a.fallback for a in answers])[hits.query]
        found = pd.DataFrame({"query_id": np.array(query_ids)[hits.query[kept]], "node_id": hits.node_id[kept]})
        yield engine, outcomes_frame(query_ids, rows, answers, nodes), found


_PLAN_SLICES = ("all", "wording=known", "wording=held_out", "wording=paraphrased", "template=one_hop")


def _system_settings(registry: Registry) -> Opens:
    """How scores are made of parts decides what a trace tells."""

    @contextmanager
    def opens(step: Step) -> Iterator[Opened]:
        yield Opened(config={"systems": {name: registry[name].settings() for name in registry}})

    return opens


def traces_asset(registry: Registry) -> dg.AssetsDefinition:
    """What became of each question, in all systems there are for a dataset."""
    rankings = {system: f"ranking/{system}" for system in registry}

    @pipeline_asset(
        "evaluation/traces",
        inputs=[
            "questions/queries",
            "skb/store",
            optional("graph/csr"),
            *(optional(key) for key in rankings.values()),
        ],
        partly=["node_types", "relations", "candidates"],  # what counts of them, the rankings of plans tell
        opens=_system_settings(registry),
        code=[traces, buckets],
        writes=[TRACES, MISSES, BUCKET_ROWS],
        kinds={"parquet"},
    )
    def tracing(step: Step, draft: Draft) -> None:
        """For each question: its plan and links, where every system put each answer, and why it was missed.

        `skb-pipeline trace --dataset D QUERY_ID` prints one, `skb-pipeline traces --dataset D --where CONDITION` finds
        some, `skb-pipeline report --dataset D A B` writes a page about two systems.
        """
        made, missing = made_and_missing(step, rankings)
        queries = QUERIES.read(step.input("questions/queries"))
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            nodes = node_table(con)
        ranked = {system: Ranked.read(artifact) for system, artifact in made.items()}
        traced = {}
        for system, own in ranked.items():
            declared = registry[system]
            parts = declared.components if all(part in made for part in declared.components) else ()
            traced[system] = Traced(own.ranking, own.for_fusion(), own.outcomes, parts, declared.terms)
        frame = build_traces(queries, traced, nodes)
        listed = {name: Listed(own.ranking, _plans_behind(name, ranked, registry), own.outcomes)
                  for name, own in ranked.items()}  # fmt: skip
        misses = build_misses(queries, listed, [name for name in registry.shown if name in made], nodes, _reach(step))
        counted = bucket_table(misses, queries)
        for declared_frame, rows in ((TRACES, frame), (MISSES, misses), (BUCKET_ROWS, counted)):
            declared_frame.write(draft.path, rows)
        shown = {f"{split} misses": buckets.buckets_markdown(counted, split=split) for split in ("test", "val")
                 if (counted["split"] == split).any()}  # fmt: skip
        draft.finish(
            stable_hash([TRACES.hash(frame), MISSES.hash(misses)]),
            {"dagster/row_count": len(frame), "systems": len(made), "missing": missing},
            markdown=shown,
        )

    return tracing


def _plans_behind(system: str, ranked: dict[str, Ranked], registry: Registry) -> str | None:
    """The system whose plans a ranking rests on: itself, or the first of its parts that has any."""
    if system in ranked and ranked[system].outcomes is not None:
        return system
    found = (_plans_behind(part, ranked, registry) for part in registry[system].components)
    return next((name for name in found if name is not None), None)


def _reach(step: Step) -> Reach:
    """What plans could have found; of a graph that could not be made, nothing."""
    if "graph/csr" in step.lacking:
        return Reach(None, None)
    store = step.input("skb/store")
    graph = CsrGraph.load(step.input("graph/csr").file(CSR_FOLDER), data=skb_of(store))
    return Reach(graph, GraphSchema.from_spec(step.spec))
