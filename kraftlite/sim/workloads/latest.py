"""A client that asks where the committed transactions end (theme `transactions`).

It comes with a quarter of the seeds, and has a random stream of its own. Invariant 48 compares the answers with the logs.
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
from kraftlite.sim.services.logs import LIST, ListAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 370
ONE_SEED_IN: Final = 4
LATEST: Final = -1
MEAN_GAP_US: Final = 100_000


def comes_with(seed: int) -> bool:
    return random.Random(f"latest/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = LatestAsker(cluster, NUMBER, "latest", history)
        yield it, it.run()


class LatestAsker(SimClient):
    """Asks for the latest offset with isolation read_committed, of the partitions that transactions have written to."""

    async def run(self) -> None:
        rng = self.rng
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * MEAN_GAP_US))
            known = sorted({it.tp for it in self.history.transactions.readings})
            if not known:
                continue
            tp = known[rng.randrange(len(known))]
            leader = await self.leader(tp)
            if leader is None:
                await self.refresh()
                continue
            try:
                answer = await self.call(leader, LIST, ListAsk(tp, LATEST, None, read_committed=True), 3_000)
            except (TransportError, ApiError):
                await self.refresh()
                continue
            if ErrorCode(answer.error) is not ErrorCode.NONE:
                await self.refresh()
