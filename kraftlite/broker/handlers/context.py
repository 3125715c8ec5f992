"""The context that the handlers of one broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from kraftlite.broker.handlers.fetch_sessions import FetchSessionCache
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.broker.telemetry import ClientTelemetry
from kraftlite.coordinator.coordinator import GroupCoordinator
from kraftlite.coordinator.transactions.api import TransactionDescription, TransactionListing
from kraftlite.log.config import LogConfig
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.log import ActiveProducer, Log
from kraftlite.log.seek import Seeker
from kraftlite.model.broker_configs import value_of
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_LARGE_REQUESTS_BYTES
from kraftlite.model.messages.introspection import ReplicaState
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.quotas.usage import ClientQuotas
from kraftlite.raft.client import RaftClient
from kraftlite.replication.api import (
    DeleteRecordsResult,
    FetchEntry,
    FetchParams,
    FetchResult,
    Lease,
    MarkerEntry,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
    ProduceTransaction,
)
from kraftlite.replication.consume import FetchRoom
from kraftlite.replication.enrol_driver import Identity
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Clock, DiskSpace, Ports
from kraftlite.runtime.turns import Admission, OffLoop, Turns
from kraftlite.security.gate import Gate


class Waiting(Protocol):
    """A fetch that waits (`FetchWait`)."""

    @property
    def expired(self) -> bool: ...

    def watch(self, entries: Sequence[FetchEntry], /) -> None: ...

    def done(self) -> bool: ...

    def cancel(self) -> None: ...


class Enrols(Protocol):
    """The part of `Enroller` that commits of offsets in transactions need."""

    async def enrol(self, identity: Identity, tp: TopicPartition, /, *, version: int) -> TransactionTerms | None: ...


class Replicas(Protocol):
    """The part of `ReplicaManager` that clients reach."""

    @property
    def enroller(self) -> Enrols: ...

    def append(
        self,
        entries: Sequence[ProduceEntry],
        /,
        *,
        acks: int,
        timeout_ms: int,
        on_done: Callable[[list[ProduceResult]], None],
        lease: Lease | None = None,
        transaction: ProduceTransaction | None = None,
    ) -> None: ...

    def fetch_now(self, params: FetchParams, partitions: Sequence[FetchEntry], /) -> list[FetchResult]: ...

    def fetch_some(self, room: FetchRoom, partitions: Sequence[FetchEntry], /) -> list[FetchResult]: ...

    def fetch_wait(self, params: FetchParams, ready: Callable[[], None], /) -> Waiting: ...

    def list_offset(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        timestamp: int,
        /,
        *,
        current_leader_epoch: int | None,
        read_committed: bool,
        debug: bool = False,
        version5_plus: bool = True,
        seeker: Seeker | None = None,
    ) -> OffsetResult: ...

    def offset_for_leader_epoch(
        self, tp: TopicPartition, /, *, current_leader_epoch: int | None, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]: ...

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int, /
    ) -> Sequence[DeleteRecordsResult]: ...

    def active_producers(self, tp: TopicPartition, /) -> tuple[ActiveProducer, ...]: ...

    def replica_states(self, topics: tuple[str, ...] | None, /) -> tuple[ReplicaState, ...]: ...


class Transactions(Protocol):
    """The part of `TransactionCoordinator` that clients reach. All raise ApiError. `version`: the `transaction.version` that the
    request shows."""

    def partition_of(self, transactional_id: str, /) -> int: ...

    async def init_producer_id(self, transactional_id: str, /, *, timeout_ms: int, expected: Producer | None) -> Producer: ...

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], /, *, version: int
    ) -> None: ...

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], /
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    async def end(self, transactional_id: str, producer: Producer, /, *, commit: bool, version: int) -> Producer: ...

    def describe(self, transactional_id: str, /) -> TransactionDescription: ...

    async def listed(
        self, *, states: Sequence[str], producer_ids: Sequence[int], min_duration_ms: int, pattern: str | None
    ) -> TransactionListing: ...


class WritesMarkers(Protocol):
    """The part of `MarkerWriting` that clients reach."""

    async def write_here(self, markers: Sequence[MarkerEntry], timeout_ms: int, /) -> Sequence[ErrorCode]:
        """Write markers to partitions that this broker leads; one error for each, when all are below the high watermark."""
        ...


class Moves(Protocol):
    """Replicas between directories (`ReplicaMoves`)."""

    def alter(self, tp: TopicPartition, path: str, /) -> None: ...

    def copies(self) -> Iterable[tuple[str, Log, int]]: ...


class LogDirsView(Protocol):
    """The part of `LogDirs` that clients reach."""

    @property
    def moves(self) -> Moves: ...

    @property
    def cordoned(self) -> Collection[str]: ...

    def logs(self) -> Sequence[Log]: ...

    def directory_of(self, tp: TopicPartition, /) -> str | None: ...

    def online_directories(self) -> Sequence[str]: ...

    def offline_directories(self) -> Sequence[str]: ...

    def space_of(self, path: str, /) -> DiskSpace | None: ...


class ProducerIds(Protocol):
    """The source of fresh producer ids."""

    async def next_id(self) -> int:
        """Raises ApiError(COORDINATOR_LOAD_IN_PROGRESS) while no block is at hand (CM-55)."""
        ...


class StaticConfig(Protocol):
    """The broker's configuration from file, environment and flags."""

    @property
    def values(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """The configured limits that client APIs obey."""

    auto_create_topics: bool
    num_partitions: int
    default_replication_factor: int
    fetch_max_bytes: int
    request_timeout_ms: int
    max_partitions_per_describe: int
    transaction_max_timeout_ms: int
    fetch_session_slots: int

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> ApiSettings:
        typed = partial(value_of, values)
        return cls(
            auto_create_topics=typed("auto.create.topics.enable"),
            num_partitions=typed("num.partitions"),
            default_replication_factor=typed("default.replication.factor"),
            fetch_max_bytes=typed("fetch.max.bytes"),
            request_timeout_ms=typed("request.timeout.ms"),
            max_partitions_per_describe=typed("max.request.partition.size.limit"),
            transaction_max_timeout_ms=typed("transaction.max.timeout.ms"),
            fetch_session_slots=typed("max.incremental.fetch.session.cache.slots"),
        )


MOST_WAITING_PARTITIONS: Final = 500_000


class LargeFetches:
    """Fetches of so many partitions that they are worked on in parts, two at a time. While they wait for data they keep what they
    ask for: for `MOST_WAITING_PARTITIONS` together; a fetch beyond that is answered at once."""

    def __init__(self) -> None:
        self.turn = asyncio.Semaphore(2)
        self.waiting_partitions = 0


@dataclass(slots=True, kw_only=True)
class NodeContext:
    """Everything that a handler of any node may use. One per node, shared by its listeners.

    `config.values`: static values by key. `config_sources`: per key where it came from ("default" for built-in); a key that is
    not in it counts as static when its value is not the default.
    """

    node_id: NodeId
    cluster_id: str
    config: StaticConfig
    metadata: MetadataCache
    controller: ControllerChannel
    raft: RaftClient
    ports: Ports
    config_sources: Mapping[str, str] = field(default_factory=dict)
    log_dirs: LogDirsView | None = None
    """None: DescribeLogDirs is not offered."""
    groups: GroupCoordinator | None = None
    """None: the APIs of consumer groups are not offered."""
    transactions: Transactions | None = None
    """None: the APIs of transactions are not offered."""
    markers: WritesMarkers | None = None
    """None: administrators cannot write markers."""
    gate: Gate | None = None
    """Decides what clients may do; None: everything."""
    client_quotas: ClientQuotas | None = None
    """None: no quota of clients is set, or nobody counts here."""
    settings: ApiSettings = field(init=False)
    turns: Turns = field(init=False)
    """Taken by whatever walks over something whose size a client chose."""
    off_loop: OffLoop = field(init=False)
    large_requests: Admission = field(init=False)
    """Bytes of the large requests that are decoded or worked on."""

    def __post_init__(self) -> None:
        self.turns = Turns(self.ports.clock)
        self.off_loop = OffLoop(self.ports.tasks)
        self.large_requests = Admission(MAX_LARGE_REQUESTS_BYTES)
        self.settings = ApiSettings.from_values(self.config.values)

    @property
    def clock(self) -> Clock:
        return self.ports.clock


@dataclass(slots=True, kw_only=True)
class BrokerContext(NodeContext):
    """Everything that a handler of a broker may use; fetch sessions are shared by its listeners."""

    replicas: Replicas
    producer_ids: ProducerIds
    log_config_for: Callable[[str], LogConfig]
    tls_problems: Callable[[Mapping[str, str], frozenset[str]], list[str]] | None = None
    """Say why the certificates of this broker's listeners cannot be those of these values, of which some keys are new. None:
    nothing speaks TLS."""
    listener_problems: Callable[[Mapping[str, str], frozenset[str]], Awaitable[list[str]]] | None = None
    """The same for its listeners themselves (CB-06). None: it has none that can change."""
    telemetry: ClientTelemetry | None = None
    """None: nothing receives clients' metrics, and the APIs of telemetry are not offered."""
    fetch_sessions: FetchSessionCache = field(init=False)
    large_fetches: LargeFetches = field(init=False)
    topics_being_created: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        NodeContext.__post_init__(self)
        self.fetch_sessions = FetchSessionCache(self.settings.fetch_session_slots, self.ports.entropy)
        self.large_fetches = LargeFetches()
