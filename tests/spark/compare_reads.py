"""What `compare_connector` reads, in batches and in streams: options over topics of every kind.

A case is a function of the world and a format; what it returns must be the same for both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.harness.exactly_once import settle
from tests.spark.compare_sides import T0, Outcome, Stream, World, attempt, load, rows_of, schema_of, tasks_of

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
FAR: Final = T0 + 10**9
EARLIEST, LATEST = -2, -1


@dataclass(frozen=True)
class Case:
    """`run` is asked for each format. `apache`: only with transactions."""

    name: str
    run: Callable[[World, str], Outcome]
    apache: bool = False


def at(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


# --- topics that all cases share


def fill(world: World) -> None:
    """`plain`: 20, 7 and no records; `timed`: overlapping times, p0 seconds 0 to 9, p1 seconds 5 to 14; `second`: 5 records."""
    world.topic("plain", 3)
    world.fill("plain", 0, 20)
    world.fill("plain", 1, 7, first=100)
    world.topic("second")
    world.fill("second", 0, 5, first=200)
    world.topic("timed", 2)
    world.fill("timed", 0, 10)
    world.fill("timed", 1, 10, first=5)
    world.topic("void", 2)
    world.topic("append-time", message_timestamp_type="LogAppendTime")
    world.fill("append-time", 0, 5)
    for codec in CODECS:
        world.topic(f"packed-{codec}")
        world.fill(f"packed-{codec}", 0, 2_000, **{"compression.type": codec, "linger.ms": 50})
    _oddities(world)
    world.topic("truncated", 2)
    world.fill("truncated", 0, 20)
    world.fill("truncated", 1, 5, first=50)
    world.truncate("truncated", 0, 8)
    world.topic("cleared")
    world.fill("cleared", 0, 6)
    world.truncate("cleared", 0, 6)
    _compacted(world)
    if world.apache:
        _transactions(world)


def _oddities(world: World) -> None:
    world.topic("odd")
    headers: list[Any] = [
        [],
        [("one", b"1")],
        [("null", None)],
        [("same", b"1"), ("same", b"2"), ("same", None)],
        [("", b"")],
        [("naïve ключ", "é".encode()), ("zero", b"\0")],
    ]
    shapes: list[tuple[Any, Any]] = [
        (None, None),
        (b"", b""),
        (None, b"v"),
        (b"k", None),
        (b"\xff\xfe", b"\0"),
        (b"k", b"x" * 3000),
    ]
    world.send(
        "odd",
        [
            {"key": key, "value": value, "headers": headers[number], "partition": 0, "timestamp": T0}
            for number, (key, value) in enumerate(shapes)
        ],
    )


def _compacted(world: World) -> None:
    """Holes at the beginning, in the middle, and from the last record that is left to the end of a segment."""
    world.topic(
        "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="1000", delete_retention_ms="0"
    )
    same = [{"key": f"k{it % 4}".encode(), "value": f"v{it}".encode(), "partition": 0, "timestamp": T0 + it} for it in range(40)]
    world.send("compacted", same)
    gone = [{"key": f"k{it % 2}".encode(), "value": None, "partition": 0, "timestamp": T0 + it} for it in range(40, 44)]
    world.send("compacted", gone)

    def cleaned() -> bool:
        world.send("compacted", [{"key": b"filler", "value": b"f", "partition": 0}])
        return len([it for it in world.consume("compacted") if it[1] != b"filler"]) < 10

    world.until("the topic is compacted", cleaned)


def _transactions(world: World) -> None:
    """p0: 3 plain, 5 committed, 4 aborted, 3 committed, 2 of an open one, 2 plain behind it. p1: 4 aborted and nothing else."""
    from confluent_kafka import Producer

    world.topic("transactions", 2)
    world.fill("transactions", 0, 3)
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": "compare", "transaction.timeout.ms": 800_000})
    producer.init_transactions(30)

    def within(partition: int, numbers: range, end: Any) -> None:
        producer.begin_transaction()
        for it in numbers:
            record = {"key": f"k{it}", "value": f"v{it}", "partition": partition, "timestamp": T0 + it * 1000}
            producer.produce("transactions", **record)
        producer.flush(30)
        if end is not None:
            end(30)

    within(0, range(10, 15), producer.commit_transaction)
    within(0, range(20, 24), producer.abort_transaction)
    within(1, range(30, 34), producer.abort_transaction)
    within(0, range(40, 43), producer.commit_transaction)
    settle(world.bootstrap)
    within(0, range(50, 52), None)
    world.fill("transactions", 0, 2, first=60)
    world.open = producer  # type: ignore[attr-defined]  # until the world ends


# --- batches


def batch(name: str, *words: str, tasks: bool = False, schema: bool = False, apache: bool = False, **options: Any) -> Case:
    """`words`: if it fails, these must be in both errors."""
    given = {key.replace("__", "."): it for key, it in options.items()}

    def run(world: World, form: str) -> Outcome:
        def read() -> Any:
            frame = load(world, form, given)
            found = {"rows": rows_of(frame)}
            if tasks:
                found["tasks"] = tasks_of(frame)
            if schema:
                found["schema"] = schema_of(frame)
            return found

        return attempt(read, *words)

    return Case(f"batch: {name}", run, apache)


def batches() -> Iterator[Case]:
    yield from _which()
    yield from _where()
    yield from _when()
    yield from _shape()
    yield from _records()


def _which() -> Iterator[Case]:
    yield batch("subscribe", subscribe="plain", schema=True)
    yield batch("several topics with spaces", subscribe=" plain , second,, plain")
    yield batch("options in upper case", SUBSCRIBE="plain", STARTINGOFFSETS="EARLIEST", ENDINGOFFSETS="Latest")
    yield batch("spaces around values", subscribe="plain", startingOffsets=" earliest ", endingOffsets=" latest ")
    yield batch("missing topic", subscribe="missing")
    yield batch("one of two topics is missing", subscribe="plain,missing")
    yield batch("bad topic name", subscribe="a b!")
    yield batch("no topic", "subscribe", subscribe=" , ")
    yield batch("no strategy", "assign", "subscribe")
    yield batch("two strategies", "only one", subscribe="plain", assign='{"plain":[0]}')
    yield batch("pattern", subscribePattern="p.*n")
    yield batch("pattern that is a part of the name", subscribePattern="lai")
    yield batch("pattern with spaces around", subscribePattern=" second ")
    yield batch("pattern of alternatives", subscribePattern="^(second|void)$")
    yield batch("pattern without a topic", subscribePattern="nothing.*")
    yield batch("pattern is empty", "empty", subscribePattern=" ")
    yield batch("pattern is not one", subscribePattern="(")
    yield batch("internal topic by name", subscribe="__consumer_offsets")
    yield batch("assign", assign='{"plain":[1]}')
    yield batch("assign two topics", assign='{"plain":[1,0],"second":[0]}')
    yield batch("assign a partition that is not there", assign='{"plain":[0,9]}')
    yield batch("assign a topic that is not there", assign='{"missing":[0]}')
    yield batch("assign is not JSON", "expected e.g.", assign='{"plain":0')
    yield batch("assign is a word", "no topicpartitions to assign", assign="plain")
    yield batch("assign is empty", assign="{}")


def _where() -> Iterator[Case]:
    """startingOffsets and endingOffsets."""
    plain: Mapping[str, Any] = {"subscribe": "plain"}
    yield batch("latest to begin with", "latest", "batch", startingOffsets="latest", **plain)
    yield batch("earliest to end with", "earliest", "batch", endingOffsets="earliest", **plain)
    yield batch("offsets", startingOffsets=at("plain", 3, 2, 0), endingOffsets=at("plain", 9, 7, 0), **plain)
    yield batch(
        "-2 and -1", startingOffsets=at("plain", EARLIEST, 1, EARLIEST), endingOffsets=at("plain", LATEST, 3, LATEST), **plain
    )
    yield batch("-1 to begin with", "latest", startingOffsets=at("plain", LATEST, 0, 0), **plain)
    yield batch("-2 to end with", "earliest", endingOffsets=at("plain", EARLIEST, 0, 0), **plain)
    yield batch("-3", startingOffsets=at("plain", -3, 0, 0), **plain)
    yield batch("not all partitions to begin with", startingOffsets=at("plain", 3), **plain)
    yield batch("not all partitions to end with", endingOffsets=at("plain", 3), **plain)
    yield batch("partitions that are not there", startingOffsets=at("plain", 0, 0, 0, 0), **plain)
    yield batch("different partitions", startingOffsets=at("plain", 0, 0), endingOffsets=at("plain", 1), **plain)
    yield batch("not JSON", startingOffsets="{", **plain)
    yield batch("a word", startingOffsets="first", **plain)
    yield batch("start behind end", startingOffsets=at("plain", 9, 0, 0), endingOffsets=at("plain", 3, 7, 0), **plain)
    yield batch("start behind end, not both explicit", startingOffsets=at("plain", 9, 0, 0), endingTimestamp=T0 + 3000, **plain)
    for lossy in ("true", "false"):
        said = f"failOnDataLoss={lossy}"
        options = {"failOnDataLoss": lossy, "kafkaConsumer__pollTimeoutMs": 3000}
        yield batch(f"start behind the log, {said}", startingOffsets=at("plain", 99, 0, 0), **plain, **options)
        yield batch(f"end behind the log, {said}", "99", endingOffsets=at("plain", 99, 7, 0), **plain, **options)
        both = {"startingOffsets": at("plain", 90, 0, 0), "endingOffsets": at("plain", 99, 7, 0)}
        yield batch(f"start and end behind the log, {said}", **both, **plain, **options)
        cut = {"subscribe": "truncated", **options}
        yield batch(f"start before the log, {said}", startingOffsets=at("truncated", 2, 0), **cut)
        both = {"startingOffsets": at("truncated", 2, 0), "endingOffsets": at("truncated", 6, 5)}
        yield batch(f"start and end before the log, {said}", **both, **cut)
        yield batch(f"end before the log, {said}", endingOffsets=at("truncated", 6, 5), **cut)


def _when() -> Iterator[Case]:
    """Times. `timed-0` has seconds 0 to 9, `timed-1` 5 to 14."""
    timed: Mapping[str, Any] = {"subscribe": "timed"}
    both = f"{T0 + 3000}"
    yield batch("time", startingTimestamp=both, **timed)
    yield batch("time between records", startingTimestamp=T0 + 7500, **timed)
    yield batch("time before all", startingTimestamp=0, **timed)
    yield batch("time with spaces", startingTimestamp=f" {both} ", **timed)
    yield batch("time is a word", startingTimestamp="now", **timed)
    yield batch("time is negative", startingTimestamp=-5, **timed)
    yield batch("time behind one partition", "no offset", "matched", startingTimestamp=T0 + 12_000, **timed)
    yield batch("time behind all", "no offset", "matched", startingTimestamp=FAR, **timed)
    for strategy in ("latest", "LATEST", "error", "nonsense"):
        options = {"startingOffsetsByTimestampStrategy": strategy}
        yield batch(f"time behind one partition, {strategy}", startingTimestamp=T0 + 12_000, **options, **timed)
        yield batch(
            f"times behind one partition, {strategy}", startingOffsetsByTimestamp=at("timed", FAR, T0), **options, **timed
        )
    yield batch("strategy in an empty topic", startingTimestamp=T0, startingOffsetsByTimestampStrategy="latest", subscribe="void")
    yield batch("time in an empty topic", startingTimestamp=T0, subscribe="void")
    yield batch("times", startingOffsetsByTimestamp=at("timed", T0 + 2000, T0 + 6500), **timed)
    yield batch("times of not all partitions", startingOffsetsByTimestamp=at("timed", T0), **timed)
    yield batch("times are not JSON", startingOffsetsByTimestamp="soon", **timed)
    yield batch("time goes before times", startingTimestamp=both, startingOffsetsByTimestamp=at("timed", FAR, FAR), **timed)
    yield batch(
        "times go before offsets",
        startingOffsetsByTimestamp=at("timed", T0, T0 + 6000),
        startingOffsets=at("timed", 9, 9),
        **timed,
    )
    yield batch("time goes before offsets", startingTimestamp=both, startingOffsets="earliest", **timed)
    yield batch("ending time", endingTimestamp=T0 + 7000, **timed)
    yield batch("ending time before all", endingTimestamp=0, **timed)
    yield batch("ending time behind all", endingTimestamp=FAR, **timed)
    yield batch("ending time behind one partition", endingTimestamp=T0 + 12_000, **timed)
    yield batch("ending times", endingOffsetsByTimestamp=at("timed", T0 + 7000, FAR), **timed)
    yield batch(
        "ending time goes before the others", endingTimestamp=T0 + 7000, endingOffsetsByTimestamp=at("timed", 0, 0), **timed
    )
    yield batch(
        "ending times go before offsets", endingOffsetsByTimestamp=at("timed", FAR, FAR), endingOffsets=at("timed", 1, 1), **timed
    )
    yield batch("between times", startingTimestamp=both, endingTimestamp=T0 + 8000, **timed)
    yield batch("start time behind end time", startingTimestamp=T0 + 8000, endingTimestamp=both, **timed)
    orders = {"startingOffsetsByTimestamp": at("timed", T0 + 8000, T0), "endingOffsetsByTimestamp": at("timed", T0, FAR)}
    yield batch("start times behind end times", **orders, **timed)
    yield batch("time and offsets", startingTimestamp=both, endingOffsets=at("timed", 5, LATEST), **timed)


def _shape() -> Iterator[Case]:
    """Tasks."""
    plain: Mapping[str, Any] = {"subscribe": "plain", "tasks": True}
    for number in (1, 3, 4, 5, 9, 40):
        yield batch(f"minPartitions {number}", minPartitions=number, **plain)
    for number in (1, 4, 7, 10, 100):
        yield batch(f"maxRecordsPerPartition {number}", maxRecordsPerPartition=number, **plain)
    yield batch("minPartitions and maxRecordsPerPartition", minPartitions=9, maxRecordsPerPartition=6, **plain)
    yield batch("minPartitions, more records allowed", minPartitions=9, maxRecordsPerPartition=15, **plain)
    for name in ("minPartitions", "maxRecordsPerPartition"):
        for value in ("0", "-1", "x"):
            yield batch(f"{name} {value}", **{name: value, **plain})
    yield batch("a bad failOnDataLoss", failOnDataLoss="maybe", subscribe="plain")
    yield batch("a bad includeHeaders", includeHeaders="maybe", subscribe="plain")
    yield batch("FALSE and True", failOnDataLoss="FALSE", includeHeaders="True", subscribe="plain", schema=True)
    yield batch("more to fetch at least than at most", minOffsetsPerTrigger=5, maxOffsetsPerTrigger=1, subscribe="plain")
    for name in ("auto.offset.reset", "key.deserializer", "enable.auto.commit", "interceptor.classes"):
        yield batch(f"kafka.{name}", name, **{f"kafka__{name}": "earliest"}, subscribe="plain")


def _records() -> Iterator[Case]:
    yield batch("nulls and empty ones", subscribe="odd")
    yield batch("headers", subscribe="odd", includeHeaders="true", schema=True)
    yield batch("no headers", subscribe="plain", includeHeaders="true")
    yield batch("empty topic", subscribe="void")
    yield batch("log append time", subscribe="append-time")
    for codec in CODECS:
        yield batch(codec, subscribe=f"packed-{codec}")
        yield batch(
            f"{codec}, cut", subscribe=f"packed-{codec}", startingOffsets=at(f"packed-{codec}", 777), tasks=True, minPartitions=4
        )
    yield batch("compacted", subscribe="compacted")
    yield batch("compacted, in pieces", subscribe="compacted", minPartitions=11)
    yield batch(
        "compacted, from and to a hole",
        subscribe="compacted",
        startingOffsets=at("compacted", 5),
        endingOffsets=at("compacted", 30),
    )
    yield batch("truncated", subscribe="truncated")
    yield batch("everything is deleted", subscribe="cleared")
    for level in ("read_committed", "read_uncommitted", "READ_COMMITTED"):
        options = {"subscribe": "transactions", "kafka__isolation.level": level, "apache": True}
        yield batch(f"transactions, {level}", **options)
        yield batch(f"transactions in pieces, {level}", minPartitions=12, **options)
        ends = at("transactions", 24, 5)
        yield batch(f"transactions to an open one, {level}", endingOffsets=ends, kafkaConsumer__pollTimeoutMs=3000, **options)


# --- streams


def stream(name: str, *words: str, apache: bool = False, tasks: bool = False, **options: Any) -> Case:
    """One availableNow: the rows, and how many each batch had of each partition."""
    given = {key.replace("__", "."): it for key, it in options.items()}

    def run(world: World, form: str) -> Outcome:
        def read() -> Any:
            query = Stream(world, form, given, tasks).run()
            found = {"rows": query.rows(), "sizes": query.sizes()}
            if tasks:
                found["tasks"] = [it.tasks for it in query.batches if it.rows]
            return found

        return attempt(read, *words)

    return Case(f"stream: {name}", run, apache)


def streams() -> Iterator[Case]:
    plain: Mapping[str, Any] = {"subscribe": "plain"}
    early: Mapping[str, Any] = {**plain, "startingOffsets": "earliest"}
    yield stream("subscribe", **early)
    yield stream("from latest", **plain)
    yield stream("missing topic", subscribe="missing")
    yield stream("pattern that is a part of the name", subscribePattern="lai", startingOffsets="earliest")
    yield stream("assign", assign='{"plain":[1]}', startingOffsets="earliest")
    yield stream("assign a partition that is not there", assign='{"plain":[0,9]}', startingOffsets="earliest")
    yield stream("offsets", startingOffsets=at("plain", 18, EARLIEST, LATEST), **plain)
    yield stream("not all partitions", startingOffsets=at("plain", 18), **plain)
    yield stream("ending offsets", "streaming queries", endingOffsets="latest", **plain)
    yield stream("ending times", "streaming queries", endingOffsetsByTimestamp=at("plain", 1, 1, 1), **plain)
    for lossy in ("true", "false"):
        options = {"failOnDataLoss": lossy, "kafkaConsumer__pollTimeoutMs": 3000}
        yield stream(f"start behind the log, failOnDataLoss={lossy}", startingOffsets=at("plain", 99, 0, 0), **plain, **options)
        cut = {"subscribe": "truncated", **options}
        yield stream(f"start before the log, failOnDataLoss={lossy}", startingOffsets=at("truncated", 2, 0), **cut)
    yield stream("time", subscribe="timed", startingTimestamp=T0 + 7000)
    yield stream("time behind one partition", "no offset", subscribe="timed", startingTimestamp=T0 + 12_000)
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    yield stream("time behind one partition, latest", subscribe="timed", startingTimestamp=T0 + 12_000, **late)
    yield stream("times", subscribe="timed", startingOffsetsByTimestamp=at("timed", T0 + 2000, T0 + 6500))
    for number in (1, 2, 5, 10, 26, 27, 1000):
        yield stream(f"maxOffsetsPerTrigger {number}", maxOffsetsPerTrigger=number, **early)
    for value in ("0", "-1", "x"):
        yield stream(f"maxOffsetsPerTrigger {value}", maxOffsetsPerTrigger=value, **early)
    yield stream("minOffsetsPerTrigger", minOffsetsPerTrigger=1000, **early)
    yield stream("minOffsetsPerTrigger and maxOffsetsPerTrigger", minOffsetsPerTrigger=5, maxOffsetsPerTrigger=12, **early)
    yield stream("min over max", "minOffset", "higher", minOffsetsPerTrigger=9, maxOffsetsPerTrigger=8, **early)
    yield stream("maxTriggerDelay is a word", minOffsetsPerTrigger=9, maxTriggerDelay="soon", **early)
    yield stream("maxTriggerDelay in minutes", minOffsetsPerTrigger=9, maxTriggerDelay="2m", **early)
    yield stream("tasks", tasks=True, minPartitions=7, maxOffsetsPerTrigger=20, **early)
    yield stream("tasks of so many records", tasks=True, maxRecordsPerPartition=4, maxOffsetsPerTrigger=20, **early)
    yield stream("headers", subscribe="odd", includeHeaders="true", startingOffsets="earliest")
    yield stream("empty topic", subscribe="void", startingOffsets="earliest")
    yield stream("compacted in pieces", subscribe="compacted", startingOffsets="earliest", maxOffsetsPerTrigger=7)
    yield stream("everything is deleted", subscribe="cleared", startingOffsets="earliest")
    for level in ("read_committed", "read_uncommitted"):
        options = {"subscribe": "transactions", "kafka__isolation.level": level, "startingOffsets": "earliest"}
        yield stream(f"transactions, {level}", apache=True, maxOffsetsPerTrigger=6, **options)


def cases() -> Iterator[Case]:
    yield from batches()
    yield from streams()
