"""The transactions that simulated clients tried, and what the readers of committed records saw: the input of the checks of
atomicity and isolation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition

HANGING: Final = "tx-hanging"
"""The topic in which transactions hang behind a broker's mistake (R23). No coordinator has to know what is open there."""
COMPACTED: Final = "tx-compacted"
"""The topic that is compacted while transactions are open in it. Readers miss what was superseded, so nobody is told what they
should get: the checker of compaction compares the logs with what was sent."""


class Outcome(Enum):
    """The outcome of a transaction as its client knows it."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    """An abort was asked for, or nothing at all, or every request to commit was refused without effect."""
    UNKNOWN = "unknown"


def copy_of(copier: str, tp: TopicPartition, offset: int) -> str:
    """The value of a copied record, up to what tells one attempt from the next (behind a #)."""
    return f"{copier}:{tp.topic}-{tp.partition}@{offset}"


@dataclass(eq=False, slots=True, kw_only=True)
class Sent:
    """One record. `offset` -1: it was not acknowledged."""

    tp: TopicPartition
    value: str
    offset: int = -1


@dataclass(eq=False, slots=True, kw_only=True)
class Tried:
    """One transaction of one instance of a transactional id, with the producer at its beginning. `commit` None: its end was never
    asked for. `moved`: what it commits of a group's offsets, by partition from and to; `copier`: the name in the copies of what
    lies between."""

    transactional_id: str
    instance: int
    producer: Producer
    version: int
    began_us: int
    copier: str | None = None
    ended_us: int | None = None
    sends: list[Sent] = field(default_factory=list)
    moved: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    commit: bool | None = None
    outcome: Outcome = Outcome.NOT_COMMITTED
    error: str | None = None

    @property
    def name(self) -> str:
        who = f"{self.transactional_id}, instance {self.instance}, producer {tuple(self.producer)}"
        return f"{who}, begun at {self.began_us // 1000} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A producer that a coordinator gave to one instance of a transactional id; `by`: the API."""

    transactional_id: str
    instance: int
    producer: Producer
    by: str
    at_us: int


@dataclass(eq=False, slots=True, kw_only=True)
class Reading:
    """All that one reader was given of a partition from its beginning up to `end`, with isolation read_committed."""

    client: str
    tp: TopicPartition
    end: int = 0
    records: list[tuple[int, str]] = field(default_factory=list)
    """(offset, value), in the order in which they came."""


@dataclass(eq=False, slots=True, kw_only=True)
class Sunk:
    """The output of a query that writes exactly once. `rows`: of each batch that has begun. `complete`: batches that a driver has
    committed, as far as it was told. `wrong`: what the protocol has said that must not happen. `refused`: runs whose options were
    not those with which their batch is written in part."""

    query: str
    topic: str
    rows: dict[int, list[str]] = field(default_factory=dict)
    complete: dict[int, None] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refused: int = 0


@dataclass(eq=False, slots=True)
class TransactionsHistory:
    """The memory of all clients of a run: what they tried in transactions, were given and read."""

    tried: list[Tried] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    outside: dict[str, None] = field(default_factory=dict)
    """The values of records that were sent, wrongly, outside of the open transaction of their producer."""
    last_words: dict[str, bool] = field(default_factory=dict)
    """Transactional id → whether a fresh producer of it could commit when all was well again."""
    passing: bool = False
    """A topic that comes and goes has been there."""
    compacted: list[TopicPartition] = field(default_factory=list)
    """The partitions of the compacted topic, since it is there."""
    sunk: list[Sunk] = field(default_factory=list)
    halts: Counter[str] = field(default_factory=Counter)
    """Call of a driver or a task of the sink → how often one died there, or stood still."""
    topics: list[str] = field(default_factory=list)
    """The topics of the workload that exist for certain."""
