"""Removal of caches that nothing kept was made with."""

from __future__ import annotations

from pathlib import Path

from skb_pipeline.storage.artifacts import ArtifactStore, Recipe
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline.storage.rows.collection import fingerprints_in_use, remove_unused
from skb_pipeline_tests.storage.rows.caches import FINGERPRINT, key
from skb_pipeline_tests.storage.rows.caches import vectors as rows


def test_caches_of_encoders_that_no_artefact_was_made_with_are_removed(tmp_path: Path) -> None:
    store, caches = ArtifactStore(tmp_path / "store"), tmp_path / "caches"
    old, previous, current = ({**FINGERPRINT, "revision": name} for name in ("old", "previous", "current"))
    for fingerprint in (old, previous, current):
        ArrayRows(caches / fingerprint["revision"], fingerprint).put([key("a")], rows(1))
    (caches / "replies").mkdir()
    for number, fingerprint in enumerate((previous, current)):
        config = {"encoder": {**fingerprint, "query_prefix": "q: "}}
        with store.write(Recipe("toy", "index/dense", str(number), config=config)) as draft:
            draft.finish("version", {})
    with store.write(Recipe("toy", "text/documents", "1")) as draft:
        draft.finish("version", {})
    in_use = fingerprints_in_use(store, "toy")
    assert [entry["revision"] for entry in in_use] in (["current", "previous"], ["previous", "current"])
    assert remove_unused(caches, in_use) == [caches / "old"]
    assert sorted(path.name for path in caches.iterdir()) == ["current", "previous", "replies"]
    assert remove_unused(tmp_path / "absent", in_use) == []
