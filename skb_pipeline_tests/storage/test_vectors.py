from __future__ import annotations

import hashlib
import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.vectors import VectorCache

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
    assert both.prune([key("a"), key("b")]) == 1  # the double
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


@given(st.lists(st.sets(st.integers(0, 30), max_size=8), max_size=5), st.sets(st.integers(0, 40)))
def test_prune_leaves_exactly_what_is_kept(tmp_path_factory, parts, keep) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    cache = VectorCache(folder, FINGERPRINT)
    for part in parts:
        cache.append([key(n) for n in sorted(part)], rows(*sorted(part)).reshape(-1, 2))
    stored = set().union(*parts)
    assert cache.prune({key(n) for n in keep}) == len(stored - keep)
    for opened in (cache, VectorCache(folder, FINGERPRINT)):
        assert {n for n in range(41) if key(n) in opened} == stored & keep
        left = sorted(stored & keep)
        assert opened.get([key(n) for n in left]).reshape(-1, opened.dimension or 2)[:, 0].tolist() == left
