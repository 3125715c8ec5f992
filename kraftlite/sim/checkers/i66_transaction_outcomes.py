"""Invariant 66: a transaction has one outcome, in every partition (TX-47, TX-50, TP-22 to TP-24; KIP-98, KIP-890)."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import WRITE_MARKERS
from kraftlite.model.messages.transactions import WriteMarkersRequest
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import may_forget_producers
from kraftlite.sim.checkers.transaction_log import Deal, InLog, StateRecord, TransactionChecker
from kraftlite.sim.workloads.transactions_history import HANGING
from kraftlite.simhost.host import SimHost

_HAS_EPOCHS: Final = 2
"""The `transaction.version` from which each transaction has an epoch of its own."""


class TransactionOutcomes(TransactionChecker):
    """No marker comes into any log before its outcome is committed in `__transaction_state`, and none of another outcome ever. A
    batch that comes into a log belongs to a transaction that has its partition, is not over, and has no marker there yet. In the
    committed log of a partition a marker ends the batches of its own transaction, and of no other, and a coordinator that was
    replaced writes none behind those of its successors (TP-21). A transaction is complete
    when its marker is committed in all of its partitions that are still there. At rest none is open. Where transactions hang,
    only that is asked for, and that no marker is of a coordinator that was replaced.

    One thing is excused, as nobody can tell such markers apart (TP-22): below transaction.version 2, a message that left before
    the transaction was complete may come once more when the next one of the same epoch is open, and its marker ends that."""

    numbers: ClassVar[tuple[int, ...]] = (66,)
    only_methods = (WRITE_MARKERS,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._open: dict[TopicIdPartition, dict[int, list[InLog]]] = {}
        """Per partition and producer id, the batches of its committed log without a marker behind them."""
        self._coordinators: dict[tuple[TopicIdPartition, int], int] = {}
        """Per partition and producer id, the coordinator epoch of its last marker."""
        self._sent: dict[tuple[Deal, TopicPartition], int] = {}
        """The number of messages of old versions that left with a marker of this transaction while it was not complete."""
        self._written: dict[tuple[Deal, TopicIdPartition], int] = {}
        """The number of markers of this transaction that are committed there."""
        self._complete: list[tuple[StateRecord, Deal]] = []
        """Transactions that were said to be complete in this step, in which their markers may have been committed, too: logs are
        read one after the other, and a coordinator that is alone goes from the outcome to the end at once."""

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        for it in request.markers if isinstance(request, WriteMarkersRequest) else ():
            tp = TopicPartition(it.topic, it.partition)
            deal = self._deal_marked(it.producer_id, it.producer_epoch, tp, it.commit)
            if deal is not None and not deal.complete and it.transaction_version < _HAS_EPOCHS:
                self._sent[deal, tp] = self._sent.get((deal, tp), 0) + 1

    def on_appended(self, it: InLog) -> None:
        if it.tp.topic == HANGING:
            return
        if it.marker is None:
            self._check_batch(it)
        elif self._deal_of_marker(it) is None:
            known = self.transactions.decided.get((it.batch.producer_id, it.batch.producer_epoch), [])
            said = "commits" if it.marker.commit else "aborts"
            self.fail(
                f"{it.tp}: the marker {it.batch} {said} producer {it.batch.producer_id} in epoch {it.batch.producer_epoch}; "
                f"decided is {[deal.name for deal in known] or 'nothing'}"
            )

    def _check_batch(self, it: InLog) -> None:
        deal, batch = it.deal, it.batch
        where = f"{it.tp}: {batch} of epoch {batch.producer_epoch}"
        if deal is None:
            self.fail(f"{where} is in no transaction that is committed in the log of its coordinator")
            return
        if batch.producer_id != deal.producer_id or batch.producer_epoch != deal.epoch or deal.complete:
            self.fail(f"{where} came behind {deal.name}{' and complete' if deal.complete else ''}")
        if it.tp not in deal.partitions:
            self.fail(f"{where} is no part of {deal.name}, which has {sorted(deal.partitions)}")

    def _deal_of_marker(self, it: InLog) -> Deal | None:
        assert it.marker is not None
        return self._deal_marked(it.batch.producer_id, it.batch.producer_epoch, it.tp, it.marker.commit)

    def _deal_marked(self, producer_id: int, epoch: int, tp: TopicPartition, commit: bool) -> Deal | None:
        """The last transaction that was decided so, in which the partition is."""
        for deal in reversed(self.transactions.decided.get((producer_id, epoch), [])):
            if tp in deal.partitions and deal.commit == commit:
                return deal
        return None

    def _came_again(self, it: InLog, deal: Deal | None, ended: Deal) -> bool:
        """Return whether this marker of `deal` is from a message that came late, and none can know that `ended` is not meant."""
        if deal is None or (ended.producer_id, ended.epoch) != (deal.producer_id, deal.marker_epoch):
            return False
        return 1 < self._written[deal, it.key] <= 1 + self._sent.get((deal, it.tp), 0)

    def on_committed(self, it: InLog) -> None:
        by_producer = self._open.setdefault(it.key, {})
        if it.marker is None:
            by_producer.setdefault(it.batch.producer_id, []).append(it)
            return
        self._check_coordinator(it)
        deal = self._deal_of_marker(it)
        if deal is not None:
            deal.marked[it.key] = it.tp
            self._written[deal, it.key] = self._written.get((deal, it.key), 0) + 1
        for batch in by_producer.pop(it.batch.producer_id, ()):
            ended = batch.deal
            if ended is None or ended is deal or it.tp.topic == HANGING:
                continue
            if self._came_again(it, deal, ended):
                self.transactions.ended_early.setdefault(it.key, []).append(batch.batch)
            else:
                self.fail(
                    f"{it.tp}: the marker {it.batch} of {'nothing' if deal is None else deal.name} ends {batch.batch} of "
                    f"{ended.name}"
                )

    def _check_coordinator(self, it: InLog) -> None:
        """A partition that has forgotten the producer does not know of its coordinator either."""
        assert it.marker is not None
        place, epoch = (it.key, it.batch.producer_id), it.marker.coordinator_epoch
        last = self._coordinators.get(place, -1)
        self._coordinators[place] = epoch
        if epoch < last and not may_forget_producers(self.world):
            self.fail(f"{it.tp}: the marker {it.batch} comes from coordinator epoch {epoch}, the one before it from {last}")

    def on_state(self, record: StateRecord) -> None:
        new, deal = record.new, record.deal
        if new is None or deal is None or new.state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            return
        if deal.commit != (new.state is TransactionState.COMPLETE_COMMIT):
            self.fail(f"{record.tp}: the record at offset {record.offset} says {new.state.title} of {deal.name}")
        self._complete.append((record, deal))

    def on_step(self, node: SimHost) -> None:
        if self._complete:
            complete, self._complete = self._complete, []
            for record, deal in complete:
                self._check_complete(record, deal)

    def _check_complete(self, record: StateRecord, deal: Deal) -> None:
        for tp in sorted(deal.partitions):
            key = self.transactions.key_of(tp)
            if key is None or key != deal.added.get(tp):
                continue  # a topic that was made again under its name has nothing of it, and its coordinator may not know it yet
            if tp in deal.marked.values() or self.transactions.may_have_lost(key):
                continue
            self.fail(
                f"{record.tp}: the record at offset {record.offset} says that {deal.name} is complete; {tp} has no marker of it"
            )

    def unsettled(self) -> str | None:
        if self.transactions.unjudged:
            return None
        for deal in self.transactions.current.values():
            if deal is not None and not deal.complete:
                return deal.name
        for key, by_producer in self._open.items():
            for producer_id, batches in by_producer.items():
                if self.transactions.exists(key) and not self.transactions.may_have_lost(key):
                    return f"{batches[0].tp}: no marker ends {batches[0].batch} of producer {producer_id}"
        return None
