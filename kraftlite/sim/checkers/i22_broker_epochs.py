"""Invariant 22: broker epochs strictly increase per broker, and at most one incarnation of a broker is alive."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kraftlite.metadata import records as r
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerRegistrationRequest
from kraftlite.model.messages.methods import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, BROKER_HEARTBEAT, REGISTER_BROKER
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace.broker import BrokerRegistered
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.simhost.network import AnyExchange


class BrokerEpochs(MetadataChecker):
    """A registration of a new incarnation has its own offset as the broker epoch; the same incarnation keeps its epoch. A request
    of an incarnation that is over when it arrives is refused (CM-05)."""

    numbers: ClassVar[tuple[int, ...]] = (22,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._boots: dict[UUID, tuple[NodeId, int]] = {}
        """The broker of each incarnation id, and in which of its incarnations."""
        self._newest: dict[NodeId, tuple[int, int]] = {}
        """The newest incarnation of each broker that was registered, and its epoch."""
        self.facts.watch_call(REGISTER_BROKER, self._on_register)
        self._over: dict[AnyExchange, int] = {}
        """Requests that arrived after a later incarnation of their broker was registered, and its epoch."""
        self.facts.watch(BrokerRegistered, self._on_registered)
        methods: tuple[AnyMethod, ...] = (BROKER_HEARTBEAT, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS)
        for method in methods:
            self.facts.watch_arrival(method, self._on_arrival)
            self.facts.watch_served(method, self._on_served)

    def _on_arrival(self, exchange: AnyExchange) -> None:
        controller = self.facts.view(self.world.nodes[exchange.target]).controller
        if controller is None:
            return
        known = controller.state.cluster.brokers.get(exchange.request.broker_id)
        if known is not None and known.broker_epoch > exchange.request.broker_epoch:
            self._over[exchange] = known.broker_epoch

    def _on_served(self, exchange: AnyExchange, response: object) -> None:
        newer = self._over.pop(exchange, None)
        if newer is not None:
            self.fail(
                f"{exchange.request} reached controller {exchange.target} when the broker was registered with epoch {newer}, "
                f"and was answered with {response}"
            )

    def _on_register(self, source: NodeId, target: NodeId, request: BrokerRegistrationRequest) -> None:
        author = (request.broker_id, self.facts.view(self.world.nodes[request.broker_id]).incarnation)
        known = self._boots.setdefault(request.incarnation_id, author)
        if known != author:
            self.fail(f"broker {author} registers with the incarnation id {request.incarnation_id} of {known}")

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.RegisterBrokerRecord):
            self._check(offset, record, before)
        elif isinstance(record, r.BrokerRegistrationChangeRecord | r.UnregisterBrokerRecord):
            known = before.brokers.get(record.broker_id)
            if known is None or known.broker_epoch != record.broker_epoch:
                self.fail(f"offset {offset}: {record} is about another incarnation than {known}")

    def _check(self, offset: int, record: r.RegisterBrokerRecord, before: MetadataState) -> None:
        where = f"offset {offset} registers broker {record.broker_id} with epoch {record.broker_epoch}"
        known = before.brokers.get(record.broker_id)
        boot = self._boots.get(record.incarnation_id)
        if boot is None or boot[0] != record.broker_id:
            self.fail(f"{where}, incarnation {record.incarnation_id}, which never asked for it")
            return
        if known is not None and known.incarnation_id == record.incarnation_id:
            if known.broker_epoch != record.broker_epoch:
                self.fail(f"{where}; the same incarnation had {known.broker_epoch}")
            return
        newest_boot, newest_epoch = self._newest.get(record.broker_id, (0, -1))
        if record.broker_epoch != offset or record.broker_epoch <= newest_epoch:
            self.fail(f"{where}; its last epoch was {newest_epoch}")
        if boot[1] < newest_boot and known is not None and not known.fenced:
            # Nobody can tell that a request is of an incarnation that has died meanwhile: where no session keeps it out, it is
            # registered, and fenced for as long as its own session lasts. It must not displace one that is alive.
            self.fail(f"{where}: incarnation {boot[1]}, after incarnation {newest_boot} was registered")
        self._newest[record.broker_id] = (boot[1], record.broker_epoch)

    def _on_registered(self, view: NodeView, event: BrokerRegistered) -> None:
        newest = self._newest.get(view.node_id)
        if newest is None or event.broker_epoch > newest[1]:
            self.fail(f"broker {view.node_id} believes in epoch {event.broker_epoch}; its newest committed is {newest}")
