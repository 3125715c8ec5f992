"""Simulated administrators who move replicas between the log directories of their brokers.

One takes some of it back. Another one, in a third of the seeds, deletes a topic while its replicas are moved, and creates it
again; its tenant writes to it and reads. In a third, somebody has records deleted of partitions whose replicas are moved.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import DeleteTopicsRequest, TopicSelector
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimAdmin, SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.directories import ALTER_DIR, AlterDirAsk
from kraftlite.sim.services.logs import DELETE_RECORDS, DeleteAsk
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads.admin import SimTenant
from kraftlite.sim.workloads.admin_topics import NAMES
from kraftlite.sim.workloads.creation import TIMEOUT_MS, create
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 230
TENANT_GAP_US: Final = 20_000
GAPS_US: Final = (100_000, 400_000, 1_500_000)
"""The mean times between two wishes, one of which a seed takes."""
DELETIONS_US: Final = (50_000, 200_000)
"""The same between two looks of who deletes."""


def reborn_comes_with(seed: int) -> bool:
    return random.Random(f"directories/reborn/{seed}").randrange(3) == 0


def comes_to_deposed_leaders(seed: int) -> bool:
    return random.Random(f"directories/deposed/{seed}").randrange(3) == 0


def deletes_amid_moves(seed: int) -> bool:
    return random.Random(f"directories/deletions/{seed}").randrange(3) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    it = DirectoryAdmin(cluster, NUMBER, "directories", history)
    yield it, it.run(sorted(partitions), it.rng.choice(GAPS_US))
    if comes_to_deposed_leaders(cluster.seed):
        late = LateAdmin(cluster, NUMBER + 3, "moves-the-deposed", history)
        yield late, late.run()
    if deletes_amid_moves(cluster.seed):
        deleter = MovingDeleter(cluster, NUMBER + 4, "deletes-amid-moves", history)
        yield deleter, deleter.run(deleter.rng.choice(DELETIONS_US))
    if reborn_comes_with(cluster.seed):
        other = RebornAdmin(cluster, NUMBER + 1, "reborn", history)
        yield other, other.run()
        tenant = SimTenant(cluster, history)
        yield tenant, tenant.run(TENANT_GAP_US)


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


class LateAdmin(SimClient):
    """Moves a replica that still leads by what its broker knows, and has been replaced: the copy gets what the replica has to
    give up when it hears of its successor (JB-10, KAFKA-16297)."""

    async def run(self) -> None:
        asked: dict[tuple[NodeId, TopicPartition, int], None] = {}
        while not self.stopping:
            await self.pause(self.rng.randint(1, 100_000))
            for broker, tp, epoch in self._deposed():
                if (broker.node_id, tp, epoch) not in asked:
                    asked[broker.node_id, tp, epoch] = None
                    for path in broker.config.log_dirs:  # it is in one of them; the last wish counts
                        with contextlib.suppress(TransportError, ApiError):
                            await self.call(broker.node_id, ALTER_DIR, AlterDirAsk(tp, path))

    def _deposed(self) -> list[tuple[SimHost, TopicPartition, int]]:
        """Brokers that lead a partition in an epoch which is over, by the newest metadata of any broker; and that epoch."""
        running = [(it, it.node.broker) for it in self.cluster.brokers if it.started and it.node and it.node.broker]
        newest = max((broker.cache.image for _, broker in running), key=lambda it: it.offset, default=None)
        found: list[tuple[SimHost, TopicPartition, int]] = []
        if newest is None:
            return found
        for node, broker in running:
            for partition in broker.replicas.partitions():
                known = newest.topics.registration(partition.tp)
                if partition.is_leader and known is not None and known.leader_epoch > partition.leader_epoch:
                    found.append((node, partition.tp, partition.leader_epoch))
        return found


class MovingDeleter(SimClient):
    """Has records deleted while a copy follows its replica, which has to take over the log start, too (JB-11, KIP-107). Never all
    that there are: what the log ends with says that nothing behind it is lost."""

    async def run(self, mean_gap_us: int) -> None:
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            found = self._moving()
            if not found:
                continue
            tp, hw = found[self.rng.randrange(len(found))]
            await self.refresh()
            leader = await self.leader(tp)
            if leader is None:
                continue
            timeout_ms = self.rng.choice((600, 2_000))
            ask = DeleteAsk(tp, self.rng.choice((hw - 1, self.rng.randint(1, hw - 1))), timeout_ms)
            with contextlib.suppress(TransportError, ApiError):
                await self.call(leader, DELETE_RECORDS, ask, timeout_ms + 1_000)

    def _moving(self) -> list[tuple[TopicPartition, int]]:
        """Partitions of which a replica has a copy just now, and the HWs of those, at least 2."""
        brokers = [it.node.broker for it in self.cluster.brokers if it.started and it.node and it.node.broker]
        logs = [broker.log_dirs.get(copy.tp) for broker in brokers for _, copy, _ in broker.log_dirs.moves.copies()]
        return [(log.tp, log.hw) for log in logs if log is not None and log.hw > 1]


class RebornAdmin(SimAdmin):
    """Deletes a topic before, while and after the copies of its replicas take their places, and creates it again under its name
    (JB-11): nothing of the former one may be in the directories of the new one, or in its logs. In half of its seeds it also says
    where replicas are to be before there are any (KIP-113)."""

    async def run(self) -> None:
        rng, brokers = self.rng, self.cluster.brokers
        plan = TopicPlan(name=NAMES[0], partitions=2, replication=min(3, len(brokers)), config={})
        foresees = random.Random(f"directories/pins/{self.cluster.seed}").randrange(2) == 0
        while not self.stopping:
            await self.pause(rng.choice((1, 50_000, 400_000)))
            if foresees:
                await self._place(plan)
            await self.do("create_topics", create(plan), {"topic": plan.name, "partitions": plan.partitions})
            await self.pause(rng.choice((50_000, 400_000, 1_500_000)))
            await self._place(plan)
            await self.pause(rng.choice((1, 5_000, 50_000, 500_000)))
            gone = DeleteTopicsRequest(topics=(TopicSelector(name=plan.name, topic_id=None),), timeout_ms=TIMEOUT_MS)
            await self.do("delete_topics", gone, {"topic": plan.name})

    async def _place(self, plan: TopicPlan) -> None:
        for broker in self.cluster.brokers:
            for index in range(plan.partitions):
                ask = AlterDirAsk(TopicPartition(plan.name, index), self.rng.choice(broker.config.log_dirs))
                with contextlib.suppress(TransportError, ApiError):
                    await self.call(broker.node_id, ALTER_DIR, ask)
