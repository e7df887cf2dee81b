from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import pytest

from skb_pipeline.storage.artifacts import ArtifactStore, ManifestMismatchError, Recipe
from skb_pipeline.storage.vectors import VectorCache, fingerprints_in_use, remove_unused

FINGERPRINT = {"model": "m", "revision": "1", "max_length": 8}


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def rows(*values: float) -> np.ndarray:
    return np.array([[v, v + 0.5] for v in values], dtype=np.float32)


def test_vectors_come_back_in_the_order_asked_for_from_several_parts(tmp_path) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    cache.append([key("a"), key("b")], rows(1, 2))
    cache.append([key("c")], rows(3))
    for opened in (cache, VectorCache(tmp_path, FINGERPRINT)):
        got = opened.get([key(n) for n in "cabc"])
        assert got.dtype == np.float32
        assert got[:, 0].tolist() == [3, 1, 2, 3]
    assert len(cache) == 3


def test_missing_lists_each_unknown_key_once_in_order(tmp_path) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    cache.append([key("b")], rows(2))
    assert cache.missing([key(n) for n in "dbcd"]) == [key("d"), key("c")]
    with pytest.raises(KeyError, match=f"2 keys have no vector, such as {key('d')}"):
        cache.get([key(n) for n in "bdc"])


def test_known_keys_keep_their_vector(tmp_path) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    cache.append([key("a")], rows(1))
    cache.append([key("a"), key("b")], rows(9, 2))
    assert cache.get([key("a"), key("b")])[:, 0].tolist() == [1, 2]


def test_two_writers_do_not_overwrite_each_other(tmp_path) -> None:
    one, two = VectorCache(tmp_path, FINGERPRINT), VectorCache(tmp_path, FINGERPRINT)
    one.append([key("a")], rows(1))
    two.append([key("a"), key("b")], rows(1, 2))
    both = VectorCache(tmp_path, FINGERPRINT)
    assert both.get([key("a"), key("b")])[:, 0].tolist() == [1, 2]
    both.merge(at=2)
    assert VectorCache(tmp_path, FINGERPRINT).get([key("a"), key("b")])[:, 0].tolist() == [1, 2]


def test_folder_of_another_fingerprint_is_refused_with_the_difference(tmp_path) -> None:
    VectorCache(tmp_path, FINGERPRINT).append([key("a")], rows(1))
    with pytest.raises(ManifestMismatchError, match="revision is '1', expected '2'"):
        VectorCache(tmp_path, {**FINGERPRINT, "revision": "2"})
    with pytest.raises(ManifestMismatchError, match="prefix is None, expected 'q'"):
        VectorCache(tmp_path, {**FINGERPRINT, "prefix": "q"})
    (tmp_path / "fingerprint.json").unlink()
    with pytest.raises(ManifestMismatchError, match="does not say what made them"):
        VectorCache(tmp_path, FINGERPRINT)


@pytest.mark.parametrize(
    ("keys", "vectors", "message"),
    [
        ([key("a")], rows(1, 2), "1 keys need float32"),
        ([key("a")], rows(1).astype(np.float64), "need float32"),
        ([key("a"), key("a")], rows(1, 2), "repeated"),
        (["short"], rows(1), "'short' is not a sha256"),
        ([key("a"), key("b")], rows(1, np.nan), f"vector of {key('b')} is not finite"),
        ([key("a")], np.ones((1, 3), np.float32), "have 3 numbers, those in .* have 2"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_written(tmp_path, keys, vectors, message) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    cache.append([key("z")], rows(0))
    with pytest.raises(ValueError, match=message):
        cache.append(keys, vectors)
    assert len(VectorCache(tmp_path, FINGERPRINT)) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_empty_cache_answers(tmp_path) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    assert cache.dimension is None
    assert cache.get([]).shape == (0, 0)
    cache.append([], np.empty((0, 2), np.float32))
    assert list(tmp_path.glob("part-*")) == []


def test_old_scratch_is_swept_and_a_fresh_one_left_to_its_writer(tmp_path) -> None:
    VectorCache(tmp_path, FINGERPRINT)
    old, fresh = tmp_path / ".scratch-1-aaaa", tmp_path / ".scratch-1-bbbb"
    for path in (old, fresh):
        path.write_bytes(b"half a part")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert len(VectorCache(tmp_path, FINGERPRINT)) == 0
    assert not old.exists()
    assert fresh.exists()


def fill(cache: VectorCache, parts: int, size: int) -> list[str]:
    """Append parts of ``size`` keys each; the vector of key i begins with i."""
    names = range(parts * size)
    for start in range(0, parts * size, size):
        cache.append([key(n) for n in names[start : start + size]], rows(*names[start : start + size]))
    return [key(n) for n in names]


def test_parts_are_merged_by_size_class_as_they_become_many(tmp_path) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    keys = fill(cache, 16, 2)
    assert len(list(tmp_path.glob("part-*"))) == 1
    cache.append([key("more")], rows(-1))
    keys += fill(cache, 300, 2)[32:]
    # 300 parts of one class: 18 merged ones of the next, of which 16 became one of the class above, and what is left.
    sizes = sorted(len(np.load(path)) for path in tmp_path.glob("part-*"))
    assert sizes[-1] > 16 * 16
    assert sum(sizes) == 601
    assert len(sizes) < 3 * 16
    for opened in (cache, VectorCache(tmp_path, FINGERPRINT)):
        assert opened.get(keys)[:, 0].tolist() == list(range(600))
        assert opened.get([key("more")])[0, 0] == -1
    assert cache.merge(at=2) > 0
    assert len(list(tmp_path.glob("part-*"))) <= 3
    assert VectorCache(tmp_path, FINGERPRINT).get(keys)[:, 0].tolist() == list(range(600))


def test_doubles_go_with_a_merge_and_the_first_vector_stays(tmp_path) -> None:
    one, two = VectorCache(tmp_path, FINGERPRINT), VectorCache(tmp_path, FINGERPRINT)
    one.append([key("a"), key("b")], rows(1, 2))
    two.append([key("x")], rows(7))
    two.append([key("a"), key("c")], rows(9, 3))  # of its own part, it knows no other
    before = VectorCache(tmp_path, FINGERPRINT)
    wanted = [key(n) for n in "abcx"]
    expected = before.get(wanted).tolist()
    assert before.merge(at=2) == 3
    for opened in (before, VectorCache(tmp_path, FINGERPRINT)):
        assert opened.get(wanted).tolist() == expected
        assert len(opened) == 4
    assert [len(np.load(path)) for path in tmp_path.glob("part-*")] == [4]


def test_merging_does_not_disturb_who_has_the_cache_open(tmp_path) -> None:
    VectorCache(tmp_path, FINGERPRINT).append([key("a")], rows(1))
    VectorCache(tmp_path, FINGERPRINT).append([key("b")], rows(2))
    reader, one, two = (VectorCache(tmp_path, FINGERPRINT) for _ in range(3))
    assert (one.merge(at=2), two.merge(at=2)) == (2, 2)  # the second of parts that are gone
    reader.append([key("c")], rows(3))
    for opened in (reader, VectorCache(tmp_path, FINGERPRINT)):
        assert opened.get([key(n) for n in "abc"])[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("stop", ["before the switch", "before the old parts are gone", "between the old parts"])
def test_a_killed_merge_loses_nothing(tmp_path, monkeypatch, stop) -> None:
    cache = VectorCache(tmp_path, FINGERPRINT)
    keys = fill(cache, 5, 3)

    class Killed(BaseException):
        pass

    def killed(self: Path, *args: object, **kwargs: object) -> None:
        monkeypatch.undo()
        if stop == "between the old parts":
            self.unlink()
        raise Killed

    monkeypatch.setattr(Path, "rename" if stop == "before the switch" else "unlink", killed)
    with pytest.raises(Killed):
        cache.merge(at=2)
    opened = VectorCache(tmp_path, FINGERPRINT)
    assert opened.get(keys)[:, 0].tolist() == list(range(15))
    opened.merge(at=2)
    assert sum(len(np.load(path)) for path in tmp_path.glob("part-*")) == 15
    assert VectorCache(tmp_path, FINGERPRINT).get(keys)[:, 0].tolist() == list(range(15))


def test_a_part_that_vanishes_while_the_cache_is_opened_is_no_error(tmp_path, monkeypatch) -> None:
    other = VectorCache(tmp_path, FINGERPRINT)
    keys = fill(other, 4, 1)
    load = np.load

    def merged_meanwhile(path: Path, **kwargs: object) -> np.ndarray:
        monkeypatch.undo()
        other.merge(at=2)
        return load(path, **kwargs)

    monkeypatch.setattr(np, "load", merged_meanwhile)
    assert VectorCache(tmp_path, FINGERPRINT).get(keys)[:, 0].tolist() == [0, 1, 2, 3]


def test_caches_of_encoders_that_no_artefact_was_made_with_are_removed(tmp_path) -> None:
    store, caches = ArtifactStore(tmp_path / "store"), tmp_path / "caches"
    old, previous, current = ({**FINGERPRINT, "revision": name} for name in ("old", "previous", "current"))
    for fingerprint in (old, previous, current):
        VectorCache(caches / fingerprint["revision"], fingerprint).append([key("a")], rows(1))
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
