"""The parts of a drawn shape that came later, each with a random stream of its own: all else of a seed is as without them."""

from __future__ import annotations

import random
from dataclasses import replace

from kraftlite.sim import tuning
from kraftlite.sim.shape import Shape
from kraftlite.sim.themes import TROUBLES, theme_of


def vary(shape: Shape, seed: int) -> Shape:
    """The shape of a seed whose theme they are; any other stays as it is."""
    if theme_of(seed) != TROUBLES:
        return shape
    directories = random.Random(f"directories/{seed}")
    if not directories.randrange(4):
        shape = replace(shape, config={**shape.config, "metadata.log.dir": "/meta"})
    return replace(shape, tuning=tuning.draw(random.Random(f"tuning/{seed}"), shape.tuning))
