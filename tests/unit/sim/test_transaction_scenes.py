"""The scenes of transactions: faults that can be printed and read, that strike at the step they name, and races that happen."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kraftlite.log.log import Log
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.log import LogStartAdvanced
from kraftlite.sim.checkers.transaction_races import RaceWatch
from kraftlite.sim.fault_plan import AMBUSHES, FaultPlan, parse
from kraftlite.sim.injection.ambushes import STEPS
from kraftlite.sim.injection.catalog import HANDLERS
from kraftlite.sim.injector import Injector
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.sim.themes import TRANSACTIONS
from kraftlite.sim.transaction_scenes import ALL, draw, play
from tests.harness.watched_cluster import WatchedCluster

TESTING = Path(__file__).resolve().parents[3] / "docs" / "TESTING.md"
SHAPE = NAMED["3+3"]


@pytest.mark.parametrize("name", ALL)
def test_a_scene_is_faults_that_can_be_read_again(name: str) -> None:
    faults = play(name, 7, SHAPE, 10_000)
    assert len(faults) >= 3
    assert tuple(parse(str(it)) for it in faults) == faults == play(name, 7, SHAPE, 10_000)
    assert all(it.kind in HANDLERS for it in faults)


@pytest.mark.parametrize("name", ALL)
def test_a_scene_stands_in_the_table_of_races(name: str) -> None:
    doc = ALL[name].__doc__
    assert doc is not None
    rows = [line for line in TESTING.read_text().splitlines() if line.startswith("| R") and f"`{name}`" in line]
    assert rows and all(f"| {number} |" in "\n".join(rows) for number in doc.partition(":")[0].replace(" (e)", "").split(", "))


def test_most_seeds_have_scenes_beside_their_faults() -> None:
    drawn = [draw(seed, SHAPE, 15_000) for seed in range(60)]
    assert 30 <= sum(map(bool, drawn)) <= 50
    assert {it.kind.partition("-at-")[2] for faults in drawn for it in faults if it.kind in AMBUSHES} <= set(STEPS)


def test_an_ambush_of_no_step_is_refused() -> None:
    with pytest.raises(ValueError, match="DEED-at-STEP"):
        parse("100 kill-at-lunch for 5")


class Ambushed(WatchedCluster):
    """A cluster whose calls are shown to an injector, as a run shows them."""

    def __init__(self, *faults: FaultPlan) -> None:
        super().__init__(shape=replace(NAMED["1+3"], topics=()))
        self.deaths: list[tuple[NodeId, str]] = []
        self.injector = Injector(
            self.cluster,
            HANDLERS,
            on_death=lambda node, how: self.deaths.append((node.node_id, how)),
            power_losses={},
            wiped=set(),
            damaged=set(),
            forgetful={},
        )
        for fault in faults:
            HANDLERS[fault.kind](self.injector, fault)


@pytest.mark.parametrize(
    ("kind", "moment", "victim"),
    [
        ("kill-at-end", "arrived", 3),
        ("power-at-mark", "called", 2),
        ("kill-at-marker", "arrived", 3),
        ("kill-at-answer", "served", 2),
    ],
)
def test_an_ambush_strikes_who_takes_the_step_once(kind: str, moment: str, victim: int) -> None:
    cluster = Ambushed(FaultPlan(at_ms=0, kind=kind, for_ms=200, amount=500))
    cluster.start()
    step = STEPS[kind.partition("-at-")[2]]
    cluster.injector.meet("served" if moment != "served" else "called", step.method, NodeId(2), NodeId(3))
    cluster.go(50)
    assert not cluster.deaths, "it was another moment"
    for _ in range(2):
        cluster.injector.meet(moment, step.method, NodeId(2), NodeId(3))
        cluster.go(50)
    assert [node for node, _ in cluster.deaths] == [victim]
    cluster.close()


@pytest.mark.parametrize(("kind", "overtaken"), [("late-at-mark", True), ("hold-at-mark", False)])
def test_a_late_message_is_overtaken_and_a_held_link_holds_all(kind: str, overtaken: bool) -> None:
    cluster = Ambushed(FaultPlan(at_ms=0, kind=kind, for_ms=100))
    cluster.start()
    network, came = cluster.cluster.network, list[str]()
    cluster.injector.meet("called", STEPS["mark"].method, NodeId(2), NodeId(3))
    network.send(None, NodeId(2), NodeId(3), lambda _: came.append("first"))  # type: ignore[arg-type]
    cluster.go(5)
    network.send(None, NodeId(2), NodeId(3), lambda _: came.append("second"))  # type: ignore[arg-type]
    cluster.go(20)
    assert came == (["second"] if overtaken else [])
    cluster.go(120)
    assert sorted(came) == ["first", "second"]
    cluster.close()


@pytest.mark.parametrize(
    ("name", "seed", "race"),
    [
        ("coordinator-dies", 3, "R3"),
        ("answer-is-lost", 5, "R9"),
    ],
)
def test_a_race_that_a_scene_is_about_happens(name: str, seed: int, race: str) -> None:
    plan = RunPlan(seed=seed, theme=TRANSACTIONS, duration_ms=8_000)
    shape, _ = plan.drawn()
    result = run(replace(plan, faults=play(name, seed, shape, plan.duration_ms)))
    assert result.outcome is Outcome.OK, f"{result.checker}: {result.story}"
    assert any(it.startswith(race) for it in result.coverage.races), result.coverage.races


def test_transactions_hang_and_are_ended_by_an_administrator_while_their_producer_wakes() -> None:
    """R23, in both orders."""
    result = run(replace(RunPlan(seed=20, theme=TRANSACTIONS, duration_ms=8_000), faults=()))
    assert result.outcome is Outcome.OK, f"{result.checker}: {result.story}"
    assert sum(it.startswith("R23") for it in result.coverage.races) >= 2, result.coverage.races


@pytest.mark.parametrize(("first", "met"), [(4, 1), (5, 0), (None, 0)])
def test_records_below_an_open_transaction_are_no_race(first: int | None, met: int) -> None:
    """R17 is met where the transaction itself loses its first record."""
    watch = object.__new__(RaceWatch)
    watch.met = Counter()
    log = SimpleNamespace(_ctx=SimpleNamespace(producers=SimpleNamespace(first_unstable_offset=lambda: first)))
    watch._cut_off(cast(Log, log), LogStartAdvanced(tp=TopicPartition("t", 0), old=2, new=5, reason="DeleteRecords"))
    assert watch.met.total() == met


def test_a_seed_draws_the_same_scenes_wherever_it_is_asked() -> None:
    random.seed(1)
    assert draw(5, SHAPE, 15_000) == draw(5, SHAPE, 15_000)
