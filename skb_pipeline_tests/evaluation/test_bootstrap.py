"""Facts about the resamples, and agreement with scipy's percentile bootstrap."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from skb_pipeline.evaluation import bootstrap
from skb_pipeline.evaluation.bootstrap import mean_intervals, paired_difference, paired_differences

N = 300
IDS = [f"q{number}" for number in range(N)]


def values(seed: int, shift: float = 0.0) -> np.ndarray:
    """Float64 [N, 2]: a binary metric and a continuous one."""
    generator = np.random.default_rng(seed)
    return np.column_stack([generator.random(N) < 0.4 + shift, generator.random(N) ** 2 + shift]).astype(float)


def test_like_scipy_percentile_bootstrap() -> None:
    stats = pytest.importorskip("scipy.stats")
    own = mean_intervals(IDS, [values(0)], samples=20_000, seed=1)[0]
    for column in (0, 1):
        theirs = stats.bootstrap(
            (values(0)[:, column],),
            np.mean,
            method="percentile",
            n_resamples=20_000,
            batch=500,
            rng=np.random.default_rng(2),
        ).confidence_interval
        width = theirs.high - theirs.low
        assert own.low[column] == pytest.approx(theirs.low, abs=0.03 * width)
        assert own.high[column] == pytest.approx(theirs.high, abs=0.03 * width)
    np.testing.assert_allclose(own.value, values(0).mean(axis=0))


def test_paired_difference_like_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    first, second = values(0), values(0, shift=0.05)
    own = paired_difference(IDS, first, second, samples=20_000, seed=1)
    theirs = stats.bootstrap(
        (first[:, 0], second[:, 0]),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        batch=500,
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert own.low[0] == pytest.approx(theirs.low, abs=0.05 * width)
    assert own.high[0] == pytest.approx(theirs.high, abs=0.05 * width)


def test_another_system_changes_nothing() -> None:
    alone = mean_intervals(IDS, [values(0)], samples=500, seed=7)[0]
    among = mean_intervals(IDS, [values(3), values(0), values(4)], samples=500, seed=7)[1]
    for name in ("value", "low", "high"):
        assert getattr(alone, name).tobytes() == getattr(among, name).tobytes()


def test_equal_systems_have_equal_intervals() -> None:
    first, second = mean_intervals(IDS, [values(0), values(0)], samples=200, seed=0)
    assert first.low.tolist() == second.low.tolist()


def test_order_of_queries_does_not_matter_but_the_ids_and_the_seed_do() -> None:
    back = np.arange(N)[::-1]
    given = mean_intervals(IDS, [values(0)], samples=400, seed=7)[0]
    turned = mean_intervals([IDS[i] for i in back], [values(0)[back]], samples=400, seed=7)[0]
    assert given.low.tolist() == turned.low.tolist()
    other_seed = mean_intervals(IDS, [values(0)], samples=400, seed=8)[0]
    other_ids = mean_intervals([f"x{i}" for i in IDS], [values(0)], samples=400, seed=7)[0]
    assert given.low[1] != other_seed.low[1]
    assert given.low[1] != other_ids.low[1]


def test_chunks_are_invisible(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mean_intervals(IDS, [values(0)], samples=400, seed=7)[0]
    monkeypatch.setattr(bootstrap, "_CELLS", N * 7)
    np.testing.assert_allclose(mean_intervals(IDS, [values(0)], samples=400, seed=7)[0].low, whole.low, rtol=1e-12)


def test_resamples_have_n_queries_each() -> None:
    ones = mean_intervals(IDS, [np.ones((N, 1))], samples=50, seed=0)[0]
    assert (ones.low[0], ones.high[0]) == (1.0, 1.0)


def test_all_zero_differences_are_no_difference() -> None:
    same = paired_difference(IDS, values(0), values(0), samples=100, seed=0)
    assert same.value.tolist() == same.low.tolist() == same.high.tolist() == [0.0, 0.0]
    assert same.p_value.tolist() == [1.0, 1.0]


def test_a_constant_gain_has_the_smallest_possible_p() -> None:
    gain = paired_difference(IDS, values(0) + 0.1, values(0), samples=999, seed=0)
    np.testing.assert_allclose([gain.value, gain.low, gain.high], 0.1)
    assert gain.p_value.tolist() == [2 / 1000, 2 / 1000]


def test_p_agrees_with_the_interval_and_with_the_other_direction() -> None:
    pairs = [(values(0, shift=shift), values(1)) for shift in (0.0, 0.02, 0.05, 0.08, 0.2)]
    forth = paired_differences(IDS, pairs, samples=1999, seed=0)
    back = paired_differences(IDS, [(b, a) for a, b in pairs], samples=1999, seed=0)
    decided = set()
    for one, other in zip(forth, back, strict=True):
        np.testing.assert_allclose(one.p_value, other.p_value)
        np.testing.assert_allclose(one.low, -other.high, atol=1e-12)
        for low, high, p in zip(one.low, one.high, one.p_value, strict=True):
            assert 0 < p <= 1
            if abs(p - 0.05) > 0.01:
                assert (p < 0.05) == (low > 0 or high < 0)
                decided.add(p < 0.05)
    assert decided == {True, False}


def test_swapped_hits_give_p_near_one() -> None:
    first = np.array([[1.0], [0.0]] * 50)
    even = paired_difference(IDS[:100], first, 1 - first, samples=999, seed=0)
    assert even.value[0] == 0.0
    assert even.p_value[0] > 0.8


def test_one_query_gives_a_point() -> None:
    single = mean_intervals(["q"], [np.array([[0.25]])], samples=10, seed=0)[0]
    assert (single.low[0], single.high[0]) == (0.25, 0.25)


def test_same_in_another_process() -> None:
    """The resamples must not depend on Python's salted string hashes."""
    code = (
        "import numpy as np; from skb_pipeline.evaluation.bootstrap import mean_intervals;"
        "print(repr(mean_intervals(list('abcd'), [np.arange(4.0)[:, None] ** 2], samples=30, seed=5)[0].low[0]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout
        for salt in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("ids", "matrix", "samples", "message"),
    [
        ([], np.empty((0, 1)), 10, "distinct query ids"),
        (["a", "a"], np.ones((2, 1)), 10, "distinct query ids"),
        (["a", "b"], np.ones((3, 1)), 10, "one row per query"),
        (["a", "b"], np.ones(2), 10, "one row per query"),
        (["a"], np.ones((1, 1)), 0, "at least 1 sample"),
    ],
)
def test_input_errors(ids: list[str], matrix: np.ndarray, samples: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mean_intervals(ids, [matrix], samples=samples, seed=0)
