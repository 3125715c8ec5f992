"""A broker with something to say while a heartbeat is under way says it right after that, not an interval later (BL-06)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.broker.lifecycle_core import BrokerLifecycleCore, BrokerState
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerHeartbeatRequest
from kraftlite.model.messages.methods import BROKER_HEARTBEAT, REGISTER_BROKER
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import BrokerHeartbeatFailed
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.simhost.host import SimHost


@dataclass(slots=True, eq=False)
class _Said:
    """The last heartbeat of an incarnation that was sent. `answered`: its answer has come, and may not have been read yet."""

    boots: int
    request: BrokerHeartbeatRequest
    answered: bool = False


class WishesTold(Checker):
    """A broker that has read the answer to a heartbeat has the next one under way, or nothing that the last one did not say: that
    it is ready or wants to stop, that a directory has failed, which ones are cordoned. After a failure it waits."""

    only_methods = (BROKER_HEARTBEAT, REGISTER_BROKER)
    only_events: ClassVar[tuple[type[TraceEvent], ...] | None] = (BrokerHeartbeatFailed,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._said: dict[NodeId, _Said] = {}
        self.judged = 0

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is BROKER_HEARTBEAT and source in self.world.nodes:
            assert isinstance(request, BrokerHeartbeatRequest)
            self._said[source] = _Said(self.world.nodes[source].boots, request)
        elif method is REGISTER_BROKER:
            self._said.pop(source, None)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        found = self._said.get(source)
        core = None if found is None else _core(self.world.nodes[source], found)
        if found is not None and found.request is request and core is not None and core._in_flight:
            found.answered = True

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is BrokerHeartbeatFailed:
            self._said.pop(node.node_id, None)

    def on_step(self, node: SimHost) -> None:
        found = self._said.get(node.node_id)
        if found is None or not found.answered:
            return
        core = _core(node, found)
        if core is not None and core._in_flight:
            return  # it was not read yet, or the next one is about to leave
        del self._said[node.node_id]
        unsaid = None if core is None else _unsaid(core, found.request)
        self.judged += 1
        if unsaid is not None:
            self.fail(f"broker {node.node_id} has its answer to {found.request}, which did not say that {unsaid}; it waits")


def _core(node: SimHost, said: _Said) -> BrokerLifecycleCore | None:
    broker = None if node.node is None or node.boots != said.boots else node.node.broker
    return None if broker is None else broker.lifecycle._core


def _unsaid(core: BrokerLifecycleCore, said: BrokerHeartbeatRequest) -> str | None:
    if core.state is BrokerState.SHUTTING_DOWN:
        return None
    if core.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and not said.want_shut_down:
        return "it wants to stop"
    if core._ready and said.want_fence:
        return "it is ready"
    failed = [it for it in core._offline if it not in said.offline_log_dirs]
    if failed:
        return f"{failed} have failed"
    return "it has cordoned others" if core._cordoned != said.cordoned_log_dirs else None
