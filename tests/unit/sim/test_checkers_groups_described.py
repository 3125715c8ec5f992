"""The checker of descriptions of groups fails when it must."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.coordinator.api import (
    AssignedTopic,
    ConsumerGroupDescription,
    ConsumerHeartbeatResult,
    ConsumerMemberDescription,
    DescribedMember,
    GroupDescription,
    GroupOverview,
    SyncResult,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.groups_described import GroupsDescribed
from kraftlite.sim.services.groups import BEAT, DESCRIBE, LIST, SYNC, DescribeAsk, ListAsk, Told

TOPIC = UUID(int=5)
OFFSETS = TopicPartition("__consumer_offsets", 0)
MEMBER = DescribedMember("a", "i0", "c", "h", b"", b"mine")
CLASSIC = GroupDescription(group_id="old", state="Stable", protocol_type="consumer", protocol_name="range", members=(MEMBER,))
PARTS = (AssignedTopic(TOPIC, "t", (0, 1)),)
CONSUMER = ConsumerGroupDescription(
    group_id="new",
    state="Stable",
    epoch=7,
    assignment_epoch=7,
    assignor="uniform",
    members=(
        ConsumerMemberDescription(
            member_id="b", instance_id=None, rack_id=None, member_epoch=7, client_id="c", client_host="h", topics=("t",),
            regex="", assignment=PARTS, target=PARTS, classic=False,
        ),
    ),
)  # fmt: skip
LINES = (GroupOverview("new", "consumer", "Stable", "consumer"), GroupOverview("old", "consumer", "Stable", "classic"))


class Broker:
    """It coordinates a classic group in generation 3, and one of the consumer protocol in epoch 7, each of one member."""

    def __init__(self) -> None:
        stable = SimpleNamespace(value="Stable")
        one = SimpleNamespace(member_id="a", instance_id="i0")
        other = SimpleNamespace(member_id="b", instance_id=None, epoch=7)
        self.classic = SimpleNamespace(members={"a": one}, protocol_type="consumer", state=stable, generation=3)
        self.consumers = SimpleNamespace(members={"b": other}, state=stable, dead=False, epoch=7)
        shard = SimpleNamespace(
            groups=SimpleNamespace(by_id={"old": self.classic}), consumers=SimpleNamespace(by_id={"new": self.consumers})
        )
        self.driver = SimpleNamespace(loaded=True, shard=shard, tp=OFFSETS)
        self.topics = {TOPIC}
        image = SimpleNamespace(topics=SimpleNamespace(topic_by_id=lambda it: it if it in self.topics else None))
        groups = SimpleNamespace(led=SimpleNamespace(drivers=lambda: [self.driver]))
        broker = SimpleNamespace(groups=groups, cache=SimpleNamespace(image=image))
        node = SimpleNamespace(node=SimpleNamespace(broker=broker))
        self.excused: dict[TopicPartition, str] = {}
        world: Any = SimpleNamespace(nodes={NodeId(4): node}, losses=SimpleNamespace(excused=self.excused))
        self.checker = GroupsDescribed(world)

    def asked(self, method: Any, request: Any) -> Any:
        exchange = _Exchange(method, request)
        self.checker.on_arrival(exchange)  # type: ignore[arg-type]
        return exchange

    def answers(self, method: Any, request: Any, response: Any) -> None:
        self.checker.on_served(self.asked(method, request), response)

    def describes(self, told: Any, *, consumer: bool = False) -> None:
        self.answers(DESCRIBE, DescribeAsk("new" if consumer else "old", consumer), Told(ErrorCode.NONE, told))

    def lists(self, *told: GroupOverview) -> None:
        self.answers(LIST, ListAsk(), Told(ErrorCode.NONE, told))

    def syncs(self, assignment: bytes, generation: int = 3) -> None:
        request = SimpleNamespace(group_id="old", member_id="a", generation=generation)
        self.answers(SYNC, request, SyncResult(error=ErrorCode.NONE, assignment=assignment))

    def beats(self, *indexes: int, epoch: int = 7, tells: bool = True) -> None:
        result = ConsumerHeartbeatResult(member_id="b", member_epoch=epoch, assignment=((TOPIC, indexes),) if tells else None)
        self.answers(BEAT, SimpleNamespace(group_id="new", member_id="b"), Told(ErrorCode.NONE, result))


class _Exchange:
    def __init__(self, method: Any, request: object) -> None:
        self.target, self.method, self.request = NodeId(4), method, request


def lacking(**changes: Any) -> ConsumerGroupDescription:
    return replace(CONSUMER, members=(replace(CONSUMER.members[0], **changes),))


def test_what_is_so_may_be_told() -> None:
    broker = Broker()
    broker.describes(CLASSIC)
    broker.syncs(b"mine")
    broker.describes(CLASSIC)
    broker.describes(CONSUMER, consumer=True)
    broker.beats(1)
    broker.describes(CONSUMER, consumer=True)
    broker.lists(*LINES)
    assert broker.checker.judged == {"classic": 2, "consumer": 2, "listed": 1, "assignments": 2}


def test_what_has_changed_meanwhile_may_be_told_either_way() -> None:
    broker = Broker()
    asked, listed = broker.asked(DESCRIBE, DescribeAsk("old", False)), broker.asked(LIST, ListAsk())
    broker.classic.generation = 4
    broker.checker.on_served(asked, Told(ErrorCode.NONE, replace(CLASSIC, state="Empty", members=())))
    broker.checker.on_served(listed, Told(ErrorCode.NONE, LINES[:1]))
    broker.answers(DESCRIBE, DescribeAsk("old", False), Told(ErrorCode.NOT_COORDINATOR))


def test_an_assignment_of_before_is_not_compared() -> None:
    broker = Broker()
    broker.syncs(b"other", generation=2)
    broker.describes(CLASSIC)
    broker.syncs(b"other")
    broker.excused[OFFSETS] = "led by a replica that lost records"
    broker.describes(CLASSIC)
    broker.beats(5, epoch=6)
    broker.describes(CONSUMER, consumer=True)
    broker.beats(5)
    broker.asked(BEAT, SimpleNamespace(group_id="new", member_id="b"))  # who asks may have something else already
    broker.describes(CONSUMER, consumer=True)
    broker.beats(5)
    broker.topics.clear()
    broker.describes(CONSUMER, consumer=True)


@pytest.mark.parametrize(
    ("told", "consumer", "words"),
    [
        (replace(CLASSIC, state="Empty"), False, "with the state Empty; it is Stable"),
        (replace(CLASSIC, members=()), False, "with the members {}"),
        (replace(CLASSIC, members=(MEMBER, MEMBER)), False, "with the members"),
        (replace(CLASSIC, members=(MEMBER._replace(instance_id=None),)), False, "with the members"),
        (replace(CLASSIC, members=(MEMBER._replace(assignment=b""),)), False, "with b'' for a, which got b'mine' in 3"),
        (replace(CLASSIC, protocol_type=""), False, "with the protocol type "),
        (None, False, "with None; it is a group of type classic"),
        (replace(CONSUMER, epoch=6), True, "with epoch 6; it is 7"),
        (lacking(member_epoch=6), True, "with epoch 6 of b; it is 7"),
        (lacking(assignment=()), True, "without .* of b, which got them in epoch 7"),
    ],
)
def test_another_description_is_found(told: Any, consumer: bool, words: str) -> None:
    broker = Broker()
    broker.syncs(b"mine")
    broker.beats(0, 1)
    broker.beats(tells=False)
    with pytest.raises(Violation, match=words):
        broker.describes(told, consumer=consumer)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (LINES[:1], "with None of group old"),
        ((*LINES, LINES[0]), "it coordinates"),
        ((*LINES, LINES[0]._replace(group_id="third")), "it coordinates"),
        ((LINES[0], LINES[1]._replace(state="Empty")), "of group old, which is"),
        ((LINES[0], LINES[1]._replace(group_type="consumer")), "of group old, which is"),
    ],
)
def test_another_list_is_found(told: tuple[GroupOverview, ...], words: str) -> None:
    with pytest.raises(Violation, match=words):
        Broker().lists(*told)
