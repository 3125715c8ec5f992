"""A consumer that waits at the end of partitions for more bytes than one record has (`fetch.min.bytes`), and for seconds.

A third of the seeds of its theme have it. Others wait for half a second at most, and a fetch that sleeps through the records
that it waits for is answered then as if nothing had been wrong.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import FETCH, OFFSETS, FetchAsk, OffsetAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 222
LATEST: Final = -1
MIN_BYTES: Final = (1, 1, 200, 600, 5_000)
WAITS_MS: Final = (1_500, 4_000)
SPARE_MS: Final = 2_000


def comes_with(seed: int) -> bool:
    return random.Random(f"waiting/{seed}").randrange(3) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    for number in range(2 if comes_with(cluster.seed) else 0):
        it = WaitingConsumer(cluster, NUMBER + number, f"waits-{number}", history)
        yield it, it.run(sorted(partitions))


class WaitingConsumer(SimClient):
    """Stays with one partition for a few fetches. The checkers see what it is answered, and when."""

    async def run(self, partitions: Sequence[TopicPartition]) -> None:
        while not self.stopping:
            tp = partitions[self.rng.randrange(len(partitions))]
            leader = await self.leader(tp)
            if leader is None:
                await self.backoff()
                await self.refresh()
                continue
            try:
                end = await self.call(leader, OFFSETS, OffsetAsk(tp, LATEST))
                for number in range(3 if ErrorCode(end.error) is ErrorCode.NONE else 0):
                    if self.stopping:
                        return
                    max_wait_ms = self.rng.choice(WAITS_MS)
                    ask = FetchAsk(
                        tp,
                        end.offset + number,
                        self.leader_epoch(tp),
                        max_wait_ms,
                        self.rng.choice((300, 1 << 20)),
                        min_bytes=self.rng.choice(MIN_BYTES),
                    )
                    told = await self.call(leader, FETCH, ask, max_wait_ms + SPARE_MS)
                    if ErrorCode(told.error) is not ErrorCode.NONE:
                        break
            except (TransportError, ApiError):
                pass
            await self.backoff()
            await self.refresh()
