"""A consumer that names its rack, and reads from the follower to which its leader sends it (KIP-392), as the Java client does.

It goes back to the leader when the follower refuses it, does not answer, or some seconds are over. When the faults are over it
must come to the end of every partition, wherever it reads.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.sim.workloads.rack_settings import RACKS, has_racks
from kraftlite.sim.workloads.reading import EndReader

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 225
FORGETS_US: Final = 4_000_000
"""A preferred replica is forgotten after that long, as by `metadata.max.age.ms`."""


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if has_racks(cluster.theme, cluster.seed):
        rng = random.Random(f"racks/visit/{cluster.seed}")
        it = RackConsumer(cluster, NUMBER, "racks", history)
        it.rack = rng.choice(RACKS)
        yield it, it.run(partitions, rng.choice((40_000, 150_000)))


class RackConsumer(EndReader):
    """Reads at the leader, or where it sends whoever is in `rack`. After an error it asks the leader again."""

    kind: ClassVar[str] = "racks"
    rack: str

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self._preferred: dict[TopicPartition, tuple[NodeId, int]] = {}
        """The replica to read from, and the time until which it is preferred."""

    async def poll(self, tp: TopicPartition, leader: NodeId) -> None:
        preferred, until_us = self._preferred.get(tp, (leader, 0))
        broker = preferred if self.now_us() < until_us else leader
        ask = FetchAsk(
            tp,
            self.positions[tp],
            self.leader_epoch(tp),
            self.rng.choice((0, 100, 500)),
            self.rng.choice((300, 1 << 20)),
            rack=self.rack,
        )
        try:
            told = await self.call(broker, FETCH, ask)
        except (TransportError, ApiError):
            self._preferred.pop(tp, None)
            await self.refresh()
            return
        code = ErrorCode(told.error)
        if code is ErrorCode.NONE and told.preferred_read_replica is not None:
            self._preferred[tp] = (told.preferred_read_replica, self.now_us() + FORGETS_US)
        elif code is ErrorCode.NONE:
            self.take(broker, told)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and broker == leader:
            self.positions[tp] = await self.earliest(broker, tp)
        else:  # of a follower: it may be behind, or have forgotten what the leader has
            self._preferred.pop(tp, None)
            await self.backoff()
            await self.refresh()
