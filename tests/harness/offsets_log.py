"""`__consumer_offsets` in memory, and a coordinator over it: the high watermark moves when a test lets it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.coordinator import GroupCoordinator
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.log.batch import build_batch, parse_header
from kraftlite.log.control import EndTxnMarker, encode_control
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.seek import Seeker
from kraftlite.log.validation import AppendOrigin
from kraftlite.metadata.image import MetadataImage, TopicImage
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.metadata.topics_delta import TopicDelta, TopicsDelta
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import (
    FetchEntry,
    FetchParams,
    FetchResult,
    MarkerEntry,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from kraftlite.wire.apis import KafkaApis
from kraftlite.wire.listener import KafkaListener, ListenerConfig
from tests.harness.wire_fakes import LISTENER, Harness, image, partition

ME = 1


@dataclass
class LedPartition:
    leader_epoch: int = 0
    start: int = 0
    hw: int = 0
    batches: list[bytes] = field(default_factory=list)
    parked: list[tuple[int, Callable[[ErrorCode], None], Callable[[ErrorCode], None]]] = field(default_factory=list)
    """(high watermark that is waited for, on the fate, on being late)."""
    error: ErrorCode | None = None
    """What appends are refused with."""

    @property
    def leo(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else self.start


class WaitFake:
    """Ready when the high watermark moves; at once where it is beyond what is read, for then the rest is compacted away."""

    def __init__(self, log: OffsetsLogFake, ready: Callable[[], None]) -> None:
        self._log = log
        self.ready = ready

    def watch(self, entries: Iterable[FetchEntry]) -> None:
        (entry,) = entries
        if entry.fetch_offset < self._log.partitions[entry.tp].hw:
            self.ready()
        else:
            self._log._waits[self] = None

    def cancel(self) -> None:
        self._log._waits.pop(self, None)


class OffsetsLogFake:
    """Implements `OffsetsLog`. With `automatic` the high watermark follows every append."""

    def __init__(self, *, automatic: bool = True) -> None:
        self.automatic = automatic
        self.partitions: dict[TopicPartition, LedPartition] = {}
        self.origins: list[AppendOrigin] = []
        self.terms: list[TransactionTerms | None] = []
        self._waits: dict[WaitFake, None] = {}

    def at(self, index: int) -> LedPartition:
        return self.partitions.setdefault(TopicPartition(OFFSETS_TOPIC, index), LedPartition())

    def partition(self, tp: TopicPartition) -> LedPartition | None:
        return self.partitions.get(tp)

    def append(
        self,
        entries: Sequence[ProduceEntry],
        *,
        acks: int,
        timeout_ms: int,
        on_done: Callable[[list[ProduceResult]], None],
        origin: AppendOrigin,
        on_late: Callable[[ErrorCode], None],
    ) -> None:
        (entry,) = entries
        assert acks == -1
        self.origins.append(origin)
        self.terms.append(entry.terms)
        found = self.partitions[entry.tp]
        if found.error is not None:
            on_done([ProduceResult(tp=entry.tp, error=found.error)])
            return
        self.write(entry.tp.partition, entry.records)
        found.parked.append((found.leo, lambda error: on_done([ProduceResult(tp=entry.tp, error=error)]), on_late))
        if self.automatic:
            self.advance(entry.tp.partition)

    def write_markers(
        self,
        markers: Sequence[MarkerEntry],
        *,
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
        on_late: Callable[[ErrorCode], None],
    ) -> None:
        (marker,) = markers
        found = self.partitions[marker.tp]
        if found.error is not None:
            on_done([found.error])
            return
        control = encode_control(EndTxnMarker(commit=marker.commit, coordinator_epoch=marker.coordinator_epoch))
        batch = build_batch(
            [control],
            timestamp_ms=1,
            control=True,
            transactional=True,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
        self.write(marker.tp.partition, batch)
        found.parked.append((found.leo, lambda error: on_done([error]), on_late))
        if self.automatic:
            self.advance(marker.tp.partition)

    def write(self, index: int, batch: bytes | bytearray | memoryview) -> None:
        """Append a batch as another leader would have."""
        found = self.at(index)
        stamped = bytearray(batch)
        struct.pack_into(">q", stamped, 0, found.leo)
        found.batches.append(bytes(stamped))

    def advance(self, index: int, hw: int | None = None) -> None:
        """Let the high watermark reach the end of the log, or `hw`."""
        found = self.at(index)
        found.hw = found.leo if hw is None else hw
        ready = [done for until, done, _ in found.parked if until <= found.hw]
        found.parked = [waiting for waiting in found.parked if waiting[0] > found.hw]
        for done in ready:
            done(ErrorCode.NONE)
        self._wake()

    def fail(self, index: int, error: ErrorCode) -> None:
        parked, self.at(index).parked = self.at(index).parked, []
        for _, done, _ in parked:
            done(error)

    def be_late(self, index: int, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Whoever waits is told that the records are not below the high watermark in time."""
        for _, _, late in list(self.at(index).parked):
            late(error)

    def _wake(self) -> None:
        waits, self._waits = self._waits, {}
        for wait in waits:
            wait.ready()

    def fetch_now(self, params: FetchParams, partitions: Sequence[FetchEntry]) -> list[FetchResult]:
        return [self._read(entry) for entry in partitions]

    def fetch_wait(self, params: FetchParams, ready: Callable[[], None]) -> WaitFake:
        return WaitFake(self, ready)

    def _read(self, entry: FetchEntry) -> FetchResult:
        found = self.partitions[entry.tp]
        error = ErrorCode.NONE
        if entry.current_leader_epoch != found.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        records = b""
        for batch in found.batches:
            header = parse_header(batch)
            if header.next_offset > entry.fetch_offset and header.next_offset <= found.hw and error is ErrorCode.NONE:
                records += batch
                if len(records) >= entry.max_bytes:
                    break
        return FetchResult(
            tp=entry.tp,
            error=error,
            hw=found.hw,
            last_stable_offset=found.hw,
            log_start_offset=found.start,
            records=records,
        )

    def list_offset(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        timestamp: int,
        *,
        current_leader_epoch: int | None,
        read_committed: bool,
        debug: bool = False,
        seeker: Seeker | None = None,
    ) -> OffsetResult:
        found = self.partitions[tp]
        if current_leader_epoch != found.leader_epoch:
            return OffsetResult(error=ErrorCode.FENCED_LEADER_EPOCH)
        assert debug, "the end of the log is beyond the high watermark"
        return OffsetResult(error=ErrorCode.NONE, offset=found.start if timestamp == -2 else found.leo)


def topics_delta(before: MetadataImage, after: MetadataImage) -> TopicsDelta:
    """What changed between two images, as the metadata log would have told it."""
    delta = TopicsDelta(before.topics)
    for topic in before.topics:
        if after.topics.topic_by_id(topic.topic_id) is None:
            delta.deleted[topic.topic_id] = topic
    for topic in after.topics:
        old = before.topics.topic_by_id(topic.topic_id) or TopicImage(name=topic.name, topic_id=topic.topic_id)
        changed = TopicDelta(old)
        for index, registration in topic.partitions.items():
            if old.partitions.get(index) != registration:
                changed.partition_changes[index] = registration
        if changed.partition_changes:
            delta.changed[topic.topic_id] = changed
    return delta


class GroupHarness(Harness):
    """A listener with a real group coordinator behind it. `apply` makes it follow metadata, `log` is what it writes to."""

    def __init__(
        self,
        topics: Mapping[str, Sequence[PartitionRegistration]] | None = None,
        *,
        config: Mapping[str, str] | None = None,
        automatic: bool = True,
        **options: Any,
    ) -> None:
        found = {OFFSETS_TOPIC: [partition([1])], "t": [partition([1])] * 3} if topics is None else topics
        super().__init__(found, config=config, **options)
        self.log = OffsetsLogFake(automatic=automatic)
        self.groups = GroupCoordinator(
            self.context.ports, self.context.node_id, GroupConfig.from_values(dict(config or {})), self.log
        )
        self.context.groups = self.groups
        self.apis = KafkaApis(self.context, LISTENER)
        self.listener = KafkaListener(self.context.ports, ListenerConfig(name=LISTENER, host="127.0.0.1", port=0), self.apis)
        self.applied = MetadataImage.EMPTY

    async def __aenter__(self) -> GroupHarness:
        await super().__aenter__()
        await self.apply()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.groups.close()
        await super().__aexit__(*error)

    async def apply(self, topics: Mapping[str, Sequence[PartitionRegistration]] | None = None) -> None:
        """The coordinator follows; loads that need no waiting are done when this returns."""
        if topics is not None:
            self.topics = dict(topics)
        after = image(self.brokers, self.topics)
        self.metadata.set_image(after)
        offsets = after.topics.topic(OFFSETS_TOPIC)
        for index, registration in ({} if offsets is None else offsets.partitions).items():
            self.log.at(index).leader_epoch = registration.leader_epoch
        before, self.applied = self.applied, after
        self.groups.replicas_applied(topics_delta(before, after), after)
        await self.clock.run_for(1)
