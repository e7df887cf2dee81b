"""The kinds of systems. A new one is a file beside this and a line in ``KINDS``."""

from __future__ import annotations

from skb_pipeline.systems.kind import System
from skb_pipeline.systems.kinds.dense import DenseSystem
from skb_pipeline.systems.kinds.lexical import LexicalSystem
from skb_pipeline.systems.kinds.plans import PlansSystem
from skb_pipeline.systems.kinds.rrf import RRFSystem

KINDS: dict[str, type[System]] = {
    "lexical": LexicalSystem,
    "dense": DenseSystem,
    "plans": PlansSystem,
    "rrf": RRFSystem,
}
