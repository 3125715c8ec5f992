"""Reading a partition of a coordinator's topic into a shard, when this broker begins to lead it. Source: ML-22, CP-31, CP-37."""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

from kraftlite.coordinator.core.ports import CoordinatorLog
from kraftlite.coordinator.core.shards import Shard, ShardSettings
from kraftlite.log.batch import BatchHeader, iter_batches, iter_records
from kraftlite.log.control import EndTxnMarker
from kraftlite.log.validation import marker_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.replication.api import FetchEntry, FetchParams
from kraftlite.replication.consume import may_wait
from kraftlite.runtime.ports import Clock
from kraftlite.runtime.turns import Turns

LOAD_WAIT_MS: Final = 500
LOAD_CHUNK_BYTES: Final = Tuning().group_load_bytes
"""Read at a time, whatever the configured buffer size allows: the loop belongs to everybody."""

_LATEST: Final = -1
_EARLIEST: Final = -2


class PartitionLoader:
    """Reads what was in the log when this broker was elected, as a consumer: not before it is below the high watermark.

    So nothing is served that a further election could still take back; until then the partition is loading.
    Departs: Kafka serves what is in the leader's log at once, committed or not. Raises ApiError when this broker no longer
    leads in this epoch, or when a record cannot be read.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        turns: Turns,
        settings: ShardSettings,
        tp: TopicPartition,
        topic_id: UUID,
        leader_epoch: int,
        at_once_bytes: int = LOAD_CHUNK_BYTES,
    ) -> None:
        self._log = log
        self._clock = clock
        self._turns = turns
        self._tp = tp
        self._topic_id = topic_id
        self._leader_epoch = leader_epoch
        self._chunk = min(settings.load_buffer_bytes, at_once_bytes)

    async def load(self, shard: Shard) -> int:
        """Read the partition, and return where its log ended when the load began."""
        end = self._offset(_LATEST)
        position = self._offset(_EARLIEST)
        while position < end:
            records, hw = await self._read(position)
            if not records and hw >= end:
                break  # what was there is compacted away
            for header, batch in iter_batches(records):
                self._replay(shard, header, batch, max(position - header.base_offset, 0))
                position = header.next_offset
            await self._clock.sleep(0)
            await self._turns.next()  # of all partitions that are loaded now
        for _ in shard.settle(self._clock.now_ms(), self._clock.wall_ms()):
            await self._turns.next()
        return end

    def _offset(self, which: int) -> int:
        """The log's end, which is not visible to consumers yet, or its start."""
        found = self._log.list_offset(
            self._tp, self._topic_id, which, current_leader_epoch=self._leader_epoch, read_committed=False, debug=True
        )
        if found.error is not ErrorCode.NONE:
            raise ApiError(found.error, f"{self._tp}: its first and last offset cannot be read")
        return found.offset

    async def _read(self, position: int) -> tuple[bytes, int]:
        params = FetchParams(max_wait_ms=LOAD_WAIT_MS, min_bytes=1, max_bytes=self._chunk, leader_only=True)
        entry = FetchEntry(
            tp=self._tp,
            topic_id=self._topic_id,
            fetch_offset=position,
            current_leader_epoch=self._leader_epoch,
            last_fetched_epoch=None,
            max_bytes=self._chunk,
        )
        (result,) = self._log.fetch_now(params, [entry])
        if may_wait(params, [result]):
            woken = asyncio.Event()
            waiting = self._log.fetch_wait(params, woken.set)
            try:
                waiting.watch([entry])
                await woken.wait()
            finally:
                waiting.cancel()
            (result,) = self._log.fetch_now(params, [entry])
        if result.error is not ErrorCode.NONE:
            raise ApiError(result.error, f"{self._tp} cannot be read at offset {position}")
        return bytes(result.records), result.hw

    def _replay(self, shard: Shard, header: BatchHeader, batch: memoryview, skip: int) -> None:
        """`skip`: how many offsets of the batch lie before the log's start."""
        if header.is_control:
            marker = marker_of(batch)
            if isinstance(marker, EndTxnMarker):
                shard.replay_end(header.producer_id, committed=marker.commit)
            return
        wall_ms = self._clock.wall_ms()
        producer_id = header.producer_id if header.is_transactional else None
        for record in iter_records(batch):
            if record.offset_delta >= skip:
                shard.replay(record.key, record.value, producer_id=producer_id, wall_ms=wall_ms)
