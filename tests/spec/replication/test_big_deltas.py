"""A delta with many partitions is applied in steps, and what happens in between."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from tests.harness.replication_cluster import TOPIC, TOPIC_ID, Node, StepCluster, log_values

PARTITIONS_PER_STEP = Tuning().partitions_per_step

COUNT = 40


def tp(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)


def big_topic(c: StepCluster) -> None:
    """Broker 1 leads the odd partitions, 2 the even ones."""
    for index in range(COUNT):
        c.controller.create((1, 2) if index % 2 else (2, 1), index=index)


def known(node: Node) -> list[int]:
    return [partition.tp.partition for partition in node.manager.partitions()]


def test_ml_17_a_big_delta_stops_between_its_partitions_and_ends_like_a_small_one() -> None:
    c = StepCluster(2)
    big_topic(c)
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    seen = [known(c[1]) for _ in c[1].manager.apply_delta_steps(delta.topics, c[1].image)]
    leads, follows = list(range(1, COUNT, 2)), list(range(0, COUNT, 2))
    assert seen == [list(range(count)) for count in range(PARTITIONS_PER_STEP, COUNT, PARTITIONS_PER_STEP)]
    assert known(c[1]) == list(range(COUNT)) and c[1].manager.counts.leaders() == len(leads)
    assert all(c[1].manager.fetched_from(tp(index)) == 2 for index in follows)


def test_a_small_delta_is_applied_without_a_stop() -> None:
    c = StepCluster(2)
    for index in range(PARTITIONS_PER_STEP):
        c.controller.create((1, 2), index=index)
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    assert list(c[1].manager.apply_delta_steps(delta.topics, c[1].image)) == []
    assert len(known(c[1])) == PARTITIONS_PER_STEP


def test_what_has_had_its_turn_serves_and_what_has_not_sends_clients_away() -> None:
    c = StepCluster(2)
    big_topic(c)
    c[2].catch_up()
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    steps = c[1].manager.apply_delta_steps(delta.topics, c[1].image)
    next(steps)
    (early,) = c[1].produce(["a"], tp=tp(1))
    (late,) = c[1].produce(["b"], tp=tp(COUNT - 1))
    assert (early.error, late.error) == (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert list(steps) == [None]
    c[1].manager.handle_image(c[1].image)
    (late,) = c[1].produce(["b"], tp=tp(COUNT - 1))
    assert late.error is ErrorCode.NONE
    c.replicate()
    assert [log_values(c[2].log(tp(index))) for index in (1, COUNT - 1)] == [[(0, "a")], [(0, "b")]]


def test_ml_18_a_big_topic_that_is_deleted_and_created_again_is_the_new_one_at_every_stop() -> None:
    c = StepCluster(2)
    big_topic(c)
    c[1].catch_up()
    c[1].produce(["old"], tp=tp(1))
    again = UUID(int=99)
    c.controller.delete()
    for index in range(COUNT):
        c.controller.create((1, 2), index=index, topic_id=again)
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    seen = []
    for _ in c[1].manager.apply_delta_steps(delta.topics, c[1].image):
        ids = [partition.topic_id for partition in c[1].manager.partitions()]
        seen.append((ids.count(TOPIC_ID), ids.count(again)))
    assert seen == [(25, 0), (9, 0), (0, 7), (0, 23), (0, 39)], "to look at 80 changes costs about as much as one replica"
    assert known(c[1]) == list(range(COUNT)) and log_values(c[1].log(tp(1))) == []


EACH = 2 * Tuning().roles_per_step


def three_kinds(c: StepCluster) -> None:
    """Of each three partitions broker 3 leads two, and brokers 1 and 2 take over one each; of the third it is a follower."""
    for index in range(3 * EACH):
        c.controller.create(((3, 1, 2), (3, 2, 1), (1, 2, 3))[index % 3], index=index)
    c.publish()


def seen_by_1(c: StepCluster) -> tuple[int, int, int]:
    """The partitions that broker 1 leads instead of 3, that it follows 2 in instead, and of which it knows the smaller ISR."""
    leads = [partition.leader is not None for partition in c[1].manager.partitions()]
    isrs = [partition.committed_isr for partition in c[1].manager.partitions()]
    followed = [c[1].manager.fetched_from(tp(index)) == 2 for index in range(3 * EACH)]
    return sum(leads[0::3]), sum(followed[1::3]), sum(isr == (1, 2) for isr in isrs[2::3])


def test_new_leaders_come_first_and_then_who_has_a_new_leader() -> None:
    """Clients and followers wait for both, and nobody for an ISR that is told to be smaller."""
    c = StepCluster(3)
    three_kinds(c)
    c.controller.set_fenced(c[3].id, True)
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    seen = [seen_by_1(c) for _ in c[1].manager.apply_delta_steps(delta.topics, c[1].image)]
    assert len(seen) > 4 and seen == sorted(seen) and seen_by_1(c) == (EACH, EACH, EACH)
    assert all(followed == 0 or leads == EACH for leads, followed, _ in seen)
    assert all(shrunk == 0 or followed == EACH for _, followed, shrunk in seen)


def test_new_leaders_of_the_next_delta_come_before_the_rest_of_this_one() -> None:
    """A failure of many partitions is several updates, and the last new leader must not wait for all followers before it."""
    c = StepCluster(3)
    three_kinds(c)
    c.controller.set_fenced(c[3].id, True)
    half = c[1].load(c[1].applied + 3 * EACH // 2)
    early = c[1].image
    other_half = c[1].load()
    assert half is not None and half.topics is not None and other_half is not None and other_half.topics is not None
    steps = c[1].manager.apply_delta_steps(half.topics, early)
    seen = []
    for _ in steps:
        seen.append(seen_by_1(c))
        if len(seen) == 1:
            c[1].manager.add_delta(other_half.topics, c[1].image)
    assert 0 < seen[0][0] < EACH // 2, "the first delta was not done when the second came"
    assert seen == sorted(seen) and seen_by_1(c) == (EACH, EACH, EACH)
    assert all(followed == 0 or leads == EACH for leads, followed, _ in seen)


def test_ml_18_what_the_next_delta_deletes_is_not_made_for_this_one() -> None:
    c = StepCluster(2)
    big_topic(c)
    first = c[1].load()
    assert first is not None and first.topics is not None
    made = c[1].image
    again = UUID(int=99)
    c.controller.delete()
    c.controller.create((2, 1), index=0, topic_id=again)
    second = c[1].load()
    assert second is not None and second.topics is not None
    steps = c[1].manager.apply_delta_steps(first.topics, made)
    next(steps)
    assert known(c[1]) == list(range(PARTITIONS_PER_STEP))
    c[1].manager.add_delta(second.topics, c[1].image)
    for _ in steps:
        assert COUNT - 1 not in known(c[1])
    (left,) = c[1].manager.partitions()
    assert (left.tp, left.topic_id, c[1].manager.fetched_from(tp(0))) == (tp(0), again, 2)


def test_a_change_that_a_later_one_has_overtaken_is_not_made() -> None:
    c = StepCluster(2)
    big_topic(c)
    c[1].catch_up()
    deltas = []
    for leader in (1, 2):
        for index in range(COUNT):
            c.controller.elect(leader, index=index)
        delta = c[1].load()
        assert delta is not None and delta.topics is not None
        deltas.append((delta.topics, c[1].image))
    c[1].manager.add_delta(*deltas[0])
    for _ in c[1].manager.apply_delta_steps(*deltas[1]):
        pass
    partitions = c[1].manager.partitions()
    assert all(it.leader is None and it.leader_id == 2 for it in partitions)
    started = [it for it in c[1].tracer.events if it.event == "partition.leader_started"]
    assert len(started) == COUNT // 2, "those that it led from the beginning"


def test_brokers_that_have_changed_are_a_reason_to_look_at_partitions_a_few_a_turn() -> None:
    c = StepCluster(3)
    three_kinds(c)
    for node in c.nodes.values():
        node.catch_up()
    c.controller.set_fenced(c[3].id, True)
    delta = c[1].load()
    assert delta is not None and delta.topics is not None
    c[1].manager.apply_delta(delta.topics, c[1].image)
    led = c[1].manager.counts.leaders()
    looks = sum(1 for _ in c[1].manager.handle_image_steps(c[1].image))
    assert looks == (led - 1) // Tuning().roles_per_step and led == 2 * EACH
    assert list(c[1].manager.handle_image_steps(c[1].image)) == [], "nothing has changed since"


class CountedTable(dict[Any, Any]):
    """The partitions of a broker, which counts how many have been looked at."""

    looks = 0

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


def test_a_topics_configuration_and_a_healthy_disk_are_no_reason_to_look_at_all_partitions() -> None:
    c = StepCluster(2)
    big_topic(c)
    c.controller.create((1, 2), name="small", topic_id=UUID(int=7))
    c[1].catch_up()
    table = c[1].manager._table
    counted = table.by_tp = CountedTable(table.by_tp)
    strict = LogConfig(min_insync_replicas=2)
    list(c[1].manager.announce_log_config_steps("small", strict))
    list(c[1].manager.update_log_config_steps("small", strict))
    c[1].manager.drop_failed_logs()
    assert counted.looks == 0
    assert c[1].log(TopicPartition("small", 0)).config is strict
    c[1].logs.failed = True
    c[1].manager.drop_failed_logs()
    assert c[1].manager.counts.offline() == COUNT + 1
