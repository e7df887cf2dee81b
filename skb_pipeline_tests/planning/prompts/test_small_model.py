"""The form of plans under a real grammar converter: a small model served by llama.cpp, held to the JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

import pytest

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.planning.prompts.plan_form import PlanForm
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline_tests.llm_servers import SmallModel
from skb_pipeline_tests.planning.prompts.json_schemas import misfits


def ask(model: SmallModel, schema: Mapping[str, Any], tokens: int) -> tuple[str, str]:
    """Text and finish reason of one completion under the schema."""
    body = {
        "model": model.name,
        "messages": [{"role": "user", "content": "Which genes are associated with long QT syndrome?"}],
        "temperature": 0,
        "max_tokens": tokens,
        "response_format": {"type": "json_schema", "json_schema": {"name": "plan", "strict": True, "schema": schema}},
    }
    url, headers = f"{model.base_url}/chat/completions", {"content-type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=180) as answer:
        choice = json.load(answer)["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def narrowed(schema: Any) -> Any:
    """The schema with lower bounds, so that a model that writes as much as it may comes to an end within the test."""
    if isinstance(schema, dict):
        most = {"maxLength": 8, "maxItems": 1}
        return {key: min(value, most[key]) if key in most else narrowed(value) for key, value in schema.items()}
    return [narrowed(part) for part in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(("name", "options"), [("demo", False), pytest.param("prime", True, marks=pytest.mark.deep)])
def test_a_reply_has_the_form(small_model, name, options) -> None:
    """Whether the plan makes sense is another matter: for that the model is far too small."""
    form = PlanForm(GraphSchema.from_spec(get_spec(name)), negated_hops=options, retrieval_modes=options)
    text, finish = ask(small_model, narrowed(form.json_schema()), 600)
    assert finish == "stop"
    assert list(misfits(json.loads(text), form.json_schema())) == []
    assert form.dump(Plan.model_validate_json(text)) == json.loads(text)


def test_the_bounds_of_the_schema_are_accepted_as_they_are(small_model) -> None:
    text, _ = ask(small_model, PlanForm(GraphSchema.from_spec(get_spec("demo"))).json_schema(), 24)
    assert "".join(text.split()).startswith('{"anchors":[')
