"""The checkers of a consumer group's topics, that it notices them and shares all of them out, fail when they must."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.topics_noticed import TopicsNoticed, TopicsShared
from kraftlite.sim.services.groups import BEAT, Told


class Broker:
    """It coordinates a group of one member. `topics`: the hash of the topics to which it subscribes, as the broker knows them."""

    def __init__(self) -> None:
        self.topics = self.now_us = 0
        self.group = SimpleNamespace(members={"a": None}, metadata_hash=0, epoch=7, hash_of=lambda topics: self.topics)
        self.shard = SimpleNamespace(by_id={"g": self.group}, cluster=SimpleNamespace(topics=None))
        self.led = [SimpleNamespace(loaded=True, shard=SimpleNamespace(consumers=self.shard, groups=SimpleNamespace(by_id={})))]
        groups = SimpleNamespace(led=SimpleNamespace(drivers=lambda: self.led))
        node = SimpleNamespace(node=SimpleNamespace(broker=SimpleNamespace(groups=groups)))
        loop = SimpleNamespace(now_us=lambda: self.now_us)
        world: Any = SimpleNamespace(nodes={NodeId(4): node}, cluster=SimpleNamespace(loop=loop))
        self.checker = TopicsNoticed(world)

    def beat(self, at_ms: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.now_us = at_ms * 1000
        exchange: Any = SimpleNamespace(target=NodeId(4), method=BEAT, request=SimpleNamespace(group_id="g"))
        self.checker.on_served(exchange, Told(error))


def test_a_group_that_goes_by_its_topics_is_right() -> None:
    broker = Broker()
    for second in range(10):
        broker.beat(1000 * second)
    assert broker.checker.judged == 10


def test_a_group_that_goes_by_other_topics_for_two_seconds_has_missed_them() -> None:
    broker = Broker()
    broker.topics = 1
    broker.beat(0)
    broker.beat(2000)
    with pytest.raises(Violation, match="node 4 answers a heartbeat of group g, whose topics changed 2001000 us ago or earlier"):
        broker.beat(2001)


@pytest.mark.parametrize(
    "change",
    [
        lambda broker: setattr(broker, "topics", 2),  # they have changed again
        lambda broker: setattr(broker.group, "metadata_hash", 1),
        lambda broker: broker.group.members.clear(),
        lambda broker: broker.led.clear(),
    ],
)
def test_what_changes_meanwhile_is_not_held_against_it(change: Callable[[Broker], object]) -> None:
    broker = Broker()
    broker.topics = 1
    broker.beat(0)
    change(broker)
    broker.beat(5000)
    broker.beat(5001)


def test_a_heartbeat_that_is_refused_says_nothing() -> None:
    broker = Broker()
    broker.topics = 1
    broker.beat(0)
    broker.beat(5000, ErrorCode.NOT_COORDINATOR)
    assert broker.checker.judged == 1


T = UUID(int=7)


class Shared:
    """A coordinator whose group has a target assignment of the three partitions of a topic. `shares`: of each member."""

    def __init__(self) -> None:
        topic = SimpleNamespace(topic_id=T, partitions={0: None, 1: None, 2: None})
        self.group: Any = SimpleNamespace(
            target_epoch=4,
            epoch=4,
            metadata_hash=1,
            hash_of=lambda topics: 1,
            subscribed_topics=lambda: ("t", "unknown"),
            target={},
        )
        topics = SimpleNamespace(topic={"t": topic}.get)
        shard = SimpleNamespace(by_id={"g": self.group}, cluster=SimpleNamespace(topics=topics))
        self.driver = SimpleNamespace(loaded=True, shard=SimpleNamespace(consumers=shard, groups=SimpleNamespace(by_id={})))
        groups = SimpleNamespace(led=SimpleNamespace(drivers=lambda: [self.driver]))
        node = SimpleNamespace(node=SimpleNamespace(broker=SimpleNamespace(groups=groups)))
        world: Any = SimpleNamespace(nodes={NodeId(4): node})
        self.checker = TopicsShared(world)
        self.beat()

    def beat(self) -> None:
        exchange: Any = SimpleNamespace(target=NodeId(4), method=BEAT, request=SimpleNamespace(group_id="g"))
        self.checker.on_served(exchange, Told(ErrorCode.NONE))

    def assign(self, **shares: tuple[int, ...]) -> None:
        self.group.target = {member: {T: frozenset(share)} for member, share in shares.items()}
        self.group.target_epoch = self.group.epoch = self.group.epoch + 1


def test_a_target_with_each_partition_is_right() -> None:
    shared = Shared()
    shared.assign(a=(0, 2), b=(1,))
    shared.beat()
    shared.beat()
    assert shared.checker.judged == 1


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"a": (0,), "b": (1,)}, r"epoch 5, in which nobody has \[\(.*, 2\)\]"),
        ({}, r"epoch 5, in which nobody has \[\(.*, 0\)"),
        ({"a": (0, 1, 2, 3)}, r"somebody \[\(.*, 3\)\], which the group does not want"),
    ],
)
def test_a_target_that_leaves_a_partition_to_nobody_or_has_one_that_is_not_there_is_found(
    shares: dict[str, tuple[int, ...]], words: str
) -> None:
    shared = Shared()
    shared.assign(**shares)
    with pytest.raises(Violation, match=words):
        shared.beat()


@pytest.mark.parametrize(
    "change",
    [
        lambda shared: setattr(shared.group, "epoch", 9),  # another assignment is due
        lambda shared: setattr(shared.group, "metadata_hash", 2),  # the topics have changed since
        lambda shared: setattr(shared, "driver", Shared().driver),  # whoever made it may have known others
    ],
)
def test_a_target_of_other_topics_or_of_another_coordinator_is_not_judged(change: Callable[[Shared], object]) -> None:
    shared = Shared()
    shared.assign(a=(0,))
    change(shared)
    shared.beat()
    assert shared.checker.judged == 0
