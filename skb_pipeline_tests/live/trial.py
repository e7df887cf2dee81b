"""Twenty changes and twenty kills on a real daemon: ``python -m skb_pipeline_tests.live.trial FOLDER``.

``FOLDER CHANGES KILLS`` for fewer of them. Each change is waited for; at the end everything must equal a build from
nothing. It takes about a minute per change and two per kill, and prints a line for each.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from skb_pipeline_tests.live.built import differences
from skb_pipeline_tests.live.dagster_dev import LiveDagster
from skb_pipeline_tests.live.shop import Shop

MOST_SECONDS = 1500
"""For a run and what comes before it, on a machine that others load."""
BACK_SECONDS = 180
"""From a restart to being at work again."""
RUN, DAEMON = "spawn_main", "dagster._daemon"
"""Words in the command lines of the process of a run and of the daemon's."""
WHOM = ("all", "run", "daemon")


class Trial:
    """Two shops in one home that is followed."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.catalogue = self.home / "catalogue"
        self.catalogue.mkdir(parents=True)
        self.shops = [Shop.of(folder / name, name, seed=seed) for name, seed in (("shop", 5), ("other", 6))]
        self.live = LiveDagster(self.home, folder / "log")
        self.kept: dict[str, str] = {}

    def put(self, shop: Shop, text: str | None = None, **more: object) -> None:
        """Write a spec."""
        text = shop.spec(refresh="watch", **more) if text is None else text
        (self.catalogue / f"{shop.name}.yaml").write_text(text)

    def changes(self) -> list[tuple[str, Callable[[], None], list[str]]]:
        """What is done, and the datasets that are made anew for it."""
        one, other = self.shops
        first = {name: (one.folder / name).read_bytes() for name in ("products.csv", "bought.csv")}
        aside = one.folder / "aside"

        def restore() -> None:
            one.__dict__.update(Shop.of(one.folder, one.name, seed=5).__dict__)
            for name, content in first.items():
                assert (one.folder / name).read_bytes() == content

        def half_copied() -> None:
            text = (one.folder / "bought.csv").read_text()
            for part in range(1, 5):
                (one.folder / "bought.csv").write_text(text[: len(text) * part // 5])
                time.sleep(12)
            one.bought.append(("p1", "p9"))
            one._put("bought.csv", ["a,b", *(f"{a},{b}" for a, b in one.bought)])

        both = [one.name, other.name]
        return [
            ("the first spec", lambda: self.put(one), [one.name]),
            ("a text edited", lambda: one.edit("p3", "kites"), [one.name]),
            ("a product deleted", lambda: one.delete("p5"), [one.name]),
            ("the first state again", restore, [one.name]),
            ("a second spec", lambda: self.put(other), [other.name]),
            ("both edited", lambda: (one.edit("p7", "moons"), other.edit("p7", "suns"))[0], both),
            ("a spec broken", lambda: self.put(other, "name: [other"), []),
            ("one edited beside it", lambda: one.edit("p8", "stars"), [one.name]),
            ("the spec mended, with a setting", lambda: self.put(other, lexical={"k1": 0.9}), [other.name]),
            ("files unreadable", lambda: (one.folder / "brands.csv").rename(aside) and None, []),
            ("files back", lambda: aside.rename(one.folder / "brands.csv") and None, []),
            ("a file that is copied slowly", half_copied, [one.name]),
            ("a setting of the spec", lambda: self.put(one, lexical={"b": 0.5}), [one.name]),
            ("that setting back", lambda: self.put(one), [one.name]),
            ("touched only", lambda: os.utime(one.folder / "bought.csv"), [one.name]),
            ("a spec removed", lambda: (self.catalogue / "other.yaml").unlink(), []),
            ("the other's files edited meanwhile", lambda: other.edit("p2", "rivers"), []),
            ("its spec back", lambda: self.put(other, lexical={"k1": 0.9}), [other.name]),
            ("many edited", lambda: [one.edit(f"p{i}", "maps") for i in range(10, 30)] and None, [one.name]),
            ("both deleted from", lambda: (one.delete("p11"), other.delete("p11"))[0], both),
        ]

    def settled(self, since: int, datasets: list[str]) -> bool:
        """Whether each of the datasets had a run since, and nothing is going on."""
        runs = self.live.runs()[since:]
        seen = {run.tags.get("dagster/partition") for run in runs if run.status is dg.DagsterRunStatus.SUCCESS}
        return set(datasets) <= seen and all(run.is_finished for run in self.live.runs())

    def change(self, what: str, do: Callable[[], None], datasets: list[str]) -> None:
        """Make one change, wait, and see that each dataset that it touches was made once."""
        since = len(self.live.runs())
        do()
        if datasets:
            seconds = self.live.wait(lambda: self.settled(since, datasets), MOST_SECONDS, f"not made after {what!r}")
        else:
            seconds = 100.0
            time.sleep(seconds)
        runs = self.live.runs()[since:]
        counts = Counter(run.tags["dagster/partition"] for run in runs)
        made = {run.tags["dagster/partition"]: sum(not r for r in self.live.made(run).values()) for run in runs}
        states = Counter(run.status.value for run in runs)
        assert counts == Counter(datasets), f"{what}: {counts}"
        assert set(states) <= {"SUCCESS"}, f"{what}: {states}"
        print(f"{what}: {seconds:.0f} s, {made or 'nothing made'}", flush=True)

    def kill(self, number: int, draw: random.Random) -> None:
        """Kill all, the run's process or the daemon at some moment after a change; it must be at work again in time."""
        shop, whom = self.shops[0], WHOM[number % len(WHOM)]
        since = len(self.live.runs())
        shop.edit(f"p{20 + number % 10}", f"word{number}")
        self.live.wait(lambda: len(self.live.runs()) > since, MOST_SECONDS, "no run")
        pause = draw.uniform(0, 40)
        time.sleep(pause)
        before = {run.run_id: run.status for run in self.live.runs()[since:]}
        if whom == "all":
            self.live.kill()
            self.live.start()
        elif whom == "run":
            self.live.kill_only(RUN)
        else:
            self.live.kill_only(DAEMON)
            self.live.start_again()

        def at_work() -> bool:
            newest = self.live.runs()[-1]
            lives = newest.run_id not in before or bool(self.live.processes_of(RUN))
            return newest.is_success or (lives and newest.status is dg.DagsterRunStatus.STARTED)

        back = self.live.wait(at_work, BACK_SECONDS, f"not at work again after {whom} was killed")
        whole = self.live.wait(lambda: self.settled(since, [shop.name]), MOST_SECONDS, "not done again")
        states = Counter(run.status.value for run in self.live.runs()[since:])
        print(f"{number}: {whom} killed after {pause:.0f} s, {[s.value for s in before.values()]}: at work after "
              f"{back:.0f} s, done after {whole:.0f} s more, {dict(states)}", flush=True)  # fmt: skip

    def see_fresh(self, shop: Shop) -> None:
        """As a person asks for it."""
        done = subprocess.run(
            [sys.executable, "-m", "skb_pipeline.cli", "status", "--dataset", shop.name],
            env={**os.environ, "SKB_HOME": str(self.home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"{shop.name}: all is fresh", flush=True)


def main(folder: Path, changes: int = 20, kills: int = 20) -> None:
    """Run the trial in an empty folder."""
    trial = Trial(folder)
    with trial.live:
        trial.live.switch_on("catalogue_changes")
        for what, do, datasets in trial.changes()[:changes]:
            trial.change(what, do, datasets)
        shops = [shop for shop in trial.shops if (trial.catalogue / f"{shop.name}.yaml").exists()]
        for shop in shops:
            trial.see_fresh(shop)
        draw = random.Random(7)
        for number in range(kills):
            trial.kill(number, draw)
        for shop in shops:
            trial.see_fresh(shop)
    for shop in shops:
        found = differences(trial.home, shop.name, folder / "anew")
        print(f"{shop.name} against a build from nothing: {found or 'equal'}", flush=True)
        assert not found


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
