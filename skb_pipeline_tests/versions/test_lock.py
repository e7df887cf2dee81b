"""The lock of versions holds, and notices what it is there to notice."""

import ast
import copy
from collections.abc import Callable

import pytest

from skb_pipeline.orchestration.build import build_defs
from skb_pipeline.systems.registry import BUILTIN, Registry, read_systems
from skb_pipeline_tests.versions.lock import Lock, closure, current_lock, differences, digest, read_lock


@pytest.fixture(scope="module")
def now() -> Lock:
    return current_lock(build_defs(registry=Registry(read_systems(BUILTIN))))


def test_no_behaviour_changed_under_its_old_version(now: Lock) -> None:
    assert not differences(read_lock(), now), "\n".join(["", *differences(read_lock(), now)])


def changed(lock: Lock, change: Callable[[Lock], object]) -> Lock:
    other = copy.deepcopy(lock)
    change(other)
    return other


def test_a_rule_changed_without_a_new_version(now: Lock) -> None:
    """What was forgotten once: validation and the branch changed, and the stored graph ranking was taken for good."""

    def rules(lock: Lock) -> None:
        lock["modules"] |= {"skb_pipeline.plans.validation": "0", "skb_pipeline.graph.branch": "0"}

    told = {line.split(":")[0]: line for line in differences(now, changed(now, rules))}
    assert told["ranking/graph"].startswith(
        "ranking/graph: graph/branch.py, plans/validation.py changed; bump VERSION (or revision) where results differ"
    )
    assert "planning/query_plans" in told
    assert "index/bm25" not in told
    assert "catalog/snapshot" not in told


def test_the_function_of_an_asset_counts(now: Lock) -> None:
    def body(lock: Lock) -> None:
        lock["assets"]["index/bm25"]["function"] = "0"

    assert differences(now, changed(now, body)) == [
        "index/bm25: its own function changed; bump VERSION (or revision) where results differ, and run `make versions`"
    ]


def test_a_new_version_has_to_be_written_down(now: Lock) -> None:
    def bumped(lock: Lock) -> None:
        lock["assets"]["skb/store"]["version"] = "asset 2"
        lock["assets"]["new/one"] = lock["assets"]["graph/csr"]
        del lock["assets"]["index/dense"]

    assert sorted(differences(now, changed(now, bumped))) == [
        "index/dense is gone: run `make versions`",
        "new/one is new: run `make versions`",
        "skb/store has the version 'asset 2' now: run `make versions`",
    ]


def test_what_ranks_is_behind_the_ranking() -> None:
    behind = closure("skb_pipeline.systems.kinds.plans")
    assert {f"skb_pipeline.{name}" for name in ("graph.branch", "retrieval.ranking", "plans.validation")} <= behind
    assert "skb_pipeline.datasets.spec" not in behind, "declarations count by their values"
    assert not {name for name in behind if name.endswith(".settings")}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x = 1", "x = 2", False),
        ("x = 1", "'''Told.'''\nx = 1  # why\n'''What x is.'''", True),
        ("def f(a):\n    return a", "def f(a):\n    '''Doc.'''\n\n    return (a)", True),
        ("def f(a): return a", "def f(a, b=1): return a", False),
        ("VERSION = '1'\nx = 1", "VERSION = '2'\nx = 1", True),
        ("FORMAT = '1'", "FORMAT = '2'", False),
        ("x = 'a'", "x = 'b'", False),
        ("x = 1", "x = 1.0", False),
        ("class A:\n    x: int", "class A:\n    'Doc.'\n    x: int\n    'What x is.'", True),
        ("if a:\n    b()", "if a:\n    c()", False),
    ],
)
def test_only_what_code_does_counts(one: str, other: str, same: bool) -> None:
    assert (digest(ast.parse(one)) == digest(ast.parse(other))) is same
