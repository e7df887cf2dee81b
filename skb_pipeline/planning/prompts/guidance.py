"""``Guidance``: what a prompt tells of one dataset beyond its schema: typical paths, rules, worked examples.

Three datasets have guidance written for them (the YAML files in ``guidance``, after GRASP, Stage 1); for others it is
made by :mod:`~skb_pipeline.planning.prompts.generation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, Literal, get_args

import yaml
from pydantic import ConfigDict, TypeAdapter

from skb_pipeline.plans.plan import Plan

BuiltinGuidance = Literal["amazon", "mag", "prime"]
Option = Literal["negated_hops", "retrieval_modes"]
"""Settings of a dataset's plans that a rule may need."""


@dataclass(frozen=True)
class Hint:
    """A path that questions often take.

    Attributes:
        path: its name, such as ``author-paper``.
        signals: which wording asks for it.
        skeleton: a plan whose anchor texts are placeholders in capitals, such as ``AUTHOR``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    path: str
    signals: str
    skeleton: Plan


@dataclass(frozen=True)
class Rule:
    """One sentence or two on how to plan; shown only where the option it needs is on."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    text: str
    needs: Option | None = None


@dataclass(frozen=True)
class Example:
    """A question with its plan."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    question: str
    plan: Plan


@dataclass(frozen=True)
class Guidance:
    """Hints, rules and examples for one dataset. ``name`` says where they come from."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    hints: tuple[Hint, ...] = ()
    rules: tuple[Rule, ...] = ()
    examples: tuple[Example, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON value; :meth:`from_json` reads it."""
        dumped: dict[str, Any] = _ADAPTER.dump_python(self, mode="json", by_alias=True)
        return dumped

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Guidance:
        """Read what :meth:`to_json` gave, or a file of that form.

        Raises:
            ValueError: something is missing, unknown or of the wrong form.
        """
        return _ADAPTER.validate_python(dict(value))


_ADAPTER = TypeAdapter(Guidance)


@cache
def builtin_guidance(name: BuiltinGuidance) -> Guidance:
    """Guidance that comes with the package.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in get_args(BuiltinGuidance):
        raise ValueError(f"no guidance is called {name!r}; there is: {', '.join(get_args(BuiltinGuidance))}")
    text = files(__package__).joinpath("guidance", f"{name}.yaml").read_text(encoding="utf-8")
    return Guidance.from_json({"name": name, **yaml.safe_load(text)})
