"""CM-01 to CM-14, CM-39, CM-40: registration and broker control states."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlite.controller.heartbeats import BrokerControlState, HeartbeatManager
from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import UNCHANGED, NodeId
from kraftlite.model.messages.controller import (
    BrokerHeartbeatRequest,
    ControllerRegistrationRequest,
    FeatureRange,
    FeatureUpdate,
    UpdateFeaturesRequest,
)
from tests.harness.controller_world import CLUSTER_ID, World, check_invariants

MV_RANGE = FeatureRange(name=METADATA_VERSION, min_level=7, max_level=30)


def registered(world: World, broker_id: int):  # type: ignore[no-untyped-def]
    return world.state.cluster.brokers[NodeId(broker_id)]


def test_cm_01_wrong_cluster_id() -> None:
    assert World().register(1, cluster_id="other").code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_cm_01_live_duplicate_is_refused_until_the_session_expires() -> None:
    world = World()
    world.start_brokers(1)
    assert world.register(1, incarnation=2).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.advance(10_500)
    assert world.register(1, incarnation=2).code is ErrorCode.NONE


def test_cm_01_a_registration_is_itself_a_sign_of_life() -> None:
    world = World()
    world.register(1)
    assert world.register(1, incarnation=2).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_cm_01_same_incarnation_is_idempotent() -> None:
    world = World()
    world.start_brokers(1)
    before = registered(world, 1)
    assert world.register(1).value.broker_epoch == before.broker_epoch
    assert registered(world, 1) == before
    assert not before.fenced


def test_cm_01_a_broker_on_its_way_down_is_alive() -> None:
    """As in Kafka: it leads until it is told to stop. Another process with its id must wait until it is silent for a session."""
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    before = world.register(2).value.broker_epoch
    assert not world.heartbeat(1, want_shut_down=True, offset=0).value.should_shut_down
    assert registered(world, 1).in_controlled_shutdown
    assert world.register(1, incarnation=2).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert registered(world, 1).in_controlled_shutdown
    for _ in range(4):
        world.advance(3_000)
        world.heartbeat(2)
    assert world.register(1, incarnation=2).value.broker_epoch > before
    assert not registered(world, 1).in_controlled_shutdown


def test_cm_01_a_broker_that_was_told_to_shut_down_may_return_at_once() -> None:
    world = World()
    world.start_brokers(1)
    assert world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert world.register(1, incarnation=2).code is ErrorCode.NONE


def test_cm_02_new_incarnation_gets_its_record_offset_as_epoch_and_starts_fenced() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2], [2, 1]])
    first = world.epochs[1]
    world.heartbeat(1, want_shut_down=True)
    world.heartbeat(2)
    assert world.heartbeat(1, want_shut_down=True).value.should_shut_down
    second = world.register(1, incarnation=2).value.broker_epoch
    assert second > first
    offset = next(
        batch.base_offset + index
        for batch in reversed(world.quorum.batches)
        for index, record in enumerate(batch.records)
        if isinstance(record, RegisterBrokerRecord)
    )
    assert second == offset
    assert registered(world, 1).fenced
    assert not registered(world, 1).in_controlled_shutdown


def test_cm_02_epoch_counts_the_cleanup_records_before_it() -> None:
    world = World(2)
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2], [2, 1]])
    world.quorum.elect(101)
    world.settle()
    # A failed-over controller and a fenced flag that is still unset: the session is over before the fencing task ran.
    world.state.cluster.tracker.remove(NodeId(1), world.epochs[1])
    epoch = world.register(1, incarnation=2).value.broker_epoch
    batch = world.quorum.batches[-1]
    assert [type(record) for record in batch.records] == [PartitionChangeRecord, PartitionChangeRecord, RegisterBrokerRecord]
    assert epoch == batch.last_offset
    assert world.partition("t", 0).isr == world.partition("t", 1).isr == (2,)
    check_invariants(world.active.core)


def test_cm_36_a_new_incarnation_leaves_every_isr_that_has_others() -> None:
    """It may have lost what it had not flushed. Where it is alone, nobody else has the records, and it stays (CM-28)."""
    world = World(2)
    world.start_brokers(1, 2)
    world.create("shared", assignments=[[1, 2]])
    world.create("alone", assignments=[[1]])
    world.state.cluster.tracker.remove(NodeId(1), world.epochs[1])  # its session is over, its fencing not yet written
    world.register(1, incarnation=2)
    assert (world.partition("shared").leader, world.partition("shared").isr) == (2, (2,))
    assert (world.partition("alone").leader, world.partition("alone").isr) == (None, (1,))
    check_invariants(world.active.core)


@pytest.mark.parametrize(
    ("features", "code"),
    [
        ((MV_RANGE,), ErrorCode.NONE),
        ((FeatureRange(name=METADATA_VERSION, min_level=7, max_level=29),), ErrorCode.UNSUPPORTED_VERSION),
        ((), ErrorCode.UNSUPPORTED_VERSION),
        ((MV_RANGE, FeatureRange(name="x", min_level=0, max_level=1)), ErrorCode.NONE),
        ((MV_RANGE, FeatureRange(name="x", min_level=1, max_level=1)), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_cm_03_finalized_features_must_be_in_range(features: tuple[FeatureRange, ...], code: ErrorCode) -> None:
    assert World().register(1, features=features).code is code


def test_cm_04_directory_ids() -> None:
    world = World()
    mine, other = UUID(int=5_000), UUID(int=6_000)
    assert world.register(1, log_dirs=(mine,)).code is ErrorCode.NONE
    for bad in ((), (UUID(int=3),), (other, other), (other, mine)):
        assert world.register(2, log_dirs=bad).code is ErrorCode.INVALID_REGISTRATION
    assert world.register(2, log_dirs=(other,)).code is ErrorCode.NONE


def test_cm_05_unknown_or_stale_heartbeat() -> None:
    world = World()
    world.start_brokers(1)
    assert world.heartbeat(1, epoch=world.epochs[1] + 1).code is ErrorCode.STALE_BROKER_EPOCH
    assert world.heartbeat(9, epoch=1).code is ErrorCode.STALE_BROKER_EPOCH


FENCED, UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
SHUTTING, NOW = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW


@pytest.mark.parametrize(
    ("current", "want_fence", "want_shut_down", "offset", "leads", "expected"),
    [
        (FENCED, False, False, 10, False, UNFENCED),
        (FENCED, False, False, 9, False, FENCED),
        (FENCED, True, False, 10, False, FENCED),
        (FENCED, False, True, 0, True, NOW),
        (UNFENCED, False, False, 0, True, UNFENCED),
        (UNFENCED, True, False, 10, True, FENCED),
        (UNFENCED, True, True, 10, True, NOW),
        (UNFENCED, False, True, 10, False, NOW),
        (UNFENCED, False, True, 10, True, SHUTTING),
        (SHUTTING, False, True, 10, True, SHUTTING),
        (SHUTTING, False, True, 10, False, NOW),
    ],
)
def test_cm_06_cm_07_state_table(
    current: BrokerControlState,
    want_fence: bool,
    want_shut_down: bool,
    offset: int,
    leads: bool,
    expected: BrokerControlState,
) -> None:
    live = HeartbeatManager(9_000)
    live.register(NodeId(1), current is FENCED)
    if current is SHUTTING:
        live.fix_controlled_shutdown_offset(NodeId(1), 20)
    request = BrokerHeartbeatRequest(
        broker_id=NodeId(1),
        broker_epoch=1,
        current_metadata_offset=offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=(),
    )
    assert live.next_state(request, 10, lambda: leads) == (current, expected)


def test_cm_08_controlled_shutdown_waits_for_the_slowest_active_broker() -> None:
    world = World(session_timeout_ms=9_000)
    world.start_brokers(1, 2, 3)
    world.create("t", assignments=[[1, 2, 3]])
    behind = world.quorum.leo - 1
    world.heartbeat(2)
    world.heartbeat(3, offset=behind)
    assert not world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert world.partition().leader == 2
    world.heartbeat(2)
    fixed = world.state.cluster.heartbeats.brokers[NodeId(1)].controlled_shutdown_offset
    assert not world.heartbeat(1, want_shut_down=True).value.should_shut_down, "broker 3 has not seen the move"
    world.create("later", assignments=[[2, 3]])
    assert not world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert world.state.cluster.heartbeats.brokers[NodeId(1)].controlled_shutdown_offset == fixed
    world.heartbeat(3, offset=fixed)
    assert world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert registered(world, 1).fenced


def test_cm_08_a_fenced_slow_broker_no_longer_holds_it_up() -> None:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("t", assignments=[[1, 2, 3]])
    world.heartbeat(3, offset=0)
    world.heartbeat(1, want_shut_down=True)
    for _ in range(11):
        world.advance(1_000)
        world.heartbeat(2)
        answer = world.heartbeat(1, want_shut_down=True).value
        if answer.should_shut_down:
            break
    assert answer.should_shut_down
    assert registered(world, 3).fenced


def test_cm_09_is_caught_up_is_about_the_registration_offset() -> None:
    world = World()
    world.register(1)
    assert not world.heartbeat(1, offset=world.epochs[1] - 1).value.is_caught_up
    assert world.heartbeat(1, offset=world.epochs[1]).value.is_caught_up


def test_cm_10_session_expiry_fences_with_the_fence_record_last() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2], [2, 1]])
    start = world.now_ms
    fenced_at = None
    while fenced_at is None and world.now_ms < start + 13_000:
        world.advance(100)
        world.heartbeat(2)
        if registered(world, 1).fenced:
            fenced_at = world.now_ms - start
    assert fenced_at is not None
    assert 9_000 < fenced_at <= 10_500
    records = [r for r in world.quorum.records() if isinstance(r, PartitionChangeRecord | BrokerRegistrationChangeRecord)][-3:]
    assert [type(record) for record in records] == [
        PartitionChangeRecord,
        PartitionChangeRecord,
        BrokerRegistrationChangeRecord,
    ]
    assert (world.partition("t", 0).leader, world.partition("t", 0).isr) == (2, (2,))


def test_cm_10_what_it_led_gets_its_leader_before_other_isrs_become_smaller() -> None:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("a", assignments=[[2, 1, 3], [1, 2, 3], [3, 1, 2], [1, 3, 2]])
    world.create("b", assignments=[[2, 3, 1], [1, 3, 2]])
    world.fence(1)
    (batch,) = [
        it.records for it in world.quorum.batches if it.records and isinstance(it.records[-1], BrokerRegistrationChangeRecord)
    ][-1:]
    changes = [record for record in batch if isinstance(record, PartitionChangeRecord)]
    named = [(world.state.replication.name_of(record.topic_id), record.partition) for record in changes]
    assert named == [("a", 1), ("a", 3), ("b", 1), ("a", 0), ("a", 2), ("b", 0)]
    assert [record.leader is not UNCHANGED for record in changes] == [True] * 3 + [False] * 3
    assert batch[-1] == BrokerRegistrationChangeRecord(broker_id=NodeId(1), broker_epoch=world.epochs[1], fenced=True)
    check_invariants(world.active.core)


def test_cm_11_unfencing_revives_what_only_this_broker_can_lead() -> None:
    world = World()
    world.start_brokers(1)
    world.create("t", assignments=[[1]])
    world.fence(1)
    assert (world.partition().leader, world.partition().isr) == (None, (1,))
    world.heartbeat(1)
    assert world.partition().leader == 1
    batch = world.quorum.batches[-1].records
    assert [type(record) for record in batch] == [BrokerRegistrationChangeRecord, PartitionChangeRecord]


def test_cm_12_unregister() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    elections = world.state.elections
    assert world.submit("x", lambda _now: elections.unregister(NodeId(9))).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert world.submit("x", lambda _now: elections.unregister(NodeId(1))).code is ErrorCode.NONE
    assert NodeId(1) not in world.state.cluster.brokers
    assert (world.partition().leader, world.partition().isr, world.partition().replicas) == (2, (2,), (1, 2))
    assert world.register(1, incarnation=2).code is ErrorCode.NONE
    check_invariants(world.active.core)


def register_controller(world: World, controller_id: int, max_level: int = 30, cluster_id: str = CLUSTER_ID) -> None:
    request = ControllerRegistrationRequest(
        cluster_id=cluster_id,
        controller_id=NodeId(controller_id),
        incarnation_id=UUID(int=controller_id),
        listeners=(),
        features=(FeatureRange(name=METADATA_VERSION, min_level=7, max_level=max_level),),
    )
    _ = world.submit("register_controller", lambda _now: world.state.cluster.register_controller(request)).value


def test_cm_13_feature_upgrades_wait_for_every_controller() -> None:
    from kraftlite.metadata.records import FeatureLevelRecord

    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=20),), quorum_voters=(NodeId(100), NodeId(101)))
    update = FeatureUpdate(name=METADATA_VERSION, level=21, upgrade_type=1)
    request = UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=1_000)
    register_controller(world, 100)
    answer = world.submit("update", lambda _now: world.state.features.update(request))
    assert answer.code is ErrorCode.INVALID_UPDATE_VERSION
    assert "101" in str(answer.error)
    register_controller(world, 101)
    assert world.submit("update", lambda _now: world.state.features.update(request)).code is ErrorCode.NONE
    assert world.state.features.metadata_version == 21


def test_dq_46_feature_upgrades_wait_for_the_voters_of_now_and_not_for_those_of_the_start() -> None:
    from kraftlite.metadata.records import FeatureLevelRecord

    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=20),), quorum_voters=(NodeId(100), NodeId(101)))
    update = FeatureUpdate(name=METADATA_VERSION, level=21, upgrade_type=1)
    request = UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=1_000)
    register_controller(world, 100)
    voters = [NodeId(100), NodeId(102)]
    world.state.features.voters = lambda: tuple(voters)
    answer = world.submit("update", lambda _now: world.state.features.update(request))
    assert answer.code is ErrorCode.INVALID_UPDATE_VERSION and "102" in str(answer.error)
    voters.remove(NodeId(102))
    assert world.submit("update", lambda _now: world.state.features.update(request)).code is ErrorCode.NONE


def test_cm_13_a_controller_of_another_cluster_is_refused() -> None:
    world = World()
    with pytest.raises(ApiError) as refused:
        register_controller(world, 100, cluster_id="other")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_cm_14_inactive_brokers_are_neither_leaders_nor_isr_members_of_new_partitions() -> None:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("hold", assignments=[[3, 2]])
    world.fence(1)
    world.heartbeat(2, offset=0)
    world.heartbeat(3, want_shut_down=True)
    assert registered(world, 3).in_controlled_shutdown
    world.create("t", 6, 2)
    for index in range(6):
        partition = world.partition("t", index)
        assert partition.replicas == (2, 1), "broker 3 is leaving and gets nothing new"
        assert (partition.leader, partition.isr) == (2, (2,))
    assert world.alter_partition((2, 1)).value.partitions[0].error is ErrorCode.INELIGIBLE_REPLICA


def test_cm_39_controlled_shutdown_moves_leaders_before_the_exit() -> None:
    """As in Kafka, a partition without another ISR member has no leader once the shutdown begins: CM-08 wants no leaderships."""
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]] * 3)
    world.create("alone", assignments=[[1]])
    assert not world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert {world.partition("t", index).leader for index in range(3)} == {2}
    assert (world.partition("alone").leader, world.partition("alone").isr) == (None, (1,))
    world.heartbeat(2)
    assert world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert world.partition("alone").isr == (1,)
    world.register(1, incarnation=2)
    world.heartbeat(1)
    assert world.partition("alone").leader == 1
    check_invariants(world.active.core)


def test_cm_40_a_fenced_broker_is_in_no_isr_of_two_or_more() -> None:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("t", 9, 3)
    for broker in (2, 3, 1):
        world.fence(broker)
        check_invariants(world.active.core)
    assert {world.partition("t", index).isr for index in range(9)} == {(1,)}


def test_cm_offline_directory_takes_its_replicas_out_of_the_isr() -> None:
    from kraftlite.metadata.records import PartitionRecord, TopicRecord

    world = World()
    good, bad = UUID(int=5_001), UUID(int=5_002)
    world.register(1, log_dirs=(good, bad))
    world.heartbeat(1)
    world.start_brokers(2)
    topic_id, placed = UUID(int=777), UUID(int=1_000_002)
    records = [TopicRecord(name="t", topic_id=topic_id)]
    for index, directory in enumerate((good, bad)):
        records.append(
            PartitionRecord(  # type: ignore[arg-type]
                topic_id=topic_id,
                partition=index,
                replicas=(NodeId(1), NodeId(2)),
                isr=(NodeId(1), NodeId(2)),
                leader=NodeId(1),
                leader_epoch=0,
                partition_epoch=0,
                directories=(directory, placed),
            )
        )
    from kraftlite.controller.results import ControllerResult

    world.submit("direct", lambda _now: ControllerResult(records=records, response=None))  # type: ignore[arg-type]
    world.heartbeat(1, offline=(bad,))
    assert [world.partition("t", index).leader for index in (0, 1)] == [1, 2]
    assert registered(world, 1).log_dirs == (good,)


def test_stale_epoch_raises_before_anything_is_written() -> None:
    world = World()
    with pytest.raises(ApiError):
        world.state.cluster.check_epoch(NodeId(3), 1)
