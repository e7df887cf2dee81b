"""A catalogue that is followed by the real daemon, as a person switches it on in the UI; secrets are around."""

import time
from pathlib import Path

import pytest

from skb_pipeline_tests.live.built import differences
from skb_pipeline_tests.live.planted import found_below, planted_environment
from skb_pipeline_tests.live.trial import BACK_SECONDS, MOST_SECONDS, Trial


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_changes_are_followed_and_kills_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SKB_HOME", "DAGSTER_HOME", "NEO4J_URI"):
        monkeypatch.delenv(name, raising=False)
    for name, secret in planted_environment().items():
        monkeypatch.setenv(name, secret)
    trial = Trial(tmp_path)
    live, shop = trial.live, trial.shops[0]
    with live:
        live.switch_on("catalogue_changes")
        trial.change("the first spec", lambda: trial.put(shop), [shop.name])
        first = live.runs()[0]
        assert not any(live.made(first).values())
        shop.delete("p5")
        trial.change("a text edited and a product deleted", lambda: shop.edit("p3", "kites"), [shop.name])
        assert [asset for asset, reused in live.made(live.runs()[-1]).items() if reused] == ["planning/guidance"]
        shop.edit("p4", "moons")
        live.wait(lambda: len(live.runs()) > 2 and bool(live.made(live.runs()[-1])), MOST_SECONDS, "no run at work")
        live.kill()
        begun = time.monotonic()
        live.start()
        live.wait(lambda: len(live.runs()) > 3, BACK_SECONDS, "not taken up again")
        assert time.monotonic() - begun < BACK_SECONDS
        live.wait(lambda: all(run.is_finished for run in live.runs()), MOST_SECONDS, "not done")
        assert [run.status.value for run in live.runs()] == ["SUCCESS", "SUCCESS", "FAILURE", "SUCCESS"]
    assert found_below(trial.home, live.log) == []
    assert differences(trial.home, shop.name, tmp_path / "anew") == []
