"""Passwords and keys of the environment are found nowhere: not in the home folder, and not on a screen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skb_pipeline_tests.integration.test_plans_by_model import served, set_plans
from skb_pipeline_tests.live.planted import found_below, planted_environment
from skb_pipeline_tests.llm_servers import Reply, SeenRequest, chat_reply, error_reply, scripted_server

NOWHERE = "bolt://127.0.0.1:9"


def run(home: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own, with planted secrets."""
    command = [sys.executable, "-m", "skb_pipeline.cli", "run", "--dataset", "mini", *options]
    env = {**os.environ, **planted_environment(), "SKB_HOME": str(home), **environment}
    return subprocess.run(command, env=env, capture_output=True, check=False)


@pytest.mark.deep
def test_planted_secrets_are_found_nowhere(finished_home: Path) -> None:
    seen: list[str] = []
    refuses = True

    def echo(request: SeenRequest) -> Reply:
        seen.append(request.headers["authorization"])
        said = f"Incorrect key {request.headers['authorization']} of {request.headers}"
        return error_reply(401, said) if refuses else chat_reply('{"anchors": [], "hops": []}')

    with scripted_server(echo) as server:
        set_plans(finished_home, engine="openai", model=served(server))
        refused = run(finished_home, "--to", "planning/query_plans", "--questions", "3")
        refuses = False
        taken = run(finished_home, "--to", "planning/query_plans", "--questions", "3")
    away = run(finished_home, "--to", "graph/neo4j", NEO4J_URI=NOWHERE)
    key = planted_environment()["OPENAI_API_KEY"]
    assert seen[0] == f"Bearer {key}"
    assert [done.returncode for done in (refused, taken, away)] == [1, 0, 1]
    assert b"Incorrect key" in refused.stderr
    assert NOWHERE.encode() in away.stderr
    for done in (refused, taken, away):
        shown = done.stdout + done.stderr
        assert not [secret for secret in planted_environment().values() if secret.encode() in shown]
    assert found_below(finished_home) == []
