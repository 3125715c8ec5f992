"""Invariant 37: a broker that is not heard of is fenced in bounded time, by whichever controller is active, and one that is heard
of keeps its session (CE-25 to CE-27)."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.model.ids import NodeId
from kraftlite.model.limits import LEADERS_FIRST_MS
from kraftlite.model.messages.controller import BrokerHeartbeatRequest
from kraftlite.model.messages.methods import BROKER_HEARTBEAT
from kraftlite.model.tuning import Tuning
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace.controller import BrokerSessionExpired
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.simhost.network import AnyExchange

_GAP_US: Final = 700_000
"""An idle controller writes more often than this: one that did not was paused, and gives everybody that time (CE-25)."""
_SLACK_US: Final = 2_000_000
_STALL_MS: Final = 200
"""A controller takes no note of having stood still for half of that (CE-25)."""


class FencingLiveness(MetadataChecker):
    """A broker does not stay unfenced in the state of the active controller when no heartbeat of it has reached any controller
    for a session timeout, the quarter of one in which the controller looks twice, the time in which what it led gets new leaders
    first, and some slack. The time counts from when that controller became active at the earliest, since a new one begins every
    session anew.

    The other way round, no controller ends the session of a broker whose heartbeat it has taken less than a session timeout ago.
    The time in which its process stood still does not count, but for the eighth of one that it may have slept anyway (CE-25).
    """

    numbers: ClassVar[tuple[int, ...]] = (37,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard_us: dict[tuple[NodeId, int], int] = {}
        """By broker and broker epoch."""
        self._since_us: dict[NodeId, int] = {}
        """Since when the controller of this node is active and has not paused."""
        self._claims: dict[NodeId, tuple[int, int | None]] = {}
        self._wrote_us: dict[NodeId, int] = {}
        self._arrived_us: dict[AnyExchange, int] = {}
        self._taken_us: dict[tuple[NodeId, int, NodeId, int], int] = {}
        """The arrival of the last heartbeat that was answered, by controller, its incarnation, broker and broker epoch."""
        self.facts.watch_arrival(BROKER_HEARTBEAT, self._on_heartbeat)
        self.facts.watch_served(BROKER_HEARTBEAT, self._on_served)
        self.facts.watch(BrokerSessionExpired, self._on_expired)

    def _on_heartbeat(self, exchange: AnyExchange) -> None:
        request = exchange.request
        assert isinstance(request, BrokerHeartbeatRequest)
        now_us = self.world.cluster.loop.now_us()
        self._heard_us[(request.broker_id, request.broker_epoch)] = now_us
        self._arrived_us[exchange] = now_us

    def _on_served(self, exchange: AnyExchange, response: object) -> None:
        arrived_us = self._arrived_us.pop(exchange, None)
        if arrived_us is None:
            return
        request, controller = exchange.request, exchange.target
        key = (controller, self.world.nodes[controller].boots, request.broker_id, request.broker_epoch)
        self._taken_us[key] = max(arrived_us, self._taken_us.get(key, 0))

    def _on_expired(self, view: NodeView, event: BrokerSessionExpired) -> None:
        node, core, now_us = view.node, view.controller, self.world.cluster.loop.now_us()
        taken_us = self._taken_us.get((node.node_id, node.boots, event.broker_id, event.broker_epoch))
        if taken_us is None or core is None:
            return
        passed_ms = (now_us - taken_us) * (1_000_000 + node.fastest_ppm) // 1_000_000_000 + 1  # by its clock
        session_ms = core.config.session_timeout_ms
        if passed_ms < session_ms:
            self.fail(
                f"controller {node.node_id} ends the session of broker {event.broker_id}, whose heartbeat it has taken "
                f"{passed_ms} ms ago; a session lasts {session_ms}"
            )
        from_us, to_us = node.stood_still_us
        still_us = to_us - from_us if from_us > taken_us else 0
        still_ms = still_us * (1_000_000 + node.slowest_ppm) // 1_000_000_000
        if still_ms and passed_ms - still_ms < session_ms * 7 // 8 - _STALL_MS:
            self.fail(
                f"controller {node.node_id} ends the session of broker {event.broker_id}, whose heartbeat it has taken "
                f"{passed_ms} ms ago; it stood still for {still_ms} ms of them, and a session lasts {session_ms}"
            )

    def on_controller(self, view: NodeView) -> None:
        core = view.active_controller
        claim = (view.incarnation, core.claim_epoch if core.activated else None)
        if claim != self._claims.get(view.node_id):
            self._claims[view.node_id] = claim
            self._since_us[view.node_id] = self._wrote_us[view.node_id] = self.world.cluster.loop.now_us()

    def on_append(self, view: NodeView, entry: Entry) -> None:
        core = view.controller
        if core is None or not core.activated or core.claim_epoch is None or not isinstance(view.state, Leader):
            return
        now_us, node_id = self.world.cluster.loop.now_us(), view.node_id
        if now_us - self._wrote_us.get(node_id, 0) > _GAP_US:
            self._since_us[node_id] = now_us
        self._wrote_us[node_id] = now_us
        since_us = self._since_us.get(node_id, now_us)
        session_us = view.node.longest_us(core.config.session_timeout_ms)
        limit_us = session_us * 5 // 4 + _SLACK_US
        if core.config.tuning.leaders_first < Tuning().leaders_first:
            limit_us += LEADERS_FIRST_MS * 1_000
        if now_us - since_us <= limit_us:
            return
        for broker_id, known in core.state.cluster.brokers.items():
            heard_us = self._heard_us.get((broker_id, known.broker_epoch), 0)
            silent_us = now_us - max(since_us, heard_us)
            if not known.fenced and silent_us > limit_us:
                self.fail(
                    f"controller {node_id}, active in epoch {core.claim_epoch}, keeps broker {broker_id} unfenced, of whose "
                    f"epoch {known.broker_epoch} no heartbeat has come for {silent_us // 1000} ms; a session lasts "
                    f"{core.config.session_timeout_ms}"
                )
