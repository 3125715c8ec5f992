"""The checker of topics that change under a consumer group fails when it must."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.topics_noticed import TopicsNoticed
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
