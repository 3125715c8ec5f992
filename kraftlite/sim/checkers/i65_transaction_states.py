"""Invariant 65: states of a transactional id follow each other as they may, and its epochs grow (TX-05, TX-13, TX-17, TX-47)."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.transaction_log import StateRecord, TransactionChecker

_S: Final = TransactionState
_IDLE: Final = (None, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
_BEFORE: Final = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: (*_IDLE, _S.ONGOING),
    _S.PREPARE_COMMIT: (_S.ONGOING,),
    _S.PREPARE_ABORT: (_S.ONGOING, *_IDLE),
    _S.COMPLETE_COMMIT: (_S.PREPARE_COMMIT,),
    _S.COMPLETE_ABORT: (_S.PREPARE_ABORT,),
}
"""The states that the log may have before each state; None: the id is new. Written from the specification."""
LAST_EPOCH: Final = 32_766
FENCING_EPOCH: Final = 32_767


class TransactionStates(TransactionChecker):
    """In `__transaction_state` each state of an id follows one that it may follow. The same state once more is a record that was
    written again. The epoch never decreases under one producer id; a new producer id begins with epoch 0, when the old one is
    used up or the id was forgotten; no two ids have one producer id. A transaction of version 2 is decided in the next epoch.
    Epoch 32767 is in no state but one that is decided. No record of an older leader epoch lies behind one of a newer. A
    transaction begins with the record that opens it, and no later record moves its beginning, from which its timeout counts."""

    numbers: ClassVar[tuple[int, ...]] = (65,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch of the last record of each partition."""

    def on_state(self, record: StateRecord) -> None:
        old, new = record.old, record.new
        where = f"{record.tp}: the record at offset {record.offset} of {record.transactional_id}"
        if record.epoch < self._epochs.get(record.tp, record.epoch):
            self.fail(f"{where} is of leader epoch {record.epoch}, and lies behind one of {self._epochs[record.tp]}")
        self._epochs[record.tp] = record.epoch
        if new is None:
            if old is not None and old.state not in _IDLE:
                self.fail(f"{where} is a tombstone behind {old}")
            return
        before = None if old is None else old.state
        again = old is not None and before is new.state and _same(old, new)
        if before not in _BEFORE[new.state] and not again:
            self.fail(f"{where} says {new.state.title} behind {'nothing' if before is None else before.title}")
        if new.producer_epoch < 0 or (new.producer_epoch >= FENCING_EPOCH and new.state in (_S.EMPTY, _S.ONGOING)):
            self.fail(f"{where} has epoch {new.producer_epoch}: {new}")
        owner = self.transactions.by_producer.get(new.producer_id)
        if owner != record.transactional_id:
            self.fail(f"{where} has producer id {new.producer_id}, which is that of {owner}")
        if old is not None:
            self._check_epochs(where, old, new, again)
        began_ms = old.start_ms if old is not None and old.state is _S.ONGOING else new.updated_ms
        if new.start_ms != began_ms and not again and new.state in (_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT):
            self.fail(f"{where} says that the transaction began at {new.start_ms}, it began at {began_ms}: {old}, {new}")

    def _check_epochs(self, where: str, old: Transaction, new: Transaction, again: bool) -> None:
        if new.producer_id != old.producer_id:
            if new.producer_epoch != 0 or old.producer_epoch < LAST_EPOCH:
                self.fail(f"{where} changes the producer id from {old} to {new}")
            return
        step = new.producer_epoch - old.producer_epoch
        prepares = new.state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
        if again:
            allowed: tuple[int, ...] = (0,)
        elif new.state is _S.EMPTY:
            allowed = (0, 1)
        elif prepares:
            allowed = (1,) if new.version >= 2 else (0, 1)
        else:
            allowed = (0,)
        if step not in allowed and not (prepares and old.producer_epoch == FENCING_EPOCH):
            self.fail(
                f"{where} goes from epoch {old.producer_epoch} of {old.state.title} to {new.producer_epoch} of {new.state.title}"
            )


def _same(old: Transaction, new: Transaction) -> bool:
    return (old.producer_id, old.producer_epoch, old.partitions) == (new.producer_id, new.producer_epoch, new.partitions)
