"""What the nodes of a run are built with beside their configuration."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest

from kraftlite.model.tuning import Tuning
from kraftlite.sim import tuning
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED, USUAL_TUNING
from kraftlite.sim.variations import vary


def test_every_number_is_drawn_and_other_than_in_production() -> None:
    assert set(tuning.CHOICES) == {field.name for field in fields(Tuning)}
    for name, values in tuning.CHOICES.items():
        assert getattr(Tuning(), name) not in values, name


def test_a_third_of_the_seeds_is_as_usual_and_a_seed_draws_the_same_again() -> None:
    drawn = [vary(NAMED["3+3"], seed).tuning for seed in range(300)]
    assert 60 < sum(it == USUAL_TUNING for it in drawn) < 140
    assert drawn == [vary(NAMED["3+3"], seed).tuning for seed in range(300)]


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="snapshot_chunk_bytes is 0"):
        Tuning(snapshot_chunk_bytes=0)


def test_nodes_are_built_with_it() -> None:
    odd = tuning.draw(random.Random(5), Tuning())
    assert odd != Tuning()
    loop = VirtualLoop(1)
    cluster = SimCluster(loop, replace(NAMED["3+3"], tuning=odd), 1)
    assert {node.tuning for node in cluster.nodes.values()} == {odd}
    loop.close()


def test_a_run_with_the_smallest_numbers_holds() -> None:
    smallest = Tuning(**{name: min(values) for name, values in tuning.CHOICES.items()})
    result = run(RunPlan(seed=4, shape=replace(NAMED["3+3"], tuning=smallest), duration_ms=3_000))
    assert result.story == ""
