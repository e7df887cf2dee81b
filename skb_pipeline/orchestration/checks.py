"""Asset checks, one per dataset partition: structural truths block what follows, quality floors only warn."""

import warnings
from collections.abc import Callable, Sequence

import dagster as dg
import pandas as pd

from skb_pipeline.evaluation.parts import worse_than_parts
from skb_pipeline.graph.comparison import compare_rankings
from skb_pipeline.orchestration.partitions import DATASETS
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import plain
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.retrieval.ranking import RANKING, check_ranking
from skb_pipeline.skb.documents import DOCUMENTS
from skb_pipeline.skb.store import canonical_positions
from skb_pipeline.storage.duck import connect
from skb_pipeline.systems.ranked import Ranked
from skb_pipeline.systems.registry import DEFAULT_SYSTEM, Registry, load_registry
from skb_pipeline.workspace import DENSE_FOLDER, METRICS_FILE, SKB_FILE

Check = Callable[..., dg.AssetCheckResult]


def _check(
    asset: str, *, blocking: bool, name: str | None = None, after: Sequence[str] = ()
) -> Callable[[Check], dg.AssetChecksDefinition]:
    """Declare a check of ``asset``; it also waits for the assets ``after``."""

    def declare(function: Check) -> dg.AssetChecksDefinition:
        with warnings.catch_warnings():
            # Partitions on checks are marked preview; without them a check would read every partition.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            key = dg.AssetKey(asset.split("/"))
            return dg.asset_check(
                asset=key,
                blocking=blocking,
                partitions_def=DATASETS,
                name=name,
                additional_deps=[dg.AssetKey(other.split("/")) for other in after],
            )(function)

    return declare


def _result(problems: dict[str, int], *, warn: bool = False) -> dg.AssetCheckResult:
    """Passed when every count is zero; the counts are metadata either way."""
    return dg.AssetCheckResult(
        passed=not any(problems.values()),
        severity=dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR,
        metadata=plain(problems),
    )


@_check("skb/store", blocking=True)
def store_is_sound(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Keys are unique, both ends of every edge exist, every edge is of an allowed triple, nothing is empty."""
    dataset = context.partition_key
    triples = [list(t) for t in workspace.spec(dataset).triples]
    with connect(workspace.store.require(dataset, "skb/store").file(SKB_FILE), read_only=True) as con:
        row = con.execute(
            """
            SELECT (SELECT count(*) - count(DISTINCT (node_type, external_id)) FROM nodes),
                   (SELECT count(*) FROM edges WHERE head NOT IN (SELECT node_id FROM nodes)
                                                  OR tail NOT IN (SELECT node_id FROM nodes)),
                   (SELECT count(*) FROM edges e JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail
                    WHERE NOT list_contains(?::VARCHAR[][], [h.node_type, e.relation, t.node_type])),
                   (SELECT (count(*) = 0)::INT FROM nodes),
                   (SELECT (count(*) = 0)::INT FROM edges)
            """,
            [triples],
        ).fetchone()
    names = ("repeated keys", "edges without an end", "edges of no allowed triple", "no nodes", "no edges")
    return _result(dict(zip(names, row or (), strict=True)))


@_check("skb/store", blocking=False)
def fields_are_filled(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """No declared field is empty for every node, which usually means its name is misspelt in the spec."""
    metadata = workspace.store.require(context.partition_key, "skb/store").metadata
    empty = {name: 1 for name, rate in metadata["fill_rate"].items() if rate == 0}
    return _result(empty, warn=True)


@_check("skb/store", blocking=False)
def rows_of_one_id_agree(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """No field has different values in rows of one type and id. Such rows are merged, and one of the values is kept.

    The counts are nodes by field; examples stand in the metadata of `skb/store` under `merged_nodes`.
    """
    metadata = workspace.store.require(context.partition_key, "skb/store").metadata
    return _result(metadata["merged_nodes"]["conflicts"], warn=True)


@_check("text/documents", blocking=True)
def every_candidate_has_a_document(
    context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam
) -> dg.AssetCheckResult:
    """Documents cover exactly the candidate nodes, and every name stands in its document letter by letter."""
    dataset = context.partition_key
    documents = DOCUMENTS.read(workspace.store.require(dataset, "text/documents"))
    with connect(workspace.store.require(dataset, "skb/store").file(SKB_FILE), read_only=True) as con:
        candidates = con.execute(
            "SELECT node_id FROM nodes WHERE list_contains(?, node_type)", [workspace.spec(dataset).candidate_types]
        ).fetchnumpy()["node_id"]
    lost = sum(name not in text for name, text in zip(documents["name"], documents["document"], strict=True))
    return _result(
        {
            "candidates without document": len(set(candidates) - set(documents["node_id"])),
            "documents of no candidate": len(set(documents["node_id"]) - set(candidates)),
            "names not in their document": lost,
        }
    )


@_check("questions/queries", blocking=True)
def questions_are_sound(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Answers are nodes; no training or validation question made here shares an answer with a test question."""
    dataset = context.partition_key
    queries = QUERIES.read(workspace.store.require(dataset, "questions/queries"))
    with connect(workspace.store.require(dataset, "skb/store").file(SKB_FILE), read_only=True) as con:
        known = set(con.execute("SELECT node_id FROM nodes").fetchnumpy()["node_id"].tolist())
    answers = _answers(queries)
    made = answers[answers["origin"] == "synthetic"]
    return _result(
        {
            # A negative id stands for an answer of the source that is not in the SKB; those are counted elsewhere.
            "answers that are no node": int((~answers["node_id"].isin(known) & (answers["node_id"] >= 0)).sum()),
            "made questions sharing an answer with test": _leaking(made),
            "no test questions": int((queries["split"] == "test").sum() == 0),
        }
    )


@_check("questions/queries", blocking=False)
def questions_can_be_trusted(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Warns of questions without answers, of answers that are not in the SKB, and of answers shared by splits.

    Metrics count them as `docs/metrics.md` says; this tells how many there are.
    """
    queries = QUERIES.read(workspace.store.require(context.partition_key, "questions/queries"))
    answers = _answers(queries)
    return _result(
        {
            "questions without answers": len(queries) - answers["query_id"].nunique(),
            "answers not in the SKB": int((answers["node_id"] < 0).sum()),
            "train or val questions sharing an answer with test": _leaking(answers),
        },
        warn=True,
    )


def _answers(queries: pd.DataFrame) -> pd.DataFrame:
    """One row per answer: ``query_id, split, origin, node_id``."""
    rows = queries[["query_id", "split", "origin", "answer_ids"]].explode("answer_ids").dropna(subset="answer_ids")
    return rows.rename(columns={"answer_ids": "node_id"}).astype({"node_id": "int64"})


def _leaking(answers: pd.DataFrame) -> int:
    tested = answers.loc[answers["split"] == "test", "node_id"]
    earlier = answers[answers["split"] != "test"]
    return int(earlier.loc[earlier["node_id"].isin(tested), "query_id"].nunique())


@_check("planning/query_plans", blocking=False)
def plans_are_made(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Of the questions asked, no more than `plans.max_fallback_rate` are left without a plan. One that names nothing,
    and one for which the planner chose text search, needs none."""
    made = workspace.store.require(context.partition_key, "planning/query_plans").metadata
    most = workspace.spec(context.partition_key).plans.max_fallback_rate
    return dg.AssetCheckResult(
        passed=made["fallback rate"] <= most,
        metadata=plain({"fallback rate": made["fallback rate"], "at most": most, "causes": made["causes"]}),
    )


@_check("index/dense", blocking=True)
def dense_index_is_complete(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Every document is in the vector index or listed as blank."""
    dataset = context.partition_key
    artifact = workspace.store.require(dataset, "index/dense")
    artifact.file(DENSE_FOLDER)
    documents = workspace.store.require(dataset, "text/documents").metadata["dagster/row_count"]
    indexed = artifact.metadata["vectors"] + artifact.metadata["blank documents"]
    return _result({"documents missing from the index": documents - indexed})


def ranking_check(name: str, registry: Registry) -> dg.AssetChecksDefinition:
    """The check of one system's ranking."""
    system = registry[name]

    @_check(f"ranking/{name}", blocking=True, name="keeps_the_ranking_contract")
    def keeps_the_ranking_contract(
        context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam
    ) -> dg.AssetCheckResult:
        """Ranks from 1 without gaps, no node twice, finite scores, ties in canonical order, depth kept."""
        dataset = context.partition_key
        store = workspace.store
        made = store.require(dataset, f"ranking/{name}")
        absent = made.manifest.get("absent")
        if absent is not None:
            return dg.AssetCheckResult(passed=True, metadata=plain({"absent": str(absent)}))
        order = QUERIES.read(store.require(dataset, "questions/queries"), ["query_id"])
        with connect(store.require(dataset, "skb/store").file(SKB_FILE), read_only=True) as con:
            canonical = canonical_positions(con)
        violations = check_ranking(
            RANKING.read(made),
            query_order=order["query_id"].tolist(),
            depth=system.depth_for(workspace.spec(dataset)),
            canonical=canonical if system.canonical_ties else None,
        )
        return dg.AssetCheckResult(passed=not violations, metadata=plain({"violations": violations[:20]}))

    return keeps_the_ranking_contract


@_check("ranking/graph_neo4j", blocking=False, after=["ranking/graph"])
def equals_the_ranking_in_memory(
    context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam
) -> dg.AssetCheckResult:
    """Neo4j and memory give the same hits, ranks and scores, but for plans that a limit stopped in one of them."""
    store, dataset = workspace.store, context.partition_key
    server, memory = (store.current(dataset, f"ranking/{name}") for name in ("graph_neo4j", "graph"))
    if server is None or memory is None or "absent" in memory.manifest:
        missing = "ranking/graph_neo4j" if server is None else "ranking/graph"
        return dg.AssetCheckResult(passed=True, metadata=plain({"not compared": f"{missing} was not made"}))
    made_with, other = ({**a.manifest["inputs"], "settings": a.manifest["config"]} for a in (server, memory))
    stale = sorted(key for key in made_with.keys() & other.keys() if made_with[key] != other[key])
    if stale:
        note = f"the two rankings were made from different versions of {', '.join(stale)}"
        return dg.AssetCheckResult(passed=True, metadata=plain({"not compared": note}))
    one, other_one = Ranked.read(server), Ranked.read(memory)
    assert one.outcomes is not None
    assert other_one.outcomes is not None
    counts = compare_rankings(one.ranking, one.outcomes, other_one.ranking, other_one.outcomes)
    return dg.AssetCheckResult(passed=not counts["differing queries"], metadata=plain(counts))


@_check("evaluation/metrics", blocking=False)
def branches_find_something(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Every system has Recall@20 above zero on test; a zero usually means that ids or texts do not meet."""
    path = workspace.store.require(context.partition_key, "evaluation/metrics").file(METRICS_FILE)
    with connect(path, read_only=True) as con:
        rows = con.execute(
            "SELECT system FROM metrics WHERE split = 'test' AND slice = 'all' AND metric = 'recall@20' AND value = 0"
        ).fetchall()
    return _result({system: 1 for (system,) in rows}, warn=True)


@_check("evaluation/metrics", blocking=False)
def every_system_is_there(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """Every system that the dataset asks for has a row in the table."""
    registry = load_registry(workspace.root)
    wanted = registry.wanted(workspace.spec(context.partition_key))
    path = workspace.store.require(context.partition_key, "evaluation/metrics").file(METRICS_FILE)
    with connect(path, read_only=True) as con:
        missing = dict(con.execute("SELECT system, reason FROM missing").fetchall())
    return dg.AssetCheckResult(
        passed=not missing.keys() & set(wanted),
        severity=dg.AssetCheckSeverity.WARN,
        metadata=plain(missing),
    )


@_check("evaluation/metrics", blocking=False)
def fusion_is_no_worse(context: dg.AssetCheckExecutionContext, workspace: WorkspaceParam) -> dg.AssetCheckResult:
    """`fused` is not worse than the best of its parts: of no metric does the paired interval lie below 0. It looks at
    validation questions, and only where there are none at test questions, which the numbers then say."""
    path = workspace.store.require(context.partition_key, "evaluation/metrics").file(METRICS_FILE)
    worse = worse_than_parts(path, load_registry(workspace.root).parts, [DEFAULT_SYSTEM])
    return dg.AssetCheckResult(
        passed=not worse, severity=dg.AssetCheckSeverity.WARN, metadata=plain({"worse": worse} if worse else {})
    )


@_check("evaluation/metrics", blocking=False)
def made_in_time(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Files that changed, or a planned time, were followed within `SKB_OVERDUE_HOURS` (six if that is not set). A run
    that makes the table passes it; the sensor `overdue_tables` looks again between runs."""
    return dg.AssetCheckResult(passed=True, severity=dg.AssetCheckSeverity.WARN)


ALL = [
    store_is_sound,
    fields_are_filled,
    rows_of_one_id_agree,
    every_candidate_has_a_document,
    questions_are_sound,
    questions_can_be_trusted,
    plans_are_made,
    dense_index_is_complete,
    branches_find_something,
    every_system_is_there,
    fusion_is_no_worse,
    made_in_time,
]
"""Checks of what every registry has; those of rankings follow from the systems."""
