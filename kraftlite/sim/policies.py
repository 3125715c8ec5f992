"""The changes that the theme `admin` makes to a cluster: in a third of the seeds brokers create topics that somebody asks for,
and in a quarter controllers ask policies about new topics and configs.

Policies are asked off the loop, so that the controller computes an operation again, in another state, when it has their word.
They refuse nothing: the rules of administrators hold with them and without.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.model.policy import PolicyQuestion
from kraftlite.sim.shape import Shape, of_release

ONE_SEED_IN: Final = 4
CREATING_ONE_SEED_IN: Final = 3


def admits(question: PolicyQuestion) -> None:
    """The policy."""


def with_policies(shape: Shape, seed: int) -> Shape:
    """The change that the theme makes to a shape that is drawn."""
    shape = of_release(shape, seed)
    if not random.Random(f"auto-create/{seed}").randrange(CREATING_ONE_SEED_IN):
        shape = replace(shape, config={**shape.config, "auto.create.topics.enable": "true"})
    if random.Random(f"policies/{seed}").randrange(ONE_SEED_IN):
        return shape
    name = f"{__name__}:{admits.__name__}"
    policies = {"create.topic.policy.class.name": name, "alter.config.policy.class.name": name}
    return replace(shape, config={**shape.config, **policies})
