"""What people are told between runs: overdue tables, and failed runs on a service of theirs."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import instance_for_test

from skb_pipeline.orchestration import alerts as sending
from skb_pipeline.orchestration.alerts import Alert, FailedStep, send
from skb_pipeline.orchestration.build import build_defs
from skb_pipeline.orchestration.overdue import allowed_seconds, overdue
from skb_pipeline.orchestration.telling import alerts, overdue_tables
from skb_pipeline_tests.live.shop import Shop

HOUR = 3600.0
SECRET = "hunter2-in-the-address"


def test_when_a_table_is_overdue() -> None:
    def late(policy: str, succeeded: float | None, changed: float, now: float) -> bool:
        return bool(overdue(policy, succeeded, changed * HOUR, now * HOUR, 6 * HOUR))

    assert not late("watch", 10 * HOUR, 9, 1000)  # nothing changed since: as old as it may be
    assert not late("watch", 10 * HOUR, 11, 16)
    assert late("watch", 10 * HOUR, 11, 18)
    assert late("watch", None, 11, 18)
    assert not late("watch", None, 11, 12)
    assert not late("watch", 10 * HOUR, 99, 50)  # a time that is to come
    daily = "0 3 * * *"  # at 3, 27, 51, 75 hours
    assert not late(daily, 27.1 * HOUR, 500, 56)  # due at 51, five hours ago
    assert late(daily, 27.1 * HOUR, 0, 58)
    assert not late(daily, 51.5 * HOUR, 0, 58)
    assert late(daily, None, 28, 58)
    told = overdue(daily, 27 * HOUR, 0.0, 90 * HOUR, HOUR)
    assert told == (
        "a refresh was planned at 1970-01-03 03:00 UTC, and the last successful run began at 1970-01-02 03:00 UTC"
    )


@pytest.mark.parametrize(("value", "hours"), [("2.5", 2.5), ("0", 6), ("-1", 6), ("nan", 6), ("inf", 6), ("soon", 6)])
def test_how_long_a_refresh_may_take(value: str, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKB_OVERDUE_HOURS", value)
    assert allowed_seconds() == hours * HOUR


def test_the_check_turns_red_once_and_green_again(home: Path, tmp_path: Path) -> None:
    shop = Shop.of(tmp_path / "files", n=3)
    spec = home / "catalogue" / "shop.yaml"
    spec.write_text(shop.spec(refresh="watch"))
    (home / "catalogue" / "broken.yaml").write_text("name: [broken")
    for path in [spec, *shop.folder.iterdir()]:
        os.utime(path, (HOUR, HOUR))
    defs = build_defs()
    with instance_for_test() as instance:

        def look(cursor: str | None) -> tuple[str, dict[str, bool], str]:
            context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=defs)
            found: Any = overdue_tables(context)
            events = {event.partition: event.passed for event in found.asset_events}
            return found.cursor, events, found.skip_reason.skip_message

        cursor, events, told = look(None)
        assert events == {"shop": False, "broken": False}
        assert "shop: files changed at 1970-01-01 01:00 UTC, and no run has succeeded" in told
        assert "broken: cannot be looked at" in told
        assert "demo" not in told  # its spec asks for no refresh
        cursor, events, _ = look(cursor)
        assert events == {}
        # A run of a part is not enough; one of the whole job is.
        part = frozenset({dg.AssetKey(["skb", "store"])})
        for selection, late in ((part, True), (None, False)):
            instance.create_run_for_job(
                defs.resolve_job_def("materialise"), tags={"dagster/partition": "shop"}, asset_selection=selection,
                status=dg.DagsterRunStatus.SUCCESS,
            )  # fmt: skip
            run = instance.get_runs(limit=1)[0]
            with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
                connection.exec_driver_sql("UPDATE runs SET start_time = ? WHERE run_id = ?", (2 * HOUR, run.run_id))
            cursor, events, told = look(cursor)
            assert ("shop" in told) is late
            assert events == ({} if late else {"shop": True})
        assert look("[1, 2]")[1] == {"broken": False}  # a cursor that somebody edited


class Service(HTTPServer):
    """Keeps what is posted, and answers with ``status``."""

    got: list[dict[str, Any]]
    status = 204


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service for alerts, whose address holds a secret."""
    server = Service(("127.0.0.1", 0), _Handler)
    server.got = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SKB_ALERT_URL", f"http://127.0.0.1:{server.server_port}/{SECRET}")
    yield server
    server.shutdown()
    server.server_close()


@dg.op
def planning__query_plans() -> None:
    try:
        raise ConnectionError(f"password {SECRET}")
    except ConnectionError as error:
        raise RuntimeError("wrapped") from error


@dg.job
def failing() -> None:
    planning__query_plans()


def told_of(instance: dg.DagsterInstance, tags: dict[str, str]) -> str:
    """What the sensor says of a failed run."""
    result = failing.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
    event = next(e for e in result.all_events if e.event_type_value == "PIPELINE_FAILURE")
    context = dg.build_run_status_sensor_context(
        "alerts", dagster_instance=instance, dagster_run=result.dagster_run, dagster_event=event
    ).for_run_failure()
    told: Any = alerts(context)
    return str(told.skip_message)


def test_a_failed_run_is_posted_without_what_its_error_says(service: Service) -> None:
    with instance_for_test() as instance:
        told = told_of(instance, {"dagster/partition": "mini", "skb/trigger": "change"})
        assert told.endswith("alert sent")
        (got,) = service.got
        run_id = got.pop("run_id")
        assert run_id in told
        assert got == {
            "text": f"skb-pipeline: run {run_id[:8]} of mini failed: planning/query_plans (ConnectionError)",
            "event": "run_failed", "dataset": "mini", "job": "failing", "trigger": "change",
            "failed": [{"asset": "planning/query_plans", "error": "ConnectionError"}],
        }  # fmt: skip
        assert "started again" in told_of(instance, {"dagster/will_retry": "true"})
        service.status = 302  # not followed
        assert told_of(instance, {}).endswith("no alert: status 302")
        assert len(service.got) == 2


def test_no_service_stops_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    alert = Alert("mini", "materialise", "0" * 36, "", [FailedStep("skb/store", "LoadError")])
    monkeypatch.setattr(sending, "SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        for url, told in {
            "": "SKB_ALERT_URL is not set",
            f"ftp://h/{SECRET}": "no alert: SKB_ALERT_URL has to start with http:// or https://",
            f"http://127.0.0.1:9/{SECRET}": "no alert: ConnectError",
            f"http://127.0.0.1:{port}/{SECRET}": "no alert: ReadTimeout",
            f"http://[{SECRET}": "no alert: ",
        }.items():
            monkeypatch.setenv("SKB_ALERT_URL", url)
            found = send(alert)
            assert found.startswith(told)
            assert SECRET not in found
