"""Faults that hit a cluster which boots for the first time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.controller import ControllerActivated
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector

STEP_US: Final = 15_000
"""Each step of a controller takes so long until the last of these faults has struck."""
PATIENCE_MS: Final = 20_000
"""After that none strikes any more: many voters with short elections may be too slow to elect anybody, and brokers give up."""


def kill_amid_bootstrap(injector: Injector, plan: FaultPlan) -> None:
    """The next controller that begins with records dies `amount` milliseconds after it has computed them, and comes back when the
    fault is over. Of several such faults each waits for the one before it."""
    injector.amid_bootstrap.append(plan)
    if len(injector.amid_bootstrap) > 1:
        return
    loop, cluster = injector.cluster.loop, injector.cluster

    def slow_down(step_us: int) -> None:
        for it in cluster.controllers:
            if it.now is not None:
                loop.slow_down(it.now.pid, step_us)

    def on_event(_now_us: int, node: SimHost, event: TraceEvent) -> None:
        if not isinstance(event, ControllerActivated) or not event.records or node.now is None or injector.over:
            return
        if not injector.amid_bootstrap:
            slow_down(0)
            return
        here, fault = node.now, injector.amid_bootstrap.pop(0)

        def die() -> None:
            if node.now is here:
                injector.note(f"{fault.kind} {node.node_id} for {fault.for_ms} ms")
                injector.kill(node)
                injector.boot_later(node, fault.for_ms)
            if not injector.amid_bootstrap:
                slow_down(0)

        injector.at(fault.amount, die)

    def let_go() -> None:
        if injector.amid_bootstrap:
            injector.amid_bootstrap.clear()
            slow_down(0)

    slow_down(STEP_US)
    injector.at(PATIENCE_MS, let_go)
    cluster.on_event.append(on_event)


KINDS: Final[Mapping[str, Handler]] = {"kill-amid-bootstrap": kill_amid_bootstrap}
