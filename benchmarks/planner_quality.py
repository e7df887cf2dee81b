"""How good the plans of the rules planner are: on real questions of a dataset, and on questions made from the demo.

For the real questions (Parquet with ``query, split, answer_ids``, external ids) each plan is linked, executed and
rescored. Printed per run and slice: the share of *all* questions whose plan was executed with at most 500 (and 50)
answers and a right one among them, the median number of answers, accuracy of the target type, Hit@1 and Recall@20 of
the ranking, outcomes, and shares by risk level. Runs: the planner as it is; without its look into the graph; with the
entities of the column ``predicted_entities`` given (a model's guess that came with the questions, so no upper bound).
No other column reaches the planner.

``--save`` keeps the measures of each question, one Parquet file per run and split; ``--compare`` prints the difference
to such files of another state of the code, with 95 % paired bootstrap intervals.

For the demo: the share of plans that agree with the gold plan up to names of variables, by wording.

    PRIMEKG_PARTIAL=... python benchmarks/planner_quality.py --spec docs/examples/primekg_partial.yaml \\
        --queries .../queries.parquet --home .cache --split val --dense --demo
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.loading import load_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.evaluation.bootstrap import paired_difference
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.rescoring import Rescorer
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.linking.name_index import NameIndex
from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.planning.rules.planner import PlannedQuestion, RulesPlanner
from skb_pipeline.plans.plan import Direction, Plan
from skb_pipeline.plans.results import Bindings, GraphResult
from skb_pipeline.questions.generate import generate_questions
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect

MEASURES = ["right, <= 500", "right, <= 50", "Hit@1", "R@20"]
"""What is kept of each question and compared."""
Linker = Callable[[Sequence[Plan]], list[Bindings]]


def skb_file(spec: DatasetSpec, home: Path) -> Path:
    """The dataset's SKB file under ``home``; made when absent."""
    path = home / f"{spec.name}.duckdb"
    if not path.is_file():
        home.mkdir(parents=True, exist_ok=True)
        ingest(spec, open_source(spec), path)
    return path


def anchor_index(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, home: Path) -> AnchorIndex:
    """Names and documents as vectors; minutes on a CPU at first, seconds afterwards."""
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows

    encoder = Encoder(spec.encoder, known_hashes=home / "hashes.json")
    cache = ArrayRows(home / "vectors", encoder.model_fingerprint)
    return AnchorIndex.build(con, spec, cache, encoder)


def link_by_name(index: NameIndex) -> Linker:
    """Linking without vectors: anchors of the planner are names that the index knows."""

    def link(plans: Sequence[Plan]) -> list[Bindings]:
        bindings = []
        for plan in plans:
            bound = {}
            for anchor in plan.anchors:
                hit = index.lookup(anchor.text, [anchor.label])
                ids = hit.nodes[anchor.label] if hit else np.empty(0, dtype=np.int64)
                bound[anchor.var] = ids, np.ones(len(ids))
            bindings.append(bound)
        return bindings

    return link


def judge(
    planned: Sequence[PlannedQuestion],
    results: Sequence[GraphResult | None],
    answers: Sequence[set[int]],
    node_type: dict[int, str],
) -> pd.DataFrame:
    """One row per question."""
    rows = []
    for question, result, gold in zip(planned, results, answers, strict=True):
        plan = question.validated.plan
        found = result.node_ids.tolist() if result is not None else []
        outcome = question.outcome.value + (f"/{result.outcome.value}" if result is not None else "")
        labels = set(plan.target.labels) if plan else set()
        rows.append(
            {
                "outcome": outcome,
                "risk": question.risk_level.value,
                "n_cand": result.n_cand if result is not None else 0,
                "answered": bool(gold & set(found)),
                "type_right": {node_type[node] for node in gold} <= labels,
                "hit@1": bool(found) and found[0] in gold,
                "recall@20": len(gold & set(found[:20])) / len(gold),
                "milliseconds": question.milliseconds,
            }
        )
    return pd.DataFrame(rows)


def summary(judged: pd.DataFrame) -> dict[str, float | int]:
    """The printed numbers of one slice."""
    answered, n_cand = judged["answered"].astype(bool), judged["n_cand"]
    return {
        "questions": len(judged),
        "right, <= 500": round(float((answered & (n_cand <= 500)).mean()), 4),
        "right, <= 50": round(float((answered & (n_cand <= 50)).mean()), 4),
        "median n_cand": float(n_cand[n_cand > 0].median()),
        "type right": round(float(judged["type_right"].mean()), 4),
        "type right | plan": round(float(judged.loc[judged["risk"] != "no_trade", "type_right"].mean()), 4),
        "Hit@1": round(float(judged["hit@1"].mean()), 4),
        "R@20": round(float(judged["recall@20"].mean()), 4),
        "ms p50": round(float(judged["milliseconds"].median()), 1),
        "ms p99": round(float(judged["milliseconds"].quantile(0.99)), 1),
    }


def real_questions(args: argparse.Namespace) -> None:
    """The part on real questions."""
    spec = load_spec(args.spec)
    queries = pd.read_parquet(args.queries)
    queries = queries[queries["split"] == args.split].reset_index(drop=True)
    with connect(skb_file(spec, args.home), read_only=True) as con:
        by_external = {row[0]: row[1] for row in con.execute("SELECT external_id, node_id FROM nodes").fetchall()}
        node_type = dict(con.execute("SELECT node_id, node_type FROM nodes").fetchall())
        answers = [{by_external[str(answer)] for answer in row} for row in queries["answer_ids"]]
        graph = CsrGraph.from_skb(con)
        dense = anchor_index(con, spec, args.home) if args.dense else None
        index = NameIndex.build(con, spec.linking.name_fields)
        entities = [list(names) for names in queries["predicted_entities"]]
        for title, check, given in (
            ("rules", True, None),
            ("rules, words alone", False, None),
            ("given entities", True, entities),
        ):
            planner = RulesPlanner(con, spec, index=index, check_answers=check)
            planned = planner.plan_all(queries["query"], given)
            plans = [p.validated.plan or Plan() for p in planned]
            link = (lambda ps: dense.link([p.anchors for p in ps])) if dense is not None else link_by_name(index)
            executor = MemoryExecutor(graph, planner.schema)
            results = [
                executor.execute(plan, bound) if plan.hops else None
                for plan, bound in zip(plans, link(plans), strict=True)
            ]
            if dense is not None:
                executed = [i for i, result in enumerate(results) if result is not None]
                texts = [plans[i].target.relevance_text for i in executed]
                rescored = Rescorer(dense).rescore([r for r in results if r is not None], texts)
                for i, result in zip(executed, rescored, strict=True):
                    results[i] = result
            judged = judge(planned, results, answers, node_type)
            report(f"{title} ({args.split})", judged, queries)
            measures = per_question(judged, queries)
            file = f"{title.replace(', ', '-').replace(' ', '-')}-{args.split}.parquet"
            if args.save is not None:
                args.save.mkdir(parents=True, exist_ok=True)
                measures.to_parquet(args.save / file, index=False)
            if args.compare is not None and (args.compare / file).is_file():
                compare(measures, pd.read_parquet(args.compare / file))


def per_question(judged: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """Columns ``query_id`` and ``MEASURES``, each between 0 and 1."""
    answered, n_cand = judged["answered"].astype(bool), judged["n_cand"]
    values = [answered & (n_cand <= 500), answered & (n_cand <= 50), judged["hit@1"], judged["recall@20"]]
    columns = {name: value.astype(float) for name, value in zip(MEASURES, values, strict=True)}
    return pd.DataFrame({"query_id": queries["query_id"].astype(str), **columns})


def compare(new: pd.DataFrame, old: pd.DataFrame) -> None:
    """Print the mean differences of two runs over the same questions."""
    old = old.set_index("query_id").loc[new["query_id"]]
    difference = paired_difference(
        new["query_id"].tolist(), new[MEASURES].to_numpy(), old[MEASURES].to_numpy(), samples=10_000, seed=20
    )
    columns = {
        "before": old[MEASURES].mean().to_numpy(),
        "now": new[MEASURES].mean().to_numpy(),
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
    }
    print("\ncompared with the other state:")
    print(pd.DataFrame(columns, index=MEASURES).round(4).to_string())


def report(title: str, judged: pd.DataFrame, queries: pd.DataFrame) -> None:
    """Print one run."""
    slices = {"all": judged}
    if "one_hop" in queries:
        slices["one_hop"] = judged[queries["one_hop"].astype(bool)]
    print(f"\n## {title}\n")
    print(pd.DataFrame({name: summary(part) for name, part in slices.items()}).T.to_string())
    print("outcomes:", judged["outcome"].value_counts().to_dict())
    by_risk = judged.groupby("risk").agg(
        questions=("answered", "size"),
        answered=("answered", "mean"),
        hit1=("hit@1", "mean"),
        n_cand=("n_cand", "median"),
    )
    print(by_risk.round(3).to_string())


def demo_questions(home: Path, split: str) -> None:
    """The part on questions made from the demo."""
    spec = get_spec("demo")
    with connect(skb_file(spec, home), read_only=True) as con:
        questions, _ = generate_questions(con, spec)
        questions = questions[questions["split"] == split]
        for title, check in (("rules", True), ("rules, words alone", False)):
            planner = RulesPlanner(con, spec, check_answers=check)
            print(f"\n## demo, {title} ({split}): plans that agree with the gold plan\n")
            for wording, part in questions.groupby("wording"):
                gold = [Plan.model_validate(json.loads(text)) for text in part["gold_plan"]]
                planned = planner.plan_all(part["query"])
                schema = planner.schema
                agree = [plans_agree(p.validated.plan, g, schema) for p, g in zip(planned, gold, strict=True)]
                faults = Counter(fault(p, g) for p, g, same in zip(planned, gold, agree, strict=True) if not same)
                print(f"{wording}: {np.mean(agree):.4f} of {len(part)}; else {dict(faults.most_common())}")


def fault(planned: PlannedQuestion, gold: Plan) -> str:
    """The first thing in which a plan differs from the gold plan."""
    plan = planned.validated.plan
    if plan is None:
        return planned.outcome.value
    if set(plan.target.labels) != set(gold.target.labels):
        return "target"
    have, want = ({(a.text.casefold(), a.label) for a in p.anchors} for p in (plan, gold))
    if have != want:
        return "anchor missing" if want - have else "anchor too many"
    if Counter(h.rel for h in plan.hops) != Counter(h.rel for h in gold.hops):
        return "relations"
    return "directions" if plans_agree(_undirected(plan), _undirected(gold)) else "shape"


def _undirected(plan: Plan) -> Plan:
    return plan.model_copy(update={"hops": [hop.model_copy(update={"direction": Direction.ANY}) for hop in plan.hops]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", type=Path)
    parser.add_argument("--queries", type=Path, help="Parquet file of real questions")
    parser.add_argument("--home", type=Path, default=Path(".cache"), help="SKB files and vectors are kept here")
    parser.add_argument("--split", default="val")
    parser.add_argument("--save", type=Path, help="folder for the measures of each question")
    parser.add_argument("--compare", type=Path, help="folder with measures of another state of the code")
    parser.add_argument("--dense", action="store_true", help="link and rescore with the encoder of the spec")
    parser.add_argument("--demo", action="store_true", help="also measure on questions made from the demo")
    parser.add_argument("--demo-split", default="test")
    args = parser.parse_args()
    if args.spec is not None and args.queries is not None:
        real_questions(args)
    if args.demo:
        demo_questions(args.home, args.demo_split)


if __name__ == "__main__":
    main()
