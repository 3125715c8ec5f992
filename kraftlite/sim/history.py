"""The acts and sights of clients, in virtual microseconds: the input of the history checks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.workloads.logs_history import LogsHistory
from kraftlite.sim.workloads.transactions_history import TransactionsHistory


class Verdict(Enum):
    OPEN = "open"
    """Never returned: the run ended first, or the client died."""
    OK = "ok"
    FAILED = "failed"
    """Certainly without effect."""
    UNKNOWN = "unknown"
    """It may or may not have happened: a timeout, a lost answer."""


@dataclass(eq=False, slots=True, kw_only=True)
class Produce:
    """One record of one producer. `number` counts the producer's records of the partition from 0 and is in the value
    (`<client>/<number>`). An idempotent producer keeps `producer_id` over retries, a plain one has -1. `offset` -1: not told."""

    client: str
    tp: TopicPartition
    topic_id: str | None
    number: int
    acks: int
    idempotent: bool
    producer_id: int
    producer_epoch: int
    sequence: int
    invoked_us: int
    returned_us: int | None = None
    verdict: Verdict = Verdict.OPEN
    offset: int = -1
    attempts: int = 0
    error: str | None = None
    """The last error seen."""

    @property
    def value(self) -> str:
        return f"{self.client}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Records of one fetch below the HW: (offset, value) in order, as `broker` answered it."""

    client: str
    tp: TopicPartition
    topic_id: str | None
    broker: NodeId
    at_us: int
    hw: int
    records: tuple[tuple[int, str], ...]


@dataclass(eq=False, slots=True, kw_only=True)
class Admin:
    """`facts` say what was asked, e.g. {"topic": "t9", "partitions": 2}; `error` is an error code's name when refused."""

    client: str
    kind: str
    facts: Mapping[str, Any]
    invoked_us: int
    returned_us: int | None = None
    verdict: Verdict = Verdict.OPEN
    error: str | None = None
    response: Any = None


@dataclass(eq=False, slots=True, kw_only=True)
class Strange:
    """Something that no proper client does, and the name of the error that it got (NONE: it succeeded). `offset`: what a produce
    was told, -1 if nothing."""

    client: str
    kind: str
    tp: TopicPartition
    topic_id: str | None
    broker: NodeId
    invoked_us: int
    returned_us: int | None = None
    error: str | None = None
    offset: int = -1


@dataclass(eq=False, slots=True, kw_only=True)
class Operation:
    """One call of the administrator that `workloads/admin` draws: a change, or a question to the active controller. `error`: the
    name of the error with which the whole call was refused; UNANSWERED when nobody knows what came of it."""

    kind: str
    request: Any
    broker: NodeId
    invoked_us: int
    returned_us: int | None = None
    error: str | None = None
    response: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A broker's answer to a question about its metadata, from the image at `offset`."""

    kind: str
    request: Any
    broker: NodeId
    invoked_us: int
    returned_us: int
    offset: int
    found: Any


@dataclass(eq=False, slots=True, kw_only=True)
class TenantWrite:
    """One record of a tenant of topics that come and go. `topic_id` None: it was sent to the topic's name. `error` None: it is at
    `offset`; UNANSWERED when nobody knows. `keyed`: it has a key, without which a compacted topic takes none."""

    tp: TopicPartition
    topic_id: UUID | None
    value: str
    invoked_us: int
    returned_us: int | None = None
    error: str | None = None
    offset: int = -1
    keyed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRead:
    """The records that a tenant was given, by the topic's name or, if it has one, by `topic_id`."""

    tp: TopicPartition
    topic_id: UUID | None
    broker: NodeId
    invoked_us: int
    returned_us: int
    records: tuple[tuple[int, str], ...]


UNANSWERED = "UNANSWERED"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRead:
    """The metadata that one broker told, as of `metadata_offset`."""

    client: str
    broker: NodeId
    invoked_us: int
    returned_us: int
    metadata_offset: int
    leaders: Mapping[TopicPartition, tuple[NodeId | None, int]]
    topic_ids: Mapping[str, str]
    configs: Mapping[str, Mapping[str, str]]


@dataclass(eq=False, slots=True)
class History:
    """The operations in order of invocation; a `Produce` and an `Admin` are completed in place."""

    produces: list[Produce] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)
    admins: list[Admin] = field(default_factory=list)
    metadata: list[MetadataRead] = field(default_factory=list)
    strange: list[Strange] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    descriptions: list[Description] = field(default_factory=list)
    tenant_writes: list[TenantWrite] = field(default_factory=list)
    tenant_reads: list[TenantRead] = field(default_factory=list)
    acknowledged: deque[tuple[TopicPartition, bytes, int]] = field(default_factory=lambda: deque(maxlen=64))
    """The last batches of idempotent producers that were acknowledged: partition, bytes, base offset."""
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(API, error code) of every answer to a client: see `sim.answers`."""
    logs: LogsHistory = field(default_factory=LogsHistory)
    transactions: TransactionsHistory = field(default_factory=TransactionsHistory)
    final_logs: dict[TopicPartition, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """All (offset, value) of every partition, read from its leader after everything had healed."""
    _told_ids: dict[str, set[str]] = field(default_factory=dict)
    _told_reads: int = 0

    def ids_told_of(self, topic: str) -> set[str]:
        """Return the ids that clients were told for a topic's name. What was read once is not read again: checks ask for each
        record."""
        for read in islice(self.metadata, self._told_reads, None):
            for name, topic_id in read.topic_ids.items():
                self._told_ids.setdefault(name, set()).add(topic_id)
        self._told_reads = len(self.metadata)
        return self._told_ids.get(topic, set())
