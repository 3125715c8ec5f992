"""Offsets in transactions beside plain commits, and copiers that are members of a group which rebalances (KIP-98, KIP-447).

A mixer moves the offsets of a group in its transactions, while somebody else commits the same offsets plainly, deletes them, and
fetches them. A member copier is a member of a group of the classic or of the consumer protocol, and copies what it owns: each
record of the input is to be there once, whoever owned its partition when.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlite.broker.handlers.group_offsets import PartitionCommit, TopicRef
from kraftlite.coordinator.api import CommitRequest
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services import groups
from kraftlite.sim.services.groups import (
    OFFSET_DELETE,
    OFFSET_FETCH,
    CommitAsk,
    FindAsk,
    OffsetDeleteAsk,
    OffsetFetchAsk,
    Told,
)
from kraftlite.sim.workloads.group_classic import ClassicMember
from kraftlite.sim.workloads.group_client import SimGroup, SimMember
from kraftlite.sim.workloads.group_consumer import ConsumerMember
from kraftlite.sim.workloads.transaction_client import TransactionClient
from kraftlite.sim.workloads.transaction_copying import CopyingInstance
from kraftlite.sim.workloads.transaction_instance import Ended
from kraftlite.sim.workloads.transactions_history import Tried

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kraftlite.sim.cluster import SimCluster

FIRST_NUMBER: Final = 340
MIXED: Final = "mixed"
"""The group whose offsets are committed in both ways."""


def mixers(
    cluster: SimCluster, history: History, inputs: Sequence[TopicPartition], rng: random.Random
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    """Yield who commits plainly. The mixing instances are those of a transactional id like any other."""
    plain = PlainCommitter(cluster, FIRST_NUMBER, "plain", history)
    yield plain, plain.run(inputs, rng.choice((50_000, 200_000)))


def members(
    cluster: SimCluster,
    history: History,
    inputs: Sequence[TopicPartition],
    targets: Sequence[TopicPartition],
    rng: random.Random,
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    """The members of a group of copiers."""
    kinds: Sequence[type[MemberCopier]] = rng.choice(((ClassicCopier,), (ConsumerCopier,), (ClassicCopier, ConsumerCopier)))
    group = SimGroup(
        name="copiers",
        topics=(inputs[0].topic,),
        cooperative=rng.randrange(2) == 0,
        session_ms=rng.choice((1_000, 3_000)),
        rebalance_ms=rng.choice((1_000, 3_000)),
    )
    for index in range(rng.choice((2, 2, 3))):
        number = FIRST_NUMBER + 10 + index
        member = kinds[index % len(kinds)](cluster, number, history, group, rng.choice((None, None, f"i{index}")))
        member.prepare(inputs, targets, rng.choice((0, 2, 2)))
        group.members.append(member)
        yield member, member.run_lives(rng.choice((100_000, 300_000)))
    keeper = Keeper(cluster, FIRST_NUMBER + 9, "copiers-keeper", history)
    yield keeper, keeper.run(group)


class Keeper(SimClient):
    """Lets the members of a group go when the run ends."""

    async def run(self, group: SimGroup) -> None:
        while not self.stopping:
            await self.pause(200_000)
        group.released = True


class PlainCommitter(SimClient):
    """Commits the offsets of a group without a transaction, deletes them, and fetches them, stable or not."""

    async def run(self, partitions: Sequence[TopicPartition], gap_us: int) -> None:
        made = 0
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * gap_us))
            tp = partitions[self.rng.randrange(len(partitions))]
            at = self.rng.randrange(12)
            if at == 0:
                await self.ask(OFFSET_DELETE, OffsetDeleteAsk(MIXED, (tp,)))
            elif at < 6:
                stable = self.rng.randrange(3) > 0
                wanted = None if self.rng.randrange(3) == 0 else (tp,)
                await self.ask(OFFSET_FETCH, OffsetFetchAsk(group_id=MIXED, partitions=wanted, require_stable=stable))
            else:
                made += 1
                base = CommitRequest(group_id=MIXED, generation=-1, member_id="", instance_id=None, offsets=())
                commit = PartitionCommit(TopicRef(tp.topic, None), tp.partition, 2 * made, None, f"plain-{made}")
                await self.ask(groups.COMMIT, CommitAsk(base=base, commits=(commit,)))

    async def ask(self, method: Method[Any, Told], ask: Any) -> Told | None:
        brokers = [node.node_id for node in self.cluster.brokers]
        try:
            found = await self.call(brokers[self.rng.randrange(len(brokers))], groups.FIND, FindAsk(MIXED), 1_000)
            if found.error is not ErrorCode.NONE:
                return None
            return await self.call(found.result.broker_id, method, ask, 1_000)
        except (TransportError, ApiError):
            return None


class MixingInstance(CopyingInstance):
    """Moves the offsets of the common group in its transactions, with a record now and then. Right behind a commit it looks, with
    a stable fetch, at what is committed, as its successor would."""

    _moves = 0

    @property
    def group(self) -> str:
        return MIXED

    @property
    def copier(self) -> str | None:
        return None

    async def fill(self, tried: Tried) -> bool:
        self.begin(tried)
        if self.rng.randrange(2):
            target = self.targets[self.rng.randrange(len(self.targets))]
            await self.add((target,))
            await self.send(tried, target, [self._value()])
        for tp in self.rng.sample(list(self._inputs), self.rng.randint(1, len(self._inputs))):
            self._moves += 1
            await self.commit_offsets(tp, 2 * self._moves + 1)
        return True

    async def end(self, tried: Tried, commit: bool) -> None:
        await super().end(tried, commit)
        await self.look_at_once()


class MemberCopier(SimMember):
    """Copies what it owns, one transaction after another; it commits nothing otherwise."""

    def prepare(self, inputs: Sequence[TopicPartition], targets: Sequence[TopicPartition], version: int) -> None:
        self._inputs = inputs
        self._targets = targets
        self._version = version
        self._number = 0
        self._client = TransactionClient(self.cluster, self.node_id - 1000 + 20, f"{self.name}-tx", self.history)
        self._client.timeout_ms = self.rng.choice((1_000, 3_000))
        self._instance: MemberInstance | None = None

    async def run_lives(self, gap_us: int) -> None:
        """The client of its transactions stops when it does, also in the middle of one."""
        loop, outside = asyncio.get_running_loop(), self.cluster.outside
        following = loop.create_task(self._follow(), context=outside)
        await super().run_lives(gap_us)
        await following

    async def _follow(self) -> None:
        while not self.stopping:
            await self.pause(200_000)
        self._client.stopping = True

    async def _read(self, gap_us: int) -> None:
        while not self.group.released:
            await self.pause(self.rng.randint(1, 2 * gap_us))
            owned = [tp for tp in self.owned if tp in self._inputs]
            if not owned or self.epoch < 0 or not all(topic in self.history.transactions.topics for topic in self.wanted()):
                continue
            await self._copy(owned[self.rng.randrange(len(owned))])

    def wanted(self) -> Sequence[str]:
        """The topics that must exist before it begins."""
        return self._inputs[0].topic, self._targets[0].topic

    async def _copy(self, tp: TopicPartition) -> None:
        member = self.epoch, self.member_id, self.instance_id  # what it is now, while it has the partition
        try:
            if self._instance is None:
                self._number += 1
                self._instance = MemberInstance(self._client, self._number, self._version, self._targets, 1, (tp,))
                self._instance.group_name = self.group.name
                await self._instance.init(None)
            self._instance.take(tp, member)
            await self._instance.transact()
        except Ended:
            self._instance = None

    async def commit(self, *_positions: Any, **_as: Any) -> Any:
        """A copier's offsets are committed in its transactions alone."""

    async def _be_odd(self) -> None:
        """Nothing: others say odd things to groups, and a copier of them must copy once."""


class MemberInstance(CopyingInstance):
    """The transactions of a member. `take` says what it copies next, and as whom it commits: as the member that it was when it
    had the partition (KIP-447)."""

    group_name = ""
    _member: tuple[int, str, str | None] = (-1, "", None)

    @property
    def group(self) -> str:
        return self.group_name

    @property
    def copier(self) -> str | None:
        return self.group_name

    @property
    def member(self) -> tuple[int, str, str | None]:
        return self._member

    def take(self, tp: TopicPartition, member: tuple[int, str, str | None]) -> None:
        self._inputs = (tp,)
        self._positions = None
        self._member = member


class ClassicCopier(MemberCopier, ClassicMember):
    """In the classic protocol."""


class ConsumerCopier(MemberCopier, ConsumerMember):
    """In the consumer protocol."""
