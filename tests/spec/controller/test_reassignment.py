"""CM-41 to CM-46: moving partitions to other brokers."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.start_brokers(1, 2, 3, 4, 5)
    world.create_many(world.topic("t", assignments=[[1, 2, 3]]))
    return world


def move(world: World, *replicas: int, topic: str = "t", index: int = 0, factor_change: bool = True) -> ErrorCode:
    return _alter(world, tuple(NodeId(node) for node in replicas), topic, index, factor_change)


def cancel(world: World, index: int = 0) -> ErrorCode:
    return _alter(world, None, "t", index, True)


def _alter(world: World, replicas: tuple[NodeId, ...] | None, topic: str, index: int, factor_change: bool) -> ErrorCode:
    request = m.AlterPartitionReassignmentsRequest(
        partitions=(m.ReassignablePartition(topic=topic, partition=index, replicas=replicas),),
        allow_replication_factor_change=factor_change,
        timeout_ms=1000,
    )
    answer = world.submit("test", lambda _now: world.state.reassignments.alter(request))
    world.settle()
    code: ErrorCode = answer.value.results[0].error
    return code


def listed(world: World, *partitions: tuple[str, int]) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
    wanted = tuple(m.PartitionName(topic=topic, partition=index) for topic, index in partitions) or None
    request = m.ListPartitionReassignmentsRequest(partitions=wanted, timeout_ms=1000)
    answer = world.submit("test", lambda _now: world.state.reassignments.list(request))
    world.settle()
    return [(one.topic, one.partition, one.adding, one.removing) for one in answer.value.reassignments]


def test_cm_41_start_keeps_leader_and_isr(world: World) -> None:
    before = world.partition()
    assert move(world, 4, 5, 1) is ErrorCode.NONE
    after = world.partition()
    assert after.replicas == (4, 5, 1, 2, 3)
    assert (after.adding_replicas, after.removing_replicas) == ((4, 5), (2, 3))
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert sorted(after.isr) == [1, 2, 3]
    assert after.partition_epoch == before.partition_epoch + 1
    assert listed(world) == [("t", 0, (4, 5), (2, 3))]
    world.check()


def test_cm_41_a_partition_that_is_named_twice_is_refused_once_and_stays_where_it_is(world: World) -> None:
    """Whoever is told of a refusal must not find that something was done nevertheless."""
    world.create_many(world.topic("u", assignments=[[1, 2, 3]]))

    def to(topic: str, *replicas: int) -> m.ReassignablePartition:
        return m.ReassignablePartition(topic=topic, partition=0, replicas=tuple(map(NodeId, replicas)))

    request = m.AlterPartitionReassignmentsRequest(
        partitions=(to("t", 4, 5, 1), to("u", 4, 5, 1), to("t", 2, 3, 4)), allow_replication_factor_change=True, timeout_ms=1000
    )
    answer = world.submit("test", lambda _now: world.state.reassignments.alter(request))
    world.settle()
    assert [(it.topic, it.error) for it in answer.value.results] == [("t", ErrorCode.INVALID_REQUEST), ("u", ErrorCode.NONE)]
    assert world.partition().replicas == (1, 2, 3)
    assert listed(world) == [("u", 0, (4, 5), (2, 3))]
    world.check()


def test_cm_42_completes_when_every_added_replica_is_in_the_isr(world: World) -> None:
    assert move(world, 4, 5, 1) is ErrorCode.NONE
    world.alter_partition([1, 2, 3, 4])
    assert world.partition().replicas == (4, 5, 1, 2, 3)
    before = world.partition()
    world.alter_partition([1, 2, 3, 4, 5])
    after = world.partition()
    assert (after.replicas, after.isr, after.adding_replicas, after.removing_replicas) == ((4, 5, 1), (4, 5, 1), (), ())
    assert after.leader == 1
    assert after.leader_epoch == before.leader_epoch + 1, "the replica set lost members"
    assert listed(world) == []
    world.check()


@pytest.mark.parametrize("target", [(1, 2, 3, 4), (2, 1, 4), (2, 4, 5)])
def test_cm_42_a_kept_replica_that_is_not_in_sync_does_not_hold_the_completion_up(world: World, target: tuple[int, ...]) -> None:
    """KAFKA-19975: broker 2 is away, and another one's replica moves."""
    world.alter_partition([1, 3])
    assert move(world, *target) is ErrorCode.NONE
    added = [broker for broker in target if broker > 3]
    if len(added) > 1:
        world.alter_partition([1, 3, added[0]])
        assert listed(world) != [], "the other one is not in sync yet"
    world.alter_partition([1, 3, *added])
    after = world.partition()
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == (target, (), ())
    assert sorted(after.isr) == [broker for broker in sorted(target) if broker != 2]
    assert after.leader in after.isr and listed(world) == []
    world.check()


def test_cm_42_where_the_factor_falls_a_kept_replica_that_is_not_in_sync_holds_the_completion_up(world: World) -> None:
    world.alter_partition([1, 2])
    assert move(world, 1, 3) is ErrorCode.NONE
    assert world.partition().removing_replicas == (2,)
    assert world.partition().replicas == (1, 3, 2)
    world.alter_partition([1, 2, 3])
    assert (world.partition().replicas, world.partition().isr) == ((1, 3), (1, 3))


def test_cm_42_the_leader_moves_when_it_was_removed(world: World) -> None:
    assert move(world, 4, 5) is ErrorCode.NONE
    world.alter_partition([1, 2, 3, 4, 5])
    assert (world.partition().leader, world.partition().replicas) == (4, (4, 5))


def test_cm_43_reorder_and_pure_removal_complete_at_once(world: World) -> None:
    assert move(world, 3, 2, 1) is ErrorCode.NONE
    assert (world.partition().replicas, world.partition().leader, listed(world)) == ((3, 2, 1), 1, [])
    assert move(world, 3, 2) is ErrorCode.NONE
    assert (world.partition().replicas, world.partition().isr, listed(world)) == ((3, 2), (3, 2), [])
    assert world.partition().leader == 3


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 9)])
def test_cm_43_targets_that_are_not_allowed(world: World, replicas: tuple[int, ...]) -> None:
    before = world.partition()
    assert move(world, *replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition() == before


def test_unknown_topics_and_partitions(world: World) -> None:
    assert move(world, 1, topic="no") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(world, 1, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(world, ("no", 0), ("t", 9), ("t", 0)) == [], "CM-46: unknown ones are left out"


def test_cm_44_cancel(world: World) -> None:
    assert cancel(world) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(world, 4, 5, 1) is ErrorCode.NONE
    world.alter_partition([1, 2, 3, 4])
    assert cancel(world) is ErrorCode.NONE
    after = world.partition()
    assert sorted(after.replicas) == [1, 2, 3] and sorted(after.isr) == [1, 2, 3]
    assert (after.adding_replicas, after.removing_replicas, after.leader) == ((), (), 1)
    world.check()


def test_cm_44_cancel_needs_a_member_of_the_old_set_in_sync(world: World) -> None:
    assert move(world, 4, 5, 1) is ErrorCode.NONE
    world.alter_partition([1, 4])
    world.fence(1)
    assert world.partition().leader == 4
    assert cancel(world) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.set_config(2, "t", ("unclean.leader.election.enable", 0, "true"))
    assert cancel(world) is ErrorCode.NONE
    after = world.partition()
    assert set(after.replicas) == {1, 2, 3} and after.leader in (2, 3) and after.recovering
    world.check()


def test_cm_44_cancel_elects_at_once_where_records_may_be_lost(world: World) -> None:
    world.alter_partition([1])
    assert move(world, 4, 1, 2) is ErrorCode.NONE
    world.fence(1)
    assert (world.partition().isr, world.partition().leader) == ((1,), None)
    world.set_config(2, "t", ("unclean.leader.election.enable", 0, "true"))
    assert cancel(world) is ErrorCode.NONE
    after = world.partition()
    assert (after.isr, after.leader) == ((2,), 2) and after.recovering
    world.check()


def test_cm_45_a_new_target_replaces_the_old_one(world: World) -> None:
    assert move(world, 4, 1, 2) is ErrorCode.NONE
    assert move(world, 5, 1, 2) is ErrorCode.NONE
    after = world.partition()
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((5, 1, 2, 3), (5,), (3,))
    world.alter_partition([1, 2, 3, 5])
    assert (world.partition().replicas, world.partition().removing_replicas) == ((5, 1, 2), ())
    world.check()


def test_cm_45_a_request_may_forbid_another_factor(world: World) -> None:
    assert move(world, 4, 5, factor_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(world, 4, 1, 2, factor_change=False) is ErrorCode.NONE
    assert move(world, 5, 1, 2, factor_change=False) is ErrorCode.NONE


def test_cm_45_the_factor_that_a_move_under_way_will_have_is_the_one_that_stays(world: World) -> None:
    """As in Kafka: all replicas, those that come too, without those that go."""
    assert move(world, 1, 2, 3, 4) is ErrorCode.NONE
    assert move(world, 1, 2, 4, factor_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(world, 1, 2, 3, 5, factor_change=False) is ErrorCode.NONE
    assert move(world, 1, 2) is ErrorCode.NONE
    world.check()
