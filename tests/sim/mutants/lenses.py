"""Changes of sizes and periods, not of rules, with which a run of seconds reaches what a mutant breaks."""

from __future__ import annotations

import random
from dataclasses import replace

from kraftlite.sim import knobs as knobs_module
from kraftlite.sim import run, schedule, slow_publishers
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.knobs import Values
from kraftlite.sim.scenes import Scene
from kraftlite.sim.shape import Shape
from tests.sim.mutants.catalog import Change
from tests.sim.mutants.patching import Patch


def tuned(**numbers: int) -> Change:
    """The nodes of every run, of whatever theme, are built with these numbers of `model.tuning.Tuning`."""
    original = knobs_module.turned

    def with_numbers(shape: Shape, knobs: Values) -> Shape:
        shape = original(shape, knobs)
        return replace(shape, tuning=replace(shape.tuning, **numbers))

    return lambda patch: patch.set(knobs_module, "turned", with_numbers, also=(run,))


def configured(**values: str) -> Change:
    """Every node of every run has these values of its configuration; the dots of a key are underscores."""
    original = knobs_module.turned
    config = {key.replace("_", "."): value for key, value in values.items()}

    def with_values(shape: Shape, knobs: Values) -> Shape:
        shape = original(shape, knobs)
        return replace(shape, config={**shape.config, **config})

    return lambda patch: patch.set(knobs_module, "turned", with_values, also=(run,))


def playing(scene: Scene, pause_ms: int = 500) -> Change:
    """Every run has this scene, again and again, and no other faults."""

    def scenes(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        found: list[FaultPlan] = []
        at_ms = rng.randint(0, pause_ms)
        while at_ms < duration_ms:
            played = scene(rng, shape, at_ms)
            found += (it for it in played if it.at_ms < duration_ms)
            at_ms = max((it.at_ms + it.for_ms for it in played), default=duration_ms) + pause_ms
        return sorted(found, key=lambda it: it.at_ms)

    return lambda patch: patch.set(schedule, "draw", scenes)


def slow_publishing(patch: Patch) -> None:
    """The brokers of every run in whose theme there are such apply metadata slowly, and in small steps."""
    patch.set(slow_publishers, "comes_with", lambda seed, theme: theme in slow_publishers.THEMES)


def together(*lenses: Change) -> Change:
    """Every run has all of these."""

    def change(patch: Patch) -> None:
        for lens in lenses:
            lens(patch)

    return change
