import os
from pathlib import Path

import pytest

from skb_pipeline.datasets.unchanged import SourceChangedError, digests, held


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"first {name}")
    return {name: tmp_path / name for name in ("a.csv", "b.csv")}


def test_files_that_hold_still_may_be_read(files: dict[str, Path]) -> None:
    expected = digests(files)
    assert expected["a.csv"] != expected["b.csv"]
    os.utime(files["a.csv"])
    with held(files, expected):
        assert files["a.csv"].read_text() == "first a.csv"


def edited_and_restored(path: Path) -> None:
    stat, text = path.stat(), path.read_text()
    path.write_text("x" * len(text))
    path.write_text(text)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def swapped_and_swapped_back(path: Path) -> None:
    aside = path.with_suffix(".aside")
    path.rename(aside)
    path.write_text(aside.read_text().upper())
    aside.replace(path)


@pytest.mark.parametrize("change", [edited_and_restored, swapped_and_swapped_back, Path.unlink])
def test_a_change_during_the_reading_is_told(files: dict[str, Path], change: object) -> None:
    expected = digests(files)
    with pytest.raises(SourceChangedError, match=r"^b\.csv changed while it was read"), held(files, expected):
        change(files["b.csv"])  # type: ignore[operator]


def test_the_change_is_told_where_it_made_the_reading_fail(files: dict[str, Path]) -> None:
    expected = digests(files)

    def read() -> None:
        with held(files, expected):
            files["a.csv"].write_text("half")
            raise ValueError("line 3 has too few fields")

    with pytest.raises(SourceChangedError, match=r"a\.csv") as told:
        read()
    assert str(told.value.__cause__) == "line 3 has too few fields"
    with pytest.raises(ValueError, match="a fault of the rows"), held(files, digests(files)):
        raise ValueError("a fault of the rows")


def test_other_content_or_other_files_than_expected_are_not_read(files: dict[str, Path]) -> None:
    expected = digests(files)
    files["b.csv"].write_text("second")
    with pytest.raises(SourceChangedError, match=r"^b\.csv changed since"), held(files, expected):
        raise AssertionError("is not reached")
    more = {**files, "c.csv": files["a.csv"]}
    with pytest.raises(SourceChangedError, match=r"^b\.csv, c\.csv changed since"), held(more, expected):
        raise AssertionError("is not reached")
