"""The JSON form of plans: what was stored before there were directions, optional hops and conditions stays as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.plans.plan import Anchor, Condition, Direction, Hop, Plan

STORED = (
    '{"anchors":[{"var":"b","text":"Acme","label":"brand","match_mode":"name"}],'
    '"hops":[{"from":"b","rel":"has","to_var":"T","to_label":"product","negated":false}],'
    '"target":{"var":"T","labels":["product"],"relevance_text":""},"risk_level":"normal","retrieval_mode":null}'
)


def test_a_plan_without_the_new_keys_is_read_and_written_as_before() -> None:
    plan = Plan.model_validate_json(STORED)
    assert plan.model_dump_json(by_alias=True) == STORED
    assert plan.model_dump(mode="json", by_alias=True) == json.loads(STORED)
    (hop,) = plan.hops
    assert (hop.direction, hop.optional, plan.where) == (Direction.ANY, False, [])


def test_defaults_that_are_written_out_mean_the_same() -> None:
    written = json.loads(STORED) | {"where": []}
    written["hops"][0] |= {"direction": "any", "optional": False}
    written["anchors"][0]["any_of"] = []
    assert Plan.model_validate(written) == Plan.model_validate_json(STORED)


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
SCALARS = TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
HOPS = st.builds(
    Hop,
    from_var=TEXTS,
    rel=TEXTS,
    to_var=TEXTS,
    to_label=TEXTS,
    negated=st.booleans(),
    direction=st.sampled_from(Direction),
    optional=st.booleans(),
)
CONDITIONS = st.builds(
    Condition, var=TEXTS, field=TEXTS, op=st.sampled_from(["=", "in"]), value=SCALARS | st.lists(SCALARS, max_size=3)
)


ANCHORS = st.builds(Anchor, var=TEXTS, text=TEXTS, label=TEXTS, any_of=st.lists(TEXTS, max_size=2))


@given(anchors=st.lists(ANCHORS, max_size=2), hops=st.lists(HOPS, max_size=3), where=st.lists(CONDITIONS, max_size=3))
def test_every_plan_comes_back(anchors: list[Anchor], hops: list[Hop], where: list[Condition]) -> None:
    plan = Plan(anchors=anchors, hops=hops, where=where)
    dumped = plan.model_dump(mode="json", by_alias=True)
    assert Plan.model_validate(dumped) == plan
    read = Plan.model_validate_json(json.dumps(dumped))
    assert read == plan
    assert repr(read) == repr(plan)  # 1 and 1.0 are equal, but not the same
    assert Plan.model_validate_json(plan.model_dump_json(by_alias=True)) == plan
    assert ("where" in dumped) == bool(where)
    assert ["any_of" in a for a in dumped["anchors"]] == [bool(anchor.any_of) for anchor in anchors]
    assert [h.get("direction", "any") for h in dumped["hops"]] == [hop.direction for hop in hops]
    assert ["optional" in h for h in dumped["hops"]] == [hop.optional for hop in hops]


@pytest.mark.parametrize("value", [None, True, {"a": 1}, [[1]], [None], float("nan"), float("inf"), 10**400, "\ud800"])
def test_a_value_that_nothing_can_be_compared_with(value: object) -> None:
    with pytest.raises(ValueError, match=r"a value is a text|half a surrogate pair") as error:
        Plan.model_validate({"where": [{"var": "T", "field": "f", "op": "=", "value": value}]})
    assert str(error.value).count("where.0.value") == 1
