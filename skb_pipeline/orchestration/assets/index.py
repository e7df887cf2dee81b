"""Stage ``index``: what makes documents searchable."""

from collections.abc import Iterator
from contextlib import contextmanager

from skb_pipeline.linking import named
from skb_pipeline.linking.named import NAMES, names_hash, names_of
from skb_pipeline.orchestration.steps import Opened, Step, pipeline_asset
from skb_pipeline.retrieval import dense as dense_index
from skb_pipeline.retrieval import encoder, lexical
from skb_pipeline.retrieval.dense import FAISS, DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.encoder import ENCODER_LIBRARIES
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.skb.documents import DOCUMENTS
from skb_pipeline.skb.labelled_documents import without_headings
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.text import tokens
from skb_pipeline.workspace import BM25_FOLDER, DENSE_FOLDER, SKB_FILE


@pipeline_asset(
    "index/bm25",
    inputs=["text/documents"],
    sections=["lexical"],
    partly=["documents", "node_types", "relations", "candidates"],  # which lines of a document are headings
    code=[lexical, tokens],
    libraries=["bm25s"],
    kinds={"numpy"},
)
def bm25(step: Step, draft: Draft) -> None:
    """Word index over the documents for BM25."""
    documents = DOCUMENTS.read(step.input("text/documents"), ["node_id", "node_type", "document"])
    texts = documents["document"].tolist()
    if not step.spec.lexical.headings:
        texts = without_headings(texts, documents["node_type"].tolist(), step.spec)
    index = BM25Index.build(documents["node_id"].to_numpy(), texts, step.spec.lexical)
    index.save(draft.path / BM25_FOLDER)
    draft.finish(step.recipe.content_key(), {"documents": len(index), "empty documents": index.n_empty})


@pipeline_asset(
    "index/names",
    inputs=["skb/store"],
    sections=["candidates", "node_types", "linking"],
    code=[named],
    writes=[NAMES],
    kinds={"parquet"},
)
def names(step: Step, draft: Draft) -> None:
    """Names and other names of candidate nodes, folded: a question that is nothing but a name finds its nodes here."""
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        frame = names_of(con, step.spec)
    NAMES.write(draft.path, frame)
    draft.finish(
        names_hash(frame),
        {
            "dagster/row_count": len(frame),
            "names of several nodes": int(frame.groupby("folded")["node_id"].nunique().gt(1).sum()),
        },
    )


@contextmanager
def encoder_of(step: Step) -> Iterator[Opened]:
    """The dataset's encoder and its vectors as ``opened``; its fingerprint counts, its batch size does not.

    A vector follows from its text and the fingerprint, whichever texts were new (how surely: ``retrieval.encoder``). So
    the content key of a recipe, as data version of the index and of the anchors, stands for their bytes.
    """
    model, cache = step.workspace.open_encoder(step.spec)
    yield Opened(config={"encoder": model.fingerprint()}, value=(model, cache))


@pipeline_asset(
    "index/dense",
    inputs=["text/documents"],
    partly=["encoder"],
    opens=encoder_of,
    code=[dense_index, encoder],
    libraries=[FAISS, *ENCODER_LIBRARIES],
    pool="gpu",
    kinds={"faiss"},
)
def dense(step: Step, draft: Draft) -> None:
    """Embedding of every document in an exact vector index. Only texts never seen before are encoded."""
    model, cache = step.opened
    documents = DOCUMENTS.read(step.input("text/documents"))
    keys = (documents["node_type"] + " " + documents["external_id"]).tolist()
    vectors, stats = embed_texts(cache, model, documents["document"].tolist(), "document", keys=keys)
    index = DenseIndex.build(documents["node_id"].to_numpy(), vectors, model.fingerprint())
    index.save(draft.path / DENSE_FOLDER)
    distinct = stats.encoded + stats.reused
    draft.finish(
        step.recipe.content_key(),
        {
            "vectors": len(index),
            "dimension": index.dimension,
            "texts encoded": stats.encoded,
            "texts reused": stats.reused,
            "reuse rate": round(stats.reused / distinct, 4) if distinct else 0.0,
            "documents truncated": stats.truncated,
            "blank documents": len(index.skipped),
            "encoder": model.fingerprint(),
        },
    )
