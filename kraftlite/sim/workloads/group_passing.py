"""A group that is empty again and again, and is deleted, or taken over by a member of the other protocol (theme `groups`, CP-40).

It comes with a third of the seeds, and has a random stream of its own. Its members live one after another: of the consumer
protocol, of the classic one, or a classic one that joins and never asks for its assignment (CP-30). They leave, or go without a
word. The checkers of groups judge the records and the refusals, as of every group.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.coordinator.api import JoinResult
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.groups import DELETE, DeleteAsk
from kraftlite.sim.workloads.group_classic import ClassicMember
from kraftlite.sim.workloads.group_client import SimGroup, SimMember
from kraftlite.sim.workloads.group_consumer import LEAVE_EPOCH, ConsumerMember

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 115
ONE_SEED_IN: Final = 3
NAME: Final = "passing"
SESSION_MS: Final = 2_500
REBALANCE_MS: Final = 1_000
"""So much less that the coordinator misses a sync before a heartbeat."""
STAYS_US: Final = (400_000, 1_000_000, 2_500_000)
AWAY_US: Final = (1, 100_000, 1_500_000)


def comes_with(seed: int) -> bool:
    return random.Random(f"passing/{seed}").randrange(ONE_SEED_IN) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = Passing(cluster, NUMBER, "passing", history)
        yield it, it.run(sorted({tp.topic for tp in partitions}))


class SilentMember(ClassicMember):
    """Says nothing more once it is a member."""

    async def _sync(self, joined: JoinResult) -> bool:
        await self.rest(2 * REBALANCE_MS * 1_000)
        return False


class Passing(SimClient):
    """Lets the members come and go."""

    async def run(self, topics: Sequence[str]) -> None:
        rng = self.rng
        group = SimGroup(
            name=NAME, topics=(rng.choice(topics),), cooperative=False, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )
        kinds: tuple[type[SimMember], ...] = (ConsumerMember, ClassicMember, SilentMember)
        members = [kind(self.cluster, NUMBER + 1 + index, self.history, group, None) for index, kind in enumerate(kinds)]
        member = members[0]
        while not self.stopping:
            consumed = member is members[0]
            member = rng.choice((members[0], *members) if not consumed or rng.randrange(2) else members[1:])
            await self._live(member)
            if rng.randrange(3) == 0:
                await members[0].ask(DELETE, DeleteAsk(NAME), 1_000)
            await self.pause(rng.choice(AWAY_US))
        await asyncio.gather(*(late for member in members for late in member._extra))

    async def _live(self, member: SimMember) -> None:
        rng, group = self.rng, member.group
        group.released, member.alive = False, True
        life = asyncio.get_running_loop().create_task(member.live(), context=self.cluster.outside)
        await asyncio.wait([life], timeout=rng.choice(STAYS_US) / 1_000_000)
        if member.epoch >= 0 and rng.randrange(3) == 0:
            await member.commit(member.some_positions())
        group.released = True
        await life
        if member.epoch >= 0 and rng.randrange(4):
            if isinstance(member, ConsumerMember):
                await member._leave(LEAVE_EPOCH)
            elif isinstance(member, ClassicMember):
                await member._leave()
        member.alive = False
        member.lose()
