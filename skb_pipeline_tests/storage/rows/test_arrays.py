"""Arrays on the disk: parts, merging, and whom a folder belongs to. What they promise is in ``test_contract``."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.storage.rows.caches import FINGERPRINT, key
from skb_pipeline_tests.storage.rows.caches import vectors as rows


def test_rows_are_float32_from_several_parts(tmp_path: Path) -> None:
    cache = ArrayRows(tmp_path, FINGERPRINT)
    cache.put([key("a"), key("b")], rows(1, 2))
    cache.put([key("c")], rows(3))
    for opened in (cache, ArrayRows(tmp_path, FINGERPRINT)):
        got = opened.get([key(n) for n in "cabc"])
        assert got.dtype == np.float32
        assert got.tolist() == [[3, 3.5], [1, 1.5], [2, 2.5], [3, 3.5]]
        assert (len(opened), opened.dimension) == (3, 2)


def test_a_folder_of_the_first_layout_is_used_as_it_is(tmp_path: Path) -> None:
    """As it was written when there were caches of vectors only: a fingerprint and parts of (key, vector)."""
    (tmp_path / "fingerprint.json").write_text(json.dumps(FINGERPRINT, indent=2, sort_keys=True) + "\n")
    for number, names in enumerate(["ab", "bc"]):
        part = np.empty(2, dtype=[("key", "S64"), ("vector", "<f4", (2,))])
        part["key"] = [hashlib.sha256(name.encode()).hexdigest() for name in names]
        part["vector"] = [[number, ord(name)] for name in names]
        np.save(tmp_path / f"part-{number:08d}-0123abcd.npy", part)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    cache = ArrayRows(tmp_path, FINGERPRINT)
    assert cache.get([key(n) for n in "cab"]).tolist() == [[1, 99], [0, 97], [0, 98]]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    cache.put([key("d")], rows(5))
    (new,) = {path.name for path in tmp_path.iterdir()} - before.keys()
    assert new.startswith("part-00000002-")
    cache.merge(at=2)
    assert ArrayRows(tmp_path, FINGERPRINT).get([key(n) for n in "cabd"])[:, 1].tolist() == [99, 97, 98, 5.5]


def test_a_killed_put_leaves_nothing_but_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(self: Path, target: Path) -> None:
        raise Killed

    cache = ArrayRows(tmp_path, FINGERPRINT)
    cache.put([key("a")], rows(1))
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(Killed):
        cache.put([key("b"), key("c")], rows(2, 3))
    monkeypatch.undo()
    assert len(list(tmp_path.glob(".scratch-*"))) == 1
    opened = ArrayRows(tmp_path, FINGERPRINT)
    assert opened.missing([key(n) for n in "abc"]) == [key("b"), key("c")]
    opened.put([key("b"), key("c")], rows(2, 3))
    assert ArrayRows(tmp_path, FINGERPRINT).get([key(n) for n in "abc"])[:, 0].tolist() == [1, 2, 3]


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    one, two = ArrayRows(tmp_path, FINGERPRINT), ArrayRows(tmp_path, FINGERPRINT)
    one.put([key("a")], rows(1))
    two.put([key("a"), key("b")], rows(1, 2))
    both = ArrayRows(tmp_path, FINGERPRINT)
    assert both.get([key("a"), key("b")])[:, 0].tolist() == [1, 2]
    both.merge(at=2)
    assert ArrayRows(tmp_path, FINGERPRINT).get([key("a"), key("b")])[:, 0].tolist() == [1, 2]


def test_folder_of_another_fingerprint_is_refused_with_the_difference(tmp_path: Path) -> None:
    ArrayRows(tmp_path, FINGERPRINT).put([key("a")], rows(1))
    with pytest.raises(ManifestMismatchError, match="revision is '1', expected '2'"):
        ArrayRows(tmp_path, {**FINGERPRINT, "revision": "2"})
    with pytest.raises(ManifestMismatchError, match="prefix is None, expected 'q'"):
        ArrayRows(tmp_path, {**FINGERPRINT, "prefix": "q"})
    (tmp_path / "fingerprint.json").unlink()
    with pytest.raises(ManifestMismatchError, match="does not say what made them"):
        ArrayRows(tmp_path, FINGERPRINT)


@pytest.mark.parametrize(
    ("keys", "vectors", "message"),
    [
        ([key("a")], rows(1, 2), "1 keys need float32"),
        ([key("a")], rows(1).astype(np.float64), "need float32"),
        ([key("a"), key("b")], rows(1, np.nan), f"row of {key('b')} is not finite"),
        ([key("a")], np.ones((1, 3), np.float32), "have 3 numbers, those in .* have 2"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_written(
    tmp_path: Path, keys: list[str], vectors: np.ndarray, message: str
) -> None:
    cache = ArrayRows(tmp_path, FINGERPRINT)
    cache.put([key("z")], rows(0))
    with pytest.raises(ValueError, match=message):
        cache.put(keys, vectors)
    assert len(ArrayRows(tmp_path, FINGERPRINT)) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_empty_cache_answers(tmp_path: Path) -> None:
    cache = ArrayRows(tmp_path, FINGERPRINT)
    assert cache.dimension is None
    assert cache.get([]).shape == (0, 0)
    cache.put([], np.empty((0, 2), np.float32))
    assert list(tmp_path.glob("part-*")) == []


def test_old_scratch_is_swept_and_a_fresh_one_left_to_its_writer(tmp_path: Path) -> None:
    ArrayRows(tmp_path, FINGERPRINT)
    old, fresh = tmp_path / ".scratch-1-aaaa", tmp_path / ".scratch-1-bbbb"
    for path in (old, fresh):
        path.write_bytes(b"half a part")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert len(ArrayRows(tmp_path, FINGERPRINT)) == 0
    assert not old.exists()
    assert fresh.exists()


def fill(cache: ArrayRows, parts: int, size: int) -> list[str]:
    """Put parts of ``size`` keys each; the row of key i begins with i."""
    names = range(parts * size)
    for start in range(0, parts * size, size):
        cache.put([key(n) for n in names[start : start + size]], rows(*names[start : start + size]))
    return [key(n) for n in names]


def test_parts_are_merged_by_size_class_as_they_become_many(tmp_path: Path) -> None:
    cache = ArrayRows(tmp_path, FINGERPRINT)
    keys = fill(cache, 16, 2)
    assert len(list(tmp_path.glob("part-*"))) == 1
    cache.put([key("more")], rows(-1))
    keys += fill(cache, 300, 2)[32:]
    # 300 parts of one class: 18 merged ones of the next, of which 16 became one of the class above, and what is left.
    sizes = sorted(len(np.load(path)) for path in tmp_path.glob("part-*"))
    assert sizes[-1] > 16 * 16
    assert sum(sizes) == 601
    assert len(sizes) < 3 * 16
    for opened in (cache, ArrayRows(tmp_path, FINGERPRINT)):
        assert opened.get(keys)[:, 0].tolist() == list(range(600))
        assert opened.get([key("more")])[0, 0] == -1
    assert cache.merge(at=2) > 0
    assert len(list(tmp_path.glob("part-*"))) <= 3
    assert ArrayRows(tmp_path, FINGERPRINT).get(keys)[:, 0].tolist() == list(range(600))


def test_doubles_go_with_a_merge_and_the_first_row_stays(tmp_path: Path) -> None:
    one, two = ArrayRows(tmp_path, FINGERPRINT), ArrayRows(tmp_path, FINGERPRINT)
    one.put([key("a"), key("b")], rows(1, 2))
    two.put([key("x")], rows(7))
    two.put([key("a"), key("c")], rows(9, 3))  # of its own part, it knows no other
    before = ArrayRows(tmp_path, FINGERPRINT)
    wanted = [key(n) for n in "abcx"]
    expected = before.get(wanted).tolist()
    assert before.merge(at=2) == 3
    for opened in (before, ArrayRows(tmp_path, FINGERPRINT)):
        assert opened.get(wanted).tolist() == expected
        assert len(opened) == 4
    assert [len(np.load(path)) for path in tmp_path.glob("part-*")] == [4]


def test_merging_does_not_disturb_who_has_the_cache_open(tmp_path: Path) -> None:
    ArrayRows(tmp_path, FINGERPRINT).put([key("a")], rows(1))
    ArrayRows(tmp_path, FINGERPRINT).put([key("b")], rows(2))
    reader, one, two = (ArrayRows(tmp_path, FINGERPRINT) for _ in range(3))
    assert (one.merge(at=2), two.merge(at=2)) == (2, 2)  # the second of parts that are gone
    reader.put([key("c")], rows(3))
    for opened in (reader, ArrayRows(tmp_path, FINGERPRINT)):
        assert opened.get([key(n) for n in "abc"])[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("stop", ["before the switch", "before the old parts are gone", "between the old parts"])
def test_a_killed_merge_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    cache = ArrayRows(tmp_path, FINGERPRINT)
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
    opened = ArrayRows(tmp_path, FINGERPRINT)
    assert opened.get(keys)[:, 0].tolist() == list(range(15))
    opened.merge(at=2)
    assert sum(len(np.load(path)) for path in tmp_path.glob("part-*")) == 15
    assert ArrayRows(tmp_path, FINGERPRINT).get(keys)[:, 0].tolist() == list(range(15))


def test_a_part_that_vanishes_while_the_cache_is_opened_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ArrayRows(tmp_path, FINGERPRINT)
    keys = fill(other, 4, 1)
    load = np.load

    def merged_meanwhile(path: Path, **kwargs: Any) -> Any:
        monkeypatch.undo()
        other.merge(at=2)
        return load(path, **kwargs)

    monkeypatch.setattr(np, "load", merged_meanwhile)
    assert ArrayRows(tmp_path, FINGERPRINT).get(keys)[:, 0].tolist() == [0, 1, 2, 3]


def test_what_a_place_does_not_take_lasts_as_long_as_the_reader(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    reader = ArrayRows(absent, FINGERPRINT, must_keep=False)
    reader.put([key("a"), key("b")], rows(1, 2))
    reader.put([key("b"), key("c")], rows(9, 3))
    assert reader.get([key(n) for n in "cba"]).tolist() == [[3, 3.5], [2, 2.5], [1, 1.5]]
    assert reader.missing([key("c"), key("d")]) == [key("d")]
    assert not absent.exists()

    kept = tmp_path / "kept"
    ArrayRows(kept, FINGERPRINT).put([key("a")], rows(1))
    reader = ArrayRows(kept, FINGERPRINT, must_keep=False)
    reader.put([key("b")], rows(2))
    assert len(ArrayRows(kept, FINGERPRINT)) == 2, "where it can be kept, it is"
    moved = kept.rename(tmp_path / "moved")  # now nothing can be written there
    for number in range(40):  # more than what parts are merged at
        reader.put([key(number)], rows(number))
    assert reader.get([key(39), key("a"), key("b")])[:, 0].tolist() == [39, 1, 2]
    assert len(ArrayRows(moved, FINGERPRINT)) == 2
    with pytest.raises(ManifestMismatchError, match="model is 'm', expected 'n'"):
        ArrayRows(moved, {**FINGERPRINT, "model": "n"}, must_keep=False)
