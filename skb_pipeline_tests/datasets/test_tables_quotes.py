"""CSV cells in quotes: doubled quotes, escaped quotes, and text that stands behind a closing quote."""

import csv
import gzip
import io
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.datasets.sources.tables.csv_kernels import scan
from skb_pipeline.datasets.sources.tables.reading import PLAIN, STRAY, Layout, column_names, guess_escape, read_rows
from skb_pipeline_tests.examples import examples

BACKSLASHED = (
    "id,title,note\n"
    '1,"5\\" nail, steel","box"\n'
    '2,"plain","a ""doubled"" one"\n'
    '3,no quotes,5" pan\n'
    '4,"two\nlines \\"here\\"","C:\\\\dir\\\\"\n'
    '5,"last","x"\n'
)
ESCAPE = Layout(escape="\\")


def rows_of(path: Path, layout: Layout = PLAIN, columns: tuple[str, ...] = ("id", "title", "note")) -> list[Any]:
    return list(read_rows(path, columns, ["id"], layout))


def test_with_an_escape_character_cells_are_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(BACKSLASHED)
    assert [tuple(row.values.values()) for row in rows_of(path, ESCAPE)] == [
        ("1", '5" nail, steel', "box"),
        ("2", "plain", 'a "doubled" one'),
        ("3", "no quotes", '5" pan'),
        ("4", 'two\nlines "here"', "C:\\dir\\"),
        ("5", "last", "x"),
    ]
    assert guess_escape(path) == "\\"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz"])
def test_without_it_rows_with_text_behind_a_closing_quote_are_faults_with_their_line(
    tmp_path: Path, newline: str, name: str
) -> None:
    path = tmp_path / name
    content = b"\xef\xbb\xbf" + BACKSLASHED.replace("\n", newline).encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    rows = rows_of(path)
    assert [(row.number, row.values["title"]) for row in rows if row.fault is None] == [
        (2, "plain"), (3, "no quotes"), (5, "last"),
    ]  # fmt: skip
    faults = [(row.number, row.values["line"], row.values["text"], row.fault) for row in rows if row.fault]
    assert faults == [
        (1, 2, '1,"5\\" nail, steel","box"', STRAY),
        (4, 5, f'4,"two{newline}lines \\"here\\"","C:\\\\dir\\\\"', STRAY),
    ]


def test_faulty_rows_are_quarantined_in_nodes_and_stop_edges(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text('id;name\n1;"A"\n\n2;"B"b\n3;"C";too many\n4;"D"\n')
    (tmp_path / "e.csv").write_text('a,b\n1,4\n"1" ,4\n')
    table = {"files": "n.csv", "id": "id", "type_value": "t", "fields": {"name": "name"}, "delimiter": ";"}
    edges = {"files": "e.csv", "head": "a", "tail": "b", "relation_value": "r"}
    args = {"folder": str(tmp_path), "nodes": [table], "edges": [edges]}
    source = TablesSource(TablesArgs.model_validate(args))
    found = [(node.row, node.external_id, (node.fault or "")[8:20]) for node in source.nodes()]
    assert found == [
        (1, "1", ""), (4, "4", ""), (3, None, "another numb"), (2, None, "text behind "),
    ]  # fmt: skip
    with pytest.raises(SourceError, match=r"e\.csv:2 \(line 3\): row has text behind a closing quote.*'\"1\" ,4'"):
        list(source.edges())
    (tmp_path / "e.csv").write_text('"a" x,b\n1,4\n')
    with pytest.raises(SourceError, match=r"e\.csv:1: cannot be read: ',' expected after '\"'"):
        list(source.edges())


def test_a_file_with_both_faults_is_told_in_full_however_long_it_is(tmp_path: Path) -> None:
    """Over several blocks of every reader on the way; numbers and texts of rows stay right."""
    order = random.Random(5)
    lines, expected = ["id,text"], {}
    for i in range(1, 60_001):
        kind = order.choice(["plain"] * 300 + ["stray", "ragged", "lines"])
        cell = {"plain": "x" * (i % 50), "stray": f'"a{i}"b', "ragged": "a,b", "lines": '"q\n""r"""'}[kind]
        lines.append(f"{i},{cell}")
        if kind in ("stray", "ragged"):
            expected[i] = lines[-1]
    (tmp_path / "n.csv").write_text("\n".join(lines))
    rows = rows_of(tmp_path / "n.csv", columns=("id", "text"))
    assert {row.number: row.values["text"] for row in rows if row.fault} == expected
    assert all(row.values["id"] == str(row.number) for row in rows if not row.fault)
    assert len(rows) == 60_000


def test_other_encodings_delimiters_and_settings_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_bytes('id\ttitle\tnote\n1\t"né"e\tx\n2\t"é \\" é"\ty\n'.encode("utf-16"))
    layout = Layout(delimiter="\t", encoding="utf-16", escape="\\")
    rows = rows_of(path, layout)
    assert [row.values["title"] for row in rows if not row.fault] == ['é " é']
    assert [row.values for row in rows if row.fault] == [{"text": '1\t"né"e\tx', "line": 2}]
    path.write_text('id^title\n1^a^^b\n2^"c"^d\n')
    assert column_names(path, Layout("^", escape="\\")) == ["id", "title"]
    table = {"files": "n.csv", "id": "id", "type_value": "t", "fields": {"a": "a"}}
    for setting in ({"escape": '"'}, {"escape": "\\\\"}, {"delimiter": "é"}, {"escape": ";", "delimiter": ";"}):
        with pytest.raises(ValueError, match=r"ASCII|at most 1|differ"):
            TablesArgs.model_validate({"folder": "x", "nodes": [{**table, **setting}]})


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        ("a,b\n1,2\n", None),
        ('a,b\n1,"C:\\dir\\"\n', None),  # a backslash at the end of a cell
        ('a,b\n1,"he said \\"no\\""\n', "\\"),
        ('a,b\n1,"a"b\n', None),  # faulty in either way
        ('a,b\n1,"open \\" end\n2,"b"\n', None),
        ('a,b\n1,"x \\",y"\n2,"\\"z"\n', "\\"),
    ],
)
def test_escapes_are_guessed_only_where_they_explain_all(tmp_path: Path, content: str, guess: str | None) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert guess_escape(tmp_path / "t.csv") == guess


CELL = st.text(st.sampled_from('a",\\\n\r é'), max_size=6)


@settings(max_examples=examples(200, quick=40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), st.integers(1, 9), st.booleans())
def test_what_a_writer_wrote_is_read_and_never_called_faulty(
    tmp_path: Path, cells: list[tuple[str, str]], block: int, escaped: bool
) -> None:
    text = io.StringIO()
    how: dict[str, Any] = {"doublequote": False, "escapechar": "\\"} if escaped else {}
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n", **how)
    writer.writerows([("id", "title"), *cells])
    content = text.getvalue().encode()
    layout = ESCAPE if escaped else Layout()
    found = scan((content[i : i + block] for i in range(0, len(content), block)), ",", layout.escape)
    assert (found.rows, len(found.stray), found.unclosed) == (len(cells) + 1, 0, None)
    (tmp_path / "n.csv").write_bytes(content)
    rows = rows_of(tmp_path / "n.csv", layout, ("id", "title"))
    assert [(row.values["id"] or "", row.values["title"] or "") for row in rows] == cells
