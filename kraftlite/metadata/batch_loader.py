"""Folds committed batches into one delta, and knows about metadata transactions. Synchronous and deterministic.

Source: Kafka's MetadataBatchLoader; KIP-868; ML-08 to ML-11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from kraftlite.model.errors import Fault
from kraftlite.model.limits import MAX_INT32
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch

Flush = Callable[[MetadataDelta, MetadataImage, Manifest], None]


class TransactionState(Enum):
    NONE = "none"
    OPEN = "open"
    ENDED = "ended"
    ABORTED = "aborted"


class BatchLoader:
    """`load` every batch of a delivery, then `flush`: calls `on_flush(delta, image, manifest)` for what is to be published.

    A transaction holds everything back until its end. Aborting one gives an empty delta over the image from before it.
    Raises Fault when transaction records do not nest (ML-11) or a record does not fit the image.
    """

    def __init__(self, on_flush: Flush, *, on_abort: Callable[[int, str | None], None] | None = None) -> None:
        self.image = MetadataImage.EMPTY
        self.has_seen_record = False
        self.transaction = TransactionState.NONE
        self._on_flush = on_flush
        self._on_abort = on_abort
        self.reset_to_image(MetadataImage.EMPTY)

    def reset_to_image(self, image: MetadataImage) -> None:
        """Go on from `image`; whatever was not flushed is forgotten."""
        self.image = image
        self._delta = MetadataDelta(image)
        self._offset = image.offset
        self._epoch = image.provenance.last_contained_epoch
        self._log_time_ms = image.provenance.last_contained_log_time_ms
        self._num_batches = 0
        self._num_bytes = 0

    def load_snapshot(self, image: MetadataImage) -> None:
        """A metadata snapshot replaces everything, an open transaction too."""
        self.reset_to_image(image)
        self.transaction = TransactionState.NONE
        self.has_seen_record = True

    def load(self, batch: CommittedBatch, leader: LeaderAndEpoch | None = None) -> None:
        for _ in self.load_in_steps(batch, leader):
            pass

    def load_in_steps(
        self, batch: CommittedBatch, leader: LeaderAndEpoch | None = None, records_per_step: int = MAX_INT32
    ) -> Iterator[None]:
        """`load`, with a pause after every so many records. Nothing else may be asked of this before the end."""
        self.has_seen_record = self.has_seen_record or bool(batch.records)
        for index, record in enumerate(batch.records):
            offset = batch.base_offset + index
            if isinstance(record, BeginTransactionRecord):
                self._begin(batch, index, leader)
            elif isinstance(record, EndTransactionRecord):
                self._close(offset, TransactionState.ENDED)
            elif isinstance(record, AbortTransactionRecord):
                self._close(offset, TransactionState.ABORTED)
                self._delta = MetadataDelta(self.image)
                if self._on_abort is not None:
                    self._on_abort(offset, record.reason)
            else:
                self._replay(offset, record)
            self._offset = offset
            self._epoch = batch.epoch
            self._log_time_ms = batch.append_timestamp_ms
            if (index + 1) % records_per_step == 0:
                yield
        self._offset = batch.last_offset
        self._epoch = batch.epoch
        self._log_time_ms = batch.append_timestamp_ms
        self._num_batches += 1
        self._num_bytes += batch.size_bytes

    def flush(self, leader: LeaderAndEpoch | None = None) -> bool:
        """Publish what was loaded, unless a transaction is open or nothing was. Returns whether it did."""
        if self.transaction is TransactionState.OPEN or self._offset == self.image.offset:
            return False
        self.transaction = TransactionState.NONE
        self._emit(aligned=True, leader=leader)
        return True

    def _replay(self, offset: int, record: object) -> None:
        if self.transaction is not TransactionState.OPEN:
            self.transaction = TransactionState.NONE
        try:
            self._delta.replay(record, offset)  # type: ignore[arg-type]
        except Fault as fault:
            raise Fault(f"metadata record at offset {offset}: {fault}") from fault

    def _begin(self, batch: CommittedBatch, index: int, leader: LeaderAndEpoch | None) -> None:
        offset = batch.base_offset + index
        if self.transaction is TransactionState.OPEN:
            raise Fault(f"metadata record at offset {offset} begins a transaction inside an open one")
        if self._offset != self.image.offset:
            self._emit(aligned=index == 0, leader=leader)
        self.transaction = TransactionState.OPEN

    def _close(self, offset: int, state: TransactionState) -> None:
        if self.transaction is not TransactionState.OPEN:
            verb = "ends" if state is TransactionState.ENDED else "aborts"
            raise Fault(f"metadata record at offset {offset} {verb} a transaction, but none is open")
        self.transaction = state

    def _emit(self, *, aligned: bool, leader: LeaderAndEpoch | None) -> None:
        provenance = MetadataProvenance(
            last_contained_offset=self._offset,
            last_contained_epoch=self._epoch,
            last_contained_log_time_ms=self._log_time_ms,
            is_offset_batch_aligned=aligned,
        )
        manifest = Manifest(
            kind="log",
            provenance=provenance,
            num_batches=self._num_batches,
            num_bytes=self._num_bytes,
            leader_and_epoch=leader,
        )
        delta = self._delta
        image = delta.apply(provenance)
        self.reset_to_image(image)
        self._on_flush(delta, image, manifest)
