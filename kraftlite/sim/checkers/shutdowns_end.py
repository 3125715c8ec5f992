"""A broker that is on its way down is let go as soon as it may be (CM-08)."""

from __future__ import annotations

from typing import Any

from kraftlite.controller.core import ControllerCore
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlite.model.messages.methods import BROKER_HEARTBEAT
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.simhost.network import AnyExchange

_Office = tuple[tuple[NodeId, int], int | None]
"""The incarnation of a controller, and the epoch of its claim."""


class ShutdownsEnd(MetadataChecker):
    """A controller that has answered a heartbeat of a broker in controlled shutdown answers the next one by letting it go, if the
    broker leads nothing by then, and if all other brokers that are alive, and not on their way down themselves, have told it that
    they are as far in the metadata log as was committed at that answer. It waits for nobody else. A new controller does not know
    of those on their way down before it has answered them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._told: dict[tuple[_Office, NodeId, int], int] = {}
        """The metadata offset that each incarnation of a broker told this controller last: an older heartbeat may come later."""
        self._waits: dict[tuple[_Office, NodeId, int], int] = {}
        """The committed offset at the first answer to a broker in controlled shutdown."""
        self._due: dict[AnyExchange, _Office] = {}
        self.facts.watch_arrival(BROKER_HEARTBEAT, self._on_heartbeat)
        self.facts.watch_served(BROKER_HEARTBEAT, self._on_answered)

    def _office(self, exchange: AnyExchange) -> tuple[ControllerCore, _Office] | None:
        view = self.facts.views.get(exchange.target)
        core: Any = None if view is None else view.controller
        if view is None or core is None or not core.activated or core.claim_epoch is None:
            return None
        return core, (view.author, core.claim_epoch)

    def _on_heartbeat(self, exchange: AnyExchange) -> None:
        found = self._office(exchange)
        if found is not None and self._may_go(*found, exchange.request):
            self._due[exchange] = found[1]

    def _on_answered(self, exchange: AnyExchange, response: BrokerHeartbeatResponse) -> None:
        request: BrokerHeartbeatRequest = exchange.request
        found, due = self._office(exchange), self._due.pop(exchange, None)
        if found is None:
            return
        core, office = found
        if due == office and not response.should_shut_down and self._may_go(core, office, request):
            self.fail(
                f"controller {exchange.target} does not let broker {request.broker_id} go, which leads nothing any more and had "
                f"its answer at offset {self._waits[office, request.broker_id, request.broker_epoch]}; the others that are alive "
                "have told it that they know"
            )
        key = (office, request.broker_id, request.broker_epoch)
        self._told[key] = request.current_metadata_offset
        known = core.state.cluster.brokers.get(request.broker_id)
        if request.want_shut_down and known is not None and known.in_controlled_shutdown:
            self._waits.setdefault(key, core.offsets.committed_offset)
        else:
            self._waits.pop(key, None)  # it was fenced meanwhile, say, and begins anew

    def _may_go(self, core: ControllerCore, office: _Office, request: BrokerHeartbeatRequest) -> bool:
        broker_id = request.broker_id
        offset = self._waits.get((office, broker_id, request.broker_epoch))
        known = core.state.cluster.brokers.get(broker_id)
        if offset is None or not request.want_shut_down or known is None or known.broker_epoch != request.broker_epoch:
            return False
        if known.fenced or not known.in_controlled_shutdown or core.state.replication.has_leaderships(broker_id):
            return False
        return all(
            self._told.get((office, other_id, other.broker_epoch), -1) >= offset
            for other_id, other in core.state.cluster.brokers.items()
            if other_id != broker_id and not other.fenced
            if not other.in_controlled_shutdown or (office, other_id, other.broker_epoch) not in self._waits
        )
