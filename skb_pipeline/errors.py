"""``UserError``: the base of every error that the person in front of the screen can mend; those that may pass by
themselves; and the words for a name that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 60
_EXAMPLES = 5


class UserError(Exception):
    """Its message says what is wrong and where, in words a user understands; the command line prints it alone."""

    def __str__(self) -> str:
        """The message; a KeyError among the bases would put it in quotes."""
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class PassingError(UserError):
    """Something outside is away for now (a server, a model hub): the same may succeed in a minute."""


class UnknownNameError(UserError, KeyError):
    """Something was chosen by a name that nothing has; see :func:`unknown_name`."""


def unknown_name(told: str, name: str, known: Iterable[str], *, shown: Iterable[str] | None = None) -> str:
    """One line: what was not found, what there is, and what is spelled alike.

    Args:
        told: the beginning, such as "unknown split 'vall'".
        name: as it was given.
        known: all names that would do.
        shown: those that are listed; default: ``known``. Of more than 60 a few examples are.
    """
    names = list(dict.fromkeys(known))
    listed = list(dict.fromkeys(names if shown is None else shown))
    there = f"there are: {', '.join(listed) or 'none'}"
    if len(listed) > _LISTED:
        there = f"there are {len(listed)}, such as {', '.join(listed[:_EXAMPLES])}"
    folded: dict[str, list[str]] = {}
    for one in names:
        folded.setdefault(one.casefold(), []).append(one)
    near = [one for key in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5) for one in folded[key]]
    line = f"{told}; {there}" + (f"; near to it: {', '.join(near)}" if near else "")
    return " ".join(line.split())
