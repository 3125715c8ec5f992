"""Requests that overlap: an answer counts for the position that its own request had."""

from __future__ import annotations

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.partition import FetchPaused
from tests.harness.replication_cluster import StepCluster, log_values


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
