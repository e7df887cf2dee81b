"""What Dagster prints of runs and sensors is plain, whoever wrote the text."""

import dagster as dg
import pytest
from dagster._core.definitions.instigation_logger import InstigationLogger

from skb_pipeline.orchestration.console import mend_console
from skb_pipeline_tests.text.test_sinks import OBEYED


@dg.op
def failing(context: dg.OpExecutionContext) -> None:
    context.log.warning("about \x1b]0;owned\x07")
    raise ValueError("server said \x1b[2J\u202e")


@dg.job
def hostile() -> None:
    failing()


def test_the_console_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    mend_console()
    mend_console()
    with dg.DagsterInstance.ephemeral() as instance:
        run = hostile.execute_in_process(instance=instance, raise_on_error=False)
    assert not run.success
    told = capsys.readouterr().err
    assert not OBEYED.search(told)
    assert "about \\x1b]0;owned\\x07" in told
    assert "ValueError: server said \\x1b[2J\\u202e" in told


def test_the_console_of_a_sensor(capsys: pytest.CaptureFixture[str]) -> None:
    mend_console()
    with InstigationLogger() as logger:
        logger.warning("cannot look at \x1b]0;owned\x07")
    assert "cannot look at \\x1b]0;owned\\x07" in capsys.readouterr().err
