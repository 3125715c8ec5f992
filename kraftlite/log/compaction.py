"""The rule of compaction: it keeps the newest record of each key, tombstones and markers for a while, the last word of each
producer.

Source: LG-42 to LG-45; KIP-534 (delete horizons), KIP-98 (transactions), KIP-360.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from kraftlite.log.batch import BatchHeader, Record, empty_batch, iter_records, retained_batch
from kraftlite.log.control import ControlType, control_type
from kraftlite.log.indexes import AbortedTransaction, TransactionIndex
from kraftlite.model.limits import MAX_INT64

MAX_RAW_KEY: Final = 24
"""Longer keys are known by a digest, which is longer than that: the two are never taken for each other."""
_DIGEST_BYTES: Final = 32
ENTRY_BYTES: Final = 120
"""About what an entry of the map costs beside its key."""


class OffsetMap:
    """Key -> its last offset, of at most about `max_bytes` of memory. `latest`: the last offset that it knows all keys up to."""

    def __init__(self, max_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._left = max_bytes
        self.latest = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Remember the offset of a key; False when there is no room for another key. Offsets come in order."""
        known = _digest(key)
        if known not in self._offsets:
            cost = ENTRY_BYTES + len(known)
            if cost > self._left:
                return False
            self._left -= cost
        self._offsets[known] = offset
        return True

    def last_of(self, key: bytes) -> int:
        """Return the last offset of a key; -1 for a key that is not in it."""
        return self._offsets.get(_digest(key), -1)


def _digest(key: bytes) -> bytes:
    return key if len(key) <= MAX_RAW_KEY else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastWord(NamedTuple):
    """The last batch of a live producer: the one that ends at `data_offset`; None: only markers, of `producer_epoch`."""

    data_offset: int | None
    producer_epoch: int


class TransactionView:
    """The batches and markers of aborted transactions, while the log is read from its start in order.

    `aborted`: all that overlap what is read. Markers that are needed no longer are those of whose transaction no batch was met.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        """Producers of aborted transactions of which a batch was met."""
        self._committed: set[int] = set()

    def _begin(self, last_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= last_offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, entry)

    def read_batch(self, header: BatchHeader) -> bool:
        """Look at a batch of data, and return whether its transaction was aborted."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def read_control(self, header: BatchHeader, batch: memoryview, index: TransactionIndex | None) -> bool:
        """Look at a control batch, and return whether its marker ends nothing that is left. Aborted transactions that are go
        into `index`."""
        self._begin(header.last_offset)
        record = next(iter_records(batch), None)
        if record is None:
            return True
        kind, producer_id = control_type(record.key), header.producer_id
        if kind == ControlType.ABORT:
            entry = self._aborted.pop(producer_id, None)
            if entry is None or producer_id not in self._met:
                return True
            self._met.discard(producer_id)
            if index is not None:
                index.append(entry)
            return False
        if kind == ControlType.COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
        return False


class Kept(NamedTuple):
    """The fate of a batch: `data` None, it goes. `same`: it stays as it was."""

    data: bytes | memoryview | None
    same: bool


class BatchFilter:
    """Decides about one batch after the other. `wall_ms` is the time of the whole pass."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: TransactionView,
        last_words: Mapping[int, LastWord],
        *,
        wall_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_words = last_words
        self._wall_ms = wall_ms
        self._horizon_ms = min(wall_ms + delete_retention_ms, MAX_INT64)

    def steps(self, header: BatchHeader, batch: memoryview, index: TransactionIndex, *, last: bool) -> Iterator[Kept | None]:
        """Yields None now and then (one record was looked at), and in the end the verdict.

        `last`: the batch is kept in any case, if need be empty, so that the segment ends where the next one begins.
        """
        needed = last or self._is_last_word(header)
        if header.is_control:
            yield self._control(header, batch, index, needed)
        elif self._transactions.read_batch(header) or header.count == 0:
            yield _emptied(header, batch, needed)
        elif header.base_offset > self._offsets.latest:
            yield Kept(batch, True)
        else:
            kept: list[Record] = []
            for record in iter_records(batch):
                if self._keeps(header, record):
                    kept.append(record)
                yield None
            yield self._left(header, batch, kept, needed)

    def _is_last_word(self, header: BatchHeader) -> bool:
        word = self._last_words.get(header.producer_id) if header.producer_id >= 0 else None
        if word is None:
            return False
        if word.data_offset is not None:
            return header.last_offset == word.data_offset
        return header.is_control and header.producer_epoch == word.producer_epoch

    def _control(self, header: BatchHeader, batch: memoryview, index: TransactionIndex, needed: bool) -> Kept:
        unneeded = self._transactions.read_control(header, batch, index)
        if header.count == 0 or (unneeded and header.has_delete_horizon and header.base_timestamp <= self._wall_ms):
            return _emptied(header, batch, needed)
        if unneeded and not header.has_delete_horizon:
            return Kept(retained_batch(header, list(iter_records(batch)), delete_horizon_ms=self._horizon_ms), False)
        return Kept(batch, True)

    def _keeps(self, header: BatchHeader, record: Record) -> bool:
        offset = header.base_offset + record.offset_delta
        if offset > self._offsets.latest:
            return True
        if record.key is None or offset < self._offsets.last_of(record.key):
            return False
        return record.value is not None or not header.has_delete_horizon or self._wall_ms < header.base_timestamp

    def _left(self, header: BatchHeader, batch: memoryview, kept: list[Record], needed: bool) -> Kept:
        if not kept:
            return _emptied(header, batch, needed)
        starts_clock = not header.has_delete_horizon and any(record.value is None for record in kept)
        if len(kept) == header.count and not starts_clock:
            return Kept(batch, True)
        return Kept(retained_batch(header, kept, delete_horizon_ms=self._horizon_ms if starts_clock else None), False)


def _emptied(header: BatchHeader, batch: memoryview, needed: bool) -> Kept:
    if not needed:
        return Kept(None, False)
    return Kept(batch, True) if header.count == 0 else Kept(empty_batch(header), False)
