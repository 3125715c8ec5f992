"""The small parts: deadlines, parked produces, sessions, config."""

from __future__ import annotations

import random

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.metadata.records import PartitionChangeRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionItem
from kraftlite.model.messages.replica import ReplicaFetchRequest
from kraftlite.model.tuning import Tuning
from kraftlite.replication.api import ProduceEntry, ProduceResult
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.isr import IsrState, PendingIsr, in_order
from kraftlite.replication.purgatory import GRANULARITY_MS, Deadlines
from kraftlite.replication.sessions import MAX_SESSIONS, SESSION_IDLE_MS, SessionTable
from kraftlite.runtime.trace import NullTracer
from tests.harness.clock import FakeClock
from tests.harness.replication_cluster import TOPIC_ID, TP, StepCluster, make_batch


class Item:
    def __init__(self) -> None:
        self.expired = 0

    def expire(self) -> None:
        self.expired += 1


def test_deadlines_fire_a_little_late_and_never_early() -> None:
    clock = FakeClock(now_ms=5)
    deadlines, items = Deadlines(clock), [Item() for _ in range(3)]
    deadlines.add(items[0], 100)
    deadlines.add(items[1], 50)
    due = deadlines.add(items[2], 50)
    deadlines.remove(items[2], due)
    clock.advance(49)
    assert [item.expired for item in items] == [0, 0, 0]
    clock.advance(1 + GRANULARITY_MS)
    assert [item.expired for item in items] == [0, 1, 0]
    clock.advance(100)
    assert [item.expired for item in items] == [1, 1, 0] and clock.next_deadline_ms is None


def test_deadlines_use_one_timer() -> None:
    clock = FakeClock()
    deadlines = Deadlines(clock)
    for timeout in (500, 400, 300, 30_000):
        deadlines.add(Item(), timeout)
    assert len([timer for timer in clock._timers if timer[2].callback is not None]) == 1


def test_a_produce_to_several_partitions_is_answered_once_with_the_last_verdict() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.controller.create((1, 2), index=1)
    c.publish()
    c.replicate()
    done: list[list[ProduceResult]] = []
    other = TP._replace(partition=1)
    missing = TP._replace(partition=9)
    entries = [ProduceEntry(tp=tp, topic_id=TOPIC_ID, records=make_batch(["a"])) for tp in (TP, missing, other)]
    c[1].manager.append(entries, acks=-1, timeout_ms=1_000, on_done=done.append)
    assert not done
    c.replicate()
    assert [result.error for result in done[0]] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    c.clock.advance(5_000)
    assert len(done) == 1


def test_a_produce_that_times_out_in_part_says_which_part() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.controller.create((1,), index=1)
    c.publish()
    done: list[list[ProduceResult]] = []
    entries = [ProduceEntry(tp=TP._replace(partition=n), topic_id=TOPIC_ID, records=make_batch(["a"])) for n in (0, 1)]
    c[1].manager.append(entries, acks=-1, timeout_ms=1_000, on_done=done.append)
    c.clock.advance(2_000)
    assert [result.error for result in done[0]] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


def test_isr_state_keeps_the_order_of_the_assignment() -> None:
    replicas = tuple(NodeId(n) for n in (3, 1, 2))
    assert in_order([NodeId(1), NodeId(2), NodeId(3)], replicas) == (3, 1, 2)
    isr = IsrState((NodeId(3), NodeId(2)), False)
    item = AlterPartitionItem(topic_id=TOPIC_ID, partition=0, leader_epoch=0, partition_epoch=0, new_isr=(), recovering=False)
    isr.propose(PendingIsr(item=item, added=(NodeId(1),), removed=()), replicas)
    assert isr.maximal == (3, 1, 2) and isr.committed == (3, 2)
    isr.revert()
    assert isr.maximal == (3, 2)


def fetch_request(replica: int = 2, *, session_id: int = 0, epoch: int = 0, replica_epoch: int = 1) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(
        replica_id=NodeId(replica), replica_epoch=replica_epoch, cluster_id="test", session_id=session_id, session_epoch=epoch,
        max_wait_ms=0, min_bytes=1, max_bytes=1, partition_max_bytes=1, partitions=(), forgotten=(),
    )  # fmt: skip


def test_sessions_check_id_epoch_and_owner() -> None:
    table = SessionTable(random.Random(1), NullTracer(), Tuning())
    session = table.resume(fetch_request(), 0)
    assert table.resume(fetch_request(session_id=session.session_id, epoch=1), 0) is session
    for request, code in [
        (fetch_request(session_id=session.session_id, epoch=1), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (fetch_request(session_id=session.session_id, epoch=3), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (fetch_request(session_id=session.session_id + 1, epoch=2), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (fetch_request(3, session_id=session.session_id, epoch=2), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (fetch_request(session_id=session.session_id, epoch=2, replica_epoch=2), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ]:
        with pytest.raises(ApiError) as refused:
            table.resume(request, 0)
        assert refused.value.code is code


def test_sessions_end_with_their_incarnation_when_replaced_and_when_idle() -> None:
    table = SessionTable(random.Random(1), NullTracer(), Tuning())
    first = table.resume(fetch_request(), 0)
    table.resume(fetch_request(session_id=first.session_id), 0)
    assert len(table) == 1
    table.resume(fetch_request(), 0)
    assert len(table) == 2, "another fetcher of the same broker"
    table.resume(fetch_request(replica_epoch=2), 0)
    assert len(table) == 1
    table.resume(fetch_request(3), SESSION_IDLE_MS + 1)
    assert len(table) == 1
    for replica in range(MAX_SESSIONS + 5):
        table.resume(fetch_request(replica), SESSION_IDLE_MS + 2)
    assert len(table) == MAX_SESSIONS


def test_a_session_costs_what_changed() -> None:
    """An idle partition is neither named by the follower nor looked at by the leader."""
    c = StepCluster(2)
    c.create((1, 2))
    for index in range(1, 50):
        c.controller.create((1, 2), index=index)
    c.publish()
    c.replicate()
    session = next(iter(c[1].manager._service.sessions._sessions.values()))
    assert len(session.entries) == 50 and not session.dirty
    c[1].produce(["a"], acks=1)
    assert len(session.dirty) == 1
    found = c.fetch(2)
    assert found is not None and not found[0].partitions and len(found[1].partitions) == 1


def test_a_partition_that_is_no_longer_followed_leaves_the_session() -> None:
    c = StepCluster()
    c.create((1, 2))
    c.controller.create((1, 2, 3), index=1)
    c.publish()
    c.replicate()
    c.controller.elect(c[2].id)
    c[2].catch_up()
    found = c[2].fetch_once(c[1].id)
    assert found is not None and [f.partition for f in found[0].forgotten] == [0]
    assert all(0 not in [key[1] for key in s.entries] for s in c[1].manager._service.sessions._sessions.values()
               if s.replica_id == 2)  # fmt: skip


def test_config_from_kafkas_keys() -> None:
    config = ReplicationConfig.from_values(
        {"replica.lag.time.max.ms": "10000", "num.replica.fetchers": "3"},
        broker_id=NodeId(1), cluster_id="c", inter_broker_listener_name="R",
    )  # fmt: skip
    default = ReplicationConfig(broker_id=NodeId(1), cluster_id="c", inter_broker_listener_name="R")
    assert config.lag_time_max_ms == 10_000 and config.num_fetchers == 3
    assert config.fetch_backoff_ms == default.fetch_backoff_ms == 1_000
    assert ReplicationConfig.from_values(
        {}, broker_id=NodeId(1), cluster_id="c", inter_broker_listener_name="R"
    ) == default  # fmt: skip
    with pytest.raises(ValueError, match=r"replica\.fetch\.backoff\.ms"):
        ReplicationConfig.from_values(
            {"replica.fetch.backoff.ms": "x"}, broker_id=NodeId(1), cluster_id="c", inter_broker_listener_name="R"
        )


def test_several_fetchers_share_the_partitions_of_a_leader() -> None:
    c = StepCluster(2, num_fetchers=3)
    c.create((1, 2))
    for index in range(1, 6):
        c.controller.create((1, 2), index=index)
    c.publish()
    drivers = c[2].manager._fetchers._drivers
    assert [len(driver.core) for driver, _ in drivers.values()] == [2, 2, 2]


def test_counts_for_metrics() -> None:
    c = StepCluster()
    c.create(isr=(1, 2))
    manager = c[1].manager
    assert (manager.counts.partitions(), manager.counts.leaders(), manager.counts.under_replicated()) == (1, 1, 1)
    assert (manager.counts.offline(), manager.counts.under_min_isr()) == (0, 0)
    assert c[2].manager.counts.leaders() == 0
    state = manager.replica_states(("orders",))[0]
    assert (state.is_leader, state.isr, state.topic_id) == (True, (1, 2), TOPIC_ID)
    assert manager.replica_states(("other",)) == ()


def test_reassigning_partitions_count_at_their_leader_until_it_is_over() -> None:
    c = StepCluster()
    c.create(isr=(1, 2, 3))
    counts = [c[broker].manager.counts for broker in (1, 2)]
    assert [it.reassigning() for it in counts] == [0, 0]
    for change, wanted in (({"removing_replicas": (NodeId(3),)}, 1), ({"removing_replicas": ()}, 0)):
        c.controller.write(PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, **change))
        c.publish()
        assert [it.reassigning() for it in counts] == [wanted, 0]


def test_a_batch_is_counted_as_failed_unless_clients_may_expect_its_refusal() -> None:
    c = StepCluster(log_config=LogConfig(min_insync_replicas=2))
    c.create(isr=(1,))
    traffic = c[1].partition().traffic
    c[1].produce(["x"], acks=-1)
    assert (traffic.failed_produces, traffic.produces) == (1, 0), "NOT_ENOUGH_REPLICAS"
    c[2].produce(["x"], acks=1)
    assert c[2].partition().traffic.failed_produces == 0, "NOT_LEADER_OR_FOLLOWER"
    assert c[1].consume(99).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert traffic.failed_fetches == 0


def test_metadata_from_before_a_restart_does_not_make_a_leader() -> None:
    """The log knows a newer leader epoch than the metadata does."""
    c = StepCluster()
    c.create()
    c.controller.elect(c[1].id)
    c.publish()
    c[1].produce(["a"], acks=1)
    c[1].crash(lose_page_cache=False)
    c[1].boot()
    c[1].catch_up(len(c.controller.records) - 1)
    assert c[1].partition().leader is None and c[1].log().epoch_entries[-1][0] == 1
    assert c[1].produce(["b"], acks=1)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    c[1].catch_up()
    assert c[1].partition().is_leader
