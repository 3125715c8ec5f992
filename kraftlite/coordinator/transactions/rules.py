"""The rules of the transaction coordinator: what becomes of a request, given the state of its transactional id.

Every rule is a function of an `Entry`, the request and the time, without I/O: it refuses (`Refused`), answers without writing
(`Answered`), or says which state is to be written (`Next`). tests/spec/coordinator/test_transaction_rules.py runs every request
in every state with every relation of the epochs. Source: KIP-98, KIP-360, KIP-890; TX-10 to TX-47.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.coordinator.transactions.states import (
    FENCING_EPOCH,
    IDLE,
    LAST_EPOCH,
    NEVER_MS,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    PREPARED,
    TWO_PHASE_TIMEOUT_MS,
    Transaction,
    TransactionState,
    replace,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition


@dataclass(slots=True, kw_only=True)
class Entry:
    """One transactional id in a coordinator's memory.

    `current` is what the log says below its high watermark. `pending`: the state that is on its way there; until its fate is
    known nothing else is begun for the id (TX-06). `fence_failed`: a fence could not be written, so that its epoch was given to
    nobody, and the next try uses it again (TX-19)."""

    current: Transaction
    pending: Transaction | None = None
    fence_failed: bool = False

    @property
    def is_dying(self) -> bool:
        """Say whether the id is being forgotten."""
        return self.pending is not None and self.pending.state is TransactionState.DEAD


class Refused(NamedTuple):
    """The request is refused; nothing changes."""

    error: ErrorCode


class Answered(NamedTuple):
    """The request is answered at once, and nothing is written."""

    producer: Producer


class Next(NamedTuple):
    """The state to write; the request is answered when it is below the high watermark. A fence is not written itself: what is
    written is the abort that it leads to."""

    transaction: Transaction


Decision = Refused | Answered | Next

_S: Final = TransactionState


def new(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """The state of an id that is seen for the first time, before its first epoch (TX-11)."""
    return Transaction(producer_id=producer_id, producer_epoch=NO_EPOCH, timeout_ms=timeout_ms, state=_S.EMPTY, updated_ms=now_ms)


# --- InitProducerId ------------------------------------------------------------------------------------------------------


def init(
    entry: Entry,
    expected: Producer | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_id: Callable[[], int | None],
    first_epoch: int = 0,
) -> Decision:
    """InitProducerId (TX-12 to TX-17). `expected`: what the producer has, where it goes on after an error (KIP-360). `new_id`
    draws a producer id, or gives None while there is none at hand. `first_epoch`: that of an id which is seen for the first
    time."""
    current = entry.current
    if entry.pending is not None:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_go_on(current, expected):
        return Refused(ErrorCode.PRODUCER_FENCED)
    if current.state in PREPARED:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is _S.ONGOING:
        return Next(fence(entry))
    assert current.state in IDLE, f"InitProducerId in {current.state.title}"
    if current.exhausted and (expected is None or expected.producer_epoch == current.producer_epoch):
        producer_id = new_id()
        if producer_id is None:
            return Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        last = NO_EPOCH if expected is None else current.producer_epoch
        return Next(_fresh(current, producer_id, 0, last, timeout_ms, now_ms))
    epochs = (first_epoch, NO_EPOCH) if current.producer_epoch == NO_EPOCH else _next_epoch(current, expected)
    if epochs is None:
        return Refused(ErrorCode.PRODUCER_FENCED)
    return Next(_fresh(current, current.producer_id, *epochs, timeout_ms, now_ms))


def _may_go_on(current: Transaction, expected: Producer) -> bool:
    """Return whether the id that a producer has is this one, or the one before it, whose epochs were used up (TX-15)."""
    if current.producer_epoch == NO_EPOCH or expected.producer_id == current.producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.producer_epoch >= LAST_EPOCH


def _next_epoch(current: Transaction, expected: Producer | None) -> tuple[int, int] | None:
    """The next epoch and the last one; None: the producer is fenced."""
    if expected is None:
        return current.producer_epoch + 1, NO_EPOCH
    if current.producer_epoch == expected.producer_epoch:
        return current.producer_epoch + 1, current.producer_epoch
    if expected.producer_epoch == current.last_epoch:
        return current.producer_epoch, current.last_epoch  # its answer was lost
    return None


def _fresh(current: Transaction, producer_id: int, epoch: int, last: int, timeout_ms: int, now_ms: int) -> Transaction:
    return replace(
        current,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_epoch=last,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=timeout_ms,
        state=_S.EMPTY,
        partitions=NO_PARTITIONS,
        start_ms=NEVER_MS,
        updated_ms=now_ms,
    )


def fence(entry: Entry) -> Transaction:
    """Take the id away from whoever has it: its transaction will be aborted in an epoch that nobody is given (TX-13). At 32767,
    which a bug of older releases could leave, there is none left to fence with: it is aborted without (TX-46)."""
    current = entry.current
    epoch = current.producer_epoch if entry.fence_failed else min(current.producer_epoch + 1, FENCING_EPOCH)
    return replace(current, producer_epoch=epoch, last_epoch=NO_EPOCH, state=_S.PREPARE_EPOCH_FENCE)


# --- partitions ----------------------------------------------------------------------------------------------------------


def add(entry: Entry | None, asker: Producer, partitions: frozenset[TopicPartition], *, version: int, now_ms: int) -> Decision:
    """AddPartitionsToTxn (TX-30, TX-32). `version`: the `transaction.version` that the request shows. Whoever begins has the
    answer that gave it this id: what still comes from the id before it, if its epochs were used up, is late (TX-45)."""
    refused = _not_its_transaction(entry, asker, pending_matters=True)
    if refused is not None:
        return refused
    assert entry is not None
    current = entry.current
    if current.state is _S.ONGOING:
        if partitions <= current.partitions:
            return Answered(asker)
        return Next(replace(current, partitions=current.partitions | partitions, updated_ms=now_ms, version=version))
    return Next(
        replace(
            current,
            previous_producer_id=NO_PRODUCER_ID,
            state=_S.ONGOING,
            partitions=partitions,
            start_ms=now_ms,
            updated_ms=now_ms,
            version=version,
        )
    )


def verify(entry: Entry | None, asker: Producer, partition: TopicPartition) -> ErrorCode:
    """AddPartitionsToTxn with VerifyOnly, for one partition (TX-34): is it part of the producer's transaction?"""
    refused = _not_its_transaction(entry, asker, pending_matters=False)
    if refused is not None:
        return refused.error
    assert entry is not None
    inside = entry.current.state is _S.ONGOING and partition in entry.current.partitions
    return ErrorCode.NONE if inside else ErrorCode.TRANSACTION_ABORTABLE


def _not_its_transaction(entry: Entry | None, asker: Producer, *, pending_matters: bool) -> Refused | None:
    if entry is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if pending_matters and entry.pending is not None:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    current = entry.current
    if asker.producer_id != current.producer_id:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if asker.producer_epoch != current.producer_epoch:
        return Refused(ErrorCode.PRODUCER_FENCED)
    if current.state in PREPARED:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return None


# --- EndTxn --------------------------------------------------------------------------------------------------------------


def end(
    entry: Entry | None, asker: Producer, *, commit: bool, version: int, now_ms: int, new_id: Callable[[], int | None]
) -> Decision:
    """EndTxn of a client, by the rules of `transaction.version` 0 and 1, or of 2 (TX-40 to TX-46)."""
    if entry is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if version >= 2:
        return _end_2(entry, asker, commit=commit, now_ms=now_ms, new_id=new_id)
    current = entry.current
    if asker.producer_id != current.producer_id:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if asker.producer_epoch != current.producer_epoch:
        return Refused(ErrorCode.PRODUCER_FENCED)
    if entry.pending is not None:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is _S.ONGOING:
        epoch, last = current.producer_epoch, current.last_epoch
        return Next(_prepared(current, commit=commit, now_ms=now_ms, epoch=epoch, last=last, version=version))
    return _ended_already(current, commit=commit, ended=Answered(asker))


def _ended_already(current: Transaction, *, commit: bool, ended: Decision) -> Decision:
    """The answer to the end of what has ended, or is ending: the same outcome is fine, the other one is not."""
    if current.state is (_S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT):
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT):
        return ended
    return Refused(ErrorCode.INVALID_TXN_STATE)


def _end_2(entry: Entry, asker: Producer, *, commit: bool, now_ms: int, new_id: Callable[[], int | None]) -> Decision:
    """An epoch for each transaction: an end gives the next one, and an end in the epoch before is the same end once more.

    Departs: where the last transaction was of version 0, the epoch before is that of a producer that was replaced. It is fenced;
    Kafka takes it for a retry and gives it the epoch of its successor."""
    current = entry.current
    if entry.pending is not None:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    overflowed = _is_retry_over_the_end(current, asker)
    if asker.producer_id != current.producer_id and not overflowed:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if asker.producer_epoch < current.producer_epoch == FENCING_EPOCH and current.state in IDLE:
        return Refused(ErrorCode.PRODUCER_FENCED)  # the coordinator has aborted, in the epoch that is nobody's (TX-17)
    again = overflowed or (current.version >= 2 and current.producer_epoch == asker.producer_epoch + 1)
    now = current.producer_epoch == asker.producer_epoch
    if current.state in PREPARED or (again and current.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)):
        if not again:
            return Refused(ErrorCode.PRODUCER_FENCED)
        return _ended_already(current, commit=commit, ended=Answered(Producer(current.producer_id, current.producer_epoch)))
    if not now:
        return Refused(ErrorCode.PRODUCER_FENCED)
    if current.state is _S.ONGOING:
        return _next_of_2(current, commit=commit, now_ms=now_ms, start_ms=current.start_ms, new_id=new_id)
    if commit:
        return Refused(ErrorCode.INVALID_TXN_STATE)
    return _next_of_2(current, commit=False, now_ms=now_ms, start_ms=now_ms, new_id=new_id)


def _is_retry_over_the_end(current: Transaction, asker: Producer) -> bool:
    """The end was answered with a new id, and the answer was lost (TX-45)."""
    return asker == Producer(current.previous_producer_id, LAST_EPOCH) and current.producer_epoch == 0


def _next_of_2(current: Transaction, *, commit: bool, now_ms: int, start_ms: int, new_id: Callable[[], int | None]) -> Decision:
    next_producer_id = NO_PRODUCER_ID
    if current.exhausted:
        drawn = new_id()
        if drawn is None:
            return Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        next_producer_id = drawn
    epoch = min(current.producer_epoch + 1, FENCING_EPOCH)
    prepared = _prepared(current, commit=commit, now_ms=now_ms, epoch=epoch, last=current.producer_epoch, version=2)
    return Next(replace(prepared, start_ms=start_ms, next_producer_id=next_producer_id))


def _prepared(current: Transaction, *, commit: bool, now_ms: int, epoch: int, last: int, version: int) -> Transaction:
    """The decided outcome. `version`: that of the end, by whatever version the transaction was begun. Markers of version 2 need
    the epoch behind the transaction's."""
    state = _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
    return replace(current, state=state, producer_epoch=epoch, last_epoch=last, updated_ms=now_ms, version=version)


# --- what the coordinator does by itself -----------------------------------------------------------------------------------


def abort_fenced(fenced: Transaction, *, version: int, now_ms: int, new_id: Callable[[], int | None]) -> Transaction | None:
    """The abort that a fence leads to, in the epoch of the fence. `version`: the cluster's `transaction.version`. From 2 on it is
    an end as any other: who has the epoch before may go on with the one of the fence, unless another instance has come (TX-15).
    The one that nobody is given is followed by the next producer id (TX-45); None while there is none at hand."""
    assert fenced.state is _S.PREPARE_EPOCH_FENCE
    aborting = replace(fenced, state=_S.PREPARE_ABORT, updated_ms=now_ms, version=version, last_epoch=NO_EPOCH)
    if version < 2:
        return aborting
    drawn = new_id() if fenced.producer_epoch == FENCING_EPOCH else NO_PRODUCER_ID
    return None if drawn is None else replace(aborting, last_epoch=fenced.producer_epoch - 1, next_producer_id=drawn)


def complete(current: Transaction, *, now_ms: int) -> Transaction:
    """The state behind the last marker (TX-45, TX-50): nothing is left but the id and its epoch."""
    assert current.state in PREPARED
    done = replace(
        current,
        state=_S.COMPLETE_COMMIT if current.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
    )
    if current.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(
        done,
        producer_id=current.next_producer_id,
        producer_epoch=0,
        last_epoch=LAST_EPOCH,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def has_timed_out(entry: Entry, now_ms: int) -> bool:
    """Return whether a transaction is open for longer than its producer allowed (TX-62)."""
    current = entry.current
    return (
        current.state is _S.ONGOING
        and entry.pending is None
        and current.timeout_ms != TWO_PHASE_TIMEOUT_MS
        and current.start_ms + current.timeout_ms < now_ms
    )


def has_expired(entry: Entry, now_ms: int, *, expiration_ms: int) -> bool:
    """Return whether an id was not used for so long that it is forgotten (TX-63)."""
    return entry.pending is None and entry.current.state in IDLE and entry.current.updated_ms + expiration_ms <= now_ms
