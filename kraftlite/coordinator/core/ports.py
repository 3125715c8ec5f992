"""The parts of the broker that a coordinator needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from kraftlite.log.log import AppendOrigin
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


class Led(Protocol):
    """A local replica, as far as leadership goes."""

    @property
    def leader_epoch(self) -> int: ...


class Waiting(Protocol):
    """A read that waits for records, or for its time to be over."""

    def watch(self, entries: Iterable[FetchEntry], /) -> None: ...

    def cancel(self) -> None: ...


class CoordinatorLog(Protocol):
    """The part of `ReplicaManager` through which coordinators write and read their topics."""

    def append(
        self,
        entries: Sequence[ProduceEntry],
        /,
        *,
        acks: int,
        timeout_ms: int,
        on_done: Callable[[list[ProduceResult]], None],
        origin: AppendOrigin,
        on_late: Callable[[ErrorCode], None],
    ) -> None:
        """`on_done` once, when the fate of the records is known: they are below the high watermark, or this broker leads no more.
        `on_late` before that, at most once: when `timeout_ms` are over, or too few replicas are in sync."""
        ...

    def write_markers(
        self,
        markers: Sequence[MarkerEntry],
        /,
        *,
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
        on_late: Callable[[ErrorCode], None],
    ) -> None:
        """Append the markers before returning; `on_done` once, with an error per marker, and `on_late`, as `append` has them."""
        ...

    def fetch_now(self, params: FetchParams, partitions: Sequence[FetchEntry], /) -> list[FetchResult]: ...

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
    ) -> OffsetResult: ...

    def partition(self, tp: TopicPartition, /) -> Led | None: ...
