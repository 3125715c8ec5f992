"""The replica service: what followers call. Waits for data on behalf of their fetches.

Source: RP-15, RP-35, RP-39; docs/PERFORMANCE.md, "Between nodes".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.methods import REPLICA_FETCH, REPLICA_OFFSETS
from kraftlite.model.messages.replica import (
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
    ReplicaOffsets,
    ReplicaOffsetsPartition,
    ReplicaOffsetsRequest,
    ReplicaOffsetsResponse,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.sessions import FetchServer, FollowerSession, Key, SessionTable
from kraftlite.replication.table import PartitionTable
from kraftlite.replication.throttle import ReplicationThrottle
from kraftlite.runtime.durations import DurationSummary
from kraftlite.runtime.ports import Handlers, Ports, route


@dataclass(slots=True)
class FetchTimes:
    """The times of followers' fetches: the loop's work, the wait for data, and both."""

    local: DurationSummary = field(default_factory=DurationSummary)
    remote: DurationSummary = field(default_factory=DurationSummary)
    total: DurationSummary = field(default_factory=DurationSummary)

    def note(self, total_us: int, waited_us: int) -> None:
        self.local.note(total_us - waited_us)
        self.remote.note(waited_us)
        self.total.note(total_us)


class ReplicaService:
    """Serves REPLICA_FETCH and REPLICA_OFFSETS. Refuses another cluster's followers with INCONSISTENT_CLUSTER_ID.

    A moved HW alone does not end a wait: it travels with the next data, or when the wait is over (RP-15, RP-18).
    """

    def __init__(
        self,
        ports: Ports,
        cluster_id: str,
        table: PartitionTable,
        on_io_error: Callable[[OSError, TopicPartition], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._clock = ports.clock
        self._cluster_id = cluster_id
        self._table = table
        self.sessions = SessionTable(ports.entropy, ports.tracer, ports.tuning)
        self._server = FetchServer(table, on_io_error, throttle)
        table.on_added = self.sessions.partition_added
        self.times = FetchTimes()

    def handlers(self) -> Handlers:
        return dict((route(REPLICA_FETCH, self.fetch), route(REPLICA_OFFSETS, self.offsets)))

    async def fetch(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        if request.cluster_id != self._cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {self._cluster_id}, not {request.cluster_id}")
        now_ms, began_us = self._clock.now_ms(), self._clock.now_us()
        waited_us = 0
        try:
            session = self.sessions.resume(request, now_ms)
        except ApiError as error:
            return ReplicaFetchResponse(error=error.code, session_id=0, partitions=(), payload=b"")
        self._server.take(session, request, now_ms)
        # The answer to the first request of a session says its id, which the follower needs for the next one.
        waits = request.max_wait_ms > 0 and request.session_epoch != 0
        results, records, urgent = self._server.collect(session, request, now_ms, final=request.max_wait_ms <= 0)
        if waits and not urgent and _size(records) < request.min_bytes:
            held = {(it.topic_id, it.partition): it for it in results if not it.records_length}
            parked_us = self._clock.now_us()
            results, records = await self._wait(session, request, held, now_ms + request.max_wait_ms)
            waited_us = self._clock.now_us() - parked_us
        self._server.sent(session, results)
        self.times.note(self._clock.now_us() - began_us, waited_us)
        return ReplicaFetchResponse(
            error=ErrorCode.NONE, session_id=session.session_id, partitions=tuple(results), payload=b"".join(records)
        )

    async def _wait(
        self, session: FollowerSession, request: ReplicaFetchRequest, held: dict[Key, ReplicaFetchResult], deadline_ms: int
    ) -> tuple[list[ReplicaFetchResult], list[bytes]]:
        """Until there are `min_bytes` or something urgent, the time is up, or the follower sends its next request.

        `held`: what is known already and does not justify an answer; of each partition the newest that was learned. Results with
        records are not in it: they are read again, their partitions are still dirty.
        """
        epoch = session.next_epoch
        while True:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            session.waiter = waiter
            timer = self._clock.call_later(deadline_ms - self._clock.now_ms(), lambda w=waiter: _expire(w))  # type: ignore[misc]
            try:
                await waiter
            finally:
                timer.cancel()
                if session.waiter is waiter:
                    session.waiter = None
            if session.next_epoch != epoch:
                return list(held.values()), []  # superseded: what there is goes into the answer to the next request
            now_ms = self._clock.now_ms()
            final = now_ms >= deadline_ms
            results, records, urgent = self._server.collect(session, request, now_ms, final=final)
            if final or urgent or _size(records) >= request.min_bytes:
                for result in results:
                    held.pop((result.topic_id, result.partition), None)
                return [*held.values(), *results], records
            for result in results:
                if not result.records_length:
                    held[result.topic_id, result.partition] = result

    async def offsets(self, request: ReplicaOffsetsRequest) -> ReplicaOffsetsResponse:
        return ReplicaOffsetsResponse(partitions=tuple(self._offsets(asked) for asked in request.partitions))

    def _offsets(self, asked: ReplicaOffsetsPartition) -> ReplicaOffsets:
        error, log_start, leo = ErrorCode.NONE, -1, -1
        try:
            _, log = self._table.find_by_id(asked.topic_id, asked.partition).leading(asked.current_leader_epoch)
            log_start, leo = log.log_start_offset, log.leo
        except ApiError as refusal:
            error = refusal.code
        return ReplicaOffsets(
            topic_id=asked.topic_id, partition=asked.partition, error=error, log_start_offset=log_start, leo=leo
        )

    def close(self) -> None:
        self.sessions.close()


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _size(records: list[bytes]) -> int:
    return sum(map(len, records))
