"""RF-25 to RF-40: fetching, counting, the high watermark, divergence, appending."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.log.batch import Record, build_batch, iter_batches
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.limits import RAFT_FETCH_MAX_WAIT_MS, RAFT_MAX_FETCH_BYTES, RAFT_MAX_WAITING_BATCHES
from kraftlite.model.messages.raft import OffsetAndEpoch, RaftFetchRequest
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.raft.events import AppendScheduled, ResignRequested
from kraftlite.raft.states import Candidate, Follower, Leader, Resigned
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import RaftCluster, SimNode
from tests.harness.raft_requests import answer, ask, fetch, send


def led_by_1(**overrides: object) -> tuple[RaftCluster, SimNode]:
    """Node 1 leads; its LeaderChange record is committed; the network is empty."""
    cluster = RaftCluster(**overrides)
    leader = cluster.elect(1)
    cluster.network.clear()
    return cluster, leader


def write(leader: SimNode, *records: str) -> int:
    """Append and let the linger pass; returns the LEO."""
    leader.append(*records)
    leader.advance(25)
    return leader.core.leo


def test_rf_25_a_fetch_says_where_the_log_ends_and_how_long_to_wait() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    write(leader, "a")
    cluster.settle()
    request = [m.body for m in cluster.sent if m.source == 2 and isinstance(m.body, RaftFetchRequest)][-1]
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, leader.core.epoch)
    assert request.current_leader_epoch == leader.core.epoch
    assert (request.max_wait_ms, request.max_bytes) == (RAFT_FETCH_MAX_WAIT_MS, RAFT_MAX_FETCH_BYTES) == (500, 8 << 20)


@pytest.mark.parametrize(("timeouts", "wait_ms"), [((2_000, 2_000), 500), ((2_000, 500), 250), ((400, 2_000), 100)])
def test_rf_25_an_idle_leader_answers_before_the_request_times_out(timeouts: tuple[int, int], wait_ms: int) -> None:
    fetch_timeout_ms, request_timeout_ms = timeouts
    cluster = RaftCluster(fetch_timeout_ms=fetch_timeout_ms, request_timeout_ms=request_timeout_ms)
    cluster.elect(1)
    cluster.settle()
    request = [m.body for m in cluster.sent if m.source == 2 and isinstance(m.body, RaftFetchRequest)][-1]
    assert request.max_wait_ms == wait_ms


def test_rf_25_the_leader_counts_a_fetch_as_having_everything_below() -> None:
    _, leader = led_by_1()
    leo, epoch = write(leader, "a"), leader.core.epoch
    before = leader.core.high_watermark
    assert ask(leader, fetch(epoch, leo - 1, epoch)).payload and leader.core.high_watermark == before
    ask(leader, fetch(epoch, leo, epoch))
    assert leader.core.high_watermark == leo


def test_rf_26_observers_never_move_the_high_watermark() -> None:
    cluster, leader = led_by_1(observers=(4, 5))
    leo, epoch = write(leader, "a"), leader.core.epoch
    before = leader.core.high_watermark
    for observer in (4, 5):
        ask(leader, fetch(epoch, leo, epoch, replica=observer), source=observer)
    assert leader.core.high_watermark == before
    ask(leader, fetch(epoch, leo, epoch, replica=2))
    assert leader.core.high_watermark == leo
    assert cluster


@pytest.mark.parametrize(("size", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2)])
def test_rf_26_a_majority_of_the_voters_counts_the_leader_included(size: int, needed: int) -> None:
    _, leader = led_by_1(voters=range(1, size + 1))
    leo, epoch = write(leader, "a"), leader.core.epoch
    for follower in range(2, 2 + needed):
        assert leader.core.high_watermark != leo
        ask(leader, fetch(epoch, leo, epoch, replica=follower), source=follower)
    assert leader.core.high_watermark == leo


def test_rf_26_no_log_ends_inside_a_batch() -> None:
    """Else one fetch with the id of a voter, and an offset of none, would end all nodes: nobody can apply half a batch."""
    cluster, leader = led_by_1()
    leo, epoch = write(leader, "a", "b", "c"), leader.core.epoch
    before = leader.core.high_watermark
    for offset in (leo - 1, leo - 2):
        assert ask(leader, fetch(epoch, offset, epoch)).error is ErrorCode.INVALID_REQUEST
    assert leader.core.high_watermark == before and leader.recorder.records == []
    assert next(v for v in leader.core.describe(0).voters if v.replica_id == 2).log_end_offset != leo - 1
    assert ask(leader, fetch(epoch, leo - 3, epoch)).payload
    cluster.settle()
    assert leader.core.high_watermark == leo and leader.recorder.records == ["a", "b", "c"]


def test_rf_28_a_follower_takes_no_high_watermark_inside_a_batch() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    cluster.cut(1, 3)
    write(leader, "a", "b")
    (message,) = cluster.in_flight(1, 2)
    message.body = replace(message.body, high_watermark=2)
    cluster.deliver(message)
    follower = cluster[2]
    assert follower.core.leo == 3 and follower.core.committed_offset == 1 and follower.recorder.records == []
    assert [event.reason for event in cluster.events_of(trace.PeerRefused, 2)] == ["a high watermark of 2, inside a batch"]
    cluster.settle()
    assert follower.core.committed_offset == 3 and follower.recorder.records == ["a", "b"]


def test_rf_27_the_high_watermark_does_not_follow_a_voter_backwards() -> None:
    _, leader = led_by_1()
    leo, epoch = write(leader, "a"), leader.core.epoch
    ask(leader, fetch(epoch, leo, epoch))
    assert leader.core.high_watermark == leo
    ask(leader, fetch(epoch, 0, 0))
    assert leader.core.high_watermark == leo
    assert next(v for v in leader.core.describe(0).voters if v.replica_id == 2).log_end_offset == 0


def test_rf_28_a_follower_applies_no_further_than_the_leader_says_and_no_further_than_its_log() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    cluster.cut(1, 3)
    write(leader, "a")
    follower = cluster[2]
    follower_link = cluster.in_flight(1, 2)
    assert len(follower_link) == 1
    cluster.deliver(follower_link[0])
    assert follower.core.leo == 2 and follower.core.committed_offset == 1 and follower.recorder.records == []
    cluster.settle()
    assert follower.core.committed_offset == 2 and follower.recorder.records == ["a"]


def test_rf_29_a_voter_fetches_on_only_when_its_appends_are_durable() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    cluster.auto_flush = False
    write(leader, "a")
    cluster.settle()
    follower = cluster[2]
    assert follower.core.leo == 2 and follower.flush_wanted
    assert not cluster.in_flight(2) and leader.core.high_watermark == 1
    follower.flush()
    cluster.settle()
    assert leader.core.high_watermark == 1, "the leader has not flushed, and one follower is no majority"
    leader.flush()
    assert leader.core.high_watermark == 2


def test_rf_29_an_only_voter_counts_itself_after_the_flush_and_survives_its_own_crash() -> None:
    cluster = RaftCluster((1,))
    node = cluster[1]
    cluster.auto_flush = False
    write(node, "a")
    assert node.core.leo == 2 and node.core.high_watermark == 1 and node.recorder.records == []
    node.flush()
    assert node.core.high_watermark == 2 and node.recorder.records == ["a"]
    write(node, "lost")
    cluster.auto_flush = True
    node.crash()
    node.start()
    assert node.recorder.records == ["a"]


def test_rf_29_an_observer_does_not_wait_for_its_disk() -> None:
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    cluster.run(100)
    cluster.auto_flush = False
    write(leader, "a")
    cluster.settle()
    assert cluster[4].core.leo == 2 and not cluster[4].flush_wanted


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (6, 2, OffsetAndEpoch(epoch=1, offset=3)),
        (4, 1, OffsetAndEpoch(epoch=1, offset=3)),
        (3, 1, None),
        (0, 0, None),
        (9, 3, OffsetAndEpoch(epoch=3, offset=5)),
        (5, 4, OffsetAndEpoch(epoch=3, offset=5)),
        (7, 5, OffsetAndEpoch(epoch=5, offset=6)),
        (6, 5, None),
    ],
)
def test_rf_30_diverging_positions(offset: int, epoch: int, expected: OffsetAndEpoch | None) -> None:
    _, leader = led_by_1(voters=(1,))
    log = leader.core.metalog
    log.log.truncate_fully_and_start_at(0)
    for base, batch_epoch, count in ((0, 1, 3), (3, 3, 2), (5, 5, 1)):
        records = [Record(None, b"x")] * count
        log.log.append_as_follower(build_batch(records, base_offset=base, leader_epoch=batch_epoch, timestamp_ms=1))
    assert log.check_position(offset, epoch) == (expected, None)


def test_rf_30_a_follower_truncates_and_fetches_again() -> None:
    cluster = RaftCluster()
    old = cluster.elect(1)
    cluster.isolate(1)
    write(old, "lost-1", "lost-2")
    cluster[3].advance(2_100)  # it must have given up on node 1 as well, or it grants no pre-vote
    new = cluster.elect(2)
    write(new, "kept")
    cluster.settle()
    assert old.core.leo == 3
    cluster.heal()
    cluster.run(6_000)
    assert old.core.metalog.end == new.core.metalog.end
    assert old.recorder.records == new.recorder.records == ["kept"]


def test_rf_31_truncation_below_the_high_watermark_is_fatal() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    write(leader, "a")
    cluster.settle()
    follower = cluster[2]
    assert follower.core.committed_offset == 2
    with pytest.raises(Fault, match="high watermark"):
        follower.core.metalog.truncate_to_diverging(OffsetAndEpoch(epoch=leader.core.epoch, offset=1))
    assert follower.core.leo == 2


def test_rf_32_fetches_are_checked() -> None:
    cluster, leader = led_by_1()
    epoch = leader.core.epoch
    cases = [
        (fetch(epoch, -1, 0), ErrorCode.INVALID_REQUEST),
        (fetch(epoch, 0, -1), ErrorCode.INVALID_REQUEST),
        (fetch(epoch, 0, 0, max_wait_ms=-1), ErrorCode.INVALID_REQUEST),
        (fetch(epoch, 0, epoch + 1), ErrorCode.INVALID_REQUEST),
        (fetch(epoch - 1, 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch(epoch + 1, 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch(epoch, 0, 0, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]
    for request, error in cases:
        assert ask(leader, request).error is error, request
    hint = ask(cluster[3], fetch(epoch, 0, 0))
    assert (hint.error, hint.leader_id, hint.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, epoch)
    assert hint.leader_endpoint.port == 9001
    leader.shut_down()
    assert ask(leader, fetch(epoch, 0, 0)).error is ErrorCode.BROKER_NOT_AVAILABLE


def test_rf_33_a_fetch_with_nothing_to_get_waits_for_records() -> None:
    _, leader = led_by_1()
    epoch = leader.core.epoch
    assert ask(leader, fetch(epoch, 1, epoch)).payload == b"", "max wait 0"
    token = send(leader, fetch(epoch, 1, epoch, max_wait_ms=500))
    assert answer(leader, token) is None
    write(leader, "a")
    assert answer(leader, token).payload


def test_rf_33_it_waits_for_the_high_watermark() -> None:
    _, leader = led_by_1()
    leo, epoch = write(leader, "a"), leader.core.epoch
    ask(leader, fetch(epoch, leo, epoch, replica=4), source=3)
    token = send(leader, fetch(epoch, leo, epoch, replica=4, max_wait_ms=500), source=3)
    assert answer(leader, token) is None
    ask(leader, fetch(epoch, leo, epoch, replica=2))
    response = answer(leader, token)
    assert response.high_watermark == leo and response.payload == b""


def test_rf_33_it_times_out_empty_after_half_a_second_at_most() -> None:
    _, leader = led_by_1()
    epoch = leader.core.epoch
    ask(leader, fetch(epoch, 1, epoch))
    for asked_ms, waits_ms in ((200, 200), (60_000, 500)):
        token = send(leader, fetch(epoch, 1, epoch, max_wait_ms=asked_ms))
        leader.advance(waits_ms - 1)
        assert answer(leader, token) is None
        leader.advance(1)
        response = answer(leader, token)
        assert response.error is ErrorCode.NONE and response.payload == b""


def test_rf_33_it_is_refused_when_the_leader_resigns() -> None:
    _, leader = led_by_1()
    epoch = leader.core.epoch
    ask(leader, fetch(epoch, 1, epoch))
    token = send(leader, fetch(epoch, 1, epoch, max_wait_ms=500))
    leader.resign()
    assert answer(leader, token).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_rf_34_a_leader_that_answers_only_errors_is_abandoned() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    follower = cluster[2]
    cluster.on_post = None
    for _ in range(60):
        follower.advance(50)
        for message in cluster.in_flight(2, 1):
            cluster.network.remove(message)
            if message.method.name == "Fetch":
                refusal = ask(leader, fetch(leader.core.epoch, -1, 0))
                message.kind, message.body = "resp", refusal
                follower.receive(message)
        cluster.network.clear()
        if not isinstance(follower.core.state, Follower):
            return
    raise AssertionError("the follower still trusts a leader that never served it")


def test_rf_35_appends_wait_for_the_linger_and_share_a_batch() -> None:
    _, leader = led_by_1()
    assert leader.append("a") == 1
    leader.advance(20)
    assert leader.append("b", "c") == 3
    assert leader.core.leo == 1 and leader.core.log_end_offset == 4
    leader.advance(5)
    assert leader.core.leo == 4
    assert [header.base_offset for header, _ in iter_batches(leader.core.metalog.log.read(0, 1 << 20, up_to=4))] == [0, 1]


def test_rf_35_too_large_and_too_many_appends_fail_without_losing_leadership() -> None:
    _, leader = led_by_1()
    with pytest.raises(ApiError) as oversize:
        leader.append("x" * (8 << 20))
    assert oversize.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    big = "x" * (5 << 20)
    with pytest.raises(ApiError) as full:
        for _ in range(RAFT_MAX_WAITING_BATCHES + 2):
            leader.core.prepare_append(leader.core.epoch, [big], 0)
    assert full.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert isinstance(leader.core.state, Leader)
    leader.step(AppendScheduled())
    assert leader.core.leo == 1 + RAFT_MAX_WAITING_BATCHES + 1


def test_rf_36_who_may_prepare() -> None:
    cluster, leader = led_by_1()
    epoch = leader.core.epoch
    with pytest.raises(ApiError) as follower:
        cluster[2].core.prepare_append(epoch, ["x"], 0)
    with pytest.raises(ApiError) as older:
        leader.core.prepare_append(epoch - 1, ["x"], 0)
    assert follower.value.code is older.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ValueError, match="only in epoch"):
        leader.core.prepare_append(epoch + 1, ["x"], 0)


def test_rf_36_nothing_leaves_before_it_is_scheduled_and_lost_leadership_discards_it() -> None:
    _, leader = led_by_1()
    leader.core.prepare_append(leader.core.epoch, ["x"], 0)
    leader.advance(200)
    assert leader.core.leo == 1
    leader.step(AppendScheduled())
    leader.resign()
    leader.advance(200)
    assert leader.core.leo == 1 and leader.core.log_end_offset == 1


def test_rf_37_leadership_is_announced_once_and_after_the_past() -> None:
    cluster = RaftCluster()
    first = cluster.elect(1)
    for i in range(5):
        write(first, f"a{i}")
        cluster.settle()
    cluster[2].crash()
    cluster.auto_pump = False
    cluster[2].start()
    cluster.run(2_000)
    first.crash()
    cluster[3].advance(2_100)
    cluster.network.clear()
    node = cluster.elect(2)
    assert isinstance(node.core.state, Leader) and node.core.high_watermark is not None
    start = node.core.epoch_start_offset
    assert node.recorder.claimed_epoch is None and node.recorder.next_offset == 0 and start is not None
    cluster.auto_pump = True
    node.pump()
    assert node.recorder.claimed_epoch == node.core.epoch
    assert node.recorder.offset_at_claim is not None and node.recorder.offset_at_claim >= start
    told = LeaderAndEpoch(leader_id=node.id, epoch=node.core.epoch)
    assert node.recorder.leaders.count(told) == 1


def test_rf_38_resigning() -> None:
    cluster, leader = led_by_1()
    epoch = leader.core.epoch
    with pytest.raises(ValueError, match="only in epoch"):
        leader.core.check_resign(epoch + 1)
    with pytest.raises(ValueError, match="not its leader"):
        cluster[2].core.check_resign(epoch)
    leader.step(ResignRequested(epoch=epoch - 1))
    assert isinstance(leader.core.state, Leader)
    leader.step(ResignRequested(epoch=epoch))
    assert isinstance(leader.core.state, Resigned) and leader.core.epoch == epoch
    leader.step(ResignRequested(epoch=epoch))  # once more: nothing happens
    assert isinstance(leader.core.state, Resigned)
    assert ask(leader, fetch(epoch, 1, epoch)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.advance(2_000)
    assert isinstance(leader.core.state, Candidate) and leader.core.epoch == epoch + 1


def test_rf_39_the_leader_feeds_nodes_outside_its_voter_set() -> None:
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    write(leader, "a")
    cluster.run(200)
    assert cluster[4].recorder.records == ["a"]
    assert isinstance(cluster[4].core.state, Follower) and cluster[4].core.state_name == "observer"


def test_rf_40_observers_expire_and_caught_up_times() -> None:
    _, leader = led_by_1()
    epoch = leader.core.epoch

    def line(replica: int) -> object:
        described = leader.core.describe(leader.wall_ms)
        return next((r for r in (*described.voters, *described.observers) if r.replica_id == replica), None)

    ask(leader, fetch(epoch, 1, epoch, replica=7), source=3)
    caught_up = leader.wall_ms
    seen = line(7)
    assert seen is not None and seen.last_caught_up_timestamp_ms == caught_up  # type: ignore[attr-defined]
    leader.advance(100)
    write(leader, "a")
    ask(leader, fetch(epoch, 1, epoch, replica=7), source=3)
    second = leader.wall_ms
    assert line(7).last_caught_up_timestamp_ms == caught_up  # type: ignore[attr-defined]
    leader.advance(100)
    write(leader, "b")
    ask(leader, fetch(epoch, 2, epoch, replica=7), source=3)
    assert line(7).last_caught_up_timestamp_ms == second  # type: ignore[attr-defined]
    for _ in range(298):
        leader.advance(1_000)
        ask(leader, fetch(epoch, 3, epoch, replica=2))
    assert line(7) is not None
    for _ in range(3):
        leader.advance(1_000)
        ask(leader, fetch(epoch, 3, epoch, replica=2))
    assert line(7) is None


def test_rf_57_describe_quorum_is_the_leaders() -> None:
    cluster, leader = led_by_1(observers=(4,))
    with pytest.raises(ApiError) as refused:
        cluster[2].core.describe(0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.run(3_000)
    described = leader.core.describe(leader.wall_ms)
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, leader.core.epoch, 1)
    assert [(v.replica_id, v.log_end_offset) for v in described.voters] == [(1, 1), (2, 1), (3, 1)]
    assert [o.replica_id for o in described.observers] == [4]


def test_rf_57_a_voter_that_has_not_fetched_has_no_offsets() -> None:
    cluster = RaftCluster()
    cluster[3].crash()
    leader = cluster.elect(1)
    silent = next(v for v in leader.core.describe(0).voters if v.replica_id == 3)
    assert (silent.log_end_offset, silent.last_fetch_timestamp_ms, silent.last_caught_up_timestamp_ms) == (None, None, None)


def test_rf_59_three_voters_lose_one_and_go_on_lose_two_and_wait() -> None:
    cluster = RaftCluster()
    leader = cluster.leader()
    others = [node for node in cluster.nodes.values() if node is not leader]
    others[0].crash()
    write(leader, "with two")
    cluster.run(500)
    assert leader.recorder.records == ["with two"]
    others[1].crash()
    write(leader, "with one")
    cluster.run(10_000, step_ms=20)
    assert leader.recorder.records == ["with two"] and not cluster.leaders
    others[0].start()
    new = cluster.leader()
    write(new, "again")
    cluster.run(3_000)
    assert new.recorder.records[0] == "with two" and new.recorder.records[-1] == "again"


def test_rf_60_without_a_quorum_an_observer_keeps_what_it_has() -> None:
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    write(leader, "a")
    cluster.run(500)
    for voter in cluster.voter_ids:
        cluster[voter].crash()
    cluster.run(20_000, step_ms=20)
    assert cluster[4].recorder.records == ["a"] and cluster[4].core.leader.leader_id == leader.id
    for voter in cluster.voter_ids:
        cluster[voter].start()
    write(cluster.leader(), "b")
    cluster.run(3_000)
    assert cluster[4].recorder.records == ["a", "b"]
