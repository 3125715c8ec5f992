"""Batch queries: the rows of Spark's Kafka source, exactly those of the range, whatever is asked of columns and filters.

Source: the Structured Streaming and Kafka integration guide (schema, options); PySpark compares Arrow types strictly.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kraftlite.testing import SyncCluster, other_than
from tests.harness import embedded
from tests.harness.spark_runs import Sent, create, fill, numbered, options_of, read, values, values_of

pytestmark = [pytest.mark.spark]

UTC = datetime.UTC
HEADERS = "array<struct<key:string,value:binary>>"
T0_MS = 1_700_000_000_000


def moment(ms: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=ms)


def moments(rows: Any) -> Any:
    """Spark hands timestamps to Python in the machine's zone: as microseconds they are what they are."""
    return rows.selectExpr("key", "value", "topic", "partition", "offset", "unix_millis(timestamp) as at", "timestampType")


def row_of(topic: str, it: Sent) -> tuple[Any, ...]:
    return it.key, it.value, topic, it.partition, it.offset, it.timestamp_ms, 0


ODD = [
    Sent(0, None, b"no key", timestamp_ms=T0_MS),
    Sent(0, b"no value", None, timestamp_ms=T0_MS + 1),
    Sent(1, b"", b"", timestamp_ms=T0_MS - 1),
    Sent(1, b"\xff\x00", "ä☃".encode(), (("h", b"1"), ("h", None), ("ä", b"")), timestamp_ms=1),
    Sent(2, b"big", b"x" * 700_000, timestamp_ms=T0_MS + 5),
    Sent(2, b"after big", b"y", timestamp_ms=T0_MS + 6),
]


def test_the_schema_is_that_of_sparks_kafka_source(spark: Any, cluster: SyncCluster, topic: str) -> None:
    from pyspark.sql import types as T

    header = T.StructType([T.StructField("key", T.StringType(), True), T.StructField("value", T.BinaryType(), True)])
    wanted = [
        T.StructField("key", T.BinaryType(), True),
        T.StructField("value", T.BinaryType(), True),
        T.StructField("topic", T.StringType(), True),
        T.StructField("partition", T.IntegerType(), True),
        T.StructField("offset", T.LongType(), True),
        T.StructField("timestamp", T.TimestampType(), True),
        T.StructField("timestampType", T.IntegerType(), True),
    ]
    assert read(spark, cluster, topic).schema == T.StructType(wanted)
    with_headers = T.StructType([*wanted, T.StructField("headers", T.ArrayType(header, True), True)])
    assert read(spark, cluster, topic, includeHeaders="true").schema == with_headers


def test_rows_are_what_was_produced(spark: Any, cluster: SyncCluster, topic: str) -> None:
    sent = fill(cluster, topic, ODD)
    for codec in ("lz4", "none", "zstd", "snappy", "gzip"):
        sent += fill(cluster, topic, numbered(50), **{"compression.type": codec})
    found = [tuple(row) for row in moments(read(spark, cluster, topic)).collect()]
    assert sorted(found, key=lambda it: it[3:5]) == sorted((row_of(topic, it) for it in sent), key=lambda it: it[3:5])


def test_rows_are_what_librdkafka_reads(spark: Any, cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, numbered(200))
    rows = read(spark, cluster, topic).orderBy("offset").collect()
    for partition in range(3):
        theirs = embedded.consume(cluster, topic, 1, partition=partition)
        assert [bytes(row.value).decode() for row in rows if row.partition == partition] == theirs


def test_headers(spark: Any, cluster: SyncCluster, topic: str) -> None:
    """As in Spark's source a record without headers has none, which is null."""
    fill(cluster, topic, ODD)
    rows = read(spark, cluster, topic, includeHeaders="true").where("partition = 1").orderBy("offset").collect()
    found = [None if row.headers is None else [(it.key, it.value) for it in row.headers] for row in rows]
    assert found == [None, [("h", b"1"), ("h", None), ("ä", b"")]]


@pytest.mark.parametrize(
    "schema", ["value binary", "timestamp timestamp, partition int", f"headers {HEADERS}, topic string, key binary"]
)
def test_a_schema_given_by_the_user_is_what_is_read(spark: Any, cluster: SyncCluster, topic: str, schema: str) -> None:
    fill(cluster, topic, [*ODD, *numbered(10)])
    names = [it.split()[0] for it in schema.split(", ")]
    wanted = read(spark, cluster, topic, includeHeaders="true").select(*names)
    found = read(spark, cluster, topic, schema, includeHeaders="true")
    assert found.columns == names
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("value string", "column value string cannot be read"),
        ("values binary", "column values binary cannot be read"),
        (f"headers {HEADERS}", 'column headers is only there with option "includeHeaders"'),
    ],
)
def test_other_columns_are_refused(spark: Any, cluster: SyncCluster, topic: str, schema: str, told: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=told):
        read(spark, cluster, topic, schema).collect()


def test_many_batches_of_rows_have_one_type(spark: Any, cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, numbered(100), **{"compression.type": "lz4"})
    fill(cluster, topic, numbered(100, 100))
    rows = read(spark, cluster, topic, includeHeaders="true", arrowBatchRows=7)
    assert values_of(rows) == values(range(200))
    assert rows.select("offset").distinct().count() == 67


def test_an_empty_topic(spark: Any, cluster: SyncCluster, topic: str) -> None:
    rows = read(spark, cluster, topic)
    assert rows.count() == 0
    assert rows.collect() == []


def test_a_loaded_frame_does_not_change(spark: Any, cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, numbered(5))
    rows = read(spark, cluster, topic)
    assert rows.count() == 5
    fill(cluster, topic, numbered(5, 5))
    assert rows.count() == 5 == rows.union(rows).select("partition", "offset").distinct().count()
    assert read(spark, cluster, topic).count() == 10


def at_each(topic: str, *offsets: int) -> str:
    inside = ",".join(f'"{partition}":{offset}' for partition, offset in enumerate(offsets))
    return f'{{"{topic}":{{{inside}}}}}'


# Record i is in partition i % 3 at offset i // 3 and has the time T0_MS + i.
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, range(30)),
        ({"startingOffsets": (3, -2, 10), "endingOffsets": (5, 2, -1)}, [1, 4, 9, 12]),
        ({"startingOffsets": (9, 9, 9)}, [27, 28, 29]),
        ({"startingTimestamp": T0_MS + 20}, range(20, 30)),
        ({"endingTimestamp": T0_MS + 20}, range(20)),
        ({"startingTimestamp": T0_MS + 5, "endingTimestamp": T0_MS + 7}, [5, 6]),
        ({"startingOffsetsByTimestamp": (T0_MS, T0_MS + 25, T0_MS + 29)}, [*range(0, 30, 3), 25, 28, 29]),
        ({"endingOffsetsByTimestamp": (T0_MS, T0_MS + 5, T0_MS + 99)}, [1, 4, *range(2, 30, 3)]),
        (
            {"startingTimestamp": T0_MS + 28, "startingOffsets": "earliest", "startingOffsetsByTimestampStrategy": "latest"},
            [28, 29],
        ),
    ],
)
def test_ranges(spark: Any, cluster: SyncCluster, ranges_topic: str, options: dict[str, Any], wanted: Sequence[int]) -> None:
    given = {name: at_each(ranges_topic, *it) if isinstance(it, tuple) else it for name, it in options.items()}
    assert values_of(read(spark, cluster, ranges_topic, **given)) == [f"v{it}" for it in sorted(wanted)]


@pytest.fixture(scope="module")
def ranges_topic(cluster: SyncCluster) -> str:
    create(cluster, "ranges")
    fill(cluster, "ranges", numbered(30))
    return "ranges"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"assign": '{"ranges":[0,2]}'}, [it for it in range(30) if it % 3 != 1]),
        ({"subscribePattern": "range."}, range(30)),
        ({"subscribe": "ranges", "minPartitions": 7}, range(30)),
        ({"subscribe": "ranges", "maxRecordsPerPartition": 4}, range(30)),
    ],
)
def test_what_is_read_from_where(
    spark: Any, cluster: SyncCluster, ranges_topic: str, options: dict[str, Any], wanted: Sequence[int]
) -> None:
    rows = read(spark, cluster, **options)
    assert values_of(rows) == [f"v{it}" for it in wanted]
    tasks = {"minPartitions": 6, "maxRecordsPerPartition": 9}
    for name, count in tasks.items():
        if name in options:
            assert rows.rdd.getNumPartitions() == count


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is for streaming queries"),
        ({"subscribe": "nowhere"}, "there is no nowhere in the cluster"),
        ({"startingTimestamp": T0_MS + 1000}, "no offset matched the starting time of"),
        ({"endingOffsets": '{"ranges":{"0":11,"1":1,"2":1}}'}, "endingOffsets for ranges-0 is 11, which has offsets 0 to 10"),
    ],
)
def test_what_cannot_be_is_told(spark: Any, cluster: SyncCluster, ranges_topic: str, options: dict[str, Any], told: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        read(spark, cluster, ranges_topic, **options).collect()
    assert told in str(caught.value)


def test_filters_are_pushed_down_and_change_nothing(spark: Any, cluster: SyncCluster, ranges_topic: str) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    narrowed: dict[str, tuple[Callable[[int], bool], int]] = {
        "partition in (0, 2, null)": (lambda it: it % 3 != 1, 2),
        "offset > 3 and offset <= 6": (lambda it: 12 <= it < 21, 3),
        "offset in (2, 9, null) and partition = 1": (lambda it: it in (7, 28), 1),
        "topic = 'other'": (lambda _: False, 1),
        "timestamp > timestamp_millis(1700000000020) and timestamp < timestamp_millis(1700000000025)": (
            lambda it: 20 < it < 25,
            3,
        ),
        "timestamp = timestamp_millis(1700000000028)": (lambda it: it == 28, 2),
        "offset < 2 or timestamp > timestamp_millis(1700000000027)": (lambda it: it < 6 or it > 27, 3),
        "value = cast('v7' as binary) and offset >= 2": (lambda it: it == 7, 3),
        "offset > 100": (lambda _: False, 1),
    }
    for condition, (holds, tasks) in narrowed.items():
        rows = read(spark, cluster, ranges_topic, pushdown="true").where(condition)
        assert values_of(rows) == [f"v{it}" for it in range(30) if holds(it)], condition
        assert rows.rdd.getNumPartitions() == tasks, f"{condition}: without a partition Spark has one task, which reads nothing"


def test_a_frame_with_pushdown_is_for_one_query(spark: Any, cluster: SyncCluster, ranges_topic: str) -> None:
    """Spark keeps the tasks of the last filter for the loaded frame (PythonScanBuilder): too few rows would come."""
    from pyspark.errors import PySparkException

    rows = read(spark, cluster, ranges_topic, pushdown="true")
    assert rows.where("partition = 1").count() == 10
    with pytest.raises(PySparkException, match="is for one query"):
        rows.count()
    rows = read(spark, cluster, ranges_topic, pushdown="true")
    assert rows.count() == 30
    with pytest.raises(PySparkException, match="is for one query"):
        rows.where("partition = 1").union(rows.where("partition = 2")).count()
        rows.where("partition = 0").count()
        rows.count()


def test_times_are_pushed_down_in_any_zone(spark: Any, cluster: SyncCluster, ranges_topic: str) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        for condition in ("timestamp >= '2023-11-15 03:43:20.020'", "timestamp >= timestamp'2023-11-14T22:13:20.020Z'"):
            rows = read(spark, cluster, ranges_topic, pushdown="true").where(condition)
            assert values_of(rows) == values(range(20, 30))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_pushdown_without_sparks_setting_is_told(spark: Any, cluster: SyncCluster, ranges_topic: str) -> None:
    """Spark refuses a reader that has pushFilters while the setting is off: without the option ours has none."""
    from pyspark.errors import PySparkException

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read(spark, cluster, ranges_topic).where("offset = 3").count() == 3
        with pytest.raises(PySparkException, match="filterPushdown"):
            read(spark, cluster, ranges_topic, pushdown="true").where("offset = 3").count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_from_sql(spark: Any, cluster: SyncCluster, ranges_topic: str) -> None:
    options = ", ".join(f"'{name}' '{value}'" for name, value in options_of(cluster, ranges_topic, {}).items())
    spark.sql(f"create temporary view ranges using kraftlite options ({options})")
    (found,) = spark.sql("select count(*), max(offset) from ranges").collect()
    assert tuple(found) == (30, 9)
    spark.catalog.dropTempView("ranges")


def test_a_leader_that_dies_in_the_middle_of_a_query(spark: Any, faults: SyncCluster, topic: str) -> None:
    cluster = faults
    sent = fill(cluster, topic, [Sent(it % 3, None, b"%d" % it + b"." * 2_000) for it in range(6_000)])
    died: list[int] = []
    seen: set[tuple[int, int]] = set()
    rows = read(spark, cluster, topic, **{"kafka.max.partition.fetch.bytes": 65_536}).select("partition", "offset")
    for row in rows.toLocalIterator():  # partition after partition: the next ones are read when we get there
        seen.add((row.partition, row.offset))
        if len(seen) == 2_100 and not died:
            died.append(cluster.leader(topic, 2) or 0)
            cluster.kill(died[0])
    cluster.wait_for(topic=topic, partition=2, leader=other_than(died[0]))
    assert seen == {(it.partition, it.offset) for it in sent}
