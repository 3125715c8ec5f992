"""Consumer groups: in a third of the seeds one or two groups of the classic protocol, the consumer protocol or both, an
administrator of groups, and somebody who commits without a group.

All have random streams of their own: a seed without groups is what it would be without this module.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kraftlite.broker.handlers.group_offsets import PartitionCommit, TopicRef
from kraftlite.coordinator.api import CommitRequest
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    TopicSelector,
)
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.checkers.base import LivenessViolation
from kraftlite.sim.client import SimAdmin, SimClient
from kraftlite.sim.history import History, Verdict
from kraftlite.sim.service import ADMIN, AdminAsk
from kraftlite.sim.services.groups import (
    COMMIT,
    DELETE,
    DESCRIBE,
    FIND,
    LIST,
    OFFSET_DELETE,
    OFFSET_FETCH,
    CommitAsk,
    DeleteAsk,
    DescribeAsk,
    FindAsk,
    ListAsk,
    OffsetDeleteAsk,
    OffsetFetchAsk,
)
from kraftlite.sim.workloads.group_classic import ClassicMember
from kraftlite.sim.workloads.group_client import SimGroup, SimMember, stamp
from kraftlite.sim.workloads.group_consumer import ConsumerMember

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

FIRST_NUMBER: Final = 100
"""Behind the numbers of all other clients."""
SETTLE_LIMIT_US: Final = 45_000_000
"""The time in which a group that nothing disturbs becomes stable, with everybody's share."""
RESTART_US: Final = 10_000_000
"""The patience of who sees that a group has no leader who minds its topics."""
TIMEOUT_MS: Final = 4_000


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    rng = random.Random(f"groups/plan/{cluster.seed}")
    topics = sorted({tp.topic for tp in partitions})
    number = FIRST_NUMBER
    groups = [_group(rng, f"g{index}", topics) for index in range(rng.choice((1, 1, 2)))]
    for group in groups:
        kinds: Sequence[type[SimMember]] = rng.choice(((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember)))
        for index in range(rng.choice((2, 3, 4))):
            kind = kinds[index % len(kinds)]
            instance_id = rng.choice((None, None, f"i{index}", "i0"))
            member = kind(cluster, number, history, group, instance_id)
            group.members.append(member)
            number += 1
            yield member, member.run_lives(rng.choice((100_000, 300_000)))
    director = Director(cluster, number, history, groups, rng)
    yield director, director.run()


def _group(rng: random.Random, name: str, topics: Sequence[str]) -> SimGroup:
    return SimGroup(
        name=name,
        topics=tuple(rng.sample(topics, rng.randint(1, len(topics)))),
        cooperative=rng.randrange(2) == 0,
        session_ms=rng.choice((1_000, 2_000, 4_000)),
        rebalance_ms=rng.choice((1_000, 3_000)),
    )


def restart_unled(group: SimGroup, topics: Collection[str]) -> None:
    """Members join again when none of them knows that it leads. A static leader that came back with a JoinGroup before version 9
    is told that its former self leads, and nobody looks for new partitions until a rebalance for another reason (KIP-814).
    So they do when one has what it does not want, or wants one of the `topics` that nobody has: a static member that came back
    with another subscription has what its former self had until then, and the leader is not told (KIP-345)."""
    classic = [it for it in group.live() if isinstance(it, ClassicMember)]
    owned = {tp.topic for it in group.live() for tp in it.owned}
    unwanted = any(not it.subscribed(tp.topic) for it in classic for tp in it.owned)
    lacking = any(topic in topics and topic not in owned for it in classic if it.instance_id is not None for topic in it.topics)
    if unwanted or lacking or not any(it.leads for it in classic):
        for member in classic:
            member.epoch = -1


class Director(SimAdmin):
    """Administers the groups, their topics and their offsets; lets them settle when the faults are over, and releases them."""

    def __init__(
        self, cluster: SimCluster, number: int, history: History, groups: Sequence[SimGroup], plan: random.Random
    ) -> None:
        super().__init__(cluster, number, "groups-admin", history)
        self.groups = groups
        self._expires = any(str(node.config.get("offsets.retention.minutes")) == "1" for node in cluster.brokers)
        self._gap_us = plan.choice((300_000, 1_000_000))
        self._made: dict[str, int] = {}
        """The topics of its own, with their partitions."""
        self._numbers = 0

    async def run(self) -> None:
        """LivenessViolation when a group does not settle."""
        try:
            while not self.stopping:
                await self.pause(self.rng.randint(1, 2 * self._gap_us))
                if not self.stopping:
                    await self._administer()
            await self._settle()
        finally:
            for group in self.groups:
                group.released = True

    # --- the end

    async def _settle(self) -> None:
        end_us, restart_us = self.now_us() + SETTLE_LIMIT_US, self.now_us() + RESTART_US
        while True:
            await self.refresh()
            left = [missing for group in self.groups if (missing := self._missing(group)) is not None]
            if not left:
                return
            if self.now_us() >= end_us:
                raise LivenessViolation("groups", f"{left[0]}: still so {SETTLE_LIMIT_US // 1_000_000} s after all was well")
            if self.now_us() >= restart_us:
                restart_us += RESTART_US
                topics = () if self.known is None else {tp.topic for tp in self.known.leaders}
                for group in self.groups:
                    restart_unled(group, topics)
            await self.pause(200_000)

    def _missing(self, group: SimGroup) -> str | None:
        """Say what a group lacks in which every live member has its share; None when nothing does."""
        live = group.live()
        owners: dict[TopicPartition, list[str]] = {}
        for member in live:
            for tp in member.owned:
                owners.setdefault(tp, []).append(member.name)
                if not member.subscribed(tp.topic):
                    return f"{member.name} of group {group.name} owns {tp}, which it does not want"
        known = {} if self.known is None else self.known.leaders
        for member in live:
            if member.epoch < 0:
                return f"{member.name} is not in group {group.name}"
        for tp in known:
            wanted = any(member.subscribed(tp.topic) for member in live)
            if wanted != (len(owners.get(tp, ())) == 1):
                return f"{tp} is owned by {owners.get(tp, 'nobody')} in group {group.name} of {[it.name for it in live]}"
        gone = [tp for tp in owners if tp not in known]
        return f"{gone[0]} is owned in group {group.name}, and is not there" if gone else None

    # --- administration

    async def _administer(self) -> None:
        rng = self.rng
        at = rng.randrange(16)
        group = self.groups[rng.randrange(len(self.groups))]
        if at < 3:
            await self._change_topics(group)
        elif at < 6:
            await self._commit_from_outside(group)
        elif at == 6:
            await self._configure(group)
        elif at == 7 and self._expires:
            self._leap()
        elif at == 8:
            await self.ask(self._some_name(group), DELETE, DeleteAsk)
        elif at == 9:
            name = self._some_name(group)
            ask = OffsetDeleteAsk(name, (*self._some_partitions(group), TopicPartition("no-such-topic", 0)))
            await self.ask(name, OFFSET_DELETE, lambda _name: ask)
        elif at == 10:
            await self.ask(group.name, LIST, lambda _name: ListAsk())
        elif at < 13:
            consumer = rng.randrange(2) == 0
            name = rng.choice((group.name, self._some_name(group)))
            await self.ask(name, DESCRIBE, lambda name: DescribeAsk(name, consumer))
        else:
            wanted = rng.choice((None, self._some_partitions(group)))
            await self.ask(self._some_name(group), OFFSET_FETCH, lambda name: OffsetFetchAsk(group_id=name, partitions=wanted))

    def _some_name(self, group: SimGroup) -> str:
        return self.rng.choice((group.name, "alone", "alone", "nobody"))

    def _some_partitions(self, group: SimGroup) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(topic, index) for topic in group.topics for index in range(2))

    async def ask(self, name: str, method: Method[Req, Res], make: Any) -> Any:
        """Ask the coordinator of a group, once."""
        brokers = [node.node_id for node in self.cluster.brokers]
        try:
            found = await self.call(brokers[self.rng.randrange(len(brokers))], FIND, FindAsk(name), 1_000)
            if found.error is not ErrorCode.NONE:
                return None
            return await self.call(found.result.broker_id, method, make(name), 1_000)
        except (TransportError, ApiError):
            return None

    async def _commit_from_outside(self, group: SimGroup) -> None:
        """Commits of somebody who is in no group, with odd sizes now and then; to a group with members they are refused."""
        rng = self.rng
        self._numbers += 1
        long = rng.randrange(8) == 0
        metadata = "x" * 5_000 if long else stamp("", -1, self._numbers)
        targets = (*self._some_partitions(group), *(TopicPartition(topic, 0) for topic in self._made))
        commits = tuple(
            PartitionCommit(TopicRef(tp.topic, None), tp.partition, rng.randrange(100), None, metadata)
            for tp in rng.sample(targets, rng.randint(1, len(targets)))
        )
        retention_ms = rng.choice((None, None, 1_000, 5_000))
        base = CommitRequest(group_id="", generation=-1, member_id="", instance_id=None, offsets=(), retention_ms=retention_ms)

        def make(name: str) -> CommitAsk:
            return CommitAsk(base=replace(base, group_id=name), commits=commits)

        await self.ask(rng.choice(("alone", "alone", "alone", group.name)), COMMIT, make)

    async def _change_topics(self, group: SimGroup) -> None:
        name = f"{group.name}-x"
        if name not in self._made:
            self._made[name] = 1
            topic = CreatableTopic(
                name=name, num_partitions=1, replication_factor=len(self.cluster.brokers[:3]), assignments=(), configs=()
            )
            request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=TIMEOUT_MS)
            op = await self.do("create_topics", request, {"topic": name, "partitions": 1})
            if op.verdict is Verdict.FAILED:
                del self._made[name]
        elif self.rng.randrange(3):
            self._made[name] += 1
            item = CreatePartitionsTopic(name=name, count=self._made[name], assignments=None)
            growth = CreatePartitionsRequest(topics=(item,), validate_only=False, timeout_ms=TIMEOUT_MS)
            await self.do("create_partitions", growth, {"topic": name, "partitions": self._made[name]})
        else:
            del self._made[name]
            gone = DeleteTopicsRequest(topics=(TopicSelector(name=name, topic_id=None),), timeout_ms=TIMEOUT_MS)
            await self.do("delete_topics", gone, {"topic": name})

    async def _configure(self, group: SimGroup) -> None:
        """A group's own session and interval (KIP-848)."""
        key, value = self.rng.choice(
            (
                ("consumer.session.timeout.ms", "1500"),
                ("consumer.session.timeout.ms", "3000"),
                ("consumer.heartbeat.interval.ms", "150"),
                ("consumer.assignment.interval.ms", "100"),
            )
        )
        change = ConfigChange(name=key, op=int(AlterConfigOp.SET), value=value)
        resource = ConfigResourceChange(resource_type=int(ConfigResourceType.GROUP), resource_name=group.name, changes=(change,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        broker = self.rng.choice([node.node_id for node in self.cluster.brokers])
        try:
            await self.call(broker, ADMIN, AdminAsk("alter_configs", request), TIMEOUT_MS)
        except (TransportError, ApiError):
            return

    def _leap(self) -> None:
        """More than a minute passes for everybody at once, so that offsets may expire."""
        leap_ms = self.rng.choice((61_000, 600_000))
        cluster = self.cluster
        for node_id, node in cluster.nodes.items():
            cluster.wall_offset_ms[node_id] = cluster.wall_offset_ms.get(node_id, 0) + leap_ms
            if node.now is not None:
                node.now.clock.jump_wall(leap_ms)
