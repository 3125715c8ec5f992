"""The face of a shard to the driver that loads and steps it, and the events that every shard has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from kraftlite.coordinator.core.effects import Output
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[R]):
    """A client asks; the answer carries the same id. `request` is one of those that the shard knows."""

    request_id: int
    request: R


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The fate of an append: NONE when it is committed, that is below the high watermark."""

    token: int
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """An append is not committed in the time that its clients wait, or not replicated enough: `Written` follows all the same."""

    token: int
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; every step looks at the deadlines, unless it is the turn of `GoOn`, and this one at nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """It is the shard's turn to go on with what its last step has left (`Output.more`)."""


class Shard(Protocol):
    """A deterministic state machine over one partition. Filled by `replay` in log order, then `settle` and `loaded`, then
    stepped at `next_deadline_ms` at the latest, until `resign`."""

    def replay(self, key: bytes | None, value: bytes | None, *, producer_id: int | None, wall_ms: int) -> None:
        """Take one record of the log. `producer_id`: of the transaction it is in. ApiError(CORRUPT_MESSAGE): it cannot be
        read."""
        ...

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """Take the marker that ends a transaction."""
        ...

    def settle(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """Do what every key needs once the log is read and before anybody asks, in pieces: a yield between two of them."""
        ...

    def loaded(self, now_ms: int, wall_ms: int) -> Output: ...

    def step(self, event: Any, now_ms: int, wall_ms: int) -> Output: ...

    def resign(self) -> Output:
        """Tell everybody who waits that the coordinator is elsewhere."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when to step at the latest (monotonic), maybe earlier than anything is really due."""
        ...


class ShardTrace(Protocol):
    """Tells what becomes of a shard, in events of the coordinator's own."""

    def loading(self, tp: TopicPartition, leader_epoch: int) -> None: ...

    def loaded(self, tp: TopicPartition, leader_epoch: int, shard: Any, *, end_offset: int, elapsed_ms: int) -> None: ...

    def failed(self, tp: TopicPartition, leader_epoch: int, reason: str) -> None: ...

    def unloaded(self, tp: TopicPartition, leader_epoch: int, shard: Any) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """The size of a driver's reads in bytes, the number of the codec of its batches, and the time for which an append waits for
    the high watermark."""

    load_buffer_bytes: int
    compression_codec: int
    append_timeout_ms: int
