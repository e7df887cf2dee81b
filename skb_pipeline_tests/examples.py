"""How many examples property tests take: few in ``make test``, many in ``make test-deep``, new ones on request.

``HYPOTHESIS_PROFILE`` chooses: ``quick`` (unless told otherwise) and ``deep`` take the same examples in every run,
whatever the load of the machine; ``explore`` looks for new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

QUICK = 25
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")


def load_profile() -> None:
    """Register the profiles and load the chosen one; before any module with property tests is imported."""
    settings.register_profile("quick", deadline=None, derandomize=True, max_examples=QUICK)
    settings.register_profile("deep", deadline=None, derandomize=True)
    settings.register_profile("explore", deadline=None)
    settings.load_profile(PROFILE)


def examples(many: int, quick: int = QUICK) -> int:
    """``many`` for ``max_examples``, but no more than ``quick`` in the profile of that name."""
    return min(many, quick) if PROFILE == "quick" else many
