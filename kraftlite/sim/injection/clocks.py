"""Faults that hit clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.sim.cluster import CLIENT
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector


def wall_jump(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        _jump(injector, node, plan.amount)


def _jump(injector: Injector, node: SimHost, ms: int) -> None:
    offsets = injector.cluster.wall_offset_ms
    offsets[node.node_id] = offsets.get(node.node_id, 0) + ms
    if node.now is not None:
        node.now.clock.jump_wall(ms)


def clocks(injector: Injector, plan: FaultPlan) -> None:
    """The wall clock of each node jumps, each by another amount, up to `amount` milliseconds back or forth; at the end of the
    fault they jump back."""
    jumps = {it: injector.trouble.randint(-plan.amount, plan.amount) for it in injector.cluster.nodes.values()}
    injector.note(f"clocks jump: {', '.join(f'{node.node_id} by {ms} ms' for node, ms in jumps.items())}")
    for node, ms in jumps.items():
        _jump(injector, node, ms)

    def back() -> None:
        for node, ms in jumps.items():
            _jump(injector, node, -ms)

    if plan.for_ms:
        injector.end_of(plan, back)


def client_clock(injector: Injector, plan: FaultPlan) -> None:
    """The clock of the clients' machine is wrong by `amount` milliseconds."""
    offsets = injector.cluster.wall_offset_ms
    injector.note(f"the clients' clock is wrong by {plan.amount} ms for {plan.for_ms} ms")
    offsets[CLIENT] = plan.amount
    injector.end_of(plan, lambda: offsets.pop(CLIENT, None))


def drift(injector: Injector, plan: FaultPlan) -> None:
    """The node's monotonic clock runs faster by `amount` millionths, or slower by as many when that is negative."""
    node = injector.one(plan)
    if node is not None and node.now is not None:
        here = node.now
        node.set_rate(max(plan.amount, -900_000))
        injector.end_of(plan, lambda: node.set_rate(node.rate_ppm) if node.now is here else None)


KINDS: Final[Mapping[str, Handler]] = {
    "wall-jump": wall_jump,
    "clocks": clocks,
    "client-clock": client_clock,
    "drift": drift,
}
