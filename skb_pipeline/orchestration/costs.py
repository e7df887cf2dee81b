"""What making an asset anew would take, counted without making anything: texts to embed, prompts to ask."""

from __future__ import annotations

from collections.abc import Iterable

from skb_pipeline.linking.name_index import node_surfaces
from skb_pipeline.orchestration.steps import Step
from skb_pipeline.planning.engines.completions import ChatRequest
from skb_pipeline.planning.engines.kept_replies import REPLIES, completion_key
from skb_pipeline.planning.engines.opening import ModelReport, asked_questions
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.retrieval.embedding import text_key
from skb_pipeline.retrieval.encoder import Encoder, Role
from skb_pipeline.skb.documents import DOCUMENTS
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.rows.arrays import kept_keys
from skb_pipeline.storage.rows.records import RecordRowsError, without_record
from skb_pipeline.workspace import SKB_FILE, Workspace

TEXTS, PROMPTS = "texts to embed", "prompts to ask"


def work_of(step: Step, home: Workspace) -> dict[str, int]:
    """What a run would have to do for a step whose recipe is known, as far as the inputs there are tell.

    Args:
        step: after ``foresee``.
        home: where vectors and replies are kept.

    Returns:
        :data:`TEXTS` for what embeds documents, names or questions (distinct texts without a vector; of
        ``graph/anchors`` names only), :data:`PROMPTS` for plans by a language model (first prompts without a reply).
        Empty where there is nothing of the kind.
    """
    if step.asset == "planning/query_plans":
        return _prompts(step, home)
    role: Role = "document"
    reads = {entry.asset for entry in step.declared.inputs}
    if step.asset == "index/dense":
        texts = DOCUMENTS.read(step.input("text/documents"), ["document"])["document"].tolist()
    elif step.asset == "graph/anchors":
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            texts = [s.text for s in node_surfaces(con, step.spec.linking.name_fields)]
    elif step.asset.startswith("ranking/") and "index/dense" in reads and "encoder" in step.declared.sections:
        texts, role = QUERIES.read(step.input("questions/queries"), ["query"])["query"].tolist(), "query"
    else:
        return {}
    encoder, _ = step.workspace.open_encoder(step.spec)
    return {TEXTS: _unknown_texts(home, step.dataset, encoder, texts, role)}


def _unknown_texts(home: Workspace, dataset: str, encoder: Encoder, texts: Iterable[str], role: Role) -> int:
    wanted = {text_key(encoder, text, role) for text in texts if text.strip()}
    return len(wanted - kept_keys(home.vectors(dataset, encoder)))


def _prompts(step: Step, home: Workspace) -> dict[str, int]:
    engines, splits = step.opened
    queries = QUERIES.read(step.input("questions/queries"), ["query_id", "query", "split"])
    texts = queries.loc[asked_questions(queries, splits, step.config.questions), "query"]
    reports: list[ModelReport] = [report for _, report in engines if report is not None]
    if not reports:
        return {}
    keys = {
        completion_key(report.chat.settings(), ChatRequest(report.prompts.messages(text), sample), schema)
        for report in reports
        for schema in [report.prompts.json_schema()]
        for text in texts
        if text.strip()
        for sample in range(step.spec.plans.samples)
    }
    try:
        return {PROMPTS: len(without_record(home.cache(step.dataset, "replies"), REPLIES, sorted(keys)))}
    except RecordRowsError:
        return {}
