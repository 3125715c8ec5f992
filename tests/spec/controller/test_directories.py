"""JB-01 to JB-06: log directories, at the controller."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import LOST_DIR, MIGRATING_DIR, UNASSIGNED_DIR, NodeId
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import World, check_invariants

ON = FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=1)


def bootstrap(level: int = 30, *more: MetadataRecord) -> tuple[MetadataRecord, ...]:
    return (FeatureLevelRecord(name=METADATA_VERSION, level=level), *more)


def directory(broker_id: int, index: int) -> UUID:
    return UUID(int=1000 * broker_id + index)


def world_of(count: int = 2, **config: Any) -> World:
    """Three brokers with `count` directories each, and topic t of one partition on all of them."""
    world = World(**config)
    for broker_id in (1, 2, 3):
        world.start_brokers(broker_id, log_dirs=tuple(directory(broker_id, index) for index in range(count)))
    assert world.create(assignments=[[1, 2, 3]]).error is ErrorCode.NONE
    return world


def assign(
    world: World,
    broker_id: int,
    *directories: UUID,
    topic_id: UUID | None = None,
    partition: int = 0,
    epoch: int = 0,
    instead_of: UUID | None = None,
) -> Any:
    """Say of partition 0 of t (or of another) where the replica is; the answer's codes, or the refusal of all."""
    topic = world.state.replication.topic_ids["t"] if topic_id is None else topic_id
    request = m.AssignReplicasToDirsRequest(
        broker_id=NodeId(broker_id),
        broker_epoch=world.state.cluster.brokers[broker_id].broker_epoch + epoch,
        replicas=tuple(
            m.ReplicaDirectory(topic_id=topic, partition=partition, directory_id=it, instead_of=instead_of) for it in directories
        ),
    )
    answer = world.submit("assign", lambda _now: world.state.directories.assign(request))
    check_invariants(world.active.core)
    return answer.code if answer.error is not None else [result.error for result in answer.value.replicas]


@pytest.mark.parametrize(("count", "expected"), [(1, directory(2, 0)), (2, UNASSIGNED_DIR)])
def test_jb_03_only_one_directory_is_assigned_at_creation(count: int, expected: UUID) -> None:
    assert world_of(count).partition().directory_of(NodeId(2)) == expected


def test_jb_03_a_replica_that_a_reassignment_adds_is_placed_the_same_way() -> None:
    world = world_of(1)
    world.start_brokers(4, log_dirs=(directory(4, 0),))
    wanted = m.ReassignablePartition(topic="t", partition=0, replicas=tuple(map(NodeId, (1, 2, 4))))
    request = m.AlterPartitionReassignmentsRequest(partitions=(wanted,), allow_replication_factor_change=True, timeout_ms=1_000)
    world.submit("move", lambda _now: world.state.reassignments.alter(request)).value  # noqa: B018
    assert world.partition().directory_of(NodeId(4)) == directory(4, 0)


def test_jb_05_the_directory_of_a_replica_changes_and_no_epoch_of_its_leader() -> None:
    world = world_of()
    before = world.partition()
    assert assign(world, 2, directory(2, 1)) == [ErrorCode.NONE]
    after = world.partition()
    assert after.directories == (UNASSIGNED_DIR, directory(2, 1), UNASSIGNED_DIR)
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
    assert after.partition_epoch == before.partition_epoch + 1
    assert assign(world, 2, directory(2, 1)) == [ErrorCode.NONE]
    assert world.partition() == after, "nothing is written for what is known"


def test_jb_05_what_is_refused() -> None:
    world = world_of()
    there = directory(2, 0)
    assert assign(world, 2, there, epoch=-1) is ErrorCode.STALE_BROKER_EPOCH
    assert assign(world, 2, there, topic_id=UUID(int=12345)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert assign(world, 2, there, partition=7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(world, 2, there, there) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    world.start_brokers(4, log_dirs=(directory(4, 0),))
    assert assign(world, 4, directory(4, 0)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_jb_05_below_version_17_there_are_no_directories() -> None:
    world = world_of(bootstrap=bootstrap(16))
    assert world.partition().directories == ()
    assert assign(world, 2, directory(2, 0)) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("where", [LOST_DIR, UUID(int=777_777)], ids=["lost", "not registered"])
def test_bl_20_a_replica_in_a_directory_that_is_offline_leaves_at_once(where: UUID) -> None:
    world = world_of()
    leader = world.partition().leader
    assert leader is not None
    assert assign(world, leader, where) == [ErrorCode.NONE]
    found = world.partition()
    assert leader not in found.isr and found.leader not in (None, leader)
    assert found.directory_of(leader) == where


def test_jb_06_a_heartbeat_that_names_a_directory_moves_what_is_in_it_and_nothing_else() -> None:
    world = world_of()
    assert world.create("u", assignments=[[1, 2, 3]]).error is ErrorCode.NONE
    assert assign(world, 1, directory(1, 0)) == [ErrorCode.NONE]
    assert assign(world, 1, directory(1, 1), topic_id=world.state.replication.topic_ids["u"]) == [ErrorCode.NONE]
    world.heartbeat(1, offline=(directory(1, 0),))
    assert world.partition("t").isr == (2, 3) and world.partition("t").leader == 2
    assert world.partition("u").isr == (1, 2, 3) and world.partition("u").leader == 1
    assert world.state.cluster.brokers[1].log_dirs == (directory(1, 1),)


@pytest.mark.parametrize("level", [0, 1], ids=["without ELR", "with ELR"])
def test_jb_06_a_broker_that_is_unfenced_with_a_failed_directory_does_not_lead_in_it(level: int) -> None:
    """The same heartbeat ends its fencing and names the directory: the elections know of it."""
    world = world_of(bootstrap=bootstrap(30, *((ON,) if level else ())))
    assert world.create("u", assignments=[[1, 2, 3]]).error is ErrorCode.NONE
    for topic, index in (("t", 0), ("u", 1)):
        assert assign(world, 3, directory(3, index), topic_id=world.state.replication.topic_ids[topic]) == [ErrorCode.NONE]
    for broker_id in (1, 2, 3):
        world.fence(broker_id)
    assert not world.heartbeat(3, offline=(directory(3, 0),)).value.is_fenced
    assert world.partition("t").leader is None
    assert world.partition("u").leader == 3
    assert world.state.cluster.brokers[3].log_dirs == (directory(3, 1),)


def test_jb_06_a_broker_that_is_fenced_with_a_failed_directory_leaves_once() -> None:
    world = world_of()
    assign(world, 1, directory(1, 0))
    before = world.partition()
    world.heartbeat(1, want_fence=True, offline=(directory(1, 0),))
    after = world.partition()
    assert after.isr == (2, 3) and after.partition_epoch == before.partition_epoch + 1
    assert world.state.cluster.brokers[1].log_dirs == (directory(1, 1),)


def test_jb_06_a_replica_whose_directory_is_offline_may_not_join() -> None:
    world = world_of()
    assign(world, 3, directory(3, 0))
    world.heartbeat(3, offline=(directory(3, 0),))
    assert world.partition().isr == (1, 2)
    refused = world.alter_partition([1, 2, 3])
    assert refused.value.partitions[0].error is ErrorCode.INELIGIBLE_REPLICA and world.partition().isr == (1, 2)


def test_jb_01_what_was_never_said_counts_as_online_and_what_is_lost_does_not() -> None:
    cluster = world_of().state.cluster
    for known, online in ((MIGRATING_DIR, True), (UNASSIGNED_DIR, True), (LOST_DIR, False), (directory(2, 0), True)):
        assert cluster.directory_online(NodeId(2), known) is online
    assert not cluster.directory_online(NodeId(2), directory(3, 0)), "another broker's"
    old = world_of(bootstrap=bootstrap(16)).state.cluster
    assert old.brokers[2].log_dirs == () and old.directory_online(NodeId(2), directory(3, 0)), "it says nothing of directories"


def test_jb_06_a_replica_that_began_anew_is_not_eligible_for_what_it_had() -> None:
    """Its directory was taken out of `log.dirs`, it stopped and started cleanly, and its new log is empty."""
    world = world_of(bootstrap=bootstrap(30, ON))
    world.set_config(2, "t", ("min.insync.replicas", 0, "2"))
    assign(world, 3, directory(3, 0))
    for broker_id in (1, 2):
        world.fence(broker_id)
    world.fence(3)
    assert 3 in world.partition().elr
    epoch = world.state.cluster.brokers[3].broker_epoch
    world.advance(20_000)
    assert world.register(3, incarnation=2, log_dirs=(directory(3, 1),), previous_epoch=epoch).error is None
    assert 3 in world.partition().elr, "it stopped cleanly"
    world.heartbeat(3)
    assert world.partition().leader is None, "its directory is not there"
    assign(world, 3, directory(3, 1))
    assert 3 not in world.partition().elr and world.partition().leader is None


@pytest.mark.parametrize("taken_back", [True, False])
def test_jb_11_a_replica_whose_move_is_taken_back_is_still_eligible(taken_back: bool) -> None:
    """The target fails after it was reported, and the controller hears of it before the report is taken back."""
    world = world_of(bootstrap=bootstrap(30, ON))
    assert world.create("u", assignments=[[1]]).error is ErrorCode.NONE
    topic_id = world.state.replication.topic_ids["u"]
    for index in (0, 1):
        assign(world, 1, directory(1, index), topic_id=topic_id)
    world.heartbeat(1, offline=(directory(1, 1),))
    assert world.partition("u").leader is None and world.partition("u").elr == (1,)
    assign(world, 1, directory(1, 0), topic_id=topic_id, instead_of=directory(1, 1) if taken_back else None)
    assert world.partition("u").leader == 1 and world.partition("u").recovering is not taken_back
