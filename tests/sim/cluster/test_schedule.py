"""Faults as text and back; shapes that configuration allows."""

from __future__ import annotations

import random

import pytest

from kraftlite.model.errors import ApiError
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.fault_plan import ALL_FAULTS, SCENE_FAULTS, parse
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.schedule import draw
from kraftlite.sim.shape import draw as draw_shape


def test_every_fault_survives_being_written_down() -> None:
    kinds = set()
    for seed in range(300):
        rng = random.Random(seed)
        for fault in draw(rng, draw_shape(rng), 10_000):
            assert parse(str(fault)) == fault
            kinds.add(fault.kind)
    assert kinds == {*ALL_FAULTS, *SCENE_FAULTS}


@pytest.mark.parametrize("line", ["", "x kill 1", "100", "100 explode 1", "100 kill 1 for long"])
def test_a_line_that_is_no_fault_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="is no fault"):
        parse(line)


def test_drawn_shapes_are_configurations_that_production_accepts() -> None:
    for seed in range(60):
        loop = VirtualLoop(seed)
        try:
            cluster = SimCluster(loop, draw_shape(random.Random(seed)), seed)
        except ApiError as error:  # pragma: no cover
            pytest.fail(f"seed {seed}: {error}")
        assert cluster.controllers
        assert cluster.brokers
        assert all(topic.replication <= len(cluster.brokers) for topic in cluster.shape.topics)
        loop.close()
