"""The partitions that a fetcher asks for: positions of requests that overlap, pauses, and epochs."""

from __future__ import annotations

from dataclasses import replace

from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.replica import ReplicaFetchResult
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.partition import FetchPaused
from tests.harness.replication_cluster import TOPIC_ID, StepCluster, log_values


def test_an_answer_from_before_the_last_position_is_not_taken_for_it() -> None:
    c = StepCluster()
    c.create()
    leader, follower = c[1], c[2]
    c.replicate()
    leader.produce(["a", "b"], acks=1)
    first = follower.fetch_request(leader.id)
    assert first is not None
    first_answer = leader.serve_fetch(first)
    second = follower.fetch_request(leader.id)  # goes out behind the first, as for a partition that was added meanwhile
    assert second is not None
    second_answer = leader.serve_fetch(second)
    assert first_answer.payload == second_answer.payload != b""

    follower.take_response(leader.id, first_answer)
    third = follower.fetch_request(leader.id)
    assert third is not None and third.partitions[0].fetch_offset == 2
    follower.take_response(leader.id, second_answer)
    assert not [event for event in follower.tracer.events if isinstance(event, FetchPaused)]
    leader.produce(["c"], acks=1)
    follower.take_response(leader.id, leader.serve_fetch(third))
    assert log_values(follower.log()) == log_values(leader.log())


def test_rp_15_the_hw_that_an_answer_of_an_older_epoch_carried_is_told_again() -> None:
    c = StepCluster()
    c.create()
    leader, follower = c[1], c[2]
    leader.produce(["a"], acks=1)
    c.fetch(2)
    c.fetch(2)  # confirms what the first one brought
    c.fetch(3)
    c.fetch(3)
    assert (leader.log().hw, follower.log().hw) == (1, 0)
    request = follower.fetch_request(leader.id)
    assert request is not None
    answer = leader.serve_fetch(request)
    assert answer.partitions[0].high_watermark == 1
    c.controller.elect(leader.id)
    c.publish()
    follower.take_response(leader.id, answer)
    assert follower.log().hw == 0, "an answer of the old epoch says nothing about the new one"
    c.replicate()
    assert follower.log().hw == leader.log().hw == 1


def test_a_leader_that_does_not_answer_is_asked_for_a_few_partitions_and_for_all_when_it_does() -> None:
    """A follower of thousands would else put them all into a request every second, while it waits for the session of a leader
    that has died to run out."""
    c = StepCluster()
    for index in range(40):
        c.controller.create((1, 2, 3), index=index)
    c.publish()
    leader, follower = c[1], c[2]
    c.fetch(2)
    named = []
    for _ in range(3):
        follower.fail_fetch(leader.id)
        request = follower.fetch_request(leader.id)
        assert request is not None
        named.append(len(request.partitions))
    follower.take_response(leader.id, leader.serve_fetch(request))
    again = follower.fetch_request(leader.id)
    assert again is not None
    assert (named, len(again.partitions)) == ([16, 16, 16], 24)
    assert not {it.partition for it in request.partitions} & {it.partition for it in again.partitions}
    follower.take_response(leader.id, leader.serve_fetch(again))
    leader.produce(["a"], acks=1, tp=TopicPartition("orders", 39))
    c.fetch(2)
    assert follower.log(TopicPartition("orders", 39)).leo == 1


def refused(c: StepCluster, index: int, error: ErrorCode) -> None:
    """The leader refuses one partition to the follower, and what else is asked for is answered."""
    leader, follower = c[1], c[2]
    request = follower.fetch_request(leader.id)
    assert request is not None
    answer = leader.serve_fetch(request)
    result = ReplicaFetchResult(topic_id=TOPIC_ID, partition=index, error=error)
    others = tuple(it for it in answer.partitions if it.partition != index)
    assert not any(it.records_length for it in answer.partitions)
    follower.take_response(leader.id, replace(answer, partitions=(result, *others)))


def asked(c: StepCluster) -> list[int]:
    request = c[2].fetch_request(c[1].id)
    if request is None:
        return []
    c[2].take_response(c[1].id, c[1].serve_fetch(request))
    return [it.partition for it in request.partitions]


def test_each_partition_that_is_paused_has_its_own_time() -> None:
    c = StepCluster()
    for index in range(3):
        c.controller.create((1, 2, 3), index=index)
    c.publish()
    backoff_ms = 1_000
    refused(c, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    c.clock.advance(backoff_ms // 2)
    refused(c, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not {0, 1} & {*asked(c)}
    c.clock.advance(backoff_ms // 2)
    assert [it for it in asked(c) if it < 2] == [0]
    c.clock.advance(backoff_ms // 2)
    assert [it for it in asked(c) if it < 2] == [1]
    c.clock.advance(backoff_ms)
    assert asked(c) == []


def test_a_partition_that_was_fenced_is_asked_for_in_the_next_epoch() -> None:
    """Also when it is the only one that is followed: what was paused of the epoch before it counts no more."""
    c = StepCluster()
    c.create()
    refused(c, 0, ErrorCode.FENCED_LEADER_EPOCH)
    c.clock.advance(60_000)
    assert c[2].fetch_request(c[1].id) is None, "the metadata says who leads"
    c.controller.elect(c[1].id)
    c.publish()
    assert asked(c) == [0]
