"""CE-01 to CE-31: the controller's event loop, on cores over a fake quorum."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from kraftlite.controller.events import Internal, Write, classify
from kraftlite.controller.queue import QueueClosed, QueueTimeout
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.turns import at_once
from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from kraftlite.model.errors import ApiError, ErrorCode, Fault, HalfChanged
from kraftlite.model.ids import NodeId, random_uuid
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.runtime.durations import DurationSummary
from kraftlite.runtime.trace.controller import OperationFailed
from tests.harness.controller_raft import FakeSnapshot
from tests.harness.controller_world import Answer, World, check_invariants

LEVEL = FeatureLevelRecord(name=METADATA_VERSION, level=30)


def topic_record(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=random_uuid(random.Random(name)))


def config(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=value)


def write(*records: MetadataRecord, response: object = "ok", atomic: bool = False) -> ControllerResult[object]:
    return ControllerResult(records=list(records), response=response, atomic=atomic)


def test_ce_01_concurrent_creations_of_one_name_give_one_success() -> None:
    world = World(commit_at_once=False)
    world.commit()
    world.commit_at_once = True
    world.start_brokers(1)
    world.commit_at_once = False
    answers = [world.create_many(world.topic("same")) for _ in range(200)]
    world.commit()
    codes = [answer.value.topics[0].error for answer in answers]
    assert codes.count(ErrorCode.NONE) == 1
    assert codes.count(ErrorCode.TOPIC_ALREADY_EXISTS) == 199


def test_ce_02_due_deferred_events_run_before_ordinary_ones() -> None:
    world = World()
    core, ran = world.active.core, list[str]()

    def event(name: str) -> Write[Any]:
        return Write(name, lambda _now: (ran.append(name), write())[1], Answer())

    core.queue.append(event("ordinary"), world.now_ms)
    core.queue.schedule_deferred("tag", event("replaced"), world.now_ms + 5, world.now_ms)
    core.queue.schedule_deferred("tag", event("deferred"), world.now_ms + 5, world.now_ms)
    core.queue.prepend(event("prepended"), world.now_ms)
    world.now_ms += 5
    world.settle()
    assert ran == ["deferred", "prepended", "ordinary"]


def test_ce_03_an_expired_event_never_executes() -> None:
    world = World()
    core, answer, ran = world.active.core, Answer(), list[int]()
    core.submit("late", lambda now: (ran.append(now), write())[1], answer, world.now_ms, deadline_ms=world.now_ms + 10)
    world.now_ms += 11
    world.settle()
    assert answer.code is ErrorCode.REQUEST_TIMED_OUT
    assert ran == []


def test_ce_04_closing_answers_with_timeouts() -> None:
    world = World(commit_at_once=False)
    world.commit()
    core = world.active.core
    parked = world.submit("parked", lambda _now: write(config("1")))
    queued, late = Answer(), Answer()
    core.submit("queued", lambda _now: write(), queued, world.now_ms)
    core.close(world.now_ms)
    core.submit("late", lambda _now: write(), late, world.now_ms)
    assert [answer.code for answer in (parked, queued, late)] == [ErrorCode.REQUEST_TIMED_OUT] * 3


def test_ce_05_pipeline_order() -> None:
    world = World()
    node = world.active
    order = node.raft.calls
    order.clear()
    replay = node.core.state.replay

    def spy(record: MetadataRecord, offset: int) -> None:
        order.append("replay")
        replay(record, offset)

    node.core.state.replay = spy  # type: ignore[method-assign]
    world.submit("op", lambda _now: (order.append("compute"), write(config("1"), config("2")))[1])
    assert order == ["compute", "prepare_append", "replay", "replay", "schedule_prepared_append"]


def test_ce_05_computing_records_does_not_mutate() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", 3, 2)
    before = world.active.core.state_hash()
    state = world.state
    records: list[MetadataRecord] = []
    records += at_once(state.elections.unregister(NodeId(1))).records
    at_once(state.elections.fence(NodeId(1), records))
    at_once(state.elections.enter_controlled_shutdown(NodeId(1), records))
    assert sum(isinstance(record, PartitionChangeRecord) for record in records) >= 3
    assert world.active.core.state_hash() == before


def test_ce_06_success_only_when_stable() -> None:
    world = World(3)
    world.start_brokers(1)
    world.commit_at_once = False
    answer = world.create_many(world.topic("t"))
    assert not answer.done
    assert "t" in world.state.replication.topic_ids
    world.commit()
    assert answer.value.topics[0].error is ErrorCode.NONE


def test_ce_07_a_write_without_records_waits_for_what_is_pending() -> None:
    world = World()
    assert world.submit("idle", lambda _now: write()).done
    world.commit_at_once = False
    first = world.submit("first", lambda _now: write(config("1")))
    empty = world.submit("empty", lambda _now: write(response="seen"))
    second = world.submit("second", lambda _now: write(config("2")))
    assert not empty.done
    world.quorum.commit(1)
    world.settle()
    assert (first.done, empty.done, second.done) == (True, True, False)


def test_ce_08_reads_see_the_stable_state_only() -> None:
    world = World()
    world.start_brokers(1)
    world.commit_at_once = False
    world.create_many(world.topic("t"))
    core, seen = world.active.core, Answer()

    def names(epoch: int) -> list[str]:
        return [name for name, _ in core.state.replication.topic_ids.items(epoch)]

    core.read("read", names, seen, world.now_ms)
    world.settle()
    assert seen.value == []
    world.commit()
    seen = Answer()
    core.read("read", names, seen, world.now_ms)
    world.settle()
    assert seen.value == ["t"]


def test_ce_08_reads_do_not_see_into_an_open_transaction() -> None:
    world = World()
    world.submit("begin", lambda _now: write(BeginTransactionRecord(name="x"), config("1")))
    core, seen = world.active.core, Answer()
    core.read("read", lambda epoch: core.state.configs.get((4, ""), epoch), seen, world.now_ms)
    world.settle()
    assert seen.value == {}


def test_ce_09_not_active_refuses_with_not_controller() -> None:
    world = World(2)
    standby = world.nodes[101]
    answer = world.submit("op", lambda _now: write(config("1")), node=standby)
    assert answer.code is ErrorCode.NOT_CONTROLLER
    assert answer.error is not None
    assert "node 100" in str(answer.error.message)


def test_ce_10_replay_failure_is_fatal_before_raft_is_offered_the_record() -> None:
    world = World()
    world.active.raft.calls.clear()
    with pytest.raises(Fault, match="cannot apply ProducerIdsRecord"):
        world.submit("bad", lambda _now: write(ProducerIdsRecord(broker_id=NodeId(1), broker_epoch=1, next_producer_id=0)))
    assert world.nodes[100].raft.calls == ["prepare_append"]
    assert len(world.quorum.records()) == 3


def test_ce_11_claim_runs_activation_before_queued_work() -> None:
    world = World(elect=False)
    core, ran = world.nodes[100].core, list[int]()
    world.quorum.elect(100)
    answer = Answer()
    core.submit("early", lambda _now: (ran.append(len(world.quorum.records())), write())[1], answer, world.now_ms)
    assert not core.periodic.active
    world.settle()
    assert ran == [3], "the three activation records were written first"
    assert answer.code is ErrorCode.NONE
    assert core.periodic.active
    assert core.state.cluster.heartbeats is not None
    assert [event.event for event in world.nodes[100].tracer.events][:2] == ["controller.claimed", "controller.activated"]


def test_ce_12_renounce_reverts_what_was_not_committed() -> None:
    world = World(3)
    world.start_brokers(1)
    world.create("kept")
    before = world.active.core.state_hash()
    world.commit_at_once = False
    old = world.active
    answer = world.create_many(world.topic("lost"))
    assert old.core.state_hash() != before
    world.quorum.elect(101)
    world.settle()
    assert answer.code is ErrorCode.NOT_CONTROLLER
    assert not old.core.active
    assert not old.core.periodic.active
    assert "resign 1" in old.raft.calls
    assert old.core.state_hash() == before
    assert {node.core.state_hash() for node in world.nodes.values()} == {before}
    assert world.active is world.nodes[101]


def test_ce_13_a_new_active_controller_continues_at_its_log_end() -> None:
    world = World(3)
    world.start_brokers(1)
    world.create("t")
    world.quorum.elect(102)
    world.settle()
    assert world.active is world.nodes[102]
    end = world.quorum.leo
    assert world.create("u").error is ErrorCode.NONE
    assert world.quorum.batches[-1].base_offset == end
    assert len({node.core.state_hash() for node in world.nodes.values()}) == 1


@pytest.mark.parametrize(
    "records",
    [
        (BeginTransactionRecord(name="a"), BeginTransactionRecord(name="b")),
        (EndTransactionRecord(),),
        (AbortTransactionRecord(),),
    ],
)
def test_ce_16_misplaced_transaction_records_are_errors(records: tuple[MetadataRecord, ...]) -> None:
    world = World(2)
    with pytest.raises(Fault, match="transaction"):
        world.submit("bad", lambda _now: write(*records))


@pytest.mark.parametrize("record", [BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()])
def test_ce_16_transaction_records_in_a_snapshot_are_errors(record: MetadataRecord) -> None:
    world = World(2)
    world.nodes[101].raft.load_snapshot(FakeSnapshot(OffsetAndEpoch(epoch=1, offset=50), [(LEVEL, record)]))
    with pytest.raises(Fault, match="metadata snapshot"):
        world.settle()


def test_ce_16_stable_stays_before_an_open_transaction_and_abort_restores() -> None:
    world = World(2)
    before = world.active.core.state_hash()
    begin = world.quorum.leo
    world.submit("begin", lambda _now: write(BeginTransactionRecord(name="x"), config("1")))
    world.submit("more", lambda _now: write(config("2")))
    for node in world.nodes.values():
        assert node.core.offsets.committed_offset == world.quorum.leo - 1
        assert node.core.offsets.stable_offset == begin - 1
    world.submit("abort", lambda _now: write(AbortTransactionRecord(reason="test")))
    for node in world.nodes.values():
        assert node.core.state_hash() == before
        assert node.core.offsets.stable_offset == world.quorum.leo - 1


def test_ce_16_losing_an_uncommitted_abort_brings_the_transaction_back() -> None:
    world = World(2)
    world.submit("begin", lambda _now: write(BeginTransactionRecord(name="x"), config("1")))
    inside = world.active.core.state_hash()
    world.commit_at_once = False
    old = world.active
    world.submit("abort", lambda _now: write(AbortTransactionRecord(reason="test")))
    world.quorum.elect(101)
    old.run()
    assert old.core.state_hash() == inside
    world.commit_at_once = True
    world.settle()
    assert {len(node.core.state.configs.configs) for node in world.nodes.values()} == {0}


def test_ce_17_atomic_is_one_batch_and_others_split() -> None:
    world = World()
    many = [config(str(number)) for number in range(10_001)]
    world.submit("split", lambda _now: write(*many))
    assert [len(batch.records) for batch in world.quorum.batches[-2:]] == [10_000, 1]
    batches = len(world.quorum.batches)
    world.submit("fits", lambda _now: write(*many[:10_000], atomic=True))
    assert len(world.quorum.batches) == batches + 1


def test_ce_17_an_oversized_atomic_result_is_an_internal_error() -> None:
    world = World(2)
    many = [config(str(number)) for number in range(10_001)]
    answer = world.submit("atomic", lambda _now: write(*many, atomic=True))
    assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(world.quorum.records()) == 3


def test_ce_18_a_user_operation_has_a_limit() -> None:
    world = World()
    world.start_brokers(1)
    end = world.quorum.leo
    answer = world.create_many(world.topic("t", 10_001))
    assert answer.code is ErrorCode.POLICY_VIOLATION
    assert answer.error is not None
    assert "10000" in str(answer.error.message)
    assert world.quorum.leo == end
    assert world.active.core.active


def test_ce_19_validate_only_answers_the_same_and_writes_nothing() -> None:
    world = World()
    world.start_brokers(1)
    end = world.quorum.leo
    assert world.create("t", 2, validate_only=True).num_partitions == 2
    assert world.create("t", 2, 5, validate_only=True).error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.set_config(4, "", ("log.retention.ms", 0, "5"), validate_only=True).value.resources[0].error is ErrorCode.NONE
    assert world.quorum.leo == end


def test_ce_20_api_errors_pass_without_failover() -> None:
    world = World(2)

    def refuse(_now: int) -> ControllerResult[object]:
        raise ApiError(ErrorCode.INVALID_REQUEST, "no")

    assert world.submit("refused", refuse).code is ErrorCode.INVALID_REQUEST
    assert world.active is world.nodes[100]


def test_ce_20_lost_leadership_becomes_not_controller_and_renounces() -> None:
    world = World(2)
    node = world.active
    node.raft.fail_prepare = ApiError(ErrorCode.NOT_CONTROLLER, "lost")
    assert world.submit("op", lambda _now: write(config("1"))).code is ErrorCode.NOT_CONTROLLER
    assert not node.core.active


def test_ce_20_an_operation_that_breaks_before_anything_changed_costs_its_request() -> None:
    world = World(2)
    node = world.active

    def broken(_now: int) -> ControllerResult[object]:
        raise KeyError("bug")

    assert world.submit("op", broken).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.core.active
    (failed,) = [event for event in node.tracer.events if isinstance(event, OperationFailed)]
    assert (failed.operation, failed.message) == ("op", "KeyError: 'bug'")
    assert failed.trace is not None and "in broken" in failed.trace
    assert world.submit("op", lambda _now: write(config("1"))).error is None


def test_ce_20_an_internal_error_behind_that_answers_and_renounces() -> None:
    world = World(2)
    node = world.active
    node.raft.fail_prepare = KeyError("bug")
    assert world.submit("op", lambda _now: write(config("1"))).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not node.core.active
    assert node.raft.calls[-1] == "resign 1"


@pytest.mark.parametrize("node_id", [100, 101])
def test_ce_20_a_commit_that_is_taken_in_part_ends_the_node(node_id: int) -> None:
    """As it was, a standby told of it in its trace and went on, without the rest of what was committed."""
    world = World(2)
    node = world.nodes[node_id]

    def broken(*_args: object) -> bool:
        raise KeyError("a bug")

    node.core.offsets.handle_commit = broken  # type: ignore[method-assign]
    with pytest.raises(HalfChanged, match="controller handle_commit: KeyError: 'a bug'"):
        world.submit("op", lambda _now: write(config("1")))


def test_ce_20_one_function_classifies() -> None:
    for error in (QueueTimeout("x"), QueueClosed("x")):
        verdict = classify(error)
        assert (verdict.answer.code, verdict.renounce, verdict.fatal) == (ErrorCode.REQUEST_TIMED_OUT, False, False)
    assert classify(Fault("x")).fatal
    assert classify(AssertionError("x")).renounce


def test_ce_21_standbys_replay_once_the_active_does_not_reapply() -> None:
    world = World(2)
    counts: dict[int, int] = {}
    for node_id, node in world.nodes.items():
        replay = node.core.state.replay

        def spy(record: MetadataRecord, offset: int, node_id: int = node_id, replay: object = replay) -> None:
            counts[node_id] = counts.get(node_id, 0) + 1
            replay(record, offset)  # type: ignore[operator]

        node.core.state.replay = spy  # type: ignore[method-assign]
    world.submit("op", lambda _now: write(config("1"), config("2")))
    assert counts == {100: 2, 101: 2}


def test_ce_21_a_record_that_cannot_be_applied_kills_a_standby() -> None:
    class UnknownRecord:
        pass

    for record in (UnknownRecord(), PartitionChangeRecord(topic_id=topic_record("x").topic_id, partition=0)):
        with pytest.raises(Fault, match="cannot apply"):
            World(elect=False, log=[[LEVEL], [record]]).settle()  # type: ignore[list-item]


def test_ce_22_equal_offsets_equal_state() -> None:
    world = World(3)
    world.start_brokers(1, 2, 3)
    world.create("a", 5, 3, configs={"retention.ms": "5"})
    world.create("b", 2, 2)
    world.fence(2)
    world.delete("b")
    late = World(1, elect=False, log=[batch.records for batch in world.quorum.batches])
    late.settle()
    hashes = {node.core.state_hash() for node in (*world.nodes.values(), *late.nodes.values())}
    assert len(hashes) == 1


def test_ce_23_snapshot_load_resets_a_standby() -> None:
    world = World(2)
    world.start_brokers(1)
    world.create("old")
    standby = world.nodes[101]
    standby.raft.load_snapshot(FakeSnapshot(OffsetAndEpoch(epoch=1, offset=50), [(LEVEL, topic_record("new"))]))
    standby.run()
    assert list(standby.core.state.replication.topic_ids) == ["new"]
    assert len(standby.core.state.cluster.brokers) == 0
    assert standby.core.offsets.committed_offset == standby.core.offsets.stable_offset == 49


def test_ce_23_snapshot_load_on_the_active_is_fatal() -> None:
    world = World()
    world.active.raft.load_snapshot(FakeSnapshot(OffsetAndEpoch(epoch=1, offset=50), [(LEVEL,)]))
    with pytest.raises(Fault, match="active controller"):
        world.settle()


def test_ce_24_no_op_records_advance_an_idle_log() -> None:
    world = World(max_idle_interval_ms=500)
    end = world.quorum.leo
    world.advance(2_000)
    assert world.quorum.leo == end + 4
    assert world.quorum.records()[-4:] == [NoOpRecord()] * 4
    quiet = World(max_idle_interval_ms=0)
    end = quiet.quorum.leo
    quiet.advance(5_000)
    assert quiet.quorum.leo == end


def test_ce_25_contact_noted_off_the_queue_keeps_a_broker_alive() -> None:
    world = World()
    world.start_brokers(1)
    tracker = world.state.cluster.tracker
    for _ in range(8):
        # The loop is stalled: only the handler's synchronous part runs.
        world.now_ms += 2_000
        tracker.touch(NodeId(1), world.epochs[1], world.now_ms)
    world.settle()
    assert not world.state.cluster.brokers[NodeId(1)].fenced


def test_ce_26_failover_gives_each_unfenced_broker_a_fresh_session() -> None:
    world = World(2)
    world.start_brokers(1)
    world.advance(8_000)
    world.quorum.elect(101)
    world.settle()
    world.advance(8_500)
    assert not world.state.cluster.brokers[NodeId(1)].fenced
    world.advance(2_000)
    assert world.state.cluster.brokers[NodeId(1)].fenced


def test_ce_27_one_stale_broker_per_run_and_again_at_once() -> None:
    world = World()
    world.start_brokers(1, 2, 3)
    world.create("t", assignments=[[1, 2, 3]])
    while world.state.cluster.tracker.last_contact_ms(NodeId(3), world.epochs[3]) + 9_000 > world.now_ms - 1_000:
        world.now_ms += 500
        world.heartbeat(3)
        if all(world.state.cluster.brokers[NodeId(b)].fenced for b in (1, 2)):
            break
    names = [type(record).__name__ for record in world.quorum.records()[-4:]]
    assert names == ["PartitionChangeRecord", "BrokerRegistrationChangeRecord"] * 2, "one broker after the other"
    assert not world.state.cluster.brokers[NodeId(3)].fenced
    expired = [e for e in world.active.tracer.events if e.event == "controller.broker_session_expired"]
    assert len(expired) == 2


def test_ce_27_more_due_brokers_rearm_immediately() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.now_ms += 20_000
    world.active.core.step(world.now_ms)
    fenced = [b.fenced for b in world.state.cluster.brokers.values()]
    assert sorted(fenced) == [False, True]
    world.now_ms += 10
    world.settle()
    assert all(b.fenced for b in world.state.cluster.brokers.values())


def test_ce_28_preferred_leaders_are_restored_in_bounded_runs() -> None:
    world = World(preferred_election_interval_ms=60_000, max_elections_per_run=3, session_timeout_ms=10**9)
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]] * 7)
    world.fence(1)
    world.heartbeat(1)
    for index in range(7):
        assert world.alter_partition((1, 2), index=index).value.partitions[0].error is ErrorCode.NONE
    assert world.state.replication.imbalanced_count == 7
    world.now_ms += 60_000
    world.active.core.step(world.now_ms)
    world.settle()
    assert world.state.replication.imbalanced_count == 4
    world.advance(40, step_ms=10)
    assert world.state.replication.imbalanced_count == 0
    assert all(world.partition("t", index).leader == 1 for index in range(7))


def test_ce_29_unclean_sweep_serves_topics_that_allow_it() -> None:
    world = World(unclean_election_interval_ms=60_000, session_timeout_ms=10**9)
    world.start_brokers(1, 2)
    world.create("yes", assignments=[[1, 2]])
    world.create("no", assignments=[[1, 2]])
    world.fence(2)
    world.fence(1)
    world.heartbeat(2)
    world.set_config(2, "yes", ("unclean.leader.election.enable", 0, "true"))
    assert world.partition("yes").leader is None, "enabling it does not act at once"
    world.advance(60_000, step_ms=10_000)
    assert (world.partition("yes").leader, world.partition("yes").recovering) == (2, True)
    assert world.partition("no").leader is None


def test_ce_30_metrics() -> None:
    world = World(3)
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2], [2, 1]])
    world.fence(2)
    metrics = [node.core.metrics for node in world.nodes.values()]
    assert [each.active_controller_count for each in metrics] == [1, 0, 0]
    assert [each.new_active_controllers_count for each in metrics] == [1, 1, 1]
    for each in metrics:
        assert each.last_applied_record_offset == each.last_committed_record_offset == world.quorum.leo - 1
        assert (each.global_topic_count, each.global_partition_count) == (1, 2)
        assert (each.fenced_broker_count, each.active_broker_count) == (1, 1)
        assert (each.offline_partitions_count, each.preferred_replica_imbalance_count) == (0, 1)
    world.quorum.elect(101)
    world.settle()
    assert [each.new_active_controllers_count for each in metrics] == [2, 2, 2]


def test_ce_31_duplicates_are_answered_per_entry() -> None:
    world = World()
    world.start_brokers(1)
    answer = world.create_many(world.topic("a"), world.topic("b"), world.topic("a"))
    assert [topic.error for topic in answer.value.topics] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    check_invariants(world.active.core)


def test_ce_30_each_event_is_measured_by_itself_in_microseconds() -> None:
    world = World()
    world.start_brokers(1)
    core = world.active.core
    ticks = itertools.count(step=250)
    core.metrics.clock_us = lambda: next(ticks)
    core.metrics.queue_time, core.metrics.processing_time = DurationSummary(), DurationSummary()
    for _ in range(4):
        core.read("look", lambda _now: None, lambda *_: None, world.now_ms - 3)
    core.queue.schedule_deferred("t", Internal("nothing", lambda _now: None), world.now_ms, world.now_ms)
    core.step(world.now_ms, limit=5)
    assert core.metrics.processing_time == DurationSummary(count=5, total_us=5 * 250, max_us=250)
    assert core.metrics.queue_time == DurationSummary(count=4, total_us=4 * 3000 + 250 * (1 + 2 + 3 + 4), max_us=4000)
