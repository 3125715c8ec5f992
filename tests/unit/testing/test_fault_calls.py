"""The calls of faults and of waits that would do nothing: each is an error, or a test would pass for nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftlite.model.faults import Injection, UnknownFault
from kraftlite.testing.embedded_faults import EmbeddedFaults
from kraftlite.testing.errors import ClusterError
from kraftlite.testing.faults import CLIENTS, FaultCalls, Injected, Request
from kraftlite.testing.transactions import WantedTransaction


class Calls(FaultCalls):
    """Node 1 is a controller, 4 and 5 are brokers, of which `running` run."""

    brokers = (4, 5)
    running: tuple[int, ...] = (4, 5)

    def __init__(self) -> None:
        self.hit: list[Request] = []

    def _check(self, node_id: object) -> int:
        if not isinstance(node_id, int) or node_id not in (1, 4, 5):
            raise ValueError(f"there is no node {node_id!r}")
        return node_id

    def _inject(self, requests: Sequence[Request], for_s: float | None) -> Injected:
        self.hit += requests
        return Injected(lambda: None)

    def _end_delays(self, pairs: Sequence[tuple[int, int]]) -> None: ...

    def _fallible(self) -> tuple[int, ...]:
        return self.running


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.cut(4, []),
        lambda c: c.cut((), 4),
        lambda c: c.cut(CLIENTS, []),
        lambda c: c.refuse([], CLIENTS),
        lambda c: c.delay([], 4, 5),
        lambda c: c.lose(4, set(), 0.5),
        lambda c: c.fail_api("Produce", error=6, nodes=[]),
        lambda c: c.slow_api(5, nodes=iter(())),
    ],
)
def test_a_fault_that_hits_nobody_is_an_error(call: Callable[[Calls], Injected]) -> None:
    calls = Calls()
    with pytest.raises(ValueError, match="no node was named"):
        call(calls)
    assert calls.hit == []


@pytest.mark.parametrize("seconds", [float("inf"), float("-inf"), float("nan"), 0, 0.0004, True, 1e9])
def test_a_clock_does_not_jump_by_what_is_no_time_or_nothing(seconds: float) -> None:
    calls = Calls()
    with pytest.raises(ValueError, match="allowed is"):
        calls.jump_clock(4, seconds)
    assert calls.hit == []
    calls.jump_clock(4, -0.5)
    assert [it.fault.amount for it in calls.hit] == [-500]


def test_answers_of_brokers_that_do_not_run_cannot_be_changed() -> None:
    calls = Calls()
    calls.fail_api("Produce", error=6)
    calls.slow_api(5, nodes=[5])
    assert [it.node for it in calls.hit] == [4, 5, 5]
    calls.running = ()
    with pytest.raises(ClusterError, match="no broker is running"):
        calls.fail_api("Produce", error=6)


def test_a_wait_for_none_of_the_states_is_an_error() -> None:
    nothing: tuple[Collection[str], ...] = ((), [])
    for states in nothing:
        for coordinator in (None, 4):
            with pytest.raises(ValueError, match="nothing to wait for"):
                WantedTransaction(transactional_id="t", state=states, coordinator=coordinator)
    assert WantedTransaction(transactional_id="t", coordinator=4).states == ()


class _Injector:
    def __init__(self, most: int) -> None:
        self.most = most
        self.faults: list[str] = []

    def inject(self, fault: Injection) -> None:
        if len(self.faults) == self.most:
            raise UnknownFault("it has the most already")
        self.faults.append(fault.id)

    def end(self, ids: Sequence[str]) -> None:
        self.faults = [it for it in self.faults if it not in ids]


def test_a_call_of_which_one_node_takes_no_fault_leaves_none_anywhere() -> None:
    injectors = {4: _Injector(most=64), 5: _Injector(most=0)}
    hosts = {node_id: SimpleNamespace(node=SimpleNamespace(injector=it)) for node_id, it in injectors.items()}
    faults = EmbeddedFaults(cast(Any, SimpleNamespace(hosts=hosts)))
    fault = Injection(id="new", kind="api-error", for_ms=1, api="Produce", error=6)
    with pytest.raises(UnknownFault):
        faults.begin([Request(4, fault), Request(5, fault)], None)
    assert not injectors[4].faults and not faults._active
    assert faults.begin([Request(4, fault)], None) and len(injectors[4].faults) == 1
