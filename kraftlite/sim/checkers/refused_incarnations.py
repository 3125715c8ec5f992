"""A broker that comes back is registered where its former self can have no session (CM-01): a refusal costs it a part of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from kraftlite.metadata.registrations import BrokerRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerHeartbeatResponse
from kraftlite.model.messages.methods import BROKER_HEARTBEAT, REGISTER_BROKER
from kraftlite.runtime.trace.broker import BrokerRegistrationRefused
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.simhost.network import AnyExchange

_DUPLICATE: Final = "DUPLICATE_BROKER_REGISTRATION"

_Key: TypeAlias = tuple[NodeId, int]
"""A broker, and the epoch of one incarnation of it."""
_Incarnation: TypeAlias = tuple[NodeId, UUID]


@dataclass(slots=True)
class _Office:
    """A controller that is active without a break, and what it has heard in this time."""

    claim: tuple[int, int | None]
    unfenced: frozenset[_Key]
    """The brokers to which it gave a session at the beginning."""
    heard: dict[_Key, AnyExchange]
    """The last heartbeat of each incarnation."""
    let_go: dict[_Key, int] = field(default_factory=dict)
    """Those that it has told to go and that have said nothing since; the number of the heartbeat that was answered so."""


@dataclass(slots=True)
class _Asked:
    """The registrations of an incarnation that have come since its last refusal. `number`: that of the first of them, which found
    another incarnation `known`. `office` None: another controller is asked, too."""

    number: int
    office: _Office | None
    known: BrokerRegistration | None


class RefusedIncarnations(MetadataChecker):
    """A controller says that another incarnation of a broker is alive only where that may have a session: where it has heard it
    since it became active, or found it unfenced then. One that was told to go, and has said nothing after that, has none."""

    numbers: ClassVar[tuple[int, ...]] = (22,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._offices: dict[NodeId, _Office] = {}
        self._asked: dict[_Incarnation, _Asked] = {}
        self._registered: set[tuple[NodeId, UUID]] = set()
        """The incarnations that have asked a controller to be registered, with that."""
        self._count = 0
        """Registrations and heartbeats that have come."""
        self._numbers: dict[AnyExchange, int] = {}
        """Heartbeats that are not answered yet."""
        self.facts.watch_arrival(BROKER_HEARTBEAT, self._on_heartbeat)
        self.facts.watch_served(BROKER_HEARTBEAT, self._on_answered)
        self.facts.watch_arrival(REGISTER_BROKER, self._on_register)
        self.facts.watch(BrokerRegistrationRefused, self._on_refused)

    def on_controller(self, view: NodeView) -> None:
        core = view.active_controller
        claim, found = (view.incarnation, core.claim_epoch), self._offices.get(view.node_id)
        if found is None or found.claim != claim:
            brokers = core.state.cluster.brokers.values()
            unfenced = frozenset((it.broker_id, it.broker_epoch) for it in brokers if not it.fenced)
            waiting = {_key(it): it for it in self._numbers if it.target == view.node_id}
            self._offices[view.node_id] = _Office(claim, unfenced, waiting)

    def _on_heartbeat(self, exchange: AnyExchange) -> None:
        self._count += 1
        office = self._offices.get(NodeId(exchange.target))
        self._numbers[exchange] = self._count
        if office is not None:
            office.heard[_key(exchange)] = exchange
            office.let_go.pop(_key(exchange), None)

    def _on_answered(self, exchange: AnyExchange, response: BrokerHeartbeatResponse) -> None:
        number, office = self._numbers.pop(exchange, None), self._offices.get(NodeId(exchange.target))
        key = _key(exchange)
        if office is not None and number is not None and response.should_shut_down and office.heard.get(key) is exchange:
            office.let_go[key] = number

    def _on_register(self, exchange: AnyExchange) -> None:
        self._count += 1
        request, target = exchange.request, NodeId(exchange.target)
        who, office = (request.broker_id, request.incarnation_id), self._offices.get(target)
        self._registered.add((target, request.incarnation_id))
        found, known = self._asked.get(who), self._known(target, request.broker_id)
        if office is not None and known is not None and known.incarnation_id == request.incarnation_id:
            office.let_go.pop((known.broker_id, known.broker_epoch), None)  # it has a session again
        if found is not None:
            found.office = office if found.office is office else None
        else:
            self._asked[who] = _Asked(self._count, office, known)

    def _known(self, controller_id: NodeId, broker_id: NodeId) -> BrokerRegistration | None:
        controller = self.facts.view(self.world.nodes[controller_id]).controller
        return None if controller is None else controller.state.cluster.brokers.get(broker_id)

    def _on_refused(self, view: NodeView, event: BrokerRegistrationRefused) -> None:
        broker = None if view.node.node is None else view.node.node.broker
        if broker is None:
            return
        asked = self._asked.pop((view.node_id, broker.lifecycle.incarnation_id), None)
        if asked is None or asked.office is None or asked.known is None or not event.reason.startswith(_DUPLICATE):
            return
        office, known = asked.office, asked.known
        where = next((node_id for node_id, it in self._offices.items() if it is office), None)
        if where is None or office.claim[1] is None:
            return
        now, key = self._known(where, view.node_id), (known.broker_id, known.broker_epoch)
        if now is None or now.broker_epoch != known.broker_epoch:
            return
        told_to_go = office.let_go.get(key, asked.number) < asked.number
        registered = (where, known.incarnation_id) in self._registered
        if told_to_go or not (registered or key in office.heard or key in office.unfenced):
            why = "which it has told to go" if told_to_go else "which was fenced when it became active and has said nothing since"
            self.fail(
                f"controller {where} does not register broker {view.node_id}, for that with epoch {known.broker_epoch}, {why}"
            )


def _key(heartbeat: AnyExchange) -> _Key:
    return heartbeat.request.broker_id, heartbeat.request.broker_epoch
