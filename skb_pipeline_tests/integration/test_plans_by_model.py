"""Plans of a language model in the main job: killed and gone on with, judged beside the rules, executed, explained."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from skb_pipeline.cli import cli
from skb_pipeline.orchestration.running import RunFailedError, StageOutcome, materialise
from skb_pipeline.planning.engines.kept_replies import open_replies
from skb_pipeline.planning.frames import PLANS
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.frames import read_frame
from skb_pipeline.workspace import PLAN_QUALITY_FILE, Workspace
from skb_pipeline_tests.llm_servers import Reply, ScriptedServer, SeenRequest, chat_reply, error_reply, scripted_server

ASKED = 12


def question_of(request: SeenRequest) -> str:
    """The question in the last message: the JSON string in its first fenced block."""
    content = request.body["messages"][-1]["content"]
    return str(json.loads(content.split("```json\n", 1)[1].split("\n```", 1)[0]))


class Oracle:
    """Replies with the gold plan of a question, but for every fourth with something that is no plan, also when asked
    again. Every reply takes a while, so that there is something to kill."""

    def __init__(self, gold: dict[str, str | None]) -> None:
        self.gold = gold
        self.wrong = {question for i, question in enumerate(sorted(gold)) if i % 4 == 0}

    def __call__(self, request: SeenRequest) -> Reply:
        question = question_of(request)
        text = "I cannot say." if question in self.wrong else self.gold.get(question) or "null"
        return chat_reply(text, usage={"prompt_tokens": 100, "completion_tokens": 20}, delay=0.3)


def set_plans(home: Path, **plans: Any) -> None:
    path = home / "catalogue" / "mini.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["plans"] = plans
    path.write_text(yaml.safe_dump(spec, sort_keys=False))


def run_cli(*args: str) -> Result:
    done = CliRunner().invoke(cli, args)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def run_until_kept(home: Path, replies: int) -> int:
    """Start the plans in a process of their own, kill it when so many replies are kept, and say how many there are."""
    command = [sys.executable, "-m", "skb_pipeline.cli", "run", "--dataset", "mini", "--to", "planning/query_plans"]
    command += ["--questions", str(ASKED)]
    process = subprocess.Popen(
        command, env={**os.environ, "SKB_HOME": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with open_replies(Workspace().cache("mini", "replies")) as cache:
        end = time.monotonic() + 240
        while len(cache) < replies:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        return len(cache)


def verdict() -> bool:
    """What the last evaluation of the check on fallbacks said."""
    key = dg.AssetCheckKey(dg.AssetKey(["planning", "query_plans"]), "plans_are_made")
    with dg.DagsterInstance.get() as instance:
        (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    return record.status is AssetCheckExecutionRecordStatus.SUCCEEDED


def served(server: ScriptedServer, **model: Any) -> dict[str, Any]:
    return {"name": "scripted", "base_url": server.base_url, "concurrency": 2, **model}


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_killed_half_way_it_asks_for_the_rest_and_is_judged_beside_the_rules(finished_home: Path, killed: bool) -> None:
    """That replies outlive a kill is tested beside the cache that keeps them; here a whole job goes on with them."""
    home, store = finished_home, Workspace().store
    made_by_rules = store.require("mini", "planning/query_plans")
    queries = QUERIES.read(store.require("mini", "questions/queries"))
    oracle = Oracle(dict(zip(queries["query"], queries["gold_plan"], strict=True)))
    with scripted_server(oracle) as server:
        set_plans(home, engine="openai", compare=["rules"], model=served(server))
        kept = run_until_kept(home, ASKED // 2) if killed else 0
        assert store.require("mini", "planning/query_plans") == made_by_rules
        before = len(server.chats)

        made = {o.asset: o for o in materialise("mini", to="planning/query_plans", plans={"questions": ASKED})}
        told = made["planning/query_plans"].metadata
        plans = PLANS.read(store.require("mini", "planning/query_plans"))
        asked = plans[(plans["engine"] == "openai") & (plans["cause"] != "not_asked")]
        assert len(asked) == ASKED
        # A reply that is no plan is followed by one more request, which names the fault.
        wrong = oracle.wrong & set(queries.set_index("query_id").loc[asked["query_id"], "query"])
        expected = ASKED + len(wrong)
        # Nothing that was kept is asked again; the first question of every run is on top.
        assert len(server.chats) - before == expected - kept + 1
        assert (told["replies asked"], told["replies reused"]) == (expected - kept, kept)

        causes = asked["cause"].value_counts().to_dict()
        assert causes == {"planned": ASKED - len(wrong), "not_json": len(wrong)}
        assert told["fallback rate"] == pytest.approx(len(wrong) / ASKED, abs=1e-4)
        assert 0 < len(wrong) <= ASKED / 2
        assert verdict()
        assert told["prompt tokens"] == 100 * expected
        assert told["server"]["models"] == ["scripted"]

        count = len(server.chats)
        set_plans(home, engine="openai", compare=["rules"], model=served(server), max_fallback_rate=0.01)
        again = {o.asset: o for o in materialise("mini", to="evaluation/plan_quality", plans={"questions": ASKED})}
        assert again["planning/query_plans"].reused
        assert not verdict()
        assert len(server.chats) == count
        with connect(store.require("mini", "evaluation/plan_quality").file(PLAN_QUALITY_FILE), read_only=True) as con:
            rows = con.execute("SELECT DISTINCT engine FROM plan_quality ORDER BY ALL").fetchall()
            risk = dict(con.execute("SELECT engine, sum(questions) FROM risk GROUP BY ALL").fetchall())
        assert rows == [("openai",), ("rules",)]
        assert risk == {"openai": ASKED, "rules": len(queries)}
        outcomes = read_frame(store.require("mini", "ranking/graph").file("outcomes.parquet"))
        assert int((~outcomes["fallback"]).sum()) == ASKED - len(wrong)

        # One question by hand: from a reply that is kept, or asked for now.
        planned = queries.set_index("query").loc[sorted(set(queries["query"]) - oracle.wrong)[0]]
        done = run_cli("plan", "--dataset", "mini", "--engine", "openai", str(planned.name))
        assert done.exit_code == 0, done.stderr
        shown = json.loads(done.stdout)
        assert (shown["engine"], shown["status"], shown["cause"]) == ("openai", "valid", "planned")
        assert shown["n_cand"] >= 1

    # Questions change, and guidance, and with it every prompt, stays as it is.
    set_plans(home, engine="openai", model=served(server))
    edit = (home / "catalogue" / "mini.yaml").read_text().replace("per_template: 64", "per_template: 63")
    (home / "catalogue" / "mini.yaml").write_text(edit)
    later = {o.asset: o for o in materialise("mini", to="planning/guidance")}
    assert not later["questions/queries"].reused
    assert later["planning/guidance"].reused


def test_a_server_that_is_down_is_told_at_once(finished_home: Path) -> None:
    set_plans(finished_home, engine="openai", model={"name": "m", "base_url": "http://127.0.0.1:9/v1"})
    for command in (["run", "--dataset", "mini", "--to", "planning/query_plans"], ["plan", "--dataset", "mini", "x"]):
        failed = run_cli(*command)
        assert failed.exit_code == 1
        assert "http://127.0.0.1:9/v1" in failed.stderr
        assert "Traceback" not in failed.stderr
    done = run_cli("plan", "--dataset", "mini", "--engine", "rules", "Which gene causes Timothy syndrome?")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "rules"
    missing = run_cli("plan", "--dataset", "demo", "--engine", "openai", "x")
    assert "$OPENAI_MODEL" in missing.stderr


def test_a_refused_key_that_is_put_right_needs_no_force(finished_home: Path) -> None:
    home = finished_home
    queries = QUERIES.read(Workspace().store.require("mini", "questions/queries"))
    answers = [error_reply(403, "this key may not")]
    with scripted_server(lambda request: answers[-1]) as server:
        set_plans(home, engine="openai", model=served(server))

        def plans() -> StageOutcome:
            made = materialise("mini", to="planning/query_plans", plans={"questions": 3})
            return next(outcome for outcome in made if outcome.asset == "planning/query_plans")

        # As an engine that is only compared with, it stops nothing and is asked again by the next run.
        set_plans(home, engine="rules", compare=["openai"], model=served(server))
        beside = plans().metadata
        assert beside["openai causes"] == {"connection": 3, "not_asked": len(queries) - 3}
        assert beside["openai to ask again"] == 3
        # As the one whose plans are executed, a server that refuses the first question is told at once.
        set_plans(home, engine="openai", model=served(server))
        with pytest.raises(RunFailedError, match=r"first question to 'scripted' failed.*this key may not"):
            plans()
        assert len(server.chats) == 2
        answers.append(chat_reply('{"anchors": [], "hops": []}'))
        assert plans().metadata["causes"]["skipped"] == 3
        assert plans().reused
