"""Narrowed ranges still hold every row that the filters keep: Spark filters again, but it cannot bring back what was not read."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import Range
from kraftlite.spark.source.pushdown import MAX_CLAIM_BYTES, Condition, claim, narrow, understood

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    """`timestamp` in ms, as records have it."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    def value(self, column: str) -> Any:
        found = getattr(self, column)
        return EPOCH + datetime.timedelta(milliseconds=found) if column == "timestamp" else found


@dataclass(frozen=True)
class Found:
    offset: int


class Cluster:
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.asked = 0

    def list_offsets(self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False) -> dict[TopicPartition, Found]:
        self.asked += 1
        return {tp: Found(self._first(tp, since)) for tp, since in wanted.items()}

    def _first(self, tp: TopicPartition, since: int) -> int:
        found = [it.offset for it in self.rows if (it.topic, it.partition) == tp and it.timestamp >= since]
        return min(found, default=-1)


# What Spark hands over has the class's name; the classes themselves need pyspark.
KINDS = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")
COMPARE = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


def filter_(kind: str, value: Any, *attribute: str) -> Any:
    found = type(kind, (), {})()
    found.attribute, found.value = attribute, value
    return found


def holds(kind: str, value: Any, actual: Any) -> bool:
    """The meaning of Spark's filter, by row: a comparison with null is not true."""
    if kind == "In":
        return any(it is not None and it == actual for it in value)
    return value is not None and COMPARE[kind](actual, value)


TIMES = st.integers(-5_000_000, 40_000_000).map(lambda us: EPOCH + datetime.timedelta(microseconds=us))
OF_COLUMN: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-3, 40),
    "timestamp": TIMES,
}


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, str, Any]:
    column, kind = draw(st.sampled_from(sorted(OF_COLUMN))), draw(st.sampled_from(KINDS))
    values = OF_COLUMN[column]
    return column, kind, draw(st.lists(values | st.none(), max_size=4) if kind == "In" else values | st.none())


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], list[Range]]:
    rows, ranges = [], []
    for topic in ("a", "b"):
        for partition in (0, 1):
            start = draw(st.integers(0, 10))
            times = draw(st.lists(st.integers(-4_000, 35_000), max_size=12))
            rows += [Row(topic, partition, start + at, time) for at, time in enumerate(times)]
            ranges.append(Range(TopicPartition(topic, partition), start, start + len(times)))
    return rows, ranges


def at(us: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=us)


ONE = ([Row("a", 0, 0, -1), Row("a", 0, 1, 5)], [Range(TopicPartition("a", 0), 0, 2)])


@given(logs(), st.lists(filters(), max_size=4))
@example(ONE, [("offset", "In", [None, 1])])
@example(ONE, [("offset", "In", [None])])
@example(ONE, [("offset", "In", [])])
@example(ONE, [("timestamp", "In", [None, at(5_000)])])
@example(ONE, [("timestamp", "GreaterThan", at(-1_500))])  # before 1970 down is away from zero
@example(ONE, [("timestamp", "EqualTo", at(-1_000))])
def test_a_row_that_the_filters_keep_is_in_a_range(
    made: tuple[list[Row], list[Range]], given_: list[tuple[str, str, Any]]
) -> None:
    rows, ranges = made
    conditions = [understood(filter_(kind, value, column)) for column, kind, value in given_]
    found = narrow(ranges, [it for it in conditions if it is not None], Cluster(rows))
    for row in rows:
        if all(holds(kind, value, row.value(column)) for column, kind, value in given_):
            kept = [it for it in found if it.tp == (row.topic, row.partition) and it.start <= row.offset < it.end]
            assert len(kept) == 1, f"{row} is read {len(kept)} times from {found}"
    for it in found:
        (whole,) = [one for one in ranges if one.tp == it.tp]
        assert whole.start <= it.start < it.end <= whole.end


T = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (Condition("offset", "EqualTo", 5), [(5, 6)]),
        (Condition("offset", "GreaterThan", 5), [(6, 10)]),
        (Condition("offset", "GreaterThanOrEqual", 5), [(5, 10)]),
        (Condition("offset", "LessThan", 5), [(0, 5)]),
        (Condition("offset", "LessThanOrEqual", 5), [(0, 6)]),
        (Condition("offset", "In", (7, 3)), [(3, 8)]),
        (Condition("offset", "In", ()), []),
        (Condition("offset", "GreaterThan", 50), []),
        (Condition("topic", "EqualTo", "t"), [(0, 10)]),
        (Condition("topic", "EqualTo", "u"), []),
        (Condition("partition", "In", (1, 2)), []),
        (Condition("partition", "LessThan", 1), [(0, 10)]),
        (Condition("timestamp", "GreaterThanOrEqual", at(7_000_000)), [(7, 10)]),
        (Condition("timestamp", "GreaterThan", at(99_000_000)), []),
        (Condition("timestamp", "LessThan", at(1)), [(0, 10)]),
        (Condition("timestamp", "EqualTo", at(4_000_000)), [(4, 10)]),
    ],
)
def test_what_is_left_out(condition: Condition, wanted: list[tuple[int, int]]) -> None:
    rows = [Row("t", 0, offset, offset * 1000) for offset in range(10)]
    found = narrow([Range(T, 0, 10)], [condition], Cluster(rows))
    assert [(it.start, it.end) for it in found] == wanted


EAST, WEST = (datetime.timezone(datetime.timedelta(hours=it)) for it in (5, -5))


@pytest.mark.parametrize(
    "value",
    [
        at(-1_000),
        at(-2_000),
        at(-(10**15)),
        datetime.datetime(1, 1, 1),
        datetime.datetime(1, 1, 1, tzinfo=EAST),
        datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST),
    ],
)
def test_times_before_1970_and_at_the_ends_of_the_calendar_leave_nothing_out(value: datetime.datetime) -> None:
    """To Kafka -1 ms is the end of the log and -2 its start; some times at the ends of the calendar have none in UTC."""
    cluster = Cluster([Row("t", 0, 0, 5)])
    for kind, them in (("GreaterThanOrEqual", value), ("In", (value, at(20_000)))):
        assert narrow([Range(T, 0, 10)], [Condition("timestamp", kind, them)], cluster) == [Range(T, 0, 10)]
    assert cluster.asked == 0


def test_the_cluster_is_asked_only_for_what_is_left() -> None:
    cluster = Cluster([])
    conditions = [Condition("topic", "EqualTo", "u"), Condition("timestamp", "GreaterThan", at(1))]
    assert narrow([Range(T, 0, 10)], conditions, cluster) == []
    assert cluster.asked == 0


@pytest.mark.parametrize(
    "other",
    [
        filter_("EqualTo", 1, "value"),
        filter_("EqualTo", "x", "headers", "key"),
        filter_("EqualTo", 1, "offset", "inner"),
        filter_("IsNotNull", 1, "offset"),
        filter_("StringStartsWith", "a", "topic"),
        filter_("EqualNullSafe", None, "offset"),
        filter_("Not", filter_("EqualTo", 1, "offset")),
    ],
)
def test_other_filters_are_sparks_alone(other: Any) -> None:
    assert understood(other) is None


def test_pysparks_filters_are_understood() -> None:
    filters = pytest.importorskip("pyspark.sql.datasource")
    for kind in KINDS:
        value = [1, 2] if kind == "In" else 3
        found = understood(getattr(filters, kind)(("offset",), value))
        assert found == Condition("offset", kind, (1, 2) if kind == "In" else 3)
    assert understood(filters.IsNotNull(("offset",))) is None
    assert understood(filters.Not(filters.EqualTo(("offset",), 1))) is None


def test_a_claim_is_for_one_query_and_is_read_with_a_bound(tmp_path: Path) -> None:
    claim("plan", "query-1", tmp_path)
    claim("plan", "query-1", tmp_path)
    with pytest.raises(ValueError, match="is for one query"):
        claim("plan", "query-2", tmp_path)
    (path,) = tmp_path.glob("*/plan")
    path.write_bytes(b"x" * (MAX_CLAIM_BYTES + 1))
    with pytest.raises(ValueError, match=r"/plan has more than 1024 bytes, so no query has written it; delete it"):
        claim("plan", "query-1", tmp_path)
