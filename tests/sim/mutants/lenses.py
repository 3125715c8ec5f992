"""Changes of sizes and periods, not of rules, with which a run of seconds reaches what a mutant breaks."""

from __future__ import annotations

from dataclasses import replace

from kraftlite.sim import knobs as knobs_module
from kraftlite.sim import run
from kraftlite.sim.knobs import Values
from kraftlite.sim.shape import Shape
from tests.sim.mutants.catalog import Change


def tuned(**numbers: int) -> Change:
    """The nodes of every run, of whatever theme, are built with these numbers of `model.tuning.Tuning`."""
    original = knobs_module.turned

    def with_numbers(shape: Shape, knobs: Values) -> Shape:
        shape = original(shape, knobs)
        return replace(shape, tuning=replace(shape.tuning, **numbers))

    return lambda patch: patch.set(knobs_module, "turned", with_numbers, also=(run,))
