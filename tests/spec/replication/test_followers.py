"""RP-27 to RP-39, RP-41: leader epochs, truncation, fetching."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from kraftlite.log.batch import iter_headers
from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.replica import ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchResult
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.config import RACK_AWARE_SELECTOR
from tests.harness.replication_cluster import TOPIC_ID, TP, Node, StepCluster, log_values, make_batch, read_values


def raw(node: Node) -> bytes:
    log = node.log()
    return log.read(log.log_start_offset, 1 << 20, up_to=log.leo)


def ask(c: StepCluster, leader: int, **fields: object) -> ReplicaFetchResult:
    """A hand-made fetch by 2 in a session of its own; the one result."""
    session = {
        name: fields.pop(name) for name in ("replica_id", "replica_epoch", "partition_max_bytes", "max_bytes") if name in fields
    }
    partition = ReplicaFetchPartition(
        **{  # type: ignore[arg-type]
            "topic_id": TOPIC_ID, "partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "last_fetched_epoch": None,
            "log_start_offset": 0, **fields,
        }
    )  # fmt: skip
    request = ReplicaFetchRequest(
        **{  # type: ignore[arg-type]
            "replica_id": NodeId(2), "replica_epoch": c[2].broker_epoch, "cluster_id": "test", "session_id": 0,
            "session_epoch": 0, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20,
            "partitions": (partition,), "forgotten": (), **session,
        }
    )  # fmt: skip
    response = c[leader].serve_fetch(request)
    assert response.error is ErrorCode.NONE
    return response.partitions[0]


def test_rp_27_followers_store_the_leaders_bytes() -> None:
    c = StepCluster()
    c.create(leader_epoch=6)
    c[1].produce(["a", "b"], acks=1)
    c[1].produce(["c"], acks=1)
    c.replicate()
    assert raw(c[1]) == raw(c[2]) == raw(c[3]) != b""
    assert {header.partition_leader_epoch for _, header in iter_headers(raw(c[2]))} == {6}


def test_rp_28_a_new_leader_notes_its_epoch_at_its_leo() -> None:
    c = StepCluster()
    c.create()
    c[1].produce(["a", "b"], acks=1)
    c.replicate()
    c.controller.elect(c[2].id)
    c.publish()
    assert c[2].log().epoch_entries == ((0, 0), (1, 2))
    assert c[2].partition().leader.epoch_start_offset == 2


def test_rp_28_an_epoch_without_records_does_not_keep_a_follower_from_an_older_one() -> None:
    """2 led epoch 1 and nobody wrote; what it then gets from epoch 0 of the next leader's log must be welcome."""
    c = StepCluster(2)
    c.create((1, 2))
    c[1].produce(["a"], acks=1)
    c.controller.elect(c[2].id)
    c[2].catch_up()
    assert c[2].log().epoch_entries == ((1, 0),)
    c.controller.elect(c[1].id)
    c.publish()
    c.replicate()
    assert log_values(c[2].log()) == [(0, "a")]
    assert c[2].log().epoch_entries == ((0, 0),)


def test_rp_29_rp_30_offset_for_leader_epoch() -> None:
    c = StepCluster()
    c.create(leader_epoch=2)
    c[1].produce(["a", "b"], acks=1)
    c.replicate()
    c.controller.elect(c[2].id)
    c.controller.elect(c[2].id)
    c.publish()
    c[2].produce(["c"], acks=1)
    query = c[2].manager.offset_for_leader_epoch
    assert query(TP, current_leader_epoch=4, leader_epoch=4) == (ErrorCode.NONE, 4, 3)
    assert query(TP, current_leader_epoch=None, leader_epoch=3) == (ErrorCode.NONE, 2, 2)
    assert query(TP, current_leader_epoch=None, leader_epoch=2) == (ErrorCode.NONE, 2, 2)
    assert query(TP, current_leader_epoch=None, leader_epoch=1) == (ErrorCode.NONE, 1, 0)
    assert query(TP, current_leader_epoch=None, leader_epoch=9) == (ErrorCode.NONE, -1, -1)
    assert query(TP, current_leader_epoch=3, leader_epoch=2)[0] is ErrorCode.FENCED_LEADER_EPOCH
    assert query(TP, current_leader_epoch=5, leader_epoch=2)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert query(TopicPartition("nope", 0), current_leader_epoch=None, leader_epoch=2)[0] is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert c[1].manager.offset_for_leader_epoch(TP, current_leader_epoch=None, leader_epoch=2)[0] is (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def diverged() -> StepCluster:
    """1 led epoch 0 and wrote [0, 2) with everyone and [2, 5) alone; 2 leads epoch 1 and wrote [2, 3)."""
    c = StepCluster()
    c.create()
    c[1].produce(["a", "b"], acks=1)
    c.replicate()
    c.controller.set_fenced(c[1].id, True)
    c[2].catch_up()
    c[3].catch_up()
    c[1].produce(["x", "y", "z"], acks=1)
    c[2].produce(["c"], acks=1)
    return c


def test_rp_31_divergence_is_answered_without_records_and_cut_off() -> None:
    c = diverged()
    found = ask(c, 2, replica_id=NodeId(1), replica_epoch=c[1].broker_epoch, current_leader_epoch=1, fetch_offset=5,
                last_fetched_epoch=0)  # fmt: skip
    assert found.diverging_epoch is not None and found.diverging_epoch.end_offset == 2
    assert found.records_length == 0 and found.high_watermark == -1
    assert c[2].partition().leader.followers[c[1].id].leo is None, "a diverging position is no progress"
    c[1].catch_up()
    hw = c[1].log().hw
    c.fetch(1)
    assert c[1].log().leo == 2 and c[1].log().hw == hw
    c.replicate()
    assert log_values(c[1].log()) == log_values(c[2].log()) == [(0, "a"), (1, "b"), (2, "c")]


def test_rp_31_a_hw_that_comes_with_a_divergence_is_not_taken() -> None:
    """The rest after the cut may differ from the leader's log as well: whatever a leader says, it does not count for it."""
    c = diverged()
    c[2].log().update_hw(2)
    c[1].catch_up()
    c[1].log()._ctx.hw = 1
    request = c[1].fetch_request(c[2].id)
    assert request is not None
    response = c[2].serve_fetch(request)
    (said,) = response.partitions
    assert said.diverging_epoch is not None
    told = dataclasses.replace(said, high_watermark=2)
    c[1].take_response(c[2].id, dataclasses.replace(response, partitions=(told,)))
    assert c[1].log().leo == 2 and c[1].log().hw == 1


def test_rp_31_clients_learn_of_divergence_too() -> None:
    c = diverged()
    c.replicate()
    found = c[2].consume(5, last_fetched_epoch=0)
    assert found.error is ErrorCode.NONE and found.diverging is not None and found.diverging.end_offset == 2
    assert c[2].consume(1, last_fetched_epoch=9).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert c[2].consume(9).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_rp_32_only_an_unclean_election_takes_a_follower_below_its_hw() -> None:
    c = StepCluster(2)
    c.create((1, 2), isr=(1,))
    c[1].produce(["a", "b"], acks=1)
    assert c[1].log().hw == 2
    c.controller.set_fenced(c[1].id, True)
    c.controller.elect_unclean(leader=c[2].id)
    c.publish()
    c.replicate()
    assert c[1].log().leo == 0 and c[1].log().hw == 0


def test_rp_33_fetching_starts_at_the_leo_with_epochs_and_at_the_hw_without() -> None:
    c = diverged()
    c[1].catch_up()
    request = c[1].fetch_request(c[2].id)
    assert request is not None and request.partitions[0].fetch_offset == 5 and request.partitions[0].last_fetched_epoch == 0
    bare = StepCluster(2)
    bare.create((1, 2))
    log = bare[2].log()
    batch = make_batch(["a", "b"])
    log.append_as_follower(bytes(batch))  # no leader epoch in it
    assert log.latest_epoch is None and log.leo == 2
    bare.controller.elect(bare[1].id)
    bare.publish()
    assert log.leo == 0


def test_rp_33_an_isr_change_does_not_restart_a_fetcher() -> None:
    c = StepCluster()
    c.create()
    c.replicate()
    core = c[2].fetchers()[c[1].id]
    followed = next(iter(core._followed.values()))
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)
    c.tick(10_001)
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2)
    assert next(iter(c[2].fetchers()[c[1].id]._followed.values())) is followed
    c.controller.elect(c[1].id)
    c.publish()
    assert next(iter(c[2].fetchers()[c[1].id]._followed.values())) is not followed


def test_rp_34_epochs_of_a_fetch_are_checked() -> None:
    c = StepCluster()
    c.create(leader_epoch=4)
    assert ask(c, 1, current_leader_epoch=3).error is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(c, 1, current_leader_epoch=5).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(c, 3, current_leader_epoch=4).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(c, 1, current_leader_epoch=4, replica_id=NodeId(9)).error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_rp_34_a_fetch_of_an_older_incarnation_counts_for_nothing() -> None:
    c = StepCluster()
    c.create()
    c[1].produce(["a"], acks=1)
    old_epoch = c[2].broker_epoch
    c.controller.register(c[2].id)
    c.publish()
    found = ask(c, 1, fetch_offset=1, last_fetched_epoch=0, replica_epoch=old_epoch)
    assert found.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert c[1].partition().leader.followers[c[2].id].leo is None


def test_rp_34_a_late_fetch_of_an_older_incarnation_counts_for_nothing_once_the_newer_one_has_fetched() -> None:
    """Though the leader has not heard of the restart: else the old epoch would stay with the progress of an idle partition, and
    its replica could not join the ISR any more."""
    c = StepCluster()
    c.create(isr=(1, 3))
    newer = c[2].broker_epoch + 1
    assert ask(c, 1, fetch_offset=0, replica_epoch=newer).error is ErrorCode.NONE
    assert ask(c, 1, fetch_offset=0, replica_epoch=newer - 1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert c[1].partition().leader.followers[c[2].id].replica_epoch == newer


def test_rp_20_a_late_fetch_that_says_less_than_is_so_is_made_up_for() -> None:
    """A first fetch of a connection that broke comes after all that was said since. The partition is idle, so nothing would be
    said of it again, and its replica would be out of the ISR for good."""
    c = StepCluster()
    c.create()
    c[1].produce(["a"], acks=1)
    c.replicate()
    assert ask(c, 1, fetch_offset=0).error is ErrorCode.NONE
    assert c[1].partition().leader.followers[c[2].id].leo == 0
    c.tick(10_001)
    c.settle_isr()
    assert c.controller.registration().isr == (1, 3)
    c.tick(5_000)
    c.replicate()
    c.settle_isr()
    assert c.controller.registration().isr == (1, 2, 3)


def test_rp_35_behind_the_leaders_start_all_is_dropped() -> None:
    c = StepCluster(2)
    c.create((1, 2), isr=(1,))
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    c[1].produce(["b"], acks=1)
    c[1].produce(["c"], acks=1)
    c[1].log().increment_log_start(2, "asked")
    c.replicate()
    assert c[2].log().log_start_offset == 2 and log_values(c[2].log()) == [(2, "c")]


def test_rp_35_beyond_the_leaders_end_without_epochs_is_cut_back() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c[1].produce(["a"], acks=1)
    c.fetch(2)
    for values in (["b"], ["c"]):
        c[2].log().append_as_follower(bytes(make_batch(values, pid=-1)).replace(b"\0" * 8, c[2].log().leo.to_bytes(8, "big"), 1))
    found = ask(c, 1, fetch_offset=3)
    assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE
    core = c[2].fetchers()[c[1].id]
    followed = next(iter(core._followed.values()))
    core._refused(followed, ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert core.request(1, 0) is None, "not fetched until the leader's range is known"
    c.fetch(2)
    request = core.offsets_request()
    assert request is not None
    from kraftlite.model.messages.methods import REPLICA_OFFSETS
    from tests.harness.replication_cluster import run_now

    core.handle_offsets(run_now(c[1].manager.handlers()[REPLICA_OFFSETS](request)).partitions, 0)  # type: ignore[arg-type]
    assert c[2].log().leo == 1


def test_rp_36_a_batch_that_does_not_continue_the_log_is_refused_and_fetched_again() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c[1].produce(["a"], acks=1)
    c[1].produce(["b"], acks=1)
    request = c[2].fetch_request(c[1].id)
    assert request is not None
    response = c[1].serve_fetch(request)
    second = response.payload[len(response.payload) // 2 :]
    bad = dataclasses.replace(
        response, payload=second, partitions=(dataclasses.replace(response.partitions[0], records_length=len(second)),)
    )
    c[2].take_response(c[1].id, bad)
    assert c[2].log().leo == 0
    assert c[2].fetch_request(c[1].id) is None
    c.clock.advance(1_000)
    c.replicate()
    assert c[2].log().leo == 2


def two_partitions() -> StepCluster:
    c = StepCluster(2)
    c.create((1, 2))
    c.controller.create((1, 2), index=1)
    c.publish()
    c.replicate()
    return c


SECOND = TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("error", "resumes"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.INCONSISTENT_TOPIC_ID, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
    ],
)
def test_rp_37_an_error_pauses_its_partition_and_no_other(error: ErrorCode, resumes: bool) -> None:
    c = two_partitions()
    core = c[2].fetchers()[c[1].id]
    followed = core._followed[TOPIC_ID, 0]
    core._refused(followed, error, c.clock.now_ms())
    c[1].produce(["a"], acks=1)
    c[1].produce(["b"], acks=1, tp=SECOND)
    c.replicate()
    assert c[2].log(SECOND).leo == 1 and c[2].log().leo == 0
    c.clock.advance(999)
    c.replicate()
    assert c[2].log().leo == 0
    c.clock.advance(1)
    c.replicate()
    assert c[2].log().leo == (1 if resumes else 0)
    c.controller.elect(c[1].id)
    c.publish()
    c.replicate()
    assert c[2].log().leo == 1


def test_rp_37_a_corrupt_batch_is_fetched_again() -> None:
    c = two_partitions()
    c[1].produce(["a"], acks=1)
    c[1].produce(["b"], acks=1, tp=SECOND)
    request = c[2].fetch_request(c[1].id)
    assert request is not None
    response = c[1].serve_fetch(request)
    payload = bytearray(response.payload)
    payload[response.partitions[0].records_length - 1] ^= 1
    c[2].take_response(c[1].id, dataclasses.replace(response, payload=bytes(payload)))
    assert sorted((c[2].log().leo, c[2].log(SECOND).leo)) == [0, 1]
    c.clock.advance(1_000)
    c.replicate()
    assert c[2].log().leo == c[2].log(SECOND).leo == 1


def test_rp_37_a_disk_error_fails_the_replica() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.replicate()
    c[1].produce(["a"], acks=1)
    c[2].disk.inject("pwritev", path="orders-0")
    c.fetch(2)
    assert c[2].logs.failed and c[2].manager.counts.offline() == 1
    assert c[2].manager.fetched_from(TP) is None
    assert c[2].consume(0).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_rp_37_a_leaders_disk_error_is_told_to_producers_and_followers() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.replicate()
    waiting = c[1].produce(["a"], acks=-1)
    c[1].disk.inject("pwritev", path="orders-0")
    assert c[1].produce(["b"], acks=1)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert waiting[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    response = c.fetch(2)
    assert response is not None and response[1].partitions[0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_rp_38_a_recreated_topic_shares_nothing_with_the_old_one() -> None:
    c = StepCluster()
    c.create()
    c[1].produce(["old"], acks=1)
    c.replicate()
    new_id = UUID(int=2002)
    c.controller.delete()
    c.controller.create((2, 1, 3), topic_id=new_id)
    # 3 still asks for the old one, of a leader that has only the new one.
    c[1].catch_up()
    c[2].catch_up()
    c[1].produce(["late"], acks=1)
    stale = c.fetch(3, leader=1)
    assert stale is not None and stale[1].partitions[0].error is ErrorCode.UNKNOWN_TOPIC_ID
    c.publish()
    c[2].produce(["new"], acks=1)
    c.replicate()
    assert all(log_values(node.log()) == [(0, "new")] for node in c.nodes.values())
    assert all(node.log().topic_id == new_id for node in c.nodes.values())
    assert c[2].produce(["x"], acks=1, topic_id=TOPIC_ID)[0].error is ErrorCode.INCONSISTENT_TOPIC_ID


def test_rp_38_a_broker_that_slept_through_a_recreation_drops_its_old_log() -> None:
    c = StepCluster()
    c.create()
    c[1].produce(["old"], acks=1)
    c.replicate()
    c[3].up = False
    c.controller.delete()
    c.controller.create((1, 2, 3), topic_id=UUID(int=2002))
    c.publish()
    c[1].produce(["new"], acks=1)
    c[3].up = True
    c.publish()
    c.replicate()
    assert log_values(c[3].log()) == [(0, "new")]


def test_rp_39_limits_of_a_fetch_and_one_batch_regardless() -> None:
    c = StepCluster(2, fetch_max_bytes=100, log_config=LogConfig(max_message_bytes=10_000))
    c.create((1, 2))
    c[1].produce(["x" * 500], acks=1)
    c[1].produce(["y"], acks=1)
    c.fetch(2)
    assert log_values(c[2].log()) == [(0, "x" * 500)]
    c.fetch(2)
    assert c[2].log().leo == 2


def test_rp_39_a_full_response_serves_everyone_in_turn() -> None:
    c = StepCluster(2, fetch_response_max_bytes=200)
    c.create((1, 2))
    others = [TopicPartition("orders", index) for index in range(4)]
    for tp in others[1:]:
        c.controller.create((1, 2), index=tp.partition)
    c.publish()
    c.replicate()
    for _ in range(3):
        for tp in others:
            c[1].produce(["x" * 100], acks=1, tp=tp)
    for _ in range(4):
        c.fetch(2)
    assert [c[2].log(tp).leo for tp in others] == [1, 1, 1, 1]
    c.replicate(12)
    assert [c[2].log(tp).leo for tp in others] == [3, 3, 3, 3]


def test_rp_41_a_follower_serves_below_its_own_hw() -> None:
    c = StepCluster()
    c.create()
    c[1].produce(["a"], acks=1)
    c.replicate()
    c[1].produce(["b"], acks=1)
    c.fetch(2)
    assert c[2].log().hw == 1 and c[2].log().leo == 2
    assert read_values(c[2].consume(0).records) == [(0, "a")]
    between = c[2].consume(2)
    assert between.error is ErrorCode.NONE and between.records == b""
    assert c[2].consume(3).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert c[2].consume(0, leader_only=True).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_rp_41_a_rack_aware_leader_sends_consumers_to_their_rack() -> None:
    c = StepCluster(replica_selector=RACK_AWARE_SELECTOR)
    c.create()
    c[1].produce(["a"], acks=1)
    c.replicate()
    found = c[1].consume(0, rack_id="r3")
    assert found.preferred_read_replica == 3 and found.records == b""
    assert c[1].consume(0, rack_id="r1").records and c[1].consume(0, rack_id="elsewhere").records
    c.controller.set_fenced(c[3].id, True)
    c.publish()
    assert c[1].consume(0, rack_id="r3").preferred_read_replica is None
    plain = StepCluster()
    plain.create()
    assert plain[1].consume(0, rack_id="r3").preferred_read_replica is None
