"""Invariant 69: nothing of a producer that was replaced is taken any more (TX-13, TX-30, TX-41, TP-04; KIP-98, KIP-890)."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.transaction_log import InLog, TransactionChecker
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import (
    ADD,
    ADD_OFFSETS,
    COMMIT,
    END,
    INIT,
    AddAsk,
    AddOffsetsAsk,
    EndAsk,
    InitAsk,
    TransactionalCommitAsk,
)
from kraftlite.sim.workloads.transactions_history import HANGING
from kraftlite.simhost.network import AnyExchange

_OF_A_PRODUCER: Final = (AddAsk, AddOffsetsAsk, EndAsk, TransactionalCommitAsk)


class FencedProducers(TransactionChecker):
    """From the moment at which InitProducerId has answered with a producer id and epoch, no request of an earlier one of that
    transactional id that comes to a coordinator is granted, and no batch of it comes into any log. An epoch that EndTxn gives
    fences nobody: it is the same producer's, and a batch that it had sent before may still be in its transaction. Who
    coordinated before, and has not heard of its end, may say yes where that writes nothing."""

    numbers: ClassVar[tuple[int, ...]] = (69,)
    only_methods = (INIT, ADD, ADD_OFFSETS, END, COMMIT)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._given: dict[str, Producer] = {}
        """Transactional id → what InitProducerId has answered last."""
        self._retired: dict[int, Producer] = {}
        """Producer id → what was given later, and is of another producer id."""
        self._came: dict[AnyExchange, Producer | None] = {}
        """Requests, with what had replaced their producer when they came first: they may come twice."""
        self.refused = 0

    def replaced_by(self, producer: Producer, transactional_id: str | None = None) -> Producer | None:
        """The producer that InitProducerId gave out later than this one; None: there is none."""
        owner = transactional_id or self.transactions.by_producer.get(producer.producer_id)
        later = self._retired.get(producer.producer_id)
        if later is None and owner is not None:
            later = self._given.get(owner)
        if later is None:
            return None
        same = later.producer_id == producer.producer_id
        if same:
            return later if later.producer_epoch > producer.producer_epoch else None
        return later if producer.producer_id in self._retired else None

    def on_arrival(self, exchange: AnyExchange) -> None:
        request = exchange.request
        if isinstance(request, _OF_A_PRODUCER) and exchange not in self._came:
            self._came[exchange] = self.replaced_by(request.producer, request.transactional_id)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        request = exchange.request
        if not isinstance(response, Told):
            return
        if isinstance(request, InitAsk):
            if response.error is ErrorCode.NONE:
                self._note(request.transactional_id, response.result)
            return
        later = self._came.pop(exchange, None)
        if later is None:
            return
        assert isinstance(request, _OF_A_PRODUCER)
        if not _granted(request, response):
            self.refused += 1
        elif not (self.transactions.unjudged or self._changes_nothing(exchange)):
            self.fail(
                f"node {exchange.target} grants {type(request).__name__} of {request.transactional_id} to "
                f"{tuple(request.producer)}; when it came, {tuple(later)} was given out"
            )

    def _changes_nothing(self, exchange: AnyExchange) -> bool:
        """Return whether another broker coordinates this id, of which the one that answered has not heard: it says yes to
        partitions that are in its transaction already, and writes nothing. Kafka's coordinator does the same."""
        request = exchange.request
        if not isinstance(request, AddAsk | AddOffsetsAsk):
            return False
        found = self.transactions.replicas.metadata.history.latest.topic_named(TRANSACTION_TOPIC)
        if found is None:
            return False
        _, topic = found
        partition = topic.partitions[partition_for(request.transactional_id, len(topic.partitions))]
        return partition.leader != exchange.target

    def _note(self, transactional_id: str, producer: Producer) -> None:
        before = self._given.get(transactional_id)
        if before is not None and before.producer_id != producer.producer_id:
            self._retired[before.producer_id] = producer
        if before is None or before.producer_id != producer.producer_id or before.producer_epoch < producer.producer_epoch:
            self._given[transactional_id] = producer

    def on_appended(self, it: InLog) -> None:
        if it.marker is not None or it.tp.topic == HANGING:
            return
        later = self.replaced_by(Producer(it.batch.producer_id, it.batch.producer_epoch))
        if later is not None:
            self.fail(f"{it.tp}: {it.batch} of epoch {it.batch.producer_epoch} came when {tuple(later)} was given out")


def _granted(request: object, told: Told) -> bool:
    if told.error is not ErrorCode.NONE:
        return False
    if isinstance(request, AddAsk):
        return any(code is ErrorCode.NONE for _, code in told.result)
    if isinstance(request, TransactionalCommitAsk):
        return any(code is ErrorCode.NONE for code in told.result)
    return True
