"""QU-10: what is throttled between brokers (KIP-73)."""

from __future__ import annotations

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.replication.throttle import LEADER_REPLICAS, ReplicationThrottles
from tests.harness.clock import FakeClock


def throttles(clock: FakeClock) -> ReplicationThrottles:
    return ReplicationThrottles(NodeId(2), QuotaWindows(), QuotaWindows(2), clock.now_ms)


def test_qu_10_partitions_are_listed_for_this_broker_or_all_of_them() -> None:
    found = throttles(FakeClock())
    found.update_topic(
        "t", {"leader.replication.throttled.replicas": "0:1,1:2,2:2", "follower.replication.throttled.replicas": "*"}
    )
    assert [found.leader.lists(TopicPartition("t", index)) for index in range(4)] == [False, True, True, False]
    assert all(found.follower.lists(TopicPartition("t", index)) for index in range(4))
    assert not found.follower.lists(TopicPartition("other", 0))
    found.update_topic("t", {})
    assert not any(side.lists(TopicPartition("t", 1)) for side in (found.leader, found.follower))


def test_qu_10_only_listed_bytes_count_and_only_a_bound_holds_back() -> None:
    clock = FakeClock()
    found = throttles(clock)
    found.update_topic("t", {"leader.replication.throttled.replicas": "*"})
    found.leader.record(TopicPartition("t", 0), 5_000)
    found.leader.record(TopicPartition("other", 0), 1_000_000)
    assert not found.leader.exceeded()
    found.update_rates({"leader.replication.throttled.rate": "1000"})
    assert found.leader.rate() == 5_000
    assert found.leader.exceeded() and not found.follower.exceeded()
    clock.advance(5_000)
    assert not found.leader.exceeded()
    found.update_rates({})
    assert found.leader.bound is None


def test_qu_10_moves_between_directories_have_a_bound_of_their_own() -> None:
    clock = FakeClock()
    found = throttles(clock)
    found.moves.count(5_000)
    assert not found.moves.exceeded()
    found.update_rates({"replica.alter.log.dirs.io.max.bytes.per.second": "1000.5"})
    assert found.moves.bound == 1_000 and found.moves.exceeded() and not found.leader.exceeded()
    clock.advance(2_001)
    assert not found.moves.exceeded(), "two windows of a second"
    found.update_rates({})
    assert found.moves.bound is None


@pytest.mark.parametrize("text", [":2", "0:", "\u00b2:2", f"{'9' * 5_000}:2", ":2,0:", "*,:2"])
def test_a_list_that_is_none_lists_nothing(text: str) -> None:
    """Controllers of earlier versions took such lists, and the broker has to start with them."""
    found = throttles(FakeClock())
    found.update_topic("t", {LEADER_REPLICAS: text})
    assert not found.leader.lists(TopicPartition("t", 0))
