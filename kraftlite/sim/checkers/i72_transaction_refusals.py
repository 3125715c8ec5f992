"""Invariant 72: a producer is refused in its transaction only when that is over (TX-34, TP-04 to TP-06; KIP-890)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.log.batch import BatchHeader, parse_header
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.methods import ENROLL
from kraftlite.model.messages.transactions import EnrollRequest, EnrollResponse
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import ProduceResult
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.coordinator_memory import Remembered, remembered
from kraftlite.sim.checkers.replica_facts import ReplicaChecker, may_forget_producers
from kraftlite.sim.checkers.transaction_log import Deal, InLog, TransactionChecker
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import ADD, PRODUCE, AddAsk, TransactionalProduceAsk
from kraftlite.simhost.network import AnyExchange

ADDS_FROM: Final = 2
"""The `transaction.version` from which each transaction has an epoch of its own."""


@dataclass(frozen=True, slots=True)
class _Id:
    """A transactional id as its log has it: who has it, and the transaction that it is in, or was in last."""

    producer: Producer
    deal: Deal | None


@dataclass(frozen=True, slots=True)
class _Came:
    """A request to produce as it came: its id, and where the partitions ended that its broker leads."""

    was: _Id | None
    ends: dict[TopicPartition, int]


class TransactionRefusals(ReplicaChecker, TransactionChecker):
    """A batch of transaction.version 2 is told INVALID_TXN_STATE only when its id has ended that transaction, or has been taken
    over: its epoch belongs to this one transaction. A batch that is older than what the partition knows of its producer is told
    so, by INVALID_PRODUCER_EPOCH, and not that it is in no transaction: its producer can go on behind the former. A partition
    that its coordinator has in the producer's open transaction is verified, whatever else is on its way there. The first batch of
    a producer of version 2 in a partition is its first: behind another the first would be refused for ever. A marker of another
    epoch that comes again while the coordinator is asked takes the answer's place, in Kafka as well (TP-05).

    Whoever is told that partitions were added has all of them in its open transaction (TX-30): no marker goes to another."""

    numbers: ClassVar[tuple[int, ...]] = (72,)
    only_methods = (PRODUCE, ENROLL, ADD)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._produced: dict[AnyExchange, _Came] = {}
        """Batches under way, with their transactional id when they came first."""
        self._asked: dict[AnyExchange, Remembered] = {}
        self.judged = 0

    # --- batches

    def on_arrival(self, exchange: AnyExchange) -> None:
        request = exchange.request
        if isinstance(request, TransactionalProduceAsk):
            views = {it.tp: self.facts.view(exchange.target, it.tp) for it in request.batches}
            ends = {tp: view.leo for tp, view in views.items() if view is not None and view.leader is not None}
            self._produced.setdefault(exchange, _Came(self._current(request.transactional_id), ends))
        elif isinstance(request, EnrollRequest) and not request.add and exchange not in self._asked:
            found = self._in_memory(exchange)
            if found is not None:
                self._asked[exchange] = found

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        request = exchange.request
        if isinstance(request, TransactionalProduceAsk):
            came = self._produced.pop(exchange, None)
            results = response.result if isinstance(response, Told) else None
            for it, result in zip(request.batches, results or () if came is not None else (), strict=False):
                assert came is not None
                self._check_batch(exchange, it.tp, parse_header(it.batch), came, result)
        elif isinstance(request, AddAsk):
            results = response.result if isinstance(response, Told) and response.error is ErrorCode.NONE else ()
            self._check_added(exchange, request.producer, [tp for tp, code in results if code is ErrorCode.NONE])
        elif isinstance(request, EnrollRequest) and isinstance(response, EnrollResponse):
            if request.add:
                named = zip(request.partitions, response.errors, strict=True)
                added = [TopicPartition(it.topic, it.partition) for it, code in named if code is ErrorCode.NONE]
                self._check_added(exchange, Producer(request.producer_id, request.producer_epoch), added)
            asked = self._asked.pop(exchange, None)
            if asked is not None:
                self._check_answer(exchange, asked, request, response)

    def _current(self, transactional_id: str) -> _Id | None:
        found = self.transactions.states.get(transactional_id)
        if found is None:
            return None
        return _Id(Producer(found.producer_id, found.producer_epoch), self.transactions.current.get(transactional_id))

    def _check_batch(
        self, exchange: AnyExchange, tp: TopicPartition, header: BatchHeader, came: _Came, result: ProduceResult
    ) -> None:
        if ErrorCode(result.error) is not ErrorCode.INVALID_TXN_STATE or may_forget_producers(self.world):
            return
        if not header.is_transactional:  # it is no part of the transaction, and told so
            return
        ask: TransactionalProduceAsk = exchange.request
        producer = Producer(header.producer_id, header.producer_epoch)
        where = (
            f"{tp}: node {exchange.target} refuses a batch of {tuple(producer)} of {ask.transactional_id} as in no transaction"
        )
        newest = self._newest_epoch(exchange, tp, producer.producer_id)
        if newest > producer.producer_epoch:
            self.fail(f"{where}; its log has epoch {newest}, and the producer could go on if it were told so")
        if ask.version < ADDS_FROM or self.transactions.unjudged:
            return
        self.judged += 1
        if self._has_marker(exchange, tp, producer, came.ends.get(tp, 0)):
            return
        if _is_open(producer, came.was, self._current(ask.transactional_id)):
            self.fail(f"{where}; nobody has ended it, or has taken the id over")

    def _newest_epoch(self, exchange: AnyExchange, tp: TopicPartition, producer_id: int) -> int:
        """The newest epoch of a producer in the log of the node that answers; -1 when it has none, or does not lead."""
        view = self.facts.view(exchange.target, tp)
        if view is None or view.leader is None or view.log is None:
            return -1
        return max((it.producer_epoch for it in view.batches if it.producer_id == producer_id), default=-1)

    def _has_marker(self, exchange: AnyExchange, tp: TopicPartition, producer: Producer, since: int) -> bool:
        """Return whether a marker of another epoch of the producer has come to the partition from `since` on."""
        view = self.facts.view(exchange.target, tp)
        batches = () if view is None else view.batches[bisect_left(view.bases, since) :]
        found = (it for it in batches if it.is_control and it.producer_id == producer.producer_id)
        return any(it.producer_epoch != producer.producer_epoch for it in found)

    def on_appended(self, it: InLog) -> None:
        deal, batch = it.deal, it.batch
        if it.marker is not None or deal is None or batch.first_sequence <= 0 or may_forget_producers(self.world):
            return
        state = self.transactions.states.get(deal.transactional_id)
        if state is None or state.version < ADDS_FROM or self.transactions.may_have_lost(it.key):
            return
        if all(other is batch or other.producer_id != batch.producer_id for other in self.transactions.in_log[it.key]):
            self.fail(f"{it.tp}: {batch} is the first of its producer there, which begins with sequence 0 everywhere")

    # --- questions

    def _in_memory(self, exchange: AnyExchange) -> Remembered | None:
        return remembered(self, exchange, exchange.request.transactional_id)

    def _check_answer(self, exchange: AnyExchange, asked: Remembered, request: EnrollRequest, response: EnrollResponse) -> None:
        now = self._in_memory(exchange)
        state = asked.state
        producer = (request.producer_id, request.producer_epoch)
        if now != asked or state.state is not TransactionState.ONGOING or (state.producer_id, state.producer_epoch) != producer:
            return
        for it, error in zip(request.partitions, response.errors, strict=True):
            tp = TopicPartition(it.topic, it.partition)
            if tp in state.partitions and error is not ErrorCode.NONE:
                self.fail(
                    f"node {exchange.target} answers that {tp} is not in the transaction of {request.transactional_id} "
                    f"({error.name}), which is {state}"
                )

    def _check_added(self, exchange: AnyExchange, producer: Producer, added: Sequence[TopicPartition]) -> None:
        now = self._in_memory(exchange)
        if now is None or now.state.state is not TransactionState.ONGOING:
            return  # it has ended meanwhile, or is somebody else's
        if (now.state.producer_id, now.state.producer_epoch) != producer:
            return
        missing = [str(it) for it in added if it not in now.state.partitions]
        if missing:
            name = exchange.request.transactional_id
            self.fail(f"node {exchange.target} answers that {missing} are in the transaction of {name}, which is {now.state}")


def _is_open(producer: Producer, was: _Id | None, now: _Id | None) -> bool:
    """Return whether a batch of this producer is of the transaction that its id is in, or is about to begin. An end of version 0
    leaves the epoch as it is: then the same producer may be in the next one."""
    if was is None or now is None or not was.producer == now.producer == producer:
        return False
    if now.deal is None or now.deal.epoch != producer.producer_epoch:
        return True
    another = was.deal is not now.deal and was.deal is not None and was.deal.epoch == producer.producer_epoch
    return now.deal.commit is None and not another
