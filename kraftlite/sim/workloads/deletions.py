"""A simulated client that deletes records of partitions of which a replica is dead, dies while it waits, or comes back (RP-17).

It comes with a third of the seeds of its theme, and asks for the topics of the other users there, who bear with it.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.delete_records import UP_TO_HW
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.logs import DELETE_RECORDS, DeleteAsk
from kraftlite.sim.workloads.logs import LogsAsker

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 215
TIMEOUTS_MS: Final = (600, 2_000, 10_000)


def comes_with(seed: int) -> bool:
    return random.Random(f"logs/deletions/{seed}").randrange(3) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = Deleter(cluster, NUMBER, "deleter", history)
        yield it, it.delete(it.rng.choice((100_000, 300_000)))


class Deleter(LogsAsker):
    """Prefers partitions that have a replica whose broker does not run. One that may not be deleted from is asked once."""

    async def delete(self, mean_gap_us: int) -> None:
        refused: dict[TopicPartition, None] = {}
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            tp = self._partition(refused)
            leader = None if tp is None else await self.leader(tp)
            if tp is None or leader is None:
                await self.refresh()
                continue
            timeout_ms = self.rng.choice(TIMEOUTS_MS)
            answer = await self._ask(leader, DELETE_RECORDS, DeleteAsk(tp, UP_TO_HW, timeout_ms), timeout_ms + 1_000)
            if answer is not None and answer.error is ErrorCode.POLICY_VIOLATION:
                refused[tp] = None

    def _partition(self, refused: dict[TopicPartition, None]) -> TopicPartition | None:
        newest = self.cluster.newest_image()
        if newest is None:
            return None
        mine, short = [], []
        for name in self.history.logs.topics:
            topic = newest.topics.topic(name)
            for index, it in sorted(topic.partitions.items()) if topic is not None else ():
                tp = TopicPartition(name, index)
                if tp not in refused:
                    mine.append(tp)
                    if any(not self.cluster.nodes[replica].running for replica in it.replicas):
                        short.append(tp)
        found = short if short and self.rng.randrange(4) else mine
        return found[self.rng.randrange(len(found))] if found else None
