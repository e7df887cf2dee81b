"""Foreign text (questions, replies, names of nodes) as data in a prompt.

A text becomes a JSON string on one line, in which every character that could end the fenced block, begin a control
token of a chat template (``<|im_end|>``) or be invisible is escaped. So no text can leave its place, whatever it says.
What a model makes of it is bounded by validation: only valid plans leave the planner.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_ESCAPED = re.compile(
    "[`<>\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Back-ticks, angle brackets, C1 controls, surrogates, what is not seen or turns the direction of writing."""


@dataclass(frozen=True)
class DataBlock:
    """JSON on one line, and how many characters of the text did not fit."""

    json: str
    cut: int = 0


def json_line(value: Any) -> str:
    """``value`` as JSON on one line without back-ticks and angle brackets; reading it gives ``value`` back.

    Raises:
        TypeError: ``value`` is no JSON value.
    """
    return _ESCAPED.sub(_escape, json.dumps(value, ensure_ascii=False))


def text_block(text: str, most: int) -> DataBlock:
    """A text as JSON string of at most ``most`` characters, escapes and quotes included.

    What does not fit is cut off at the end and counted in characters of ``text``.
    """
    kept = text[:most]
    line = json_line(kept)
    if len(line) > most:
        room, end = most - 2, 0
        while end < len(kept) and (room := room - len(json_line(kept[end])) + 2) >= 0:
            end += 1
        kept = kept[:end]
        line = json_line(kept)
    return DataBlock(line, len(text) - len(kept))


def _escape(found: re.Match[str]) -> str:
    # Beyond the basic plane JSON writes a pair of surrogates.
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
