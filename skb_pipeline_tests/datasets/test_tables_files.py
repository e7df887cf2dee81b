"""Which files a glob means; empty, hidden, cut off and damaged ones."""

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.datasets.sources.tables.files import is_empty, is_litter


def source(folder: Path, pattern: str, **more: Any) -> TablesSource:
    table = {"files": pattern, "id": "id", "type_value": "t", "fields": {"name": "name"}, **more}
    return TablesSource(TablesArgs.model_validate({"folder": str(folder), "nodes": [table]}))


def ids(adapter: TablesSource) -> list[str | None]:
    return [node.external_id for node in adapter.nodes()]


def test_hidden_files_are_left_out_and_empty_ones_have_no_rows_both_counted_by_name(tmp_path: Path) -> None:
    for name, content in {
        "p0.csv": b"id,name\n1,a\n",
        "p1.csv": b"",
        "p2.csv": b"\xef\xbb\xbf\r\n \n",
        "p3.csv.gz": gzip.compress(b""),
        "p4.csv.gz": gzip.compress(b"id,name\n2,b\n"),
        "p5.csv": b"id,name\n",
        "._p0.csv": b"\x00\x05\x16\x07",
        ".hidden.csv": b"id,name\n9,z\n",
        ".p0.csv.crc": b"crc",
        "_SUCCESS": b"",
        "__MACOSX/p0.csv": b"junk",
        ".cache/p9.csv": b"id,name\n8,y\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    adapter = source(tmp_path, "**/*")
    for _ in range(2):  # counted once, however often files are read
        assert ids(adapter) == ["1", "2"]
        assert adapter.out_of_scope == {
            "**/*: empty files (p1.csv, p2.csv, p3.csv.gz)": 3,
            "**/*: hidden files (._p0.csv, .cache/p9.csv, .hidden.csv, …)": 6,
        }
    assert [path.name for path in adapter.files()] == [
        "p0.csv", "p1.csv", "p2.csv", "p3.csv.gz", "p4.csv.gz", "p5.csv",
    ]  # fmt: skip
    assert ids(source(tmp_path, ".hidden.csv")) == ["9"]
    assert ids(source(tmp_path, ".cache/*.csv")) == ["8"]


@pytest.mark.parametrize(
    "name", ["._a.csv", ".DS_Store", "__MACOSX", "_SUCCESS", "_committed_77", "part-0.parquet.crc"]
)
def test_litter(name: str) -> None:
    assert is_litter(name)
    assert not any(map(is_litter, ["a._b.csv", "_nodes.csv", "SUCCESS.csv", "part-0.parquet"]))


def test_globs_without_data_are_errors_that_name_them(tmp_path: Path) -> None:
    (tmp_path / "._n.jsonl").write_bytes(b"x")
    with pytest.raises(FileNotFoundError, match=r"no file matches '\*\.jsonl' in .*; 1 hidden files do, such as \._n"):
        source(tmp_path, "*.jsonl").files()
    with pytest.raises(FileNotFoundError, match=r"no file matches 'x/\*\*/\*\.csv' in [^;]*$"):
        source(tmp_path, "x/**/*.csv").files()
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"all 2 files that match '\*\.parquet' are empty: a\.parquet, b\.par"):
        ids(source(tmp_path, "*.parquet"))


LINES = {
    "p.csv.gz": b"id,name\n" + b"".join(b"%d,name of %d\n" % (i, i * 7919) for i in range(20_000)),
    "q.csv.gz": b"id,name\n" + b"".join(b'%d,"name ""%d"""\n' % (i, i * 7919) for i in range(20_000)),
    "p.jsonl.gz": b"".join(b'{"id": %d, "name": "%d"}\n' % (i, i * 7919) for i in range(20_000)),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("quotes", [True, False])
def test_a_compressed_file_that_is_cut_off_is_named_with_what_was_read(tmp_path: Path, name: str, quotes: bool) -> None:
    packed = gzip.compress(LINES[name])
    path = tmp_path / name
    more = {} if quotes else {"quotes": False}
    path.write_bytes(packed)
    assert len(ids(source(tmp_path, name, **more))) == 20_000
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SourceError, match=rf"^{name}: the compressed file is cut off behind [1-9]\d+ whole lines; was"):
        ids(source(tmp_path, name, **more))
    path.write_bytes(packed[:5])
    assert not is_empty(path)
    with pytest.raises(SourceError, match=rf"^{name}: the compressed file is cut off behind 0 whole lines"):
        ids(source(tmp_path, name, **more))
    damaged = bytearray(packed)
    damaged[-6] ^= 1  # the checksum
    path.write_bytes(damaged)
    with pytest.raises(SourceError, match=rf"^{name}: the compressed data is damaged behind \d+ whole lines"):
        ids(source(tmp_path, name, **more))
    path.write_bytes(packed + gzip.compress(b'{"id": "x"}\n' if "jsonl" in name else b"x,y\n"))
    assert ids(source(tmp_path, name, **more))[-1] == "x"  # several members are one file


def test_judgements_and_edges_in_cut_files_are_named_too(tmp_path: Path) -> None:
    from skb_pipeline.datasets.sources.tables.qrels import read_qrels
    from skb_pipeline.datasets.sources.tables.reading import read_columns

    packed = gzip.compress(b"".join(b"q%d\t0\td%d\t1\n" % (i, i * 7919) for i in range(5_000)))
    (tmp_path / "t.tsv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SourceError, match=r"t\.tsv\.gz: the compressed file is cut off"):
        read_qrels([tmp_path / "t.tsv.gz"])
    with pytest.raises(SourceError, match=r"t\.tsv\.gz: the compressed file is cut off"):
        list(read_columns(tmp_path / "t.tsv.gz", ["q0", "d0"]))


def test_parquet_files_that_are_cut_off_or_damaged_are_named(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": [str(i) for i in range(9000)], "name": ["x" * 9] * 9000}), buffer)
    content = bytearray(buffer.getvalue())
    (tmp_path / "n.parquet").write_bytes(content[:-20])
    with pytest.raises(SourceError, match=r"n\.parquet: is no Parquet file"):
        ids(source(tmp_path, "n.parquet"))
    content[8:60] = b"\xff" * 52
    (tmp_path / "n.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=r"n\.parquet: cannot be read behind row 0"):
        ids(source(tmp_path, "n.parquet"))


def test_a_member_of_a_zip_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    from skb_pipeline.datasets.sources.stark.reading import find_graph

    with zipfile.ZipFile(tmp_path / "processed.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("node_info.pkl", "edge_index.pt", "edge_types.pt", "node_types.pt"):
            archive.writestr(f"processed/{name}", bytes(range(256)) * 400)
    content = bytearray((tmp_path / "processed.zip").read_bytes())
    content[80:120] = b"\x55" * 40
    (tmp_path / "processed.zip").write_bytes(content)
    graph = find_graph(tmp_path, "mag")
    with pytest.raises(SourceError, match=r"processed\.zip: processed/node_info\.pkl is damaged"), \
         graph.file("node_info.pkl"):  # fmt: skip
        pass
