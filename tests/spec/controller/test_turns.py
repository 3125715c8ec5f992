"""Large operations take turns with the rest of the node: bounded by what a turn touches, never by time."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kraftlite.controller.turns import ELEMENTS_PER_TURN
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import MetadataRecord, PartitionChangeRecord, TopicRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId, random_uuid
from kraftlite.model.messages import controller as m
from kraftlite.model.messages.raft import OffsetAndEpoch
from tests.harness.controller_raft import FakeSnapshot
from tests.harness.controller_world import Answer, Node, World

MANY = 3_000
CALLS_PER_ELEMENT = 150
"""That one element of an operation may cost, in calls of Python functions: generously, for they cost 10 to 60."""


class Turn:
    """What one turn of a controller did."""

    def __init__(self) -> None:
        self.calls = 0
        self.replayed = 0
        self.encoded = 0


def turns_of(node: Node) -> list[Turn]:
    """Run the controller until it has nothing to do."""
    core, turns = node.core, list[Turn]()
    replay, encode = core.state.replay, MetadataSerde.encode

    def replaying(record: MetadataRecord, offset: int) -> None:
        turns[-1].replayed += 1
        replay(record, offset)

    def encoding(serde: MetadataSerde, record: Any) -> bytes:
        turns[-1].encoded += 1
        return encode(serde, record)

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            turns[-1].calls += 1

    core.state.replay = replaying  # type: ignore[method-assign]
    MetadataSerde.encode = encoding  # type: ignore[method-assign]
    try:
        more = True
        while more:
            turns.append(Turn())
            sys.setprofile(note)
            try:
                more = core.step(node.world.now_ms)
            finally:
                sys.setprofile(None)
    finally:
        core.state.replay = replay  # type: ignore[method-assign]
        MetadataSerde.encode = encode  # type: ignore[method-assign]
    return turns


def check_turns(turns: list[Turn]) -> None:
    assert len(turns) > 2
    assert max(turn.replayed for turn in turns) <= ELEMENTS_PER_TURN
    assert max(turn.encoded for turn in turns) <= ELEMENTS_PER_TURN
    assert max(turn.calls for turn in turns) <= CALLS_PER_ELEMENT * ELEMENTS_PER_TURN, [turn.calls for turn in turns]


def ask(world: World, operation: Callable[[int], Any]) -> Answer:
    """Submitted, and nothing has run yet."""
    answer = Answer()
    world.active.core.submit("it", operation, answer, world.now_ms)
    return answer


def create(world: World, *topics: m.CreatableTopic) -> Answer:
    request = m.CreateTopicsRequest(topics=topics, validate_only=False, timeout_ms=1_000)
    topic_control = world.active.core.state.topics
    return ask(world, lambda _now: topic_control.create(request))


def large_world() -> World:
    world = World(2)
    world.start_brokers(1, 2, 3, 4)
    world.create("t", assignments=[(1, 2, 3)] * MANY)
    return world


def heartbeat(world: World, broker_id: int, **wants: bool) -> Answer:
    request = m.BrokerHeartbeatRequest(
        broker_id=NodeId(broker_id),
        broker_epoch=world.epochs[broker_id],
        current_metadata_offset=world.quorum.high_watermark - 1,
        want_fence=wants.get("fence", False),
        want_shut_down=wants.get("shut_down", False),
        offline_log_dirs=(),
    )
    return ask(world, lambda _now: world.state.brokers.heartbeat(request))


def alter_partition(world: World, isr: tuple[int, ...], leader: int = 1) -> Answer:
    info = world.state.replication.topic("t")
    members = tuple(m.IsrMember(broker_id=NodeId(one), broker_epoch=world.epochs[one]) for one in isr)
    items = tuple(
        m.AlterPartitionItem(
            topic_id=info.topic_id,
            partition=index,
            leader_epoch=current.leader_epoch,
            partition_epoch=current.partition_epoch,
            new_isr=members,
            recovering=False,
        )
        for index, current in info.partitions.items()
    )
    request = m.AlterPartitionRequest(broker_id=NodeId(leader), broker_epoch=world.epochs[leader], partitions=items)
    return ask(world, lambda _now: world.state.isr.alter(request))


def reassign(world: World) -> Answer:
    moves = tuple(
        m.ReassignablePartition(topic="t", partition=index, replicas=(NodeId(1), NodeId(2), NodeId(4))) for index in range(MANY)
    )
    request = m.AlterPartitionReassignmentsRequest(partitions=moves, allow_replication_factor_change=False, timeout_ms=1_000)
    return ask(world, lambda _now: world.state.reassignments.alter(request))


def elect(world: World, *, everything: bool) -> Answer:
    world.fence(1)
    world.heartbeat(1)
    alter_partition(world, (1, 2, 3), leader=2)
    world.settle()
    names = None if everything else tuple(m.PartitionName(topic="t", partition=index) for index in range(MANY))
    request = m.ElectLeadersRequest(election_type=0, partitions=names, timeout_ms=1_000)
    return ask(world, lambda _now: world.state.elections.elect(request))


def alter_configs(world: World) -> Answer:
    """Most of them refused: what writes nothing takes turns, too."""
    resources = tuple(
        m.ConfigResourceChange(
            resource_type=2,
            resource_name="t" if number == 0 else f"none-{number}",
            changes=(m.ConfigChange(name="retention.ms", op=0, value="5"),),
        )
        for number in range(4 * MANY)
    )
    request = m.IncrementalAlterConfigsRequest(resources=resources, validate_only=False, timeout_ms=1_000)
    return ask(world, lambda _now: world.state.configs.incremental_alter(request))


def delete(world: World) -> Answer:
    names = [f"small-{number}" for number in range(MANY)]
    world.create_many(*(world.topic(name) for name in names))
    selectors = tuple(m.TopicSelector(name=name, topic_id=None) for name in names)
    request = m.DeleteTopicsRequest(topics=selectors, timeout_ms=1_000)
    return ask(world, lambda _now: world.state.topics.delete(request))


def create_partitions(world: World) -> Answer:
    more = m.CreatePartitionsTopic(name="t", count=2 * MANY, assignments=None)
    request = m.CreatePartitionsRequest(topics=(more,), validate_only=False, timeout_ms=1_000)
    return ask(world, lambda _now: world.state.topics.create_partitions(request))


OPERATIONS: dict[str, Callable[[World], Answer]] = {
    "create one topic": lambda world: create(world, world.topic("new", MANY, 3)),
    "create one assigned topic": lambda world: create(world, world.topic("new", assignments=[(1, 2, 3)] * MANY)),
    "create many topics": lambda world: create(world, *(world.topic(f"new-{number}", 1, 3) for number in range(MANY))),
    "create partitions": create_partitions,
    "delete many topics": delete,
    "alter partition": lambda world: alter_partition(world, (1, 2)),
    "fence": lambda world: heartbeat(world, 1, fence=True),
    "controlled shutdown": lambda world: heartbeat(world, 1, shut_down=True),
    "unregister": lambda world: ask(world, lambda _now: world.state.elections.unregister(NodeId(1))),
    "elect all leaders": lambda world: elect(world, everything=True),
    "elect named leaders": lambda world: elect(world, everything=False),
    "reassign": reassign,
    "alter configs": alter_configs,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_turn_of_an_operation_touches_more_than_a_thousand_elements(name: str) -> None:
    world = large_world()
    answer = OPERATIONS[name](world)
    check_turns(turns_of(world.active))
    world.settle()
    assert answer.code is ErrorCode.NONE
    world.check()
    one, other = (node.core.state_hash() for node in world.nodes.values())
    assert one == other


def test_no_turn_of_a_standby_replays_more_than_a_thousand_records() -> None:
    world = World(2, commit_at_once=False)
    world.commit()
    world.commit_at_once = True
    world.start_brokers(1, 2, 3)
    world.commit_at_once = False
    answer = create(world, world.topic("new", MANY, 3))
    world.settle()
    assert not answer.done
    world.quorum.commit()
    check_turns(turns_of(world.nodes[101]))
    world.settle()
    assert answer.code is ErrorCode.NONE
    assert world.nodes[101].core.state_hash() == world.nodes[100].core.state_hash()


def test_no_turn_of_a_metadata_snapshot_replays_more_than_a_thousand_records() -> None:
    topics = [TopicRecord(name=f"t-{number}", topic_id=random_uuid(random.Random(number))) for number in range(MANY)]
    world = World(1, elect=False)
    node = world.nodes[100]
    node.raft.load_snapshot(FakeSnapshot(OffsetAndEpoch(offset=MANY, epoch=1), [tuple(topics)]))
    check_turns(turns_of(node))
    assert len(node.core.state.replication.topics) == MANY
    assert node.core.offsets.committed_offset == MANY - 1


def test_events_that_run_in_one_turn_share_its_elements() -> None:
    world = World(1)
    world.start_brokers(1)
    answers = [create(world, *(world.topic(f"t-{number}-{index}") for index in range(100))) for number in range(40)]
    turns = turns_of(world.active)
    assert max(turn.replayed for turn in turns) <= ELEMENTS_PER_TURN and len(turns) > 10
    world.settle()
    assert all(answer.code is ErrorCode.NONE for answer in answers)


def test_no_other_event_runs_between_the_turns_of_one_and_nothing_leaves_before_all_is_replayed() -> None:
    world = World(1, commit_at_once=False)
    world.commit()
    world.commit_at_once = True
    world.start_brokers(1, 2, 3)
    world.commit_at_once = False
    node = world.active
    first = create(world, world.topic("new", MANY, 3))
    second = create(world, world.topic("new", 1, 1))
    node.raft.calls.clear()
    seen: list[tuple[list[str], int]] = []
    while node.core.step(world.now_ms, limit=1):
        info = node.core.state.replication.topic("new")
        seen.append((list(node.raft.calls), 0 if info is None else len(info.partitions)))
    staged = [count for calls, count in seen if calls == ["prepare_append"]]
    assert len(staged) >= 3 and staged == sorted(staged), "replayed in turns while it was staged"
    assert all(count == MANY for calls, count in seen if "schedule_prepared_append" in calls)
    world.commit()
    assert first.value.topics[0].error is ErrorCode.NONE
    assert second.value.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("turns", range(14))
@pytest.mark.parametrize("regained", [False, True])
def test_an_operation_during_which_the_leadership_is_lost_never_happened(turns: int, regained: bool) -> None:
    """Computing, encoding and replaying take about a dozen turns; in whichever the news comes, the end is the same."""
    world = World(2)
    world.start_brokers(1, 2, 3)
    world.create("old", 3, 3)
    before = world.nodes[100].core.state_hash()
    core = world.nodes[100].core
    answer = create(world, world.topic("new", MANY, 3))
    for _ in range(turns):
        assert core.step(world.now_ms), "the operation is under way"
    world.quorum.elect(101)
    if regained:
        world.quorum.elect(100)
    world.settle()
    assert answer.code is ErrorCode.NOT_CONTROLLER
    assert core.active is regained
    assert core.state.replication.topic("new") is None
    assert world.nodes[100].core.state_hash() == world.nodes[101].core.state_hash() == before
    assert not any(isinstance(record, TopicRecord) and record.name == "new" for record in world.quorum.records())
    world.check()
    assert world.create("new", 3, 3).error is ErrorCode.NONE


@pytest.mark.parametrize("turns", [1, 7, 10])
def test_closing_in_the_middle_of_an_operation_answers_it_once(turns: int) -> None:
    world = World(1)
    world.start_brokers(1, 2, 3)
    core = world.active.core
    answer = create(world, world.topic("new", MANY, 3))
    for _ in range(turns):
        assert core.step(world.now_ms)
    world.active.raft.calls.clear()
    core.close(world.now_ms)
    assert answer.code is ErrorCode.REQUEST_TIMED_OUT
    assert not core.step(world.now_ms)
    assert "schedule_prepared_append" not in world.nodes[100].raft.calls


def test_an_operation_that_breaks_in_a_later_turn_costs_its_request_alone() -> None:
    """ADR 5: nothing has changed while records are computed, in whichever turn."""
    world = large_world()
    elections = world.state.elections
    change, made = elections._change, list[PartitionChangeRecord]()

    def breaking(*args: Any, **kwargs: Any) -> Any:
        if len(made) == MANY - 1:
            raise KeyError("a bug")
        made.append(change(*args, **kwargs))
        return made[-1]

    elections._change = breaking
    answer = heartbeat(world, 1, fence=True)
    world.settle()
    elections._change = change
    assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.active.core.active and world.partition("t", 0).leader == 1
