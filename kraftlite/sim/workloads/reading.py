"""Consumers that read every partition of the shape and must come to the end of each when the faults are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchResult
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.checkers.base import LivenessViolation
from kraftlite.sim.client import SimClient, records_of
from kraftlite.sim.history import Consumed
from kraftlite.sim.service import OFFSETS, OffsetAsk

END_LIMIT_US: Final = 30_000_000
LATEST: Final = -1
EARLIEST: Final = -2


class EndReader(SimClient):
    """`kind`: who is behind, in the words of a violation."""

    kind: ClassVar[str]

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        """LivenessViolation when it does not come to the end of every partition."""
        self.positions = dict.fromkeys(partitions, 0)
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            await self._look(partitions[self.rng.randrange(len(partitions))])
        end_us = self.now_us() + END_LIMIT_US
        while behind := await self._behind():
            if self.now_us() > end_us:
                raise LivenessViolation(self.kind, f"{self.name} is at {behind}: still so {END_LIMIT_US} us after all was well")
            await self.refresh()
            for tp in behind:
                await self._look(tp)
            await self.pause(100_000)

    async def poll(self, tp: TopicPartition, leader: NodeId) -> None:
        """Fetch from this partition, and perhaps from others."""
        raise NotImplementedError

    async def _look(self, tp: TopicPartition) -> None:
        leader = await self.leader(tp)
        if leader is not None:
            await self.poll(tp, leader)
        elif not self.stopping:
            await self.refresh()

    async def _behind(self) -> dict[TopicPartition, int]:
        """The partitions, with the position, whose end it has not reached or does not know."""
        found = {}
        for tp, position in self.positions.items():
            leader = await self.leader(tp)
            try:
                last = None if leader is None else await self.call(leader, OFFSETS, OffsetAsk(tp, LATEST))
            except (TransportError, ApiError):
                last = None
            if last is None or ErrorCode(last.error) is not ErrorCode.NONE or position < last.offset:
                found[tp] = position
        return found

    async def earliest(self, broker: NodeId, tp: TopicPartition) -> int:
        """The beginning of a partition; 0 when the broker does not say."""
        try:
            told = await self.call(broker, OFFSETS, OffsetAsk(tp, EARLIEST))
        except (TransportError, ApiError):
            return 0
        return told.offset if ErrorCode(told.error) is ErrorCode.NONE else 0

    def take(self, broker: NodeId, result: FetchResult) -> None:
        """Note what was read, and go on behind it."""
        tp = result.tp
        found = records_of(bytes(result.records), self.positions[tp])
        if not found:
            return
        self.positions[tp] = found[-1][0] + 1
        self.history.consumed.append(
            Consumed(
                client=self.name,
                tp=tp,
                topic_id=self.topic_id(tp),
                broker=broker,
                at_us=self.now_us(),
                hw=result.hw,
                records=found,
            )
        )
