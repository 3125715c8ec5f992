"""The transaction coordinator of a broker: follows who leads `__transaction_state`, routes requests to the partition of their
id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from kraftlite.coordinator.core.keys import check_room
from kraftlite.coordinator.core.led_partitions import LedPartitions
from kraftlite.coordinator.core.load_times import LoadTimes
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.coordinator.core.ports import CoordinatorLog
from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.core.shards import ShardSettings
from kraftlite.coordinator.modern import regex
from kraftlite.coordinator.transactions.api import TransactionDescription, TransactionListing, TransactionOverview
from kraftlite.coordinator.transactions.config import TransactionConfig
from kraftlite.coordinator.transactions.events import Add, End, Init
from kraftlite.coordinator.transactions.markers_driver import MarkerSender
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.coordinator.transactions.states import LAST_EPOCH, Transaction, TransactionState
from kraftlite.coordinator.transactions.telling import Budget, TransactionStory
from kraftlite.metadata.features import TRANSACTION_VERSION
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.topics_delta import TopicsDelta
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_COORDINATED_BYTES, MAX_STRING_BYTES
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports, Tracer
from kraftlite.runtime.trace.transaction import (
    TransactionsLoaded,
    TransactionsLoadFailed,
    TransactionsLoading,
    TransactionsUnloaded,
)
from kraftlite.runtime.turns import Turns

_NO_COMPRESSION: Final = 0
ADDED_BY_LEADERS_FROM: Final = 2
"""The `transaction.version` from which partitions are added by their leaders, and by no client."""
_STATES: Final = {state.title: state for state in TransactionState}


class FreshIds(Protocol):
    """The source of producer ids."""

    def take(self) -> int | None:
        """One that nobody else is given; None while none is at hand."""
        ...

    async def arrival(self) -> bool:
        """Wait a moment for more; False when none came."""
        ...


class TransactionCoordinator:
    """Coordinates the transactional ids whose partition of `__transaction_state` this broker leads; on the node's loop.

    Requests raise ApiError: INVALID_REQUEST for an empty id; COORDINATOR_NOT_AVAILABLE while the topic does not exist, while its
    log cannot be written, and when the broker stops; NOT_COORDINATOR where another broker leads; COORDINATOR_LOAD_IN_PROGRESS
    while the partition is read; CONCURRENT_TRANSACTIONS while something else is under way for the id. Answers that need the log
    come when it has them, at the latest after the transaction's own timeout. Source: Kafka's TransactionCoordinator; TX-01 to
    TX-65.
    """

    def __init__(
        self,
        ports: Ports,
        config: TransactionConfig,
        log: CoordinatorLog,
        ids: FreshIds,
        markers: MarkerSender,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._ports = ports
        self.config = config
        self._log = log
        self._ids = ids
        self.markers = markers
        self._image = image
        self.load_times = LoadTimes(ports.clock)
        self._trace = _TransactionTrace(ports.tracer, self.load_times)
        self._budget = Budget()
        self._turns = Turns(ports.clock)
        self.most_bytes = MAX_COORDINATED_BYTES
        self._settings = ShardSettings(
            load_buffer_bytes=config.load_buffer_bytes,
            compression_codec=_NO_COMPRESSION,
            append_timeout_ms=config.request_timeout_ms,
        )
        self.led: LedPartitions[TransactionShard] = LedPartitions(
            TRANSACTION_TOPIC, "transactional id", ports.node_id, self._begin, resizable=False
        )

    def _begin(self, tp: TopicPartition, topic_id: UUID, leader_epoch: int) -> ShardDriver[TransactionShard]:
        outbox = self.markers.outbox(leader_epoch)
        story = TransactionStory(self._ports.tracer, self._budget, tp, leader_epoch)
        first_epoch = LAST_EPOCH + 1 - self._ports.tuning.producer_epochs
        shard = TransactionShard(
            self.config, self._ids.take, outbox, self._ports.tracer, story, version=self._version, first_epoch=first_epoch
        )
        driver = ShardDriver(self._ports, self._settings, self._log, self._trace, tp, topic_id, leader_epoch, shard, self._turns)
        outbox.connect(driver.tell)
        return driver

    def _version(self) -> int:
        return self._image().features.level(TRANSACTION_VERSION)

    # --- metadata -----------------------------------------------------------------------------------------------------

    def replicas_applied(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Called for every change of topics, after the local replicas have followed it (ML-21)."""
        self.led.apply(delta, image.topics.topic(TRANSACTION_TOPIC))
        self.markers.metadata_changed()

    def configs_applied(self, image: MetadataImage) -> None:
        """No config of a topic or group changes what is coordinated here."""

    def close(self) -> None:
        """Everybody who waits gets NOT_COORDINATOR."""
        self.led.close()
        self.markers.close()

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that an id belongs to. ApiError: INVALID_REQUEST for an empty id,
        COORDINATOR_NOT_AVAILABLE while there is no such topic."""
        _check_id(transactional_id)
        return self.led.partition_of(transactional_id)

    # --- producers ----------------------------------------------------------------------------------------------------

    async def init_producer_id(self, transactional_id: str, *, timeout_ms: int, expected: Producer | None) -> Producer:
        """Begin to produce under an id, or go on after an error with what the producer has (KIP-360). Who had it before is
        fenced. ApiError: INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED; POLICY_VIOLATION for a new id when there are too many."""
        driver = self._driver_of(transactional_id, lambda: self._check_init(timeout_ms, expected))
        if driver.loaded and transactional_id not in driver.shard.by_id:
            check_room((shard.by_id for shard in self.led.loaded()), self.most_bytes, "transactional ids")
        request = Init(transactional_id=transactional_id, timeout_ms=timeout_ms, expected=expected)
        try:
            found: Producer = await driver.ask(request)
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or not driver.loaded or not await self._ids.arrival():
                raise
            found = await driver.ask(request)  # it had no producer id at hand, and has now
        return found

    def _check_init(self, timeout_ms: int, expected: Producer | None) -> None:
        longest = self.config.max_timeout_ms
        if not 0 < timeout_ms <= longest:
            message = f"a transaction timeout of {timeout_ms} ms: allowed is 1 to {longest} (transaction.max.timeout.ms)"
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
        if expected is not None and -1 in expected:
            message = f"producer id {expected.producer_id} and epoch {expected.producer_epoch}: give both, or -1 for both"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        *,
        version: int,
        timeout_ms: int | None = None,
    ) -> None:
        """Make partitions part of the producer's transaction, which begins with the first (TX-30 to TX-33). `version`: the
        `transaction.version` that the request shows. The partitions exist, as far as this broker knows (TX-31).
        ApiError(REQUEST_TIMED_OUT) after `timeout_ms`: they may become part of it all the same."""
        driver = self._driver_of(transactional_id)
        wait_ms = self.config.add_wait_ms if version < ADDED_BY_LEADERS_FROM else self.config.enrol_wait_ms
        request = Add(
            transactional_id=transactional_id, producer=producer, partitions=partitions, version=version, wait_ms=wait_ms
        )
        await driver.ask(request, timeout_ms=timeout_ms)

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Say of each partition whether it is part of the producer's transaction (TX-34)."""
        return self._driver_of(transactional_id).shard.verify(transactional_id, producer, partitions)

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int) -> Producer:
        """Commit or abort, by the rules of the `transaction.version` that the request shows. Returns what to produce with from
        now on, when the outcome is decided; it is carried out after that (TX-40 to TX-46)."""
        driver = self._driver_of(transactional_id)
        found: Producer = await driver.ask(
            End(transactional_id=transactional_id, producer=producer, commit=commit, version=version)
        )
        return found

    def _driver_of(self, transactional_id: str, check: Callable[[], None] | None = None) -> ShardDriver[TransactionShard]:
        """The driver of an id's partition. `check`: what else is looked at before it is looked for (TX-10)."""
        _check_id(transactional_id)
        if check is not None:
            check()
        return self.led.of(transactional_id)

    # --- looking ------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionDescription:
        """ApiError(TRANSACTIONAL_ID_NOT_FOUND) for one that nobody uses (TA-01)."""
        found = self._driver_of(transactional_id).shard.describe(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id} is not known")
        return TransactionDescription(
            transactional_id=transactional_id,
            state=found.state,
            timeout_ms=found.timeout_ms,
            start_ms=found.start_ms,
            producer=Producer(found.producer_id, found.producer_epoch),
            partitions=found.partitions,
        )

    async def listed(
        self, *, states: Collection[str], producer_ids: Collection[int], min_duration_ms: int, pattern: str | None
    ) -> TransactionListing:
        """The ids that are coordinated here, with one of the states and of the producer ids (none: whichever), open for longer
        than `min_duration_ms` (negative: whatever), whose whole name matches the pattern of RE2 (None or empty: whatever). An id
        is told as it is when its turn comes. ApiError: COORDINATOR_LOAD_IN_PROGRESS while one of the partitions is read,
        INVALID_REGULAR_EXPRESSION (TA-02)."""
        matches = _matcher(pattern)
        wanted = {_STATES[name] for name in states if name in _STATES}
        unknown = tuple(dict.fromkeys(name for name in states if name not in _STATES))
        producers = frozenset(producer_ids)
        now_ms = self._ports.clock.wall_ms()

        def shows(transactional_id: str, found: Transaction) -> bool:
            return (
                (not states or found.state in wanted)
                and (not producers or found.producer_id in producers)
                and (min_duration_ms < 0 or now_ms - found.start_ms > min_duration_ms)
                and matches(transactional_id)
            )

        overviews = [
            TransactionOverview(transactional_id, found.producer_id, found.state)
            for shard in self.led.all_shards()
            async for some in self._turns.each(shard.listed())
            for transactional_id, found in some
            if shows(transactional_id, found)
        ]
        return TransactionListing(transactions=tuple(overviews), unknown_states=unknown)

    def id_count(self) -> int:
        return sum(len(shard.by_id) for shard in self.led.loaded())

    def open_count(self) -> int:
        return sum(shard.open_count for shard in self.led.loaded())

    def decided_count(self) -> int:
        """Return how many outcomes are decided and not carried out."""
        return sum(shard.to_carry_out for shard in self.led.loaded())

    def write_again_count(self) -> int:
        """Return how many outcomes wait to be written again (`LogAppendRetryQueueSize`)."""
        return sum(shard.written_again for shard in self.led.loaded())


def _check_id(transactional_id: str) -> None:
    """Raise ApiError(INVALID_REQUEST) for an id that no record could hold."""
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    try:
        size = len(transactional_id.encode())
    except UnicodeEncodeError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is no text in UTF-8") from None
    if size > MAX_STRING_BYTES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a transactional id of {size} bytes: at most {MAX_STRING_BYTES} are allowed")


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda name: True
    regex.check(pattern)
    return lambda name: bool(regex.matching(pattern, (name,)))


class _TransactionTrace:
    """Tells of shards of transactional ids."""

    def __init__(self, tracer: Tracer, load_times: LoadTimes) -> None:
        self._tracer = tracer
        self._load_times = load_times

    def loading(self, tp: TopicPartition, leader_epoch: int) -> None:
        self._tracer.emit(TransactionsLoading(tp=tp, leader_epoch=leader_epoch))

    def loaded(self, tp: TopicPartition, leader_epoch: int, shard: Any, *, end_offset: int, elapsed_ms: int) -> None:
        self._load_times.took(elapsed_ms)
        self._tracer.emit(
            TransactionsLoaded(
                tp=tp,
                leader_epoch=leader_epoch,
                end_offset=end_offset,
                ids=len(shard.by_id),
                decided=shard.to_carry_out,
                elapsed_ms=elapsed_ms,
            )
        )

    def failed(self, tp: TopicPartition, leader_epoch: int, reason: str) -> None:
        self._tracer.emit(TransactionsLoadFailed(tp=tp, leader_epoch=leader_epoch, reason=reason))

    def unloaded(self, tp: TopicPartition, leader_epoch: int, shard: Any) -> None:
        self._tracer.emit(TransactionsUnloaded(tp=tp, leader_epoch=leader_epoch, ids=len(shard.by_id)))
