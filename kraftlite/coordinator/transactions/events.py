"""The events of a shard of transactional ids: what it is asked, what it sends, and what it is told of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kraftlite.coordinator.core.shards import Asked, GoOn, Late, Tick, Written
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """InitProducerId. The answer is a `Producer`."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """AddPartitionsToTxn, AddOffsetsToTxn. The answer is a `Producer`. `wait_ms`: how long it waits for a step of the id that is
    under way, before it is refused as concurrent."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    version: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """EndTxn. The answer is the `Producer` to go on with."""

    transactional_id: str
    producer: Producer
    commit: bool
    version: int


Request = Init | Add | End


class Mark(NamedTuple):
    """Markers to write, one for each partition. `attempt` tells them from those of other transactions of the id (TX-55)."""

    transactional_id: str
    attempt: int
    producer: Producer
    commit: bool
    version: int
    partitions: tuple[TopicPartition, ...]


class MarkerOutbox(Protocol):
    """The way of one shard's markers to the leaders of the partitions."""

    def send(self, mark: Mark) -> None:
        """Send them until each is written or needs none. The shard is told by events, never before this returns."""
        ...

    def forget(self) -> None:
        """Send no more of those that were given. Those under way may still land (TX-61)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Partitions in which the marker is below the high watermark, or which do not exist any more, or need none."""

    transactional_id: str
    attempt: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A partition has refused the marker for good: a newer coordinator wrote there (TX-53). No more are sent for the
    transaction."""

    transactional_id: str
    attempt: int


Event = Asked[Request] | Written | Late | Marked | Fenced | GoOn | Tick
