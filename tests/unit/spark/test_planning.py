"""What the planner decides, on a cluster of numbers: no offset is left out, none is planned twice, and what is gone is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import EARLIEST, LATEST, DataLoss, Offsets, Range, to_json
from kraftlite.spark.source.options import parse
from kraftlite.spark.source.planning import Planner

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@dataclass
class Log:
    """Record i of it has the timestamp `times[i - start]`."""

    start: int = 0
    end: int = 0
    times: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    offset: int


@dataclass(frozen=True)
class Topic:
    internal: bool
    partitions: tuple[int, ...]
    topic_id: UUID | None


class Cluster:
    """`stale` are ends that are told, one per question, before the true one: what a leader says that is behind."""

    def __init__(self, **topics: list[Log]) -> None:
        self.logs = {TopicPartition(name, number): log for name, logs in topics.items() for number, log in enumerate(logs)}
        self.internal: tuple[str, ...] = ()
        self.stable: dict[TopicPartition, int] = {}
        self.stale: dict[TopicPartition, list[int]] = {}
        self.ids: dict[str, UUID | None] = {name: UUID(int=number) for number, name in enumerate(sorted(topics), start=1)}

    def topics(self) -> dict[str, Topic]:
        names = sorted({tp.topic for tp in self.logs})
        numbers = {name: tuple(sorted(tp.partition for tp in self.logs if tp.topic == name)) for name in names}
        return {name: Topic(name in self.internal, numbers[name], self.ids.get(name)) for name in names}

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        wanted = list(names)
        return {name: topic for name, topic in self.topics().items() if name in wanted}

    def list_offsets(self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False) -> dict[TopicPartition, Found]:
        assert wanted, "a request for nothing"
        return {tp: Found(self._offset(tp, at, read_committed)) for tp, at in wanted.items()}

    def _offset(self, tp: TopicPartition, at: int, read_committed: bool) -> int:
        log = self.logs[tp]
        if at == LATEST:
            if self.stale.get(tp):
                return self.stale[tp].pop(0)
            return self.stable.get(tp, log.end) if read_committed else log.end
        if at == EARLIEST:
            return log.start
        return next((offset for offset in range(log.start, log.end) if log.times.get(offset, 0) >= at), -1)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0
        self.pauses: list[int] = []

    def __call__(self) -> int:
        return self.now_ms

    def pause(self, ms: int) -> None:
        self.pauses.append(ms)


def planner(cluster: Cluster, *, streaming: bool = True, clock: Clock | None = None, **options: str) -> Planner:
    strategy = {"subscribePattern", "assign", "subscribe"} & set(options)
    given = {"kafka.bootstrap.servers": "here:9092", **({} if strategy else {"subscribe": "a"}), **options}
    if "isolation" in given:
        given["kafka.isolation.level"] = given.pop("isolation")
    clock = clock if clock is not None else Clock()
    return Planner(parse(given, streaming=streaming), cluster, clock, clock.pause)


def ranges(*found: tuple[TopicPartition, int, int]) -> list[Range]:
    return [Range(tp, start, end) for tp, start, end in found]


# --- where a stream starts


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"a":{"0":-1,"1":-2}}'},
        {"startingOffsets": '{"a":{"0":3,"1":2}}'},
        {"startingTimestamp": "50"},
        {"startingOffsetsByTimestamp": '{"a":{"0":50,"1":0}}'},
    ],
)
def test_the_initial_offset_is_the_same_however_often_it_is_asked_while_the_log_moves(options: dict[str, str]) -> None:
    """Spark asks twice within batch 0, and again after a restart within it; it stores none of the answers."""
    logs = [Log(0, 10, {it: it * 10 for it in range(1000)}), Log(0, 10, {it: it * 10 for it in range(1000)})]
    cluster = Cluster(a=logs)
    plans = planner(cluster, **options)
    first = to_json(plans.initial())
    for _ in range(3):
        for log in logs:
            log.end += 7
        assert to_json(plans.initial()) == first
        assert to_json(planner(cluster, **options).initial()) == first, "nor after a restart"


def run(cluster: Cluster, plans: Planner, moves: Iterable[int], log: Log) -> list[Range]:
    """Batch 0 as Spark plans it, with records that arrive before every call: (initial, latest, initial, plan)."""
    arriving = iter(moves)

    def move() -> None:
        log.end += next(arriving, 0)

    move()
    start = plans.initial()
    move()
    end = plans.latest(start)
    move()
    start = plans.initial()
    move()
    return [*plans.plan(start, end), Range(A0, end[A0], end[A0])]


@given(st.lists(st.integers(0, 50), max_size=4), st.integers(0, 2))
def test_latest_in_batch_0_is_where_the_batch_ends_so_nothing_in_between_is_left_out(moves: list[int], restarts: int) -> None:
    """Trap: with a first call of 100, an end of 200 and a second call of 400, offsets 100 to 199 would be read by nobody."""
    log = Log(0, 100)
    cluster = Cluster(a=[log])
    plans = planner(cluster)
    *read, at = run(cluster, plans, moves, log)
    assert read == []
    for _ in range(restarts):
        plans = planner(cluster)
        assert plans.plan(plans.initial(), {A0: at.end}) == [], "a restart in batch 0 begins where batch 0 has begun"
    log.end += 5
    following = plans.latest({A0: at.end})
    assert plans.plan({A0: at.end}, following) == ranges((A0, at.end, log.end)), "and batch 1 goes on from there"


@given(st.lists(st.integers(0, 50), max_size=4))
def test_a_time_that_is_still_to_come_leaves_nothing_out(moves: list[int]) -> None:
    log = Log(0, 10, {it: 1000 if it >= 10 else 0 for it in range(500)})
    cluster = Cluster(a=[log])
    plans = planner(cluster, startingTimestamp="500", startingOffsetsByTimestampStrategy="latest")
    *read, at = run(cluster, plans, moves, log)
    planned = sorted(offset for it in read for offset in range(it.start, it.end))
    assert planned == list(range(10, at.end))


def test_earliest_is_where_the_log_begins_when_the_first_batch_is_planned() -> None:
    cluster = Cluster(a=[Log(5, 20)])
    plans = planner(cluster, startingOffsets="earliest")
    start = plans.initial()
    assert start == {A0: EARLIEST}
    assert plans.plan(start, plans.latest(start)) == ranges((A0, 5, 20))


def test_a_time_nobody_is_as_late_as() -> None:
    cluster = Cluster(a=[Log(0, 3, {0: 1, 1: 2, 2: 3})])
    with pytest.raises(ValueError, match=r"no offset matched the starting time of a-0 \(from 9\)"):
        planner(cluster, startingTimestamp="9").initial()
    assert planner(cluster, startingTimestamp="9", startingOffsetsByTimestampStrategy="latest").initial() == {A0: LATEST}
    assert planner(cluster, startingTimestamp="2").initial() == {A0: 1}


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize("named", ['{"a":{"0":1}}', '{"a":{"0":1,"1":1,"2":1}}', '{"b":{"0":1}}'])
def test_positions_must_name_every_partition(name: str, named: str) -> None:
    cluster = Cluster(a=[Log(0, 5, {1: 1}), Log(0, 5, {1: 1})])
    with pytest.raises(ValueError, match=f"{name} must name all partitions") as caught:
        planner(cluster, **{name: named}).initial()
    assert "a-0, a-1" in str(caught.value)


@pytest.mark.parametrize(("given_", "clamped"), [(2, 5), (30, 20)])
def test_positions_that_are_not_there(given_: int, clamped: int) -> None:
    cluster = Cluster(a=[Log(5, 20)])
    options = {"startingOffsets": f'{{"a":{{"0":{given_}}}}}'}
    with pytest.raises(DataLoss, match=f"startingOffsets for a-0 is {given_}, which has offsets 5 to 20"):
        planner(cluster, **options).initial()
    assert planner(cluster, failOnDataLoss="false", **options).initial() == {A0: clamped}


def test_what_was_named_must_be_there() -> None:
    cluster = Cluster(a=[Log(), Log()])
    with pytest.raises(ValueError, match="there is no b in the cluster"):
        planner(cluster, subscribe="a,b").initial()
    with pytest.raises(ValueError, match="there is no a-2 in the cluster"):
        planner(cluster, assign='{"a":[1,2]}').initial()
    assert planner(cluster, assign='{"a":[1]}').partitions() == (A1,)


def test_a_pattern_finds_what_is_there_and_nothing_internal() -> None:
    cluster = Cluster(a=[Log()], b=[Log()], __consumer_offsets=[Log()])
    cluster.internal = ("__consumer_offsets",)
    assert planner(cluster, subscribePattern=".*").partitions() == (A0, B0)
    assert planner(cluster, subscribePattern="c").initial() == {}, "nothing yet is no error: topics may come"


# --- the end of a batch


def test_a_batch_ends_at_the_heads_or_the_last_stable_offset() -> None:
    cluster = Cluster(a=[Log(0, 10)])
    cluster.stable = {A0: 7}
    assert planner(cluster).latest({A0: 2}) == {A0: 10}
    assert planner(cluster, isolation="read_committed").latest({A0: 2}) == {A0: 7}


def test_a_limited_batch_is_shared_by_backlog() -> None:
    cluster = Cluster(a=[Log(0, 300), Log(0, 100)])
    assert planner(cluster, maxOffsetsPerTrigger="40").latest({A0: 0, A1: 0}) == {A0: 30, A1: 10}


def test_a_limit_counts_from_where_symbols_are() -> None:
    cluster = Cluster(a=[Log(200, 300), Log(0, 100)])
    plans = planner(cluster, maxOffsetsPerTrigger="40")
    assert plans.latest({A0: EARLIEST, A1: EARLIEST}) == {A0: 220, A1: 20}
    assert plans.latest({A0: LATEST, A1: EARLIEST}) == {A0: 300, A1: 40}


def test_partitions_that_come_under_the_query_are_read_from_0() -> None:
    cluster = Cluster(a=[Log(0, 10)])
    plans = planner(cluster)
    cluster.logs[A1] = Log(0, 4)
    start = {A0: 10}
    end = plans.latest(start)
    assert end == {A0: 10, A1: 4}
    assert plans.plan(start, end) == ranges((A1, 0, 4))
    limited = planner(cluster, maxOffsetsPerTrigger="2")
    assert limited.plan(start, limited.latest(start)) == ranges((A1, 0, 2))


def test_a_new_partition_that_has_lost_its_beginning() -> None:
    cluster = Cluster(a=[Log(0, 10), Log(3, 5)])
    with pytest.raises(DataLoss, match="a-1 came into being under the query, and begins at offset 3 instead of 0"):
        planner(cluster).plan({A0: 10}, {A0: 10, A1: 5})
    assert planner(cluster, failOnDataLoss="false").plan({A0: 10}, {A0: 10, A1: 5}) == ranges((A1, 3, 5))


def test_topics_that_come_and_go() -> None:
    cluster = Cluster(a=[Log(0, 10)], b=[Log(0, 5)])
    start = {A0: 10, B0: 2}
    del cluster.logs[B0]
    with pytest.raises(DataLoss, match="b-0 are gone"):
        planner(cluster, subscribe="a,b").latest(start)
    plans = planner(cluster, subscribe="a,b", failOnDataLoss="false")
    assert plans.latest(start) == {A0: 10}
    assert plans.plan(start, {A0: 10}) == []
    cluster.logs[B0] = Log(0, 3)
    assert plans.plan({A0: 10}, plans.latest({A0: 10})) == ranges((B0, 0, 3))
    del cluster.logs[A0], cluster.logs[B0]
    assert plans.latest({A0: 10, B0: 3}) == {}


@pytest.mark.parametrize("records", [2, 8, 20])
def test_a_topic_that_is_made_again_is_read_from_its_beginning(records: int) -> None:
    """However many records the new one has by then. Spark asks again for the end that it has stored, with the same or another
    planner."""
    cluster = Cluster(a=[Log(0, 8)], b=[Log(0, 5)])
    plans = planner(cluster, subscribe="a,b", failOnDataLoss="false", maxOffsetsPerTrigger="100")
    start = plans.latest({A0: 3, B0: 5})
    assert start == {A0: 8, B0: 5}
    cluster.logs[A0], cluster.ids["a"] = Log(0, records), UUID(int=99)
    end = plans.latest(start)
    assert end == {B0: 5}, "one end without it"
    assert plans.latest(start) == end, "however often it is asked"
    assert plans.plan(start, end) == []
    after = plans.latest(end)
    assert after == {A0: records, B0: 5}
    assert plans.plan(end, after) == planner(cluster, subscribe="a,b").plan(end, after) == ranges((A0, 0, records))
    assert plans.latest(after) == after


def test_a_topic_that_is_made_again_is_a_loss() -> None:
    cluster = Cluster(a=[Log(0, 8)])
    plans = planner(cluster)
    start = plans.latest({A0: 3})
    cluster.logs[A0], cluster.ids["a"] = Log(0, 20), UUID(int=99)
    with pytest.raises(DataLoss, match="a was deleted and made again"):
        plans.latest(start)
    assert planner(cluster).latest(start) == {A0: 20}, "who has not seen the former one cannot know"


def test_a_topic_that_is_made_again_is_read_whatever_is_waited_for() -> None:
    cluster = Cluster(a=[Log(0, 8)])
    for options in ({"minOffsetsPerTrigger": "50"}, {}):
        cluster.logs[A0], cluster.ids["a"] = Log(0, 8), UUID(int=1)
        plans = planner(cluster, failOnDataLoss="false", **options)
        start = plans.latest({A0: 3})
        if not options:
            plans.prepare_available_now()
        cluster.logs[A0], cluster.ids["a"] = Log(0, 6), UUID(int=99)
        assert plans.latest(start) == {}


def test_a_cluster_without_topic_ids() -> None:
    cluster = Cluster(a=[Log(0, 8)])
    cluster.ids = {}
    plans = planner(cluster)
    assert plans.latest(plans.latest({A0: 3})) == {A0: 8}


def test_a_limit_counts_from_where_a_new_partition_begins() -> None:
    cluster = Cluster(a=[Log(0, 10), Log(100, 200)])
    plans = planner(cluster, failOnDataLoss="false", maxOffsetsPerTrigger="50")
    start = {A0: 10}
    end = plans.latest(start)
    assert end == {A0: 10, A1: 150}
    assert plans.plan(start, end) == ranges((A1, 100, 150))


def test_a_planned_batch_of_a_topic_that_is_gone_when_it_runs_again() -> None:
    """The end comes from the checkpoint; the log it speaks of may not be there any more."""
    cluster = Cluster(b=[Log(0, 5)])
    assert planner(cluster, failOnDataLoss="false").plan({A0: 3}, {A0: 9}) == ranges((A0, 3, 9)), "its task tells"


def test_a_truncated_log() -> None:
    cluster = Cluster(a=[Log(0, 6)])
    with pytest.raises(DataLoss, match="a-0 ends at offset 6, though it was read up to 8"):
        planner(cluster).latest({A0: 8})
    plans = planner(cluster, failOnDataLoss="false")
    end = plans.latest({A0: 8})
    assert end == {A0: 6}
    assert plans.plan({A0: 8}, end) == [], "nothing is read again"
    cluster.logs[A0].end = 9
    assert plans.plan(end, plans.latest(end)) == ranges((A0, 6, 9))


def test_an_end_that_is_behind_is_asked_for_again_before_it_counts_as_a_loss() -> None:
    """Trap: Spark takes an end behind the start, and reads twice what lies between. A leader may be behind for a moment."""
    for fail in ("true", "false"):
        cluster, clock = Cluster(a=[Log(0, 12), Log(0, 4)]), Clock()
        options = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "25", "failOnDataLoss": fail}
        plans = planner(cluster, clock=clock, **options)
        cluster.stale = {A0: [6, 9]}
        assert plans.latest({A0: 10, A1: 4}) == {A0: 12, A1: 4}
        assert clock.pauses == [25, 25]
        cluster.stale = {A0: [6, 9]}
        assert plans.latest({A0: 9, A1: 4}) == {A0: 9, A1: 4}, "what is not behind is not asked for again"
        assert clock.pauses == [25] * 3


@given(st.lists(st.integers(-30, 60), min_size=1, max_size=8), st.none() | st.integers(1, 20))
def test_no_offset_is_planned_twice_and_none_left_out_while_the_log_only_grows(moves: list[int], most: int | None) -> None:
    """A move below 0 is a leader that is behind by so much, for one question."""
    log = Log(0, 0)
    cluster = Cluster(a=[log])
    plans = planner(cluster, startingOffsets="earliest", **({} if most is None else {"maxOffsetsPerTrigger": str(most)}))
    start, planned = plans.initial(), list[int]()
    for move in [*moves, *([0] * 500)]:
        log.end += max(move, 0)
        cluster.stale = {A0: [max(0, log.end + move)]} if move < 0 else {}
        end = plans.latest(start)
        planned += [offset for it in plans.plan(start, end) for offset in range(it.start, it.end)]
        start = end
        if len(planned) == sum(max(it, 0) for it in moves):
            break
    assert planned == list(range(log.end))


# --- waiting for enough, and available now


def test_a_batch_waits_for_enough_but_not_for_ever() -> None:
    cluster, clock = Cluster(a=[Log(0, 1)]), Clock()
    plans = planner(cluster, clock=clock, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    at = plans.latest({A0: 0})
    assert at == {A0: 1}, "as in Spark, the first batch does not wait"
    cluster.logs[A0].end = 10
    clock.now_ms = 4_999
    assert plans.latest(at) == at
    cluster.logs[A0].end = 11
    assert plans.latest(at) == {A0: 11}
    cluster.logs[A0].end = 12
    clock.now_ms = 9_998
    assert plans.latest({A0: 11}) == {A0: 11}
    clock.now_ms = 9_999
    assert plans.latest({A0: 11}) == {A0: 12}, "the delay is over"


def test_available_now_reads_what_was_there_and_not_a_record_more() -> None:
    cluster = Cluster(a=[Log(0, 100), Log(0, 20)])
    plans = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    plans.prepare_available_now()
    at, sizes = plans.initial(), []
    for _ in range(10):
        for log in cluster.logs.values():
            log.end += 13
        cluster.logs[TopicPartition("a", 2)] = Log(0, 5)
        end = plans.latest(at)
        sizes.append(sum(it.size for it in plans.plan(at, end)))
        if end == at:
            break
        at = end
    assert at == {A0: 100, A1: 20, TopicPartition("a", 2): 0}
    assert sum(sizes) == 120
    assert len(sizes) == 4 and sizes[-1] == 0, "two batches of 50, one of 20, and nothing"


def test_available_now_does_not_wait_for_enough() -> None:
    cluster, clock = Cluster(a=[Log(0, 1)]), Clock()
    plans = planner(cluster, clock=clock, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="10")
    at = plans.latest({A0: 0})
    cluster.logs[A0].end = 2
    plans.prepare_available_now()
    assert plans.latest(at) == {A0: 2}


def test_available_now_from_latest_reads_nothing_and_ends_there() -> None:
    cluster = Cluster(a=[Log(0, 10)])
    plans = planner(cluster)
    plans.prepare_available_now()
    start = plans.initial()
    cluster.logs[A0].end = 15
    end = plans.latest(start)
    assert end == {A0: 10}
    assert plans.plan(start, end) == []
    assert plans.latest(end) == end


# --- batch queries


def test_a_batch_query_reads_everything_unless_told() -> None:
    cluster = Cluster(a=[Log(3, 10), Log(0, 0)])
    assert planner(cluster, streaming=False).plan_batch() == ranges((A0, 3, 10), (A1, 0, 0))
    cluster.stable = {A0: 7}
    assert planner(cluster, streaming=False, isolation="read_committed").plan_batch()[0] == Range(A0, 3, 7)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": '{"a":{"0":4,"1":-2}}', "endingOffsets": '{"a":{"0":6,"1":-1}}'}, [(4, 6), (0, 8)]),
        ({"startingTimestamp": "40"}, [(5, 10), (5, 8)]),
        ({"startingTimestamp": "40", "endingTimestamp": "70"}, [(5, 8), (5, 8)]),
        ({"endingTimestamp": "999"}, [(3, 10), (0, 8)]),
        ({"startingOffsetsByTimestamp": '{"a":{"0":80,"1":10}}', "endingTimestamp": "75"}, [(9, 9), (2, 8)]),
        ({"startingTimestamp": "75", "startingOffsetsByTimestampStrategy": "latest"}, [(9, 10), (8, 8)]),
    ],
)
def test_ranges_of_a_batch_query(options: dict[str, str], wanted: list[tuple[int, int]]) -> None:
    """Record i has the time 10 * (i - 1)."""
    times = {it: 10 * (it - 1) for it in range(20)}
    cluster = Cluster(a=[Log(3, 10, times), Log(0, 8, times)])
    found = planner(cluster, streaming=False, **options).plan_batch()
    assert [(it.start, it.end) for it in found if it.size] == [it for it in wanted if it[0] < it[1]]


def test_a_batch_query_that_cannot_be() -> None:
    cluster = Cluster(a=[Log(5, 20, {it: it for it in range(20)})])

    def plan(**options: str) -> Offsets:
        return {it.tp: it.end for it in planner(cluster, streaming=False, **options).plan_batch()}

    with pytest.raises(DataLoss, match="endingOffsets for a-0 is 21"):
        plan(endingOffsets='{"a":{"0":21}}')
    assert plan(endingOffsets='{"a":{"0":21}}', failOnDataLoss="false") == {A0: 20}
    with pytest.raises(ValueError, match="the starting offset 15 is greater than the ending offset 10"):
        plan(startingTimestamp="15", endingOffsets='{"a":{"0":10}}')
    for fail in ("true", "false"):
        with pytest.raises(ValueError, match="startingTimestamp is 15, which is greater than endingTimestamp, 12"):
            plan(startingTimestamp="15", endingTimestamp="12", failOnDataLoss=fail)
        with pytest.raises(ValueError, match="the starting offset 21 is greater than the ending offset 20"):
            plan(startingOffsets='{"a":{"0":21}}', failOnDataLoss=fail)
        with pytest.raises(ValueError, match="the starting offset 5 is greater than the ending offset 4"):
            plan(endingOffsets='{"a":{"0":4}}', failOnDataLoss=fail)
    gone = {"startingOffsets": '{"a":{"0":1}}', "endingOffsets": '{"a":{"0":3}}'}
    with pytest.raises(DataLoss, match="startingOffsets for a-0 is 1, which has offsets 5 to 20"):
        plan(**gone)
    assert plan(**gone, failOnDataLoss="false") == {A0: 5}
    with pytest.raises(ValueError, match="there is no x in the cluster"):
        plan(subscribe="x")
    with pytest.raises(ValueError, match="no offset matched"):
        plan(startingTimestamp="99")
