"""Deleting the oldest records on request: the leader moves its log start, and waits until its live followers have, too.

Source: KIP-107; LG-40, RP-17.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError, ErrorCode, changing
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import DeleteRecordsResult
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.partition import Partition
from kraftlite.replication.ports import LogProvider
from kraftlite.replication.purgatory import Deadlines
from kraftlite.replication.table import PartitionTable
from kraftlite.replication.waiting import OneWake

UP_TO_HW: Final = -1
"""The offset of a request that means everything that consumers can read."""


class DeleteRecordsPath:
    """DeleteRecords as the leader of partitions. On the node's loop."""

    def __init__(
        self,
        table: PartitionTable,
        deadlines: Deadlines,
        logs: LogProvider,
        on_io_error: Callable[[OSError, TopicPartition], None],
    ) -> None:
        self._table = table
        self._deadlines = deadlines
        self._logs = logs
        self._on_io_error = on_io_error

    async def delete(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> list[DeleteRecordsResult]:
        """Delete the records below each offset; in the order of `offsets`. The leader's new log starts are durable on return.

        OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION for a topic whose records are not deleted by retention,
        NOT_LEADER_OR_FOLLOWER; REQUEST_TIMED_OUT when a live replica has not followed in time: the records are gone from the
        leader nevertheless.
        """
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: dict[TopicPartition, int] = {}
        for tp, offset in offsets.items():
            found = self._begin(tp, offset)
            if isinstance(found, int):
                pending[tp] = found
            else:
                results[tp] = found
        if pending:
            self._logs.write_log_starts()
            results.update(await self._followed(pending, timeout_ms))
        return [results[tp] for tp in offsets]

    def _begin(self, tp: TopicPartition, offset: int) -> int | DeleteRecordsResult:
        """Move the log start here; the offset that all replicas must reach, or the refusal."""
        try:
            partition = self._table.find(tp, None)
            _, log = partition.leading()
            if not log.config.deletes:
                policy = ",".join(log.config.cleanup_policy)
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"{tp.topic} has cleanup.policy={policy}, which does not delete")
            target = log.hw if offset == UP_TO_HW else offset
            if target < 0:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}: allowed are -1 and those up to the HW {log.hw}")
            with changing(f"new log start of {tp}"):
                if log.increment_log_start(target, "DeleteRecords"):
                    partition.log_start_changed(urgent=True)
        except ApiError as error:
            return DeleteRecordsResult(tp=tp, error=error.code, message=error.message)
        except OSError as error:
            self._on_io_error(error, tp)
            return DeleteRecordsResult(tp=tp, error=ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))
        return target

    async def _followed(self, pending: dict[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, DeleteRecordsResult]:
        """The verdicts, each as soon as it is known; what is not known after `timeout_ms` has timed out."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        expired = OneWake()
        due = self._deadlines.add(expired, timeout_ms)
        try:
            while True:
                for tp, required in list(pending.items()):
                    verdict = self._verdict(tp, required, expired=expired.future.done())
                    if verdict is not None:
                        results[tp] = verdict
                        del pending[tp]
                if not pending:
                    return results
                await self._wait(pending, expired)
        finally:
            self._deadlines.remove(expired, due)

    def _verdict(self, tp: TopicPartition, required: int, *, expired: bool) -> DeleteRecordsResult | None:
        try:
            partition = self._table.find(tp, None)
            leader, log = partition.leading()
        except ApiError as error:
            return DeleteRecordsResult(tp=tp, error=error.code, message=error.message)
        low = self._low_watermark(leader, log)
        if low >= required:
            return DeleteRecordsResult(tp=tp, error=ErrorCode.NONE, low_watermark=low)
        if expired:
            message = f"a replica of {tp} has not yet deleted what lies below {required}"
            return DeleteRecordsResult(tp=tp, error=ErrorCode.REQUEST_TIMED_OUT, low_watermark=low, message=message)
        return None

    def _low_watermark(self, leader: LeaderState, log: Log) -> int:
        """Return the low watermark; -1 while a live follower has not yet said where its log starts."""
        low = log.log_start_offset
        for broker_id, follower in leader.followers.items():
            if follower.log_start_offset < low and self._table.alive(broker_id):
                low = follower.log_start_offset
        return low

    async def _wait(self, pending: Mapping[TopicPartition, int], expired: OneWake) -> None:
        """Wait until one of these partitions may have a verdict, or the time is up."""
        wait = OneWake()
        expired.future.add_done_callback(lambda _: wait.wake())
        watched: list[Partition] = []
        for tp in pending:
            partition = self._table.by_tp[tp]
            partition.start_waiters[wait] = None
            watched.append(partition)
        try:
            await wait.future
        finally:
            for partition in watched:
                partition.start_waiters.pop(wait, None)
