"""Delivery of what is committed to the state machines of this node: in order, once, in slices.

Source: RF-28, RF-37, RF-43, RF-49.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kraftlite.model.errors import Fault
from kraftlite.model.limits import MIB
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, RaftListener, RecordSerde
from kraftlite.raft.core import RaftCore
from kraftlite.raft.decoding import decode_in_steps
from kraftlite.raft.snapshots import SnapshotReader
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace import raft as trace

SLICE_RECORDS: Final = 250
"""To decode or to hand over so many takes two to four milliseconds, for which the loop does nothing else."""
SLICE_BYTES: Final = MIB
_END: Final = CommittedBatch(base_offset=-1, last_offset=-1, epoch=-1, append_timestamp_ms=-1, size_bytes=0, records=())


class DecodedSnapshot:
    """A metadata snapshot that has been decoded before it is handed over. Implements `LoadedSnapshot`."""

    def __init__(self, reader: SnapshotReader, batches: list[tuple[Any, ...]]) -> None:
        self.snapshot_id: OffsetAndEpoch = reader.snapshot_id
        self.last_contained_timestamp_ms = reader.last_contained_timestamp_ms
        self.size_bytes = reader.size_bytes
        self._batches = batches

    def batches(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._batches)


class Decoding:
    """The slice of the log at one offset, decoded step by step and once for all state machines that have come there."""

    def __init__(self, data: bytes, serde: RecordSerde) -> None:
        self._rest = decode_in_steps(data, serde, SLICE_RECORDS)
        self._batches: list[CommittedBatch] = []
        self._records = 0
        self._done = False

    def step(self) -> list[CommittedBatch] | None:
        """Decode at most 250 records and the rest of a small batch; the batches, once they are whole."""
        while not self._done:
            batch = next(self._rest, _END)
            if batch is None:
                return None
            self._done = batch is _END or self._records + len(batch.records) >= SLICE_RECORDS
            if batch is not _END:
                self._batches.append(batch)
                self._records += len(batch.records)
        return self._batches


class ListenerFeed:
    """The progress of one state machine: what it has received so far, and what it receives next.

    `step` does a bounded amount of work: it decodes at most 250 records of a large batch, or hands over what is decoded, at
    most one batch beyond 250 records or 1 MiB. Invariant: `next_offset` is at the start of a batch and never above the
    committed offset.
    """

    def __init__(
        self, core: RaftCore, listener: RaftListener, serde: RecordSerde, tracer: Tracer, decodings: dict[int, Decoding]
    ) -> None:
        """`decodings`: by offset, of all feeds of this node."""
        self.listener = listener
        self._decodings = decodings
        self.next_offset = 0
        self._core = core
        self._serde = serde
        self._tracer = tracer
        self._told = LeaderAndEpoch(leader_id=None, epoch=0)
        self._loading: Iterator[tuple[Any, ...]] | None = None
        self._reader: SnapshotReader | None = None
        self._loaded: list[tuple[Any, ...]] = []

    def step(self) -> bool:
        """Deliver the next slice, unless the listener holds it back; False when there is nothing to deliver now."""
        if self._tell_leader():
            return True
        committed = self._core.committed_offset
        if committed is None:
            return False
        if self.next_offset < committed and self.listener.holds_back():
            return True
        if self._loading is not None:
            self._load_slice()
            return True
        latest = self._core.metalog.snapshots.latest
        if latest is not None and (self.next_offset < self._core.metalog.log_start_offset or self.next_offset == 0):
            self._reader = self._core.metalog.open_reader(latest)
            self._loading, self._loaded = self._reader.batches(), []
            return True
        if self.next_offset < committed:
            batches = self._slice(committed)
            if batches is not None:
                self.next_offset = batches[-1].last_offset + 1
                self.listener.handle_commit(batches)
            return True
        return False

    def _tell_leader(self) -> bool:
        """Leadership of this node waits until everything below its epoch is consumed (RF-37); other news does not wait."""
        leader = self._core.leader
        if leader == self._told:
            return False
        start = self._core.epoch_start_offset
        if start is not None and self.next_offset < start:
            return False
        self._told = leader
        self.listener.handle_leader_change(leader)
        return True

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _load_slice(self) -> None:
        assert self._loading is not None and self._reader is not None
        budget = SLICE_RECORDS
        try:
            for batch in self._loading:
                self._loaded.append(batch)
                budget -= len(batch)
                if budget <= 0:
                    return
            snapshot = DecodedSnapshot(self._reader, self._loaded)
        except Fault:
            if not self._core.metalog.drop_if_damaged(self._reader.snapshot_id):
                raise  # the file is sound, and has what this node cannot read
            self._reader.close()
            self._loading, self._reader, self._loaded = None, None, []
            return  # begin anew, with an older one or the log
        self._reader.close()
        self._loading, self._reader, self._loaded = None, None, []
        self.next_offset = snapshot.snapshot_id.offset
        self._tracer.emit(trace.SnapshotDelivered(listener=type(self.listener).__name__, end_offset=snapshot.snapshot_id.offset))
        self.listener.handle_load_snapshot(snapshot)

    def _slice(self, committed: int) -> list[CommittedBatch] | None:
        """The next committed batches: those this node appended itself as they were handed in, the others from the log. None
        while they are not decoded yet."""
        batches: list[CommittedBatch] = []
        offset, records, size = self.next_offset, 0, 0
        while offset < committed and records < SLICE_RECORDS and size < SLICE_BYTES:
            batch = self._core.own_batch(offset)
            if batch is None or batch.last_offset >= committed:
                break
            batches.append(batch)
            offset, records, size = batch.last_offset + 1, records + len(batch.records), size + batch.size_bytes
        if batches:
            return batches
        decoding = self._decodings.get(offset)
        if decoding is None:
            data = self._core.metalog.log.read(offset, SLICE_BYTES, up_to=committed)
            decoding = self._decodings[offset] = Decoding(data, self._serde)
        found = decoding.step()
        assert found is None or found, f"no batch at offset {offset} below the committed offset {committed}"
        return found


class Delivery:
    """All state machines of one node."""

    def __init__(self, core: RaftCore, serde: RecordSerde, tracer: Tracer) -> None:
        self._core = core
        self._serde = serde
        self._tracer = tracer
        self.feeds: list[ListenerFeed] = []
        self._decodings: dict[int, Decoding] = {}

    def register(self, listener: RaftListener) -> ListenerFeed:
        feed = ListenerFeed(self._core, listener, self._serde, self._tracer, self._decodings)
        self.feeds.append(feed)
        return feed

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()

    def pump(self) -> bool:
        """One slice for every state machine; False when all have everything."""
        worked = False
        for feed in list(self.feeds):
            worked = feed.step() or worked
        wanted = {feed.next_offset for feed in self.feeds}
        for offset in [offset for offset in self._decodings if offset not in wanted]:
            del self._decodings[offset]
        committed = self._core.committed_offset
        if committed is not None:
            self._core.mark_delivered(min((feed.next_offset for feed in self.feeds), default=committed))
        return worked
