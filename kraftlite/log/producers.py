"""The log's memory of its producers: resends, gaps, fenced epochs and open transactions.

Source: KIP-98, KIP-360, KIP-447, KIP-890, KIP-1228; LG-16 to LG-24; TP-02, TP-06, TP-21 to TP-24.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kraftlite.log.batch import MAX_SEQUENCE, BatchHeader
from kraftlite.log.compaction import LastWord
from kraftlite.log.control import EndTxnMarker
from kraftlite.log.guards import Guard, Guards, TransactionTerms
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import PRODUCER_BATCHES

BATCHES_KEPT: Final = 5
"""Clients keep at most five requests in flight, so that many batches can be resent (LG-16)."""

NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
_STATES_KEPT: Final = 2
_BATCHES_PER_PRODUCER: Final = 10
LAST_EPOCH: Final = 32767
"""The epoch behind which no other one can come: kept for fencing, never given to a client."""


class BatchEntry(NamedTuple):
    """One appended batch: the last sequence and offset, their span, and its timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """State of one producer id in this partition. Owned by `ProducerState`."""

    __slots__ = ("batches", "coordinator_epoch", "last_timestamp_ms", "producer_epoch", "txn_first_offset")

    def __init__(self) -> None:
        self.producer_epoch = NO_EPOCH
        self.batches: deque[BatchEntry] = deque(maxlen=BATCHES_KEPT)
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp_ms = -1
        self.txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class _Remembered(NamedTuple):
    """A `ProducerEntry` as it was. Saves memory: several are kept of each producer, and a further entry, whose batches are in a
    deque, would take 830 bytes where this takes 140."""

    producer_epoch: int
    batches: tuple[BatchEntry, ...]
    coordinator_epoch: int
    last_timestamp_ms: int
    txn_first_offset: int | None

    @classmethod
    def of(cls, entry: ProducerEntry) -> _Remembered:
        batches = tuple(entry.batches)
        return cls(entry.producer_epoch, batches, entry.coordinator_epoch, entry.last_timestamp_ms, entry.txn_first_offset)

    def entry(self) -> ProducerEntry:
        entry = ProducerEntry()
        entry.producer_epoch = self.producer_epoch
        entry.batches.extend(self.batches)
        entry.coordinator_epoch = self.coordinator_epoch
        entry.last_timestamp_ms = self.last_timestamp_ms
        entry.txn_first_offset = self.txn_first_offset
        return entry


class ActiveProducer(NamedTuple):
    """The facts that DescribeProducers tells of a producer. `txn_start_offset` None: it has no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int | None


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was read or written: offsets [first_offset, last_offset]."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    aborted: bool


class ProducerState:
    """All producers of one log. Checks first (`check_batch`, `check_marker`, raising ApiError), updates after the write.

    A transaction is *open* until its marker is appended and *undecided* until the marker is below the HW; the earliest of both
    bounds the LSO (LG-23).

    What it was some batches ago is remembered, so that a truncation of the log's end does not read all from the last snapshot on.
    """

    __slots__ = (
        "_open",
        "_remember_every",
        "_remembered",
        "_since_remembered",
        "_undecided",
        "decided_below",
        "entries",
        "guards",
        "has_expired_some",
    )

    def __init__(self, remember_every: int = PRODUCER_BATCHES) -> None:
        """`remember_every`: so many batches lie between two states that are remembered, or more where producers are many."""
        self._remember_every = remember_every
        self._remembered: list[tuple[int, dict[int, _Remembered]]] = []
        """Offset, ascending -> the entries when the log ended there."""
        self._since_remembered = 0
        self.entries: dict[int, ProducerEntry] = {}
        self.guards = Guards()
        self._open: dict[int, int] = {}
        """producer id -> first offset; in order of first offset, because offsets only grow."""
        self._undecided: dict[int, int] = {}
        """first offset -> offset of the marker."""
        self.decided_below = 0
        """Transactions whose marker is below this offset are forgotten: all were decided, or a snapshot left them out."""
        self.has_expired_some = False
        """Producers of batches in the log are missing, because they wrote nothing for long."""

    def __len__(self) -> int:
        return len(self.entries)

    # checks

    def duplicate_of(self, header: BatchHeader) -> BatchEntry | None:
        """The batch that this one is a resend of: same epoch, same first and last sequence, among the last five."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        last, delta = header.last_sequence, header.last_offset_delta
        for batch in entry.batches:
            if batch.last_sequence == last and batch.offset_delta == delta:
                return batch
        return None

    def check_batch(self, header: BatchHeader) -> None:
        """Check whether a client's batch may be appended. INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE."""
        entry = self.entries.get(header.producer_id)
        if self.guards.by_producer and header.is_transactional:
            self.check_epoch(header)
            self.guards.check_sequence(header, known=entry is not None and bool(entry.batches))
        if entry is None:
            return
        self.check_epoch(header)
        if header.producer_epoch != entry.producer_epoch:
            if header.base_sequence != 0 and entry.producer_epoch != NO_EPOCH:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} starts epoch {header.producer_epoch} at sequence {header.base_sequence},"
                    " expected 0",
                )
        else:
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if header.base_sequence != expected:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id}: sequence {header.base_sequence}, expected {expected}",
                )
        if entry.txn_first_offset is not None and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and sent a batch that is not part of it",
            )

    def is_ongoing(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a transaction of this very epoch is open here (TP-02)."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.producer_epoch == producer_epoch

    def begin_verification(self, header: BatchHeader, leader_epoch: int, wall_ms: int, *, adds: bool) -> Guard | None:
        """Return the guard with which the coordinator is to be asked about a batch; None: its transaction is open here, and
        nobody need be asked. INVALID_PRODUCER_EPOCH."""
        if self.is_ongoing(header.producer_id, header.producer_epoch):
            return None
        self.check_epoch(header)
        return self.guards.begin(header, leader_epoch, wall_ms, adds=adds)

    def check_terms(self, header: BatchHeader, terms: TransactionTerms, leader_epoch: int) -> None:
        """Check whether a transactional batch may begin a transaction here. INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE: in this
        order, because the producer can go on behind the first (TP-06). NOT_LEADER_OR_FOLLOWER: see `Guards.check`."""
        if not self.is_ongoing(header.producer_id, header.producer_epoch):
            self.check_epoch(header)
            self.guards.check(header, terms.guard, leader_epoch)

    def check_marker(self, header: BatchHeader, marker: EndTxnMarker, version: int = 0) -> None:
        """Check a marker. INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED. A marker for an unknown producer is fine
        (LG-22).

        `version`: the transaction.version of its transaction. From 2 on its epoch is above that of the transaction's batches; an
        equal one is a marker that was written before, unless a transaction is open (TP-22).
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        self.check_epoch(header)
        is_repeated = entry.txn_first_offset is None or header.producer_epoch == LAST_EPOCH
        if version >= 2 and header.producer_epoch == entry.producer_epoch and not is_repeated:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker for producer {header.producer_id} with epoch {header.producer_epoch}, in which a transaction is open:"
                " it would end that one too early",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker for producer {header.producer_id} from coordinator epoch {marker.coordinator_epoch},"
                f" the last came from {entry.coordinator_epoch}",
            )

    def check_epoch(self, header: BatchHeader) -> None:
        """Refuse an epoch older than the newest that wrote here with INVALID_PRODUCER_EPOCH (LG-18)."""
        entry = self.entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the newest is {entry.producer_epoch}",
            )

    # updates: offsets are those in the log

    def append_batch(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """A data batch is in the log at `base_offset`, with this largest timestamp."""
        self._since_remembered += 1
        if self._since_remembered > self._remember_every:
            self._remember(base_offset)
        entry = self._entry(header)
        last = base_offset + header.last_offset_delta
        entry.batches.append(BatchEntry(header.last_sequence, last, header.last_offset_delta, timestamp))
        entry.last_timestamp_ms = timestamp
        if header.is_transactional:
            self.guards.forget(header.producer_id)
            if entry.txn_first_offset is None:
                entry.txn_first_offset = base_offset
                self._open[header.producer_id] = base_offset

    def append_marker(
        self, header: BatchHeader, marker: EndTxnMarker, base_offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """A transaction marker is in the log at `base_offset`. None when it ends nothing here."""
        entry = self._entry(header)
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        entry.last_timestamp_ms = timestamp
        self.guards.end(header.producer_id, header.producer_epoch)
        first = entry.txn_first_offset
        entry.txn_first_offset = None
        if first is None:
            return None
        return CompletedTransaction(header.producer_id, first, base_offset + header.last_offset_delta, not marker.commit)

    def complete(self, transaction: CompletedTransaction) -> AbortedTransaction | None:
        """The open transaction becomes undecided. The entry for the transaction index when it was aborted."""
        self._open.pop(transaction.producer_id, None)
        self._undecided[transaction.first_offset] = transaction.last_offset
        if not transaction.aborted:
            return None
        stable = next(iter(self._open.values()), transaction.last_offset + 1)
        return AbortedTransaction(transaction.producer_id, transaction.first_offset, transaction.last_offset, stable)

    def on_hw_advanced(self, hw: int) -> None:
        """Decide the transactions whose marker is below the HW."""
        self.decided_below = hw
        if self._undecided:
            for first in [first for first, last in self._undecided.items() if last < hw]:
                del self._undecided[first]

    def undecide(self, ended: Mapping[int, int]) -> None:
        """The HW is below these markers after all: first offset -> offset of the marker."""
        self._undecided.update(ended)

    def undecided_from(self, hw: int) -> dict[int, int]:
        """Return the transactions whose marker is not below `hw`: first offset -> offset of the marker."""
        return {first: marker for first, marker in self._undecided.items() if marker >= hw}

    def first_unstable_offset(self) -> int | None:
        first_open = next(iter(self._open.values()), None)
        if not self._undecided:
            return first_open
        undecided = min(self._undecided)
        return undecided if first_open is None else min(first_open, undecided)

    @property
    def has_transactions(self) -> bool:
        """Return whether a transaction is open or undecided."""
        return bool(self._open or self._undecided)

    def last_transaction_offsets(self) -> tuple[int, int]:
        """Return where the latest open transaction began, and the latest marker that is not below the HW; -1 for none."""
        return max(self._open.values(), default=-1), max(self._undecided.values(), default=-1)

    def has_late_transaction(self, wall_ms: int, limit_ms: int) -> bool:
        """Return whether the producer of the earliest open transaction wrote nothing for longer than `limit_ms` (TP-41)."""
        producer_id = next(iter(self._open), None)
        last_ms = -1 if producer_id is None else self.entries[producer_id].last_timestamp_ms
        return last_ms > 0 and wall_ms - last_ms > limit_ms

    def remove_expired(self, wall_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for so long and have no open transaction, and return how many (LG-21)."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset is None and wall_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
            self.has_expired_some = True
        self.guards.remove_expired(wall_ms, expiration_ms)
        return len(expired)

    def _remember(self, offset: int) -> None:
        """Remember the state where the log ended at `offset`; it stays cheap where producers are many."""
        if self._since_remembered > min(_BATCHES_PER_PRODUCER, self._remember_every) * len(self.entries):
            self._since_remembered = 0
            entries = {producer_id: _Remembered.of(entry) for producer_id, entry in self.entries.items()}
            self._remembered = [*self._remembered[1 - _STATES_KEPT :], (offset, entries)]

    def forget_beyond(self, offset: int) -> None:
        """Forget what was remembered of a log that ended beyond `offset`: it is cut there."""
        while self._remembered and self._remembered[-1][0] > offset:
            self._remembered.pop()

    def return_to(self, offset: int) -> int | None:
        """Go back to the latest state that is remembered of a log that ended at `offset` or before, and return where it did. None
        when there is none: everything is forgotten then."""
        self.forget_beyond(offset)
        remembered, expired_some = self._remembered, self.has_expired_some
        self.clear()
        if not remembered:
            return None
        end, entries = remembered[-1]
        self.restore((producer_id, known.entry()) for producer_id, known in entries.items())
        self._remembered = remembered
        self.has_expired_some = expired_some
        self.decided_below = end
        return end

    def clear(self) -> None:
        self._remembered = []
        self._since_remembered = 0
        self.entries.clear()
        self.guards.clear()
        self._open.clear()
        self._undecided.clear()
        self.decided_below = 0
        self.has_expired_some = False

    def restore(self, entries: Iterable[tuple[int, ProducerEntry]]) -> None:
        """Replace everything by what a snapshot holds."""
        self.clear()
        self.entries.update(entries)
        open_transactions = [
            (entry.txn_first_offset, producer_id)
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset is not None
        ]
        self._open.update((producer_id, first) for first, producer_id in sorted(open_transactions))

    def recall(self, headers: Iterable[BatchHeader]) -> None:
        """Put the batches of the log, in order of offsets, before the one that `restore` brought of each producer."""
        recalled: dict[int, deque[BatchEntry]] = {}
        for header in headers:
            entry = self.entries.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch or not entry.batches:
                continue
            if header.last_offset < entry.batches[-1].last_offset:
                recalled.setdefault(header.producer_id, deque(maxlen=BATCHES_KEPT - 1)).append(
                    BatchEntry(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
                )
        for producer_id, batches in recalled.items():
            self.entries[producer_id].batches.extendleft(reversed(batches))

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self.entries.items())

    def active(self) -> tuple[ActiveProducer, ...]:
        return tuple(
            ActiveProducer(
                producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for producer_id, entry in self.entries.items()
        )

    def last_words(self) -> dict[int, LastWord]:
        """Return the last batch that each producer wrote, for compaction."""
        return {
            producer_id: LastWord(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
            for producer_id, entry in self.entries.items()
        }

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry()
        if header.producer_epoch != entry.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        return entry
