"""One question against a dataset's finished artefacts: hits of any system, and why they came out that way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import numpy as np
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.planning.engines.base import PlannerEngine, Question
from skb_pipeline.planning.frames import plans_frame
from skb_pipeline.planning.settings import Engine
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.written import read_condition
from skb_pipeline.skb.store import canonical_positions, node_table
from skb_pipeline.storage.artifacts import Artifact, ArtifactMissingError, ManifestMismatchError
from skb_pipeline.storage.duck import connect
from skb_pipeline.systems.kind import Sources, System
from skb_pipeline.systems.kinds.plans import rank_by_plans
from skb_pipeline.systems.kinds.rrf import RRFSystem
from skb_pipeline.systems.newest import Newest, on_newest
from skb_pipeline.systems.ranked import Questions, Ranked
from skb_pipeline.systems.registry import DEFAULT_SYSTEM, Registry
from skb_pipeline.text.cleaning import clean_text
from skb_pipeline.workspace import METRICS_FILE, SKB_FILE, Workspace

if TYPE_CHECKING:
    from skb_pipeline.graph.branch import GraphBranch
    from skb_pipeline.planning.engines.base import PlanRecord
    from skb_pipeline.plans.plan import Plan
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows

T = TypeVar("T")


class SearchSession(Sources):
    """Ranks with the systems' own indexes and settings; each is opened when first needed, each question ranked once.

    What is found is of one generation (see ``systems.newest``): what is made anew meanwhile is seen by the next
    session. A clean-up may take versions away while a session lives, once there is a newer generation: :func:`ask`.
    """

    def __init__(
        self,
        workspace: Workspace,
        spec: DatasetSpec,
        con: duckdb.DuckDBPyConnection,
        planner: PlannerEngine,
        registry: Registry,
    ) -> None:
        self.workspace, self.con, self.registry = workspace, con, registry
        self._spec, self._planner = spec, planner
        self._artifacts: dict[str, Artifact] = {}
        self._opened: dict[str, Any] = {}
        self._ranked: dict[tuple[str, tuple[str, ...]], Ranked] = {}
        self._allowed: np.ndarray | None = None
        self._records: dict[tuple[str, ...], list[PlanRecord]] = {}

    @classmethod
    @contextmanager
    def open(
        cls,
        dataset: str,
        workspace: Workspace | None = None,
        engine: Engine | None = None,
        *,
        newest: Newest | None = None,
        present_plans: bool = False,
    ) -> Iterator[SearchSession]:
        """A session on the newest generation of ``dataset``.

        Args:
            dataset: its name.
            workspace: default: the home folder.
            engine: plans instead of the spec's.
            newest: the generation, where it was looked up already.
            present_plans: plan as the spec says now, also where no run was made with that yet.

        Raises:
            ArtifactMissingError: the dataset was never materialised; the message says how to do it.
            EngineSettingsError, ModelSettingsError: the engine cannot be used with the spec and the environment.
            SystemsError: the declarations of systems are faulty.
        """
        from skb_pipeline.planning.engines.opening import with_engine

        newest = newest or Newest(dataset, workspace)
        workspace, registry = newest.workspace, newest.registry
        made_with = workspace.spec(dataset)
        spec = with_engine(newest.with_present_plans(made_with) if present_plans else made_with, engine)
        store = workspace.store.require(spec.name, "skb/store")
        with (
            connect(store.file(SKB_FILE), read_only=True) as con,
            workspace.open_engine(spec, spec.plans.engine, con, typed=True) as (planner, _),
        ):
            yield cls(workspace, spec, con, planner, registry)

    def only(self, conditions: Sequence[str]) -> int:
        """Answer from now on with nodes that meet some conditions alone. Every list is narrowed before lists are
        fused, so a hit may stand as deep as lists go (``retrieval.depth``).

        Args:
            conditions: as ``plans.written.read_condition`` reads them; all are to be met.

        Returns:
            How many candidates lack a value for one of them.

        Raises:
            ConditionError: one is no condition on a field of the candidates.
        """
        schema = GraphSchema.from_spec(self.spec)
        types = self.spec.candidate_types
        read = [read_condition(text, schema, types) for text in conditions]
        fields = FieldValues.of(self.con, schema)
        kept = [fields.node_ids(name)[fields.meeting(name, read)] for name in types]
        self._allowed, self._ranked = np.concatenate(kept), {}
        return sum(int((~fields.having(name, read)).sum()) for name in types)

    def search(self, question: str, *, system: str = DEFAULT_SYSTEM, k: int = 10) -> list[dict[str, Any]]:
        """The ``k`` best nodes: ``rank`` (from 1), ``external_id``, ``node_type``, ``name``, ``score``.

        Raises:
            UnknownSystemError: there is no such system; the message lists those there are.
        """
        ranking = self.ranked(system, question).ranking
        hits = ranking[ranking["rank"] <= k]
        nodes = self.nodes.loc[hits["node_id"]]
        return [
            {"rank": int(rank), **node, "score": float(score)}
            for rank, node, score in zip(hits["rank"], nodes.to_dict("records"), hits["score"], strict=True)
        ]

    def ranked(self, system: str, question: str) -> Ranked:
        """What a system makes of one question, which has the query id ``q``.

        Raises:
            UnknownSystemError: there is no such system.
        """
        return self.component(system, Questions(["q"], [clean_text(question)], keep=False))

    def explain(self, question: str) -> dict[str, Any]:
        """How a question is planned, and what executing the plan gave.

        Returns:
            Plain JSON values: ``engine``, ``plan`` (None for a text search), ``status``, ``cause`` (how planning
            ended), ``dropped``, ``risk_level`` (of the plan as executed), ``explanation``, of a language model also
            ``model``, ``attempts`` and ``raw_output``; ``links`` (per anchor, nodes with cosines and the link's grade),
            ``link_grade`` (the least sure one), ``unlinked`` (why an anchor has no node), ``outcome``, ``route``,
            ``n_cand``, ``lacking``, ``optional`` (None, or see ``graph.branch.optional_of``), ``fallback``, ``trust``
            (per fused system, what the weights of its lists are multiplied with), ``sql`` and ``cypher`` (the latter
            marked as not run against a server).
        """
        questions = Questions(["q"], [clean_text(question)], keep=False)
        outcomes = rank_by_plans(self._branch, self.plans(questions), self, questions).outcomes
        assert outcomes is not None
        outcome = outcomes.iloc[0]
        (record,) = self._planned(questions)
        links = json.loads(outcome["links"])
        return {
            **_told_of_plan(record),
            "risk_level": outcome["risk_level"],
            "links": links,
            "link_grade": None if pd.isna(outcome["link_grade"]) else outcome["link_grade"],
            "unlinked": json.loads(outcome["unlinked"]),
            **{name: outcome[name] for name in ("outcome", "route")},
            "n_cand": int(outcome["n_cand"]),
            "lacking": int(outcome["lacking"]),
            "optional": None if pd.isna(outcome["optional"]) else json.loads(outcome["optional"]),
            "fallback": bool(outcome["fallback"]),
            "trust": {
                name: {part: float(table.factors(outcomes)["q"]) for part, table in system.trust.items()}
                for name, system in self.registry.items()
                if isinstance(system, RRFSystem) and system.trust
            },
            **self._as_text(record.validated.plan, links),
        }

    def with_branch_ranks(self, question: str, hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """``hits`` with a column ``rank NAME`` for each system of the dataset that is made of no others: its rank of
        the node, empty where it is not listed."""
        key = ["external_id", "node_type"]
        for name in self.registry.wanted(self.spec):
            if self.registry[name].components:
                continue
            ranking = self.ranked(name, question).ranking
            nodes = self.nodes.loc[ranking["node_id"], key]
            ranks = dict(zip(nodes.itertuples(index=False, name=None), ranking["rank"].tolist(), strict=True))
            hits = [{**hit, f"rank {name}": ranks.get((hit["external_id"], hit["node_type"]), "")} for hit in hits]
        return hits

    def worse_than_parts(self, system: str) -> list[str]:
        """What the dataset's metric table says of a fused system that is worse than the best of its parts, a sentence
        each; nothing where there is no table, and that it cannot be read where it cannot: hits are worth more than
        this."""
        from skb_pipeline.evaluation.parts import worse_than_parts

        made = self.workspace.store.current(self.spec.name, "evaluation/metrics")
        if made is None or not self.registry[system].components:
            return []
        try:
            found = worse_than_parts(made.file(METRICS_FILE), self.registry.parts, [system])
        except (ArtifactMissingError, duckdb.Error, KeyError) as error:
            return [
                f"Whether a part of {system} alone does better is not known, as its metrics cannot be read: {error}"
            ]
        return [f"A part of {system} alone does better here: {one}" for one in found]

    @property
    def spec(self) -> DatasetSpec:
        """See ``Sources``."""
        return self._spec

    @cached_property
    def canonical(self) -> np.ndarray:
        """See ``Sources``."""
        return canonical_positions(self.con)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """See ``Sources``."""
        return node_table(self.con)

    def artifact(self, key: str) -> Artifact:
        """See ``Sources``.

        Raises:
            ArtifactMissingError, ManifestMismatchError: it is not there, or does not fit what it is made of.
        """
        if key not in self._artifacts:
            self._artifacts[key] = self.workspace.store.require_fitting(self.spec.name, key)
        return self._artifacts[key]

    @cached_property
    def _encoder(self) -> tuple[Encoder, ArrayRows]:
        return self.workspace.open_encoder(self.spec)

    def encoder(self) -> tuple[Encoder, ArrayRows]:
        """See ``Sources``."""
        return self._encoder

    @cached_property
    def _branch(self) -> GraphBranch:
        return self.workspace.open_graph_branch(self.spec)

    def graph_branch(self) -> GraphBranch:
        """See ``Sources``."""
        return self._branch

    def plans(self, questions: Questions) -> pd.DataFrame:
        """See ``Sources``: made now."""
        return plans_frame(self._planned(questions))

    def component(self, name: str, questions: Questions) -> Ranked:
        """See ``Sources``: ranked now."""
        system = self.registry[name]
        key = (name, tuple(questions.texts))
        if key not in self._ranked:
            if name not in self._opened:
                self._opened[name] = self._open(system)
            ranked = system.rank(self._opened[name], self, questions)
            if self._allowed is not None and not system.components:
                ranked = _narrowed(ranked, self._allowed)
            self._ranked[key] = ranked
        return self._ranked[key]

    def _open(self, system: System) -> Any:
        try:
            return system.open(self)
        except ManifestMismatchError as error:
            # What refuses an artefact does not know whose it is.
            heals = f"`skb-pipeline run --dataset {self.spec.name}"
            told = str(error) if heals in str(error) else f"{error} ({heals}` makes it anew)"
            raise ManifestMismatchError(told) from error

    def progress(self, text: str) -> None:
        """See ``Sources``: one question takes no telling."""

    def _planned(self, questions: Questions) -> list[PlanRecord]:
        key = tuple(questions.texts)
        if key not in self._records:
            asked = [Question(q, text) for q, text in zip(questions.ids, questions.texts, strict=True)]
            self._records[key] = list(self._planner.plan(asked))
        return self._records[key]

    def _as_text(self, plan: Plan | None, links: dict[str, Any]) -> dict[str, str | None]:
        """The plan as queries of the two engines that take text."""
        from skb_pipeline.graph.neo4j.cypher import compile_cypher
        from skb_pipeline.graph.sql import compile_sql

        if plan is None or not plan.hops:
            return {"cypher": None, "sql": None}
        schema = GraphSchema.from_spec(self.spec)
        costs = {var: len(nodes) for var, nodes in links.items()}
        return {
            "cypher": compile_cypher(plan, schema, costs, header=True).text,
            "sql": compile_sql(plan, schema).text,
        }


def ask(
    dataset: str,
    asked: Callable[[SearchSession], T],
    *,
    workspace: Workspace | None = None,
    engine: Engine | None = None,
    present_plans: bool = False,
    tell: Callable[[str], None] | None = None,
) -> T:
    """What ``asked`` finds in a session on the newest generation.

    Args:
        dataset: its name.
        asked: has no effect but its result, as it may be called twice: see ``systems.newest.on_newest``.
        workspace: default: the home folder.
        engine: plans instead of the spec's.
        present_plans: see :meth:`SearchSession.open`.
        tell: takes a line where the dataset has changed since.

    Raises:
        What :meth:`SearchSession.open` and ``asked`` raise.
    """

    def use(newest: Newest) -> T:
        with SearchSession.open(dataset, engine=engine, newest=newest, present_plans=present_plans) as session:
            return asked(session)

    found, changed = on_newest(dataset, use, workspace)
    if tell is not None and changed is not None:
        tell(changed)
    return found


def _narrowed(ranked: Ranked, allowed: np.ndarray) -> Ranked:
    """Only hits among some nodes, with ranks from 1."""
    kept = ranked.ranking[np.isin(ranked.ranking["node_id"], allowed)]
    ranks = kept.groupby("query_id", sort=False).cumcount() + 1
    return replace(ranked, ranking=kept.assign(rank=ranks.astype(np.int32)).reset_index(drop=True))


def _told_of_plan(record: PlanRecord) -> dict[str, Any]:
    plan = record.validated.plan
    reply = {"model": record.model, "attempts": record.attempts, "raw_output": record.raw_output}
    return {
        "engine": record.engine,
        "plan": None if plan is None else plan.model_dump(mode="json", by_alias=True),
        "status": record.validated.status.value,
        "cause": record.cause.value,
        "dropped": [d.model_dump() for d in record.validated.dropped],
        "risk_level": record.risk_level.value,
        "explanation": list(record.explanation),
        **(reply if record.attempts else {}),
    }
