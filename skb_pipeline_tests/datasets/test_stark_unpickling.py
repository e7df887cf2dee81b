"""Pickles and tensors: equal content by pieces, and refusal of everything that is a program."""

from __future__ import annotations

import collections
import datetime
import os
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.stark.reading import read_names, read_tensor
from skb_pipeline.datasets.sources.stark.unpickling import RefusedPickleError, iterate_dict, load_pickle
from skb_pipeline.datasets.sources.stark.writing import write_dict
from skb_pipeline_tests.examples import examples


class Outer:
    class Inner:
        """A class within a class."""


class Runs:
    """Unpickling calls ``callee`` with ``args``."""

    def __init__(self, callee: Any, *args: Any) -> None:
        self.callee, self.args = callee, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.callee, self.args


def hostile(trace: Path) -> list[tuple[Any, str]]:
    """(object, what it wants, as a regular expression)."""
    return [
        (Runs(os.system, f"touch {trace}"), "posix.system"),
        (Runs(eval, f"open({str(trace)!r}, 'w')"), r"builtin(s|__)\.eval"),
        (Runs(getattr, "x", "upper"), r"builtin(s|__)\.getattr"),
        (Runs(np.save, str(trace), [1]), "numpy.save"),
        (Runs(np.array, [1]), "numpy.array"),
        (np.zeros(2), "_reconstruct"),
        (Outer.Inner(), r"Outer\.Inner|getattr"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (datetime.date(2020, 1, 1), "datetime.date"),
        (torch.zeros(2), "torch._utils._rebuild_tensor_v2"),
    ]


CASES = [name for _, name in hostile(Path("x"))]


@pytest.mark.parametrize("case", range(len(CASES)), ids=CASES)
@pytest.mark.parametrize("protocol", [2, 4])
def test_what_is_no_plain_data_is_refused_by_name(tmp_path: Path, case: int, protocol: int) -> None:
    trace = tmp_path / "trace"
    value, name = hostile(trace)[case]
    path = tmp_path / "node_info.pkl"
    # Behind a batch of harmless items, so that it is met while pieces are read.
    path.write_bytes(pickle.dumps({**{i: {"a": i} for i in range(1500)}, 1500: {"b": [value]}}, protocol))
    for read in (load_pickle, lambda p: dict(iterate_dict(p))):
        with pytest.raises(
            RefusedPickleError, match=rf"node_info\.pkl: refused, as it wants .*({name}).*pickle it anew"
        ):
            read(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80", b"no pickle", pickle.dumps({1: 2})[:-2], pickle.dumps({i: str(i) for i in range(3000)})[:20_000],
        b"\x80\x04\x8c\xff.", b"\x80\x04}h\x05.", b"cposix\nsystem\n(S'true'\ntR.",
    ],
)  # fmt: skip
def test_damaged_pickles_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node_info.pkl"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"node_info\.pkl"):
        list(iterate_dict(path))


@pytest.mark.parametrize(
    "attack",
    [
        # numpy.dtype of objects, a scalar of too few bytes, attributes set on the allowed callables
        b"\x80\x02}(K\x01cnumpy\ndtype\n(X\x01\x00\x00\x00OtRu.",
        b"\x80\x02}(K\x01cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(X\x02\x00\x00\x00f8tRC\x01atRu.",
        b"\x80\x02}(K\x01cnumpy.core.multiarray\nscalar\n}X\x01\x00\x00\x00aK\x02sbu.",
        b"\x80\x02}(K\x01cnumpy\ndtype\n}X\x01\x00\x00\x00aK\x02sbu.",
        b"\x80\x02}(K\x01c__builtin__\nlist\n}X\x01\x00\x00\x00aK\x02sbu.",
    ],
)
def test_the_allowed_names_cannot_be_misused(tmp_path: Path, attack: bytes) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(attack)
    with pytest.raises(SourceError, match=r"x\.pkl: cannot be read as a pickle"):
        list(iterate_dict(path))


def test_numpy_scalars_become_plain_values(tmp_path: Path) -> None:
    values = [np.int64(-3), np.uint8(4), np.bool_(True), np.float32(0.5), np.float64(2.5), np.str_("né"), np.str_("")]
    swapped = np.array([513], dtype=">i4")[0]
    path = tmp_path / "x.pkl"
    for protocol in (3, 4, 5):
        path.write_bytes(pickle.dumps({np.int64(i): v for i, v in enumerate([*values, swapped])}, protocol))
        found = dict(iterate_dict(path))
        assert found == {0: -3, 1: 4, 2: True, 3: 0.5, 4: 2.5, 5: "né", 6: "", 7: 513}
        assert {type(v) for v in (*found, *found.values())} == {int, bool, float, str}


SHARED = ["shared", ["list"]]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
    | st.binary(max_size=3) | st.sampled_from(SHARED),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PLAIN, max_size=6), st.sampled_from([0, 1, 2, 3, 998, 999, 1000, 1001, 2001]), st.integers(0, 5))
def test_pieces_give_what_the_whole_has(tmp_path: Path, values: list[Any], count: int, protocol: int) -> None:
    """Over batch borders, with objects shared between batches, in every protocol."""
    whole = {i: values[i % len(values)] if values else {"k": SHARED, "l": {1: 2, 3: 4}} for i in range(count)}
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(whole, protocol))
    if protocol < 3 and (b"_codecs" in path.read_bytes() or b"bytes" in path.read_bytes()):
        return  # bytes need a function call in these protocols
    found = dict(iterate_dict(path))
    assert found == whole
    assert list(found) == list(whole)


def test_items_are_freed_while_a_dict_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    names = [f"name {i}" for i in range(10)]
    path.write_bytes(pickle.dumps({i: {"name": names[i % 10], "rest": [str(i)] * 3} for i in range(5000)}))
    seen = [value["name"] for _, value in iterate_dict(path)]
    # A name is one object in all items, as in the pickle: it is taken from an earlier piece.
    assert len({id(name) for name in seen}) == 10
    assert seen == [names[i % 10] for i in range(5000)]


def test_dicts_are_written_in_pieces_any_unpickler_reads(tmp_path: Path) -> None:
    rng = random.Random(1)
    whole = {i: {"a": [rng.random(), None, "é" * (i % 300)]} for i in range(2500)}
    for part in (whole, {}, {1: {"a": 1, "b": 2}}, dict(list(whole.items())[:1001])):
        assert write_dict(tmp_path / "x.pkl", part.items()) == len(part)
        assert pickle.loads((tmp_path / "x.pkl").read_bytes()) == part
        assert dict(iterate_dict(tmp_path / "x.pkl")) == part


@pytest.mark.parametrize("value", [[1, 2], {"a": torch.zeros(2)}, torch.zeros(2, 2), torch.tensor([0.5]), "x"])
def test_tensors_of_another_form_are_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "edge_types.pt"
    torch.save(value, path)
    with pytest.raises(SourceError, match=r"edge_types\.pt: .*expected"):
        read_tensor(path, dimensions=1)


def test_tensors_come_as_integers(tmp_path: Path) -> None:
    path = tmp_path / "t.pt"
    for tensor in (torch.tensor([1, 0], dtype=torch.int32), torch.tensor([1.0, 0.0])):
        torch.save(tensor, path)
        found = read_tensor(path, dimensions=1)
        assert (found.tolist(), found.dtype) == ([1, 0], np.int64)


def test_tensor_files_with_code_are_refused_by_name(tmp_path: Path) -> None:
    path, trace = tmp_path / "edge_index.pt", tmp_path / "trace"
    for value, name in [(Runs(os.system, f"touch {trace}"), "posix.system"), (Outer(), "Outer")]:
        torch.save(value, path)
        with pytest.raises(SourceError, match=rf"edge_index\.pt: refused, as it wants .*{name}; only tensors"):
            read_tensor(path, dimensions=2)
    path.write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(SourceError, match=r"edge_index\.pt: cannot be read as a tensor"):
        read_tensor(path, dimensions=2)
    assert not trace.exists()


ADVICE = re.compile(r"weights_only|arbitrary code|trusted|safe_globals|file an issue|PyTorch 2|http", re.IGNORECASE)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_raw_pickles_in_place_of_tensors_are_refused_in_our_words(tmp_path: Path, protocol: int) -> None:
    """Whatever wrote the file: the class is named, what to do is said, and torch's advice is not repeated."""
    path = tmp_path / "node_types.pt"
    shared = datetime.timedelta(1)
    for value, wanted in [
        (torch.arange(3), r"torch\.storage\._load_from_bytes"),
        (np.arange(3), r"numpy\._?core\.(multiarray|numeric)\.(_reconstruct|_frombuffer)"),
        ({"n": [shared, shared]}, r"datetime\.timedelta"),
        (Outer(), r"\S*test_stark_unpickling\.Outer"),
        (complex(1, 2), r"(builtins|__builtin__)\.complex"),
    ]:
        path.write_bytes(pickle.dumps(value, protocol))
        with pytest.raises(SourceError) as failure:
            read_tensor(path, dimensions=1)
        told = str(failure.value)
        by_copyreg = r"copyreg\._reconstructor|copy_reg\._reconstructor|_codecs\.encode"
        assert re.match(rf"node_types\.pt: refused, as it wants ({wanted}|{by_copyreg}); only tensors are read", told)
        assert "torch.save(torch.as_tensor(numbers), 'node_types.pt')" in told
        assert not ADVICE.search(told)
        assert failure.value.__cause__ is None
    for content in (pickle.dumps([1, 2], protocol), b"", b"text", b"PK\x05\x06" + bytes(18)):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=r"node_types\.pt: (cannot be read as a tensor|.*expected)") as failure:
            read_tensor(path, dimensions=1)
        assert not ADVICE.search(str(failure.value))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_save_with_other_classes_are_refused_in_our_words(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "edge_types.pt"
    for value, wanted in [
        ({"t": torch.zeros(2), "when": datetime.date(2021, 3, 4)}, "datetime.date"),
        ([torch.zeros(2, dtype=torch.int64), np.zeros(2)], "_reconstruct"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
    ]:
        torch.save(value, path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(SourceError) as failure:
            read_tensor(path, dimensions=1)
        assert re.match(rf"edge_types\.pt: refused, as it wants \S*{re.escape(wanted)}; only", str(failure.value))
        assert not ADVICE.search(str(failure.value))


@pytest.mark.parametrize("value", [["a"], {"a": 1}, {0: 1}, None])
def test_dicts_of_names_must_be_dicts_of_names(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "node_type_dict.pkl"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(SourceError, match=r"node_type_dict\.pkl: a dict from codes to names was expected"):
        read_names(path)
