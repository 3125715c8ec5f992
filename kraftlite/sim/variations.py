"""The parts of a drawn shape that came later, each with a random stream of its own: all else of a seed is as without them."""

from __future__ import annotations

import random
from dataclasses import replace

from kraftlite.sim import boot_faults, snapshot_faults, tuning
from kraftlite.sim.shape import Shape


def vary(shape: Shape, seed: int) -> Shape:
    """Raises nothing: every variation is allowed in every shape."""
    directories = random.Random(f"directories/{seed}")
    if not directories.randrange(4):
        shape = replace(shape, config={**shape.config, "metadata.log.dir": "/meta"})
    shape = replace(shape, tuning=tuning.draw(random.Random(f"tuning/{seed}"), shape.tuning))
    return snapshot_faults.vary(boot_faults.vary(shape, seed), seed)
