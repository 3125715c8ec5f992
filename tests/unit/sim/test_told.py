"""Who is told what: hooks that a checker overrides, for the events and methods that it minds, in the order of the checkers."""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import RAFT_FETCH, REPLICA_FETCH
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogOpened, LogTruncated
from kraftlite.sim.checkers.base import Checker, CheckerFactory, World
from kraftlite.sim.checkers.catalog import ALL
from kraftlite.sim.checkers.told import Told
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.process import is_inert

PLAN = RunPlan(seed=5, shape=NAMED["1+3"], duration_ms=2_000)


class Deaf(Checker):
    """Overrides nothing."""


class Everything(Checker):
    def __init__(self) -> None:
        self.heard: list[type[TraceEvent]] = []

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        self.heard.append(type(event))

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        return None

    def on_step(self, node: SimHost) -> None:
        return None


class Choosy(Everything):
    only_events = (LogOpened,)
    only_methods = (RAFT_FETCH,)


def test_a_hook_is_told_to_those_that_override_it_and_mind_the_kind() -> None:
    everything, choosy = Everything(), Choosy()
    told = Told([Deaf.__new__(Deaf), everything, choosy])
    assert told.steps == [everything.on_step, choosy.on_step]
    assert not told.boots and not told.deaths and not told.settlers
    assert told.events.of(LogOpened) == [everything.on_event, choosy.on_event]
    assert told.events.of(LogTruncated) == [everything.on_event]
    assert told.calls.of(RAFT_FETCH) == [everything.on_call, choosy.on_call]
    assert told.calls.of(REPLICA_FETCH) == [everything.on_call]
    assert told.answers.of(RAFT_FETCH) == []


def test_what_checkers_say_they_do_not_mind_makes_no_difference_to_a_run() -> None:
    """Every checker that leaves kinds out is told everything, as the interface allows: the verdict is the same."""
    plain = run(PLAN)
    choosy: list[str] = []

    def told_all(make: CheckerFactory) -> CheckerFactory:
        def made(world: World) -> Checker:
            checker = make(world)
            if checker.only_events is not None or checker.only_methods is not None:
                choosy.append(checker.name)
                vars(checker).update(only_events=None, only_methods=None)
            return checker

        return made

    again = run(PLAN, [told_all(it) for it in ALL])
    assert len(choosy) > 5
    assert (again.outcome, again.trace, again.story) == (plain.outcome, plain.trace, plain.story)


def test_callbacks_that_nobody_is_asked_after_change_no_node() -> None:
    known: dict[NodeId, tuple[object, tuple[object, ...]]] = {}
    nodes: dict[NodeId, SimHost] = {}
    skipped: list[int] = []

    class Steps(Checker):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            world.cluster.loop.skips = spied

        def on_boot(self, node: SimHost) -> None:
            nodes[node.node_id] = node

        def on_step(self, node: SimHost) -> None:
            known[node.node_id] = (node.now, _state(node))

    def spied(callback: Callable[..., object]) -> bool:
        skip = is_inert(callback)
        if skip:
            for node_id, (incarnation, state) in known.items():
                if nodes[node_id].now is incarnation:
                    assert _state(nodes[node_id]) == state, f"{callback} has changed node {node_id}"
            skipped.append(1)
        return skip

    assert run(PLAN, [Steps]).outcome is Outcome.OK
    assert len(skipped) > 500


def _state(node: SimHost) -> tuple[object, ...]:
    if node.node is None or node.node.raft._core is None:
        return ()
    core, broker = node.node.raft._core, node.node.broker
    replicas = (
        ()
        if broker is None
        else tuple(
            (it.tp, it.leader_epoch, it.partition_epoch, it.committed_isr, None if it.log is None else (it.log.leo, it.log.hw))
            for it in broker.replicas.partitions()
        )
    )
    return (core.state, core.epoch, core.leo, core.committed_offset, node.node.loader.image, replicas)
