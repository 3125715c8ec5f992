"""CM-26 to CM-33, CM-38: leadership, ISR, elections."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlite.controller.partition_change import Election, PartitionChangeBuilder, PartitionTarget
from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.records import FeatureLevelRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import UNCHANGED, NodeId
from tests.harness.controller_world import World

TOPIC = UUID(int=42)


def ids(*nodes: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in nodes)


def partition(**changes: Any) -> PartitionRegistration:
    values: dict[str, Any] = {
        "replicas": ids(1, 2, 3),
        "isr": ids(1, 2, 3),
        "leader": NodeId(1),
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionRegistration(**{**values, **changes})


def change(  # type: ignore[no-untyped-def]
    before: PartitionRegistration,
    *,
    alive: tuple[int, ...] = (1, 2, 3),
    election: Election = Election.ONLINE,
    bump: bool = False,
    **target: Any,
):
    builder = PartitionChangeBuilder(
        before,
        PartitionTarget(**target),
        acceptable=lambda broker: broker in alive,
        election=election,
        bump_leader_epoch_on_shrink=bump,
    )
    return builder.build(TOPIC, 0)


def test_cm_26_isr_changes_raise_the_partition_epoch_alone() -> None:
    for isr in (ids(1, 2), ids(1)):
        before = partition()
        after = before.merge(change(before, isr=isr))
        assert (after.isr, after.leader_epoch, after.partition_epoch) == (isr, 5, 10)
    before = partition(isr=ids(1))
    after = before.merge(change(before, isr=ids(2, 1)))
    assert (after.isr, after.leader_epoch, after.partition_epoch) == (ids(1, 2), 5, 10), "in assignment order"


def test_cm_26_old_metadata_versions_raise_the_leader_epoch_on_shrink_only() -> None:
    before = partition()
    assert before.merge(change(before, isr=ids(1, 2), bump=True)).leader_epoch == 6
    before = partition(isr=ids(1))
    assert before.merge(change(before, isr=ids(1, 2), bump=True)).leader_epoch == 5


@pytest.mark.parametrize(("level", "expected"), [(11, 1), (12, 0)])
def test_cm_26_the_level_decides(level: int, expected: int) -> None:
    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=level),))
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    world.fence(2)
    assert (world.partition().isr, world.partition().leader_epoch) == ((1,), expected)


def test_cm_26_a_replica_set_that_loses_a_member_raises_the_leader_epoch() -> None:
    before = partition()
    record = change(before, replicas=ids(1, 2), isr=ids(1, 2))
    after = before.merge(record)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 6, 10)


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "expected"),
    [
        (1, (1, 2, 3), (1, 2, 3), 1),
        (3, (1, 2, 3), (1, 2, 3), 3),
        (1, (1, 2, 3), (2, 3), 2),
        (1, (1, 3), (2, 3), 3),
        (1, (1,), (2, 3), None),
        (None, (2, 3), (3,), 3),
    ],
)
def test_cm_27_clean_election(leader: int | None, isr: tuple[int, ...], alive: tuple[int, ...], expected: int | None) -> None:
    before = partition(leader=None if leader is None else NodeId(leader), isr=ids(*isr))
    record = change(before, alive=alive)
    after = before if record is None else before.merge(record)
    assert after.leader == expected


def test_cm_27_a_replica_in_an_offline_directory_is_not_elected() -> None:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("t", assignments=[[1, 2, 3]])
    info = world.state.replication.topic("t")
    elections = world.state.elections
    gone = UUID(int=999)
    placed = (UUID(int=1_000_001), gone, UUID(int=1_000_003))
    info.partitions[0] = partition(directories=placed)
    record = elections.change(info, 0, PartitionTarget(isr=ids(2, 3)), Election.ONLINE, removed=NodeId(1))
    assert record.leader == 3


def test_cm_28_the_last_isr_member_stays_and_only_it_may_return() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    world.fence(2)
    world.fence(1)
    assert (world.partition().leader, world.partition().isr) == (None, (1,))
    world.heartbeat(2)
    assert (world.partition().leader, world.partition().isr) == (None, (1,))
    world.heartbeat(1)
    assert (world.partition().leader, world.partition().isr, world.partition().recovering) == (1, (1,), False)


def leaderless(world: World) -> None:
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    world.fence(2)
    world.fence(1)


def test_cm_29_unclean_election_when_a_broker_comes_back() -> None:
    world = World()
    leaderless(world)
    world.set_config(2, "t", ("unclean.leader.election.enable", 0, "true"))
    assert world.partition().leader is None, "enabling it alone does not act"
    world.heartbeat(2)
    after = world.partition()
    assert (after.leader, after.isr, after.recovering) == (2, (2,), True)
    answer = world.alter_partition((2,), recovering=False).value.partitions[0]
    assert (answer.error, answer.recovering) == (ErrorCode.NONE, False)
    assert not world.partition().recovering


def test_cm_29_unclean_election_on_fencing() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    _ = world.alter_partition((1,)).value
    world.fence(1)
    assert (world.partition().leader, world.partition().isr, world.partition().recovering) == (2, (2,), True)


def test_cm_29_the_cluster_default_counts() -> None:
    world = World(static_broker_configs={"unclean.leader.election.enable": "true"})
    leaderless(world)
    world.heartbeat(2)
    assert world.partition().leader == 2


def test_cm_29_the_unclean_election_tool() -> None:
    world = World()
    leaderless(world)
    world.heartbeat(2)
    assert world.partition().leader is None
    assert world.elect(1, ("t", 0)).value.results[0].error is ErrorCode.NONE
    assert (world.partition().leader, world.partition().recovering) == (2, True)


@pytest.fixture
def world() -> World:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("t", assignments=[[1, 2, 3]])
    world.fence(3)
    return world


def code(answer: Any) -> ErrorCode:
    found: ErrorCode = answer.value.partitions[0].error
    return found


def test_cm_30_stale_broker_epoch_fails_the_whole_request(world: World) -> None:
    assert world.alter_partition((1, 2), broker_epoch=99).code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"topic_id": UUID(int=7)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 5, "broker": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1, "partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1, "broker": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"broker": 2, "partition_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 0, "isr": ()}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 9)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2,)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 3), "recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1,), "recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 2, 3)}, ErrorCode.INELIGIBLE_REPLICA),
        ({"isr": (1,)}, ErrorCode.NONE),
    ],
)
def test_cm_30_checks_in_order(world: World, request_: dict[str, Any], error: ErrorCode) -> None:
    before = world.partition()
    arguments = {"isr": (1, 2), **request_}
    assert code(world.alter_partition(arguments.pop("isr"), **arguments)) is error
    if error is not ErrorCode.NONE:
        assert world.partition() == before


def test_cm_31_ineligible_members(world: World) -> None:
    assert code(world.alter_partition((1, 2, (3, None)))) is ErrorCode.INELIGIBLE_REPLICA, "fenced"
    world.heartbeat(3)
    assert code(world.alter_partition((1, 2, (3, world.epochs[3] - 1)))) is ErrorCode.INELIGIBLE_REPLICA, "rebooted since"
    world.create("other", assignments=[[2, 1]])
    world.heartbeat(2, want_shut_down=True)
    assert world.state.cluster.brokers[NodeId(2)].in_controlled_shutdown
    assert code(world.alter_partition((1, 2))) is ErrorCode.INELIGIBLE_REPLICA, "shutting down"
    assert code(world.alter_partition((1, (3, None)))) is ErrorCode.NONE, "no epoch: not checked"


def test_bl_12_no_way_back_into_the_isr_during_a_controlled_shutdown(world: World) -> None:
    world.create("other", assignments=[[2, 1]])
    world.heartbeat(2, want_shut_down=True)
    assert world.partition().isr == (1,), "it left every ISR that has another member"
    for member in (2, (2, None)):
        assert code(world.alter_partition((1, member))) is ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (1,)


def test_cm_32_success_and_no_op_return_the_state(world: World) -> None:
    world.heartbeat(3)
    answer = world.alter_partition((3, 2, 1)).value.partitions[0]
    assert (answer.leader_id, answer.isr, answer.leader_epoch, answer.partition_epoch) == (1, (1, 2, 3), 0, 2)
    assert world.partition().partition_epoch == 2


def test_cm_32_asking_for_the_isr_as_it_is_makes_earlier_proposals_void(world: World) -> None:
    """Departs: Kafka writes no record then, so that a delayed proposal that was refused can still be carried out."""
    epoch = world.partition().partition_epoch
    assert code(world.alter_partition((1, 2, 3))) is ErrorCode.INELIGIBLE_REPLICA
    withdrawn = world.alter_partition((2, 1)).value.partitions[0]
    assert (withdrawn.isr, withdrawn.leader_epoch, withdrawn.partition_epoch) == ((1, 2), 0, epoch + 1)
    world.heartbeat(3)
    assert code(world.alter_partition((1, 2, 3), partition_epoch=epoch)) is ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition().isr == (1, 2)


def test_cm_33_a_change_that_completes_a_reassignment_and_moves_the_leader(world: World) -> None:
    world.heartbeat(3)
    info = world.state.replication.topic("t")
    info.partitions[0] = partition(
        replicas=ids(2, 3, 1), isr=ids(1, 2), leader_epoch=0, removing_replicas=ids(1), adding_replicas=ids(3)
    )
    end = world.quorum.leo
    assert code(world.alter_partition((1, 2, 3))) is ErrorCode.NEW_LEADER_ELECTED
    assert world.quorum.leo == end + 1
    after = world.partition()
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((2, 3), (2, 3), 2, 1)
    assert (after.adding_replicas, after.removing_replicas) == ((), ())


def test_cm_38_preferred(world: World) -> None:
    def elect(*partitions: tuple[str, int]) -> list[ErrorCode]:
        return [result.error for result in world.elect(0, *partitions).value.results]

    world.create("u", assignments=[[3, 1]])
    assert elect(("t", 0), ("u", 0), ("t", 9), ("no", 0)) == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    world.heartbeat(3)
    assert elect(("u", 0)) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], "live, but not in the ISR"
    _ = world.alter_partition((1, 3), topic="u").value
    assert elect(("u", 0)) == [ErrorCode.NONE]
    assert world.partition("u").leader == 3


def test_cm_38_unclean(world: World) -> None:
    assert [r.error for r in world.elect(1, ("t", 0)).value.results] == [ErrorCode.ELECTION_NOT_NEEDED]
    world.fence(2)
    world.fence(1)
    assert [r.error for r in world.elect(1, ("t", 0)).value.results] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert world.elect(7, ("t", 0)).code is ErrorCode.INVALID_REQUEST


def test_cm_38_all_partitions_leaves_out_what_is_not_needed(world: World) -> None:
    world.create("u", assignments=[[3, 1]])
    results = world.elect(0, everything=True).value.results
    assert [(r.topic, r.partition, r.error) for r in results] == [("u", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_no_change_is_no_record() -> None:
    assert change(partition()) is None
    record = change(partition(isr=ids(1, 2)), isr=ids(1, 2, 3))
    assert (record.leader, record.replicas, record.recovering) == (UNCHANGED, UNCHANGED, UNCHANGED)


def test_ce_30_a_partition_without_a_leader_is_not_led_by_its_preferred_replica() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2], [2, 1]])
    world.fence(2)
    world.fence(1)
    metrics = world.active.core.metrics
    assert (metrics.offline_partitions_count, metrics.preferred_replica_imbalance_count) == (2, 2)
