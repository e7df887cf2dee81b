"""Anchors in a script the encoder does not know: it gives their names one vector, which is no reason to link them."""

from __future__ import annotations

from pathlib import Path

from skb_pipeline.linking.anchors import AnchorIndex, LinkGrade
from skb_pipeline.plans.plan import Anchor
from skb_pipeline.retrieval.encoder import Encoder
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.linking.test_anchors import make_spec
from skb_pipeline_tests.toy import ListSource

AUTHORS = ["सीत", "सोता", "ปรีดา", "ปรีดี", "மாலா", "Seeta"]
UNKNOWN = ["सीतु", "ปราณ", "மாலை"]


def test_names_of_unknown_scripts_are_linked_by_their_letters_alone(tmp_path: Path) -> None:
    spec = make_spec()
    ingest(spec, ListSource([("place", name, {"name": name}) for name in AUTHORS]), tmp_path / "s.duckdb")
    encoder = Encoder(spec.encoder, tmp_path / "hashes.json")
    cache = ArrayRows(tmp_path / "vectors", encoder.model_fingerprint)
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        ids = dict(con.execute("SELECT node_id, name FROM nodes").fetchall())
        index = AnchorIndex.build(con, spec, cache, encoder)
        anchors = [[Anchor(var="a", text=text, label="place")] for text in [*AUTHORS, *UNKNOWN]]
        linked = [found["a"] for found in index.link_anchors(anchors)]
        vectors = index.embed(["सीतु", "सीत"])
    assert vectors[0] @ vectors[1] > 0.9999  # the trap: this encoder drops the vowel sign
    for name, found in zip(AUTHORS, linked, strict=False):
        assert ([ids[node] for node in found.node_ids.tolist()], found.grade) == ([name], LinkGrade.EXACT)
    for found in linked[len(AUTHORS) :]:
        assert not (found.cosines >= 1 - 1e-6).any()
    assert linked[len(AUTHORS)].grade is LinkGrade.NONE
    assert "cannot tell" in linked[len(AUTHORS)].reason
