"""A simulated administrator who moves replicas between the log directories of their brokers, and takes some of it back."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.directories import ALTER_DIR, AlterDirAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 230
GAPS_US: Final = (100_000, 400_000, 1_500_000)
"""The mean times between two wishes, one of which a seed takes."""


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    it = DirectoryAdmin(cluster, NUMBER, "directories", history)
    yield it, it.run(sorted(partitions), it.rng.choice(GAPS_US))


class DirectoryAdmin(SimClient):
    """Asks once, whatever comes of it: the checkers look at the directories."""

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        rng, brokers = self.rng, self.cluster.brokers
        while not self.stopping:
            await self.pause(rng.randint(1, 2 * mean_gap_us))
            tp, broker = partitions[rng.randrange(len(partitions))], brokers[rng.randrange(len(brokers))]
            paths = broker.config.log_dirs
            for path in rng.sample(paths, rng.choice((1, 1, 1, 2))):  # at times another one at once
                with contextlib.suppress(TransportError, ApiError):
                    await self.call(broker.node_id, ALTER_DIR, AlterDirAsk(tp, path))
