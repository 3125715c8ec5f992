"""Safety (invariants 24 to 32 after every event) and liveness (33) of partition replication, seed by seed."""

from __future__ import annotations

import os

import pytest

from tests.harness.replication_sim import ReplicationSim

SEEDS = int(os.environ.get("REPLICATION_SIM_SEEDS", "200"))
STEPS = int(os.environ.get("REPLICATION_SIM_STEPS", "250"))
CHUNK = 20


def run(seed: int, *, unclean: bool = False) -> ReplicationSim:
    sim = ReplicationSim(seed, unclean=unclean)
    for _ in range(STEPS):
        sim.step()
    sim.converge()
    return sim


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_invariants_hold_and_replicas_converge(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run(seed)


def test_replicas_converge_after_unclean_elections() -> None:
    for seed in range(CHUNK):
        run(seed, unclean=True)


def test_the_same_seed_is_the_same_run() -> None:
    assert run(7).history == run(7).history


def test_the_simulation_reaches_what_it_is_for() -> None:
    """Across some seeds there are elections, ISR changes both ways, truncations, and acknowledged writes."""
    seen: set[str] = set()
    acked = 0
    for seed in range(10):
        sim = run(seed)
        acked += sum(1 for write in sim.writes if write.result is not None and write.result.error.name == "NONE")
        for tracer in sim.c.tracers.values():
            seen |= {event.event for event in tracer.events}
    assert acked > 50
    assert {"partition.leader_started", "partition.isr_shrunk", "partition.isr_expanded", "partition.diverged"} <= seen
