"""Policies of a run: in a quarter of the seeds of the theme `admin` controllers ask about new topics and configs.

They are asked off the loop, so that the controller computes an operation again, in another state, when it has their word. They
refuse nothing: the rules of administrators hold with them and without.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.model.policy import PolicyQuestion
from kraftlite.sim.shape import Shape, of_release

ONE_SEED_IN: Final = 4


def admits(question: PolicyQuestion) -> None:
    """The policy."""


def with_policies(shape: Shape, seed: int) -> Shape:
    """The change that the theme makes to a shape that is drawn."""
    shape = of_release(shape, seed)
    if random.Random(f"policies/{seed}").randrange(ONE_SEED_IN):
        return shape
    name = f"{__name__}:{admits.__name__}"
    policies = {"create.topic.policy.class.name": name, "alter.config.policy.class.name": name}
    return replace(shape, config={**shape.config, **policies})
