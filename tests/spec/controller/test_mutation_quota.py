"""QU-07: how many partitions a client may create, add and delete a second (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.controller.mutation_quotas import IDLE_MS, MutationQuotas
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.quotas.rates import QuotaWindows
from tests.harness.controller_world import World
from tests.spec.controller.test_quotas import alter

E = ErrorCode
STRICT = m.MutationClient(user="ANONYMOUS", client_id="admin", strict=True)
OLD = m.MutationClient(user="ANONYMOUS", client_id="admin", strict=False)


class Bounded:
    """One active controller with a quota of one partition a second for every client id."""

    def __init__(self, rate: str = "1") -> None:
        self.world = World()
        self.world.start_brokers(1)
        assert alter(self.world, ((("client-id", None),), {"controller_mutation_rate": rate})) == [E.NONE]
        self.quotas = MutationQuotas(QuotaWindows(), self.world.state.quotas.quotas)
        self.now_ms = 0

    def _ask(self, name: str, operation: Callable[[Any], Any], client: m.MutationClient | None) -> Any:
        answer = self.world.submit(name, lambda _now: operation(self.quotas.quota_for(client, self.now_ms)))
        self.world.settle()
        return answer.value

    def create(self, *topics: tuple[str, int], client: m.MutationClient | None = STRICT, dry: bool = False) -> Any:
        made = tuple(
            m.CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=(), configs=())
            for name, count in topics
        )
        request = m.CreateTopicsRequest(topics=made, validate_only=dry, timeout_ms=1_000)
        return self._ask("create_topics", lambda quota: self.world.state.topics.create(request, None, quota), client)

    def grow(self, name: str, count: int, client: m.MutationClient | None = STRICT) -> Any:
        request = m.CreatePartitionsRequest(
            topics=(m.CreatePartitionsTopic(name=name, count=count, assignments=None),), validate_only=False, timeout_ms=1_000
        )
        return self._ask("create_partitions", lambda quota: self.world.state.topics.create_partitions(request, quota), client)

    def delete(self, *names: str, client: m.MutationClient | None = STRICT) -> Any:
        request = m.DeleteTopicsRequest(
            topics=tuple(m.TopicSelector(name=name, topic_id=None) for name in names), timeout_ms=1_000
        )
        return self._ask("delete_topics", lambda quota: self.world.state.topics.delete(request, quota), client)


@pytest.fixture
def bounded() -> Iterator[Bounded]:
    yield Bounded()


def codes(response: Any) -> list[ErrorCode]:
    return [topic.error for topic in response.topics]


def test_qu_07_a_topic_is_taken_whole_while_anything_is_left_and_the_next_one_waits(bounded: Bounded) -> None:
    """11 tokens at first: twenty partitions are created, and leave -9."""
    first = bounded.create(("large", 20))
    assert (codes(first), first.throttle_ms) == ([E.NONE], 0)
    second = bounded.create(("next", 1))
    assert (codes(second), second.throttle_ms) == ([E.THROTTLING_QUOTA_EXCEEDED], 9_000)
    assert "next" not in bounded.world.state.replication.topic_ids
    bounded.now_ms += 8_999
    assert bounded.create(("next", 1)).throttle_ms == 1
    bounded.now_ms += 1
    assert codes(bounded.create(("next", 1))) == [E.NONE]


def test_qu_07_one_request_is_cut_where_the_quota_is_used_up(bounded: Bounded) -> None:
    answer = bounded.create(("a", 11), ("b", 1), ("c", 1))
    assert codes(answer) == [E.NONE, E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_ms == 1_000


def test_qu_07_an_old_version_is_carried_out_and_told_to_wait(bounded: Bounded) -> None:
    assert bounded.create(("a", 20), client=OLD).throttle_ms == 9_000
    answer = bounded.create(("b", 1), client=OLD)
    assert (codes(answer), answer.throttle_ms) == ([E.NONE], 10_000)


def test_qu_07_added_and_deleted_partitions_are_charged(bounded: Bounded) -> None:
    bounded.create(("a", 3))
    assert codes(bounded.grow("a", 12)) == [E.NONE]  # 11 - 3 - 9 = -1
    assert (codes(bounded.grow("a", 13)), bounded.grow("a", 13).throttle_ms) == ([E.THROTTLING_QUOTA_EXCEEDED], 1_000)
    assert codes(bounded.delete("a")) == [E.THROTTLING_QUOTA_EXCEEDED]
    bounded.now_ms += 1_000
    assert codes(bounded.delete("a")) == [E.NONE]
    assert bounded.create(("b", 1)).throttle_ms == 12_000


def test_qu_07_partitions_are_charged_before_it_is_decided_where_they_go(bounded: Bounded) -> None:
    """Kafka charges what an assignment that is refused asked for, and without quota nobody looks at it."""
    bounded.create(("a", 1))
    asked = bounded.world.state.topics.create_partitions
    unknown = tuple(m.ReplicaAssignment(partition=index, broker_ids=(NodeId(9),)) for index in range(1, 13))
    wrong = m.CreatePartitionsTopic(name="a", count=13, assignments=unknown)
    request = m.CreatePartitionsRequest(topics=(wrong,), validate_only=False, timeout_ms=1_000)
    for code in (E.INVALID_REPLICA_ASSIGNMENT, E.THROTTLING_QUOTA_EXCEEDED):
        answer = bounded._ask("create_partitions", lambda quota: asked(request, quota), STRICT)
        assert codes(answer) == [code]


def test_qu_07_what_fails_or_is_only_validated_costs_nothing(bounded: Bounded) -> None:
    bounded.create(("a", 100), dry=True)
    assert codes(bounded.create(("a", 11), ("no/name", 5))) == [E.NONE, E.INVALID_TOPIC_EXCEPTION]
    assert codes(bounded.create(("b", 1))) == [E.NONE]


def test_each_client_has_a_bucket_and_the_controller_itself_none(bounded: Bounded) -> None:
    bounded.create(("a", 50))
    assert codes(bounded.create(("b", 1), client=m.MutationClient(user="ANONYMOUS", client_id="other", strict=True))) == [E.NONE]
    assert codes(bounded.create(("c", 50), client=None)) == [E.NONE]
    assert codes(bounded.create(("d", 1))) == [E.THROTTLING_QUOTA_EXCEEDED]


def test_a_changed_rate_holds_from_the_next_request_on(bounded: Bounded) -> None:
    bounded.create(("a", 31))
    assert bounded.create(("b", 1)).throttle_ms == 20_000
    alter(bounded.world, ((("client-id", None),), {"controller_mutation_rate": "10"}))
    assert bounded.create(("b", 1)).throttle_ms == 2_000
    alter(bounded.world, ((("client-id", None),), {"controller_mutation_rate": None}))
    assert codes(bounded.create(("b", 100))) == [E.NONE]


def test_buckets_are_bounded_and_forgotten() -> None:
    bounded = Bounded()
    bounded.quotas = MutationQuotas(QuotaWindows(), bounded.world.state.quotas.quotas, 5)
    for number in range(20):
        client = m.MutationClient(user="ANONYMOUS", client_id=f"c{number}", strict=True)
        bounded.quotas.quota_for(client, number)
    assert [bucket.scope.client_id for bucket in bounded.quotas.buckets()] == [f"c{number}" for number in range(15, 20)]
    bounded.quotas.quota_for(STRICT, IDLE_MS + 18)
    assert [bucket.scope.client_id for bucket in bounded.quotas.buckets()] == ["c19", "admin"]
