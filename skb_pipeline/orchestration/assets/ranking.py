"""Stage ``ranking``: each system's hits for every question. The systems are declared, see ``systems/``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pandas as pd

from skb_pipeline.graph import branch as graph_branch
from skb_pipeline.graph.branch import OUTCOMES, GraphBranch
from skb_pipeline.graph.neo4j import bolt
from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
from skb_pipeline.graph.neo4j.versions import open_executor
from skb_pipeline.linking import anchors
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.assets.neo4j import SKIPPED
from skb_pipeline.orchestration.sources import StepSources
from skb_pipeline.orchestration.steps import Opened, Opens, Step, pipeline_asset
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.frame import QUERIES, SPLITS
from skb_pipeline.retrieval import ranking as contract
from skb_pipeline.retrieval.ranking import RANKING
from skb_pipeline.storage.artifacts import Draft, stable_hash
from skb_pipeline.storage.duck import EMPTY, connect, content_hashes
from skb_pipeline.systems import named_first
from skb_pipeline.systems.kind import System
from skb_pipeline.systems.kinds import plans as plans_kind
from skb_pipeline.systems.kinds.plans import PlansSystem, no_timeouts, rank_by_plans
from skb_pipeline.systems.ranked import Ranked
from skb_pipeline.systems.registry import Registry
from skb_pipeline.text.sinks import markdown_text
from skb_pipeline.workspace import ANCHORS_FOLDER, SKB_FILE, skb_of

_QUESTIONS = ["questions/queries", "skb/store"]


def ranking_asset(name: str, registry: Registry) -> dg.AssetsDefinition:
    """The asset of one system. A system that the dataset does not ask for has an empty ranking that says so."""
    system = registry[name]
    parts = [f"ranking/{part}" for part in system.components]

    @pipeline_asset(
        f"ranking/{name}",
        inputs=[*system.reads, *parts, *_QUESTIONS],
        sections=system.sections,
        partly=[*system.partly, "systems"],
        code=list(dict.fromkeys([sys.modules[type(system).__module__], *system.code(), contract])),
        writes=system.stores,
        libraries=system.libraries,
        opens=if_wanted(name, registry, system),
        kinds={"parquet"},
        description=markdown_text(system.about or system.describe()),
    )
    def ranked(step: Step, draft: Draft) -> None:
        if step.opened is not None:
            RANKING.write(draft.path, empty_ranking())
            draft.finish(stable_hash(["absent", step.opened]), {"absent": step.opened}, absent=step.opened)
            return
        sources = StepSources(step)
        result = system.rank(system.open(sources), sources, sources.questions())
        finish_ranking(step, draft, result, system.depth_for(step.spec))

    return ranked


def if_wanted(name: str, registry: Registry, system: System) -> Opens:
    """Opens nothing; where the dataset does not ask for a system, ``opened`` says why and no input is read."""

    @contextmanager
    def opens(step: Step) -> Iterator[Opened]:
        reason = registry.why_not(name, step.spec)
        if reason is not None:
            yield Opened(config={"absent": reason}, reads=[], value=reason)
        else:
            yield Opened(config={"system": system.settings()}, holds=system.holds)

    return opens


def empty_ranking() -> pd.DataFrame:
    """A ranking without rows."""
    return RANKING.schema.empty_table().to_pandas()


def finish_ranking(step: Step, draft: Draft, result: Ranked, depth: int) -> None:
    """Check a ranking, write it, and finish the draft with its content hash and counts."""
    frame = types.check_frame(RANKING, result.ranking)
    result.write(draft.path)
    queries = QUERIES.read(step.input("questions/queries"), ["query_id", "split"])
    per_query = frame.groupby("query_id").size()
    version, by_split = ranking_versions(step, frame, queries)
    if result.outcomes is not None:
        # What follows also reads the outcomes, so they count; times and the way a plan went do not.
        version = stable_hash([version, OUTCOMES.hash(result.outcomes)])
    draft.finish(
        version,
        {
            **result.metadata,
            "dagster/row_count": len(frame),
            "queries": len(queries),
            "queries without hits": len(queries) - len(per_query),
            "depth": depth,
            "hits per query mean": round(float(per_query.mean()), 1) if len(per_query) else 0.0,
        },
        split_versions=by_split,
        query_ids_by_split={split: queries.loc[queries["split"] == split, "query_id"].tolist() for split in SPLITS},
    )


def ranking_versions(step: Step, frame: pd.DataFrame, queries: pd.DataFrame) -> tuple[str, dict[str, str]]:
    """Content hash of a ranking, and of its rows by split, under external ids; scores count to six decimals, as the
    last bits depend on batching."""
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        con.register("ranking", frame)
        con.register("asked", queries)
        rows = """SELECT r.query_id, n.node_type, n.external_id, r.rank, round(r.score, 6) AS score
                  FROM ranking r JOIN nodes n USING (node_id)"""
        parts = "SELECT query_id, split AS part FROM asked"
        version, by_split = content_hashes(con, rows, parts=parts, key="query_id")
    return version, {split: by_split.get(split, EMPTY) for split in SPLITS}


@contextmanager
def _server(step: Step) -> Iterator[Opened]:
    """The server's settings as ``opened``; skipped without them."""
    settings = Neo4jSettings.from_environment()
    yield (
        Opened(skip=SKIPPED)
        if settings is None
        else Opened(config={"system": PlansSystem(kind="plans").settings()}, holds=no_timeouts, value=settings)
    )


@pipeline_asset(
    "ranking/graph_neo4j",
    inputs=["planning/query_plans", "graph/anchors", "graph/neo4j", named_first.INPUT, *_QUESTIONS],
    sections=PlansSystem.sections,
    partly=PlansSystem.partly,
    opens=_server,
    code=[plans_kind, graph_branch, bolt, anchors, contract, named_first],
    writes=PlansSystem.stores,
    libraries=PlansSystem.libraries,
    pool="neo4j",
    kinds={"parquet", "neo4j"},
    optional=True,
)
def graph_neo4j(step: Step, draft: Draft) -> None:
    """The ranking `graph` once more, with the same plans executed on the Neo4j server; skipped without `NEO4J_URI`.

    Linking, rescoring and what is stored are the same, so the two rankings must be equal.
    """
    settings: Any = step.opened
    sources = StepSources(step)
    questions = sources.questions()
    encoder, cache = sources.encoder()
    linked = AnchorIndex.load(step.input("graph/anchors").file(ANCHORS_FOLDER), cache, encoder)
    with open_driver(settings) as driver:
        executor = open_executor(
            driver, GraphSchema.from_spec(step.spec), step.dataset, database=settings.database,
            data=skb_of(step.input("skb/store")),
        )  # fmt: skip
        depth = step.spec.retrieval.depth
        fields = step.workspace.open_fields(step.spec, step.input("skb/store"))
        branch = GraphBranch(
            executor, linked, candidate_types=step.spec.candidate_types, depth=depth, fields=fields
        )  # fmt: skip
        result = rank_by_plans(branch, sources.plans(questions), sources, questions)
    finish_ranking(step, draft, result, depth)
