"""The faults of a node are checked, bounded in time, and told of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftlite.faults.active import Active, Undo
from kraftlite.faults.injector import ASKED, STOPPED, TIME, USED_UP, Injector
from kraftlite.faults.service import FaultsService
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.faults import CLIENTS, KINDS, MAX_ACTIVE, MAX_FOR_MS, Injection, UnknownFault, check
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.faults import InjectRequest, ListFaultsRequest
from kraftlite.model.messages.methods import INJECT_FAULT, LIST_FAULTS
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.node import FaultInjected, InjectedFaultEnded
from kraftlite.sim.fault_plan import ALL_FAULTS
from tests.harness.clock import FakeClock

CUT = Injection(id="one", kind="cut", for_ms=5_000, other=2)
API = Injection(id="api", kind="api-error", for_ms=5_000, api="Produce", error=6, count=2)


class Recorder:
    """A part that only notes what it is told."""

    def __init__(self) -> None:
        self.active: dict[str, Active] = {}

    def begin(self, active: Active) -> Undo:
        self.active[active.fault.id] = active
        return lambda: self.active.pop(active.fault.id) and None


class World:
    def __init__(self) -> None:
        self.clock, self.tracer = FakeClock(), ListTracer()
        self.links, self.apis, self.clients = Recorder(), Recorder(), Recorder()
        self.ends: list[tuple[str, str]] = []
        self.injector = Injector(
            NodeId(4),
            self.clock,
            self.tracer,
            {"network": self.links, "api": self.apis},
            self.clients,
            lambda identity, how: self.ends.append((identity, how)),
        )


def test_a_fault_ends_by_itself_and_says_so() -> None:
    world = World()
    world.injector.inject(CUT)
    assert set(world.links.active) == {"one"}
    assert [(it.left_ms, it.hits) for it in world.injector.states()] == [(5_000, 0)]
    world.clock.advance(4_999)
    assert world.links.active
    world.clock.advance(1)
    assert not world.links.active
    assert not world.injector.states()
    assert world.ends == [("one", TIME)]
    assert world.tracer.events == [
        FaultInjected(id="one", kind="cut", what="cut 2 for 5000", for_ms=5_000),
        InjectedFaultEnded(id="one", kind="cut", how=TIME, hits=0),
    ]


def test_who_asks_again_prolongs_it_and_who_stops_asking_does_not() -> None:
    world = World()
    for _ in range(3):
        world.injector.inject(CUT)
        world.clock.advance(4_000)
    assert len(world.tracer.events) == 1
    world.clock.advance(1_000)
    assert world.ends == [("one", TIME)]


def test_a_fault_that_is_used_up_ends() -> None:
    world = World()
    world.injector.inject(API)
    active = world.apis.active["api"]
    active.hit()
    assert not active.spent
    active.hit()
    assert active.spent
    assert world.apis.active  # not in the middle of the request that used it up
    world.clock.advance(0)
    assert world.ends == [("api", USED_UP)]
    assert not world.apis.active


def test_faults_end_when_they_are_asked_to_and_when_the_node_stops() -> None:
    world = World()
    for identity in ("a", "b", "c"):
        world.injector.inject(replace(CUT, id=identity))
    assert world.injector.end(["b", "unknown"]) == ("b",)
    world.injector.close()
    assert world.ends == [("b", ASKED), ("a", STOPPED), ("c", STOPPED)]
    world.clock.advance(10_000)
    assert len(world.ends) == 3


def test_clients_are_another_part() -> None:
    world = World()
    world.injector.inject(replace(CUT, other=CLIENTS))
    assert set(world.clients.active) == {"one"}
    assert not world.links.active


def _many(world: World) -> None:
    for number in range(MAX_ACTIVE):
        world.injector.inject(replace(CUT, id=f"n{number}"))
    world.injector.inject(CUT)


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda world: world.injector.inject(replace(CUT, other=4)), "no link to itself"),
        (lambda world: world.injector.inject(Injection(id="x", kind="wall-jump", for_ms=1, amount=1)), "only api, network"),
        (_many, f"has {MAX_ACTIVE} faults already"),
        (lambda world: [world.injector.inject(CUT), world.injector.inject(replace(CUT, other=3))], "that of another fault"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_begins(act: Callable[[World], object], why: str) -> None:
    world = World()
    with pytest.raises(UnknownFault, match=why):
        act(world)
    assert len(world.injector.states()) in (0, 1, MAX_ACTIVE)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (replace(CUT, id=""), "id ''"),
        (replace(CUT, id="a b"), "id 'a b'"),
        (replace(CUT, kind="melt"), "allowed are cut"),
        (replace(CUT, for_ms=0), "allowed is 1 to"),
        (replace(CUT, for_ms=MAX_FOR_MS + 1), "allowed is 1 to"),
        (replace(CUT, other=None), "the other end"),
        (replace(CUT, other=-2), "id of a node"),
        (replace(CUT, kind="slow", amount=2_000, other=CLIENTS), "use api-slow"),
        (replace(CUT, amount=1), "allowed is none"),
        (replace(CUT, kind="slow", amount=1), "allowed is 1000"),
        (replace(CUT, kind="lossy", amount=1_000_001), "1 to 1000000 ppm"),
        (replace(CUT, outgoing=False, incoming=False), "no direction"),
        (replace(CUT, path="/data"), "no directory"),
        (replace(CUT, api="Produce"), "neither an API"),
        (replace(CUT, kind="disk-full"), "no other node"),
        (replace(API, error=0), "the code"),
        (replace(API, api=""), "needs an API"),
        (replace(API, count=-1), "count -1"),
        (replace(API, kind="api-slow", amount=1_000), "takes no code"),
    ],
)
def test_what_has_no_meaning_is_refused(fault: Injection, why: str) -> None:
    with pytest.raises(UnknownFault, match=why):
        check(fault)


def test_the_names_are_those_of_the_simulator() -> None:
    assert {kind.name for kind in KINDS.values() if kind.family != "api"} <= set(ALL_FAULTS)


async def test_a_node_that_does_not_allow_faults_says_which_setting_allows_them() -> None:
    handlers = FaultsService(NodeId(4), None).handlers()
    for method, request in ((INJECT_FAULT, InjectRequest(fault=CUT)), (LIST_FAULTS, ListFaultsRequest())):
        with pytest.raises(ApiError, match=r"node 4 does not take faults: kraftlite\.faults\.enable is false") as told:
            await handlers[method](request)
        assert told.value.code is ErrorCode.POLICY_VIOLATION


async def test_what_is_wrong_with_a_fault_is_told_to_who_asks() -> None:
    handlers = FaultsService(NodeId(4), World().injector).handlers()
    with pytest.raises(ApiError, match="allowed are cut") as told:
        await handlers[INJECT_FAULT](InjectRequest(fault=replace(CUT, kind="melt")))
    assert told.value.code is ErrorCode.INVALID_REQUEST
