"""No other incarnation of a broker is registered while the one before it keeps its session (CM-01)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest
from kraftlite.model.messages.methods import BROKER_HEARTBEAT, REGISTER_BROKER
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.simhost.network import AnyExchange


class Session(NamedTuple):
    """A session as its controller has it: the incarnation, and the arrival of its last heartbeat that was answered."""

    incarnation_id: UUID
    heard_us: int


class OneIncarnation(MetadataChecker):
    """A controller that has taken a heartbeat of a broker less than a session timeout ago does not register another incarnation
    of it: two processes may have the same id, and the first one lives. One that is on its way down is left out, and so is what a
    controller heard before it became active."""

    numbers: ClassVar[tuple[int, ...]] = (22,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._claims: dict[NodeId, object] = {}
        self._sessions: dict[NodeId, dict[NodeId, Session]] = {}
        """By controller, for as long as it is active without a break, and broker."""
        self._came: dict[AnyExchange, int] = {}
        """The arrival of each heartbeat under way."""
        self._asked: dict[AnyExchange, Session] = {}
        """Registrations that came while another incarnation had a session."""
        self._now_us = world.cluster.loop.now_us
        self.facts.watch_arrival(BROKER_HEARTBEAT, self._on_heartbeat)
        self.facts.watch_served(BROKER_HEARTBEAT, self._on_heard)
        self.facts.watch_arrival(REGISTER_BROKER, self._on_register)
        self.facts.watch_served(REGISTER_BROKER, self._on_registered)

    def on_controller(self, view: NodeView) -> None:
        core = view.active_controller
        claim = (view.incarnation, core.claim_epoch if core.activated else None)
        if claim != self._claims.get(view.node_id):
            self._claims[view.node_id] = claim
            self._sessions[view.node_id] = {}

    def _on_heartbeat(self, exchange: AnyExchange) -> None:
        self._came[exchange] = self._now_us()
        if exchange.request.want_shut_down:
            self._sessions.get(NodeId(exchange.target), {}).pop(exchange.request.broker_id, None)

    def _on_heard(self, exchange: AnyExchange, response: object) -> None:
        request, came_us = exchange.request, self._came.pop(exchange, None)
        assert isinstance(request, BrokerHeartbeatRequest) and isinstance(response, BrokerHeartbeatResponse)
        sessions = self._sessions.get(NodeId(exchange.target))
        controller = self.facts.view(self.world.nodes[exchange.target]).controller
        if came_us is None or sessions is None or controller is None:
            return
        known = controller.state.cluster.brokers.get(request.broker_id)
        if request.want_shut_down or known is None or known.broker_epoch != request.broker_epoch:
            sessions.pop(request.broker_id, None)
        else:
            sessions[request.broker_id] = Session(known.incarnation_id, came_us)

    def _on_register(self, exchange: AnyExchange) -> None:
        request = exchange.request
        assert isinstance(request, BrokerRegistrationRequest)
        session = self._sessions.get(NodeId(exchange.target), {}).get(request.broker_id)
        controller = self.facts.view(self.world.nodes[exchange.target]).controller
        known = None if controller is None else controller.state.cluster.brokers.get(request.broker_id)
        if session is None or known is None or known.in_controlled_shutdown or session.incarnation_id != known.incarnation_id:
            return
        if known.incarnation_id != request.incarnation_id:
            self._asked[exchange] = session

    def _on_registered(self, exchange: AnyExchange, response: object) -> None:
        session, request = self._asked.pop(exchange, None), exchange.request
        controller = self.facts.view(self.world.nodes[exchange.target]).controller
        if session is None or controller is None:
            return
        node = self.world.nodes[exchange.target]
        passed_ms = (self._now_us() - session.heard_us) * (1_000_000 + node.fastest_ppm) // 1_000_000_000 + 1  # by its clock
        limit_ms = controller.config.session_timeout_ms
        if passed_ms < limit_ms:
            self.fail(
                f"controller {node.node_id} registers broker {request.broker_id} as incarnation {request.incarnation_id}, and "
                f"has taken a heartbeat of incarnation {session.incarnation_id} {passed_ms} ms ago; a session lasts {limit_ms}"
            )
