"""Which outcomes a later run may better."""

import pytest

from skb_pipeline.planning.engines.base import PlanCause, PlanRecord, may_be_answered_later
from skb_pipeline.planning.engines.replies import no_plan


@pytest.mark.parametrize(
    ("engine", "cause", "expected"),
    [
        ("openai", PlanCause.REFUSED, True),
        ("openai", PlanCause.MALFORMED, True),
        ("openai", PlanCause.DEADLINE, True),
        ("openai", PlanCause.INVALID, False),
        ("openai", PlanCause.TRUNCATED, False),
        ("openai", PlanCause.NOT_ASKED, False),
        ("vllm", PlanCause.REFUSED, False),
        ("rules", PlanCause.NO_MENTION, False),
    ],
)
def test_what_a_server_left_without_a_reply_is_asked_again(engine: str, cause: PlanCause, expected: bool) -> None:
    assert may_be_answered_later(PlanRecord("1", engine, cause, no_plan("x"))) is expected
