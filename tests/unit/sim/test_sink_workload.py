"""Simulated queries that write exactly once: they get somewhere, die on the way, and a protocol that is broken is noticed."""

from __future__ import annotations

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.exactly_once.protocol_core import Cluster
from kraftlite.model.producer import Producer
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.sim.themes import SINK
from kraftlite.sim.workloads import sink
from kraftlite.sim.workloads.sink_steps import Call, carried_out
from tests.sim.mutants.catalog import mutants
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.runner import caught_by, run_mutant

PLAN = RunPlan(seed=3, theme=SINK, shape=NAMED["1+3"], duration_ms=6_000, faults=())


def test_sx_03_queries_get_on_while_their_processes_die() -> None:
    result = run(PLAN)
    assert result.outcome is Outcome.OK, result.story
    seen = result.history.transactions
    assert sum(len(it.complete) for it in seen.sunk) >= 3
    assert len(seen.halts) >= 2, "nothing has died or stood still"
    assert sum(len(it.records) for it in seen.readings) > 0


def test_sx_03_a_sink_that_does_not_heal_is_caught() -> None:
    result = run_mutant(mutants()["sink-heals-nothing"], PLAN)
    assert caught_by(result) in ("SinkExact", "TransactionsSeen"), result.story


async def test_a_step_is_a_function_of_its_answers() -> None:
    """Each call is carried out once, however often the function runs; an error goes to the function, which may bear it."""
    asked: list[Call] = []

    async def ask(call: Call) -> object:
        asked.append(call)
        if call.arguments == ("b",):
            raise ClientError("refused")
        return Producer(1, len(asked))

    def step(cluster: Cluster) -> list[int]:
        found = []
        for name in "abc":
            try:
                found.append(cluster.take_over(name).producer_epoch)
            except ClientError:
                found.append(-1)
        return found

    assert await carried_out(step, ask) == [1, -1, 3]
    assert [it.arguments for it in asked] == [("a",), ("b",), ("c",)]
    with pytest.raises(ClientError, match="refused"):
        await carried_out(lambda cluster: cluster.take_over("b"), ask)


def test_sx_03_who_changes_options_in_the_middle_of_a_batch_goes_back() -> None:
    """A run with other options is refused where the batch is written in part, and no row is there twice for that."""
    with Patch() as patch:
        patch.set(sink, "REDEALS_ONE_IN", 1)
        result = run(RunPlan(seed=3, theme=SINK, duration_ms=10_000))
    assert result.outcome is Outcome.OK, result.story
    assert sum(it.refused for it in result.history.transactions.sunk) > 0
