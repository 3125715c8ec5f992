"""Faults that hit what applies metadata to a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kraftlite.runtime.ports import Clock, TimerHandle
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


class _Unhurried:
    """A node's clock, by which nobody has a turn of the loop at once, while `is_slow`."""

    def __init__(self, clock: Clock, turn_ms: int, is_slow: Callable[[], bool]) -> None:
        self._clock = clock
        self._turn_ms = turn_ms
        self._is_slow = is_slow

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def now_us(self) -> int:
        return self._clock.now_us()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self._clock.call_later(delay_ms, callback)

    async def sleep(self, delay_ms: int) -> None:
        await self._clock.sleep(max(delay_ms, self._turn_ms) if self._is_slow() else delay_ms)


def slow_publisher(injector: Injector, plan: FaultPlan) -> None:
    """Each turn that the broker's publisher takes for a long update comes `amount` milliseconds later: the loop is everybody's,
    and its others are served meanwhile. Not so while replicas are yet to get their leaders: whoever delivers the metadata asks in
    each turn of the loop whether there are such, and no time passes before it may go on."""
    node = injector.one(plan)
    broker = None if node is None or node.node is None else node.node.broker
    if broker is None:
        return
    publisher, replicas, loop = broker.publisher, broker.replicas, injector.cluster.loop
    until_us = loop.now_us() + 1_000 * plan.for_ms

    def is_slow() -> bool:
        return not injector.over and loop.now_us() < until_us and not replicas.elections_left

    publisher._ports = replace(publisher._ports, clock=_Unhurried(publisher._ports.clock, plan.amount, is_slow))


KINDS: Final[Mapping[str, Handler]] = {"slow-publisher": slow_publisher}
