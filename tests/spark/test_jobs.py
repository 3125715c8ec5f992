"""The jobs: what they make of records, what they refuse, and that a crash at any step leaves nothing out and nothing twice.

Lakes are read with pyarrow, which knows nothing of Spark's metadata: a file too many would be seen.
"""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import settle
from tests.harness.spark_runs import Sent, create, fill, numbered, read

pytestmark = [pytest.mark.spark]

DAY_MS = 86_400_000
T0_MS = 1_700_000_000_000 - 1_700_000_000_000 % DAY_MS


def lake_rows(path: Path | str, *columns: str) -> list[tuple[Any, ...]]:
    """As any reader of Parquet sees them; empty when there is no file."""
    import pyarrow.dataset as ds

    found = ds.dataset(str(path), format="parquet", partitioning="hive")
    if not found.files:
        return []
    return sorted(zip(*(found.to_table(columns=list(columns)).column(it).to_pylist() for it in columns), strict=True), key=repr)


def source(cluster: SyncCluster, topic: str, starting: str = "earliest", **options: str) -> Any:
    from kraftlite.spark.jobs.running import Source

    return Source(bootstrap=cluster.bootstrap_servers, topics=topic, starting=starting, options=options)


def form(kind: str, schema: str | None = None, event_time: str | None = None, **options: str) -> Any:
    from kraftlite.spark.jobs.decode import Format

    return Format(kind=kind, schema=schema, event_time=event_time, options=tuple(options.items()))


def sent(values: Iterable[bytes | None], partition: int = 0) -> list[Sent]:
    return [Sent(partition, b"k", value, timestamp_ms=T0_MS) for value in values]


# --- ingest


BAD = {
    b"{broken": "not JSON",
    b"\xff\xfe": "not UTF-8",
    b"[1,2]": "does not fit the schema",
    b'"abc"': "does not fit the schema",
    b'{"id":"x","at":"2013-01-01"}': "does not fit the schema",
    b'{"id":1}': "no event time in at",
    b'{"id":1,"at":"yesterday"}': "no event time in at",
    b'{"id":1,"at":"+12345-01-01 00:00:00"}': "no event time in at",
    b"": "not JSON",
}


def test_ingest_json(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    """Good rows by the day of the event, the others as they were, with the reason. A column may well be called reason."""
    from kraftlite.spark.jobs.ingest import ingest

    good = [json.dumps({"id": it, "reason": f"r{it}", "at": f"2013-01-0{1 + it % 3} 10:00:00"}).encode() for it in range(30)]
    fill(cluster, topic, [*sent(good), *sent(BAD, 1), *sent([None], 2)])
    out = str(tmp_path / "lake")
    given = {
        "out": out,
        "checkpoint": str(tmp_path / "checkpoint"),
        "form": form("json", "id bigint, reason string, at string", "at"),
    }
    report = ingest(spark, source(cluster, topic), max_offsets=20, **given)
    assert report.rows == 30
    found = lake_rows(out, "id", "reason", "event_date", "_topic", "_partition", "_offset")
    assert sorted(found) == [(it, f"r{it}", f"2013-01-0{1 + it % 3}", topic, 0, it) for it in range(30)]
    bad = lake_rows(f"{out}_quarantine", "value", "reason", "partition", "offset")
    told = {(value, reason) for value, reason, _, _ in bad}
    assert told == {*BAD.items(), (None, "no value")}
    assert sum(report.quarantined.values()) == len(bad) == len(BAD) + 1
    assert report.files == 3, "small files were merged"
    again = ingest(spark, source(cluster, topic), max_offsets=20, **given)
    assert (again.rows, again.batches, again.quarantined) == (0, 0, {})
    assert sorted(lake_rows(out, "id")) == [(it,) for it in range(30)]


def test_one_record_cannot_end_an_ingest(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    from kraftlite.spark.jobs.ingest import ingest

    times = [2**63 - 1, -(2**63), 10**17, T0_MS, 0, -1]
    fill(cluster, topic, sent(json.dumps({"at": it}).encode() for it in times))
    out = str(tmp_path / "lake")
    report = ingest(
        spark, source(cluster, topic), out=out, checkpoint=str(tmp_path / "checkpoint"), form=form("json", "at bigint", "at")
    )
    assert (report.rows, report.quarantined) == (3, {"no event time in at": 3})
    days = lake_rows(out, "at", "event_date")
    assert sorted(days) == [(-1, "1969-12-31"), (0, "1970-01-01"), (T0_MS, "2023-11-14")]


def test_ingest_csv(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    from kraftlite.spark.jobs.ingest import ingest

    lines = [b"1;a;2013-01-01", b"2;;2013-01-02", b"x;b;2013-01-01", b"3;\xff;2013-01-01", None]
    fill(cluster, topic, sent(lines))
    out = str(tmp_path / "lake")
    shape = form("csv", "id int, name string, day date", "day", sep=";")
    report = ingest(spark, source(cluster, topic), out=out, checkpoint=str(tmp_path / "checkpoint"), form=shape)
    assert sorted(lake_rows(out, "id", "name", "event_date")) == [(1, "a", "2013-01-01"), (2, None, "2013-01-02")]
    assert report.quarantined == {"does not fit the schema": 1, "not UTF-8": 1, "no value": 1}


def test_ingest_raw(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    from kraftlite.spark.jobs.ingest import ingest

    wanted = fill(cluster, topic, [*sent([b"\xff", None, b""]), Sent(1, None, b"later", timestamp_ms=T0_MS + DAY_MS)])
    out = str(tmp_path / "lake")
    report = ingest(spark, source(cluster, topic), out=out, checkpoint=str(tmp_path / "checkpoint"))
    assert (report.rows, report.quarantined, report.schema) == (4, {}, None)
    found = lake_rows(out, "key", "value", "_partition", "_offset", "event_date")
    days = {T0_MS: "2023-11-14", T0_MS + DAY_MS: "2023-11-15"}
    rows = [(it.key, it.value, it.partition, it.offset, days[it.timestamp_ms or 0]) for it in wanted]
    assert found == sorted(rows, key=repr)


def test_an_inferred_schema_is_kept(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    """Also with options that only a stream may have, and with names that are none in SQL."""
    from kraftlite.spark.jobs.ingest import ingest

    fill(cluster, topic, sent(json.dumps({"id": it, "in-side": {"a b": "x", "c.d": [it]}}).encode() for it in range(3)))
    given = {"out": str(tmp_path / "lake"), "checkpoint": str(tmp_path / "checkpoint"), "form": form("json")}
    stream_only = source(cluster, topic, minOffsetsPerTrigger="1")
    first = ingest(spark, stream_only, **given)
    assert first.rows == 3 and first.schema is not None and "in-side" in first.schema
    fill(cluster, topic, sent([b'{"id":7,"new":1,"in-side":null}', b'{"id":"text"}']))
    second = ingest(spark, stream_only, **given)
    assert (second.schema, second.rows, second.quarantined) == (first.schema, 1, {"does not fit the schema": 1})
    assert sorted(lake_rows(tmp_path / "lake", "id")) == [(0,), (1,), (2,), (7,)]


@pytest.mark.parametrize(
    ("kind", "schema", "event_time", "told"),
    [
        ("json", "id bigint", "at", "event time 'at' is not a column of the schema; it has id"),
        ("json", "at boolean", "at", "event time 'at' is a boolean"),
        ("json", "_offset bigint, id int", None, "column _offset of the schema cannot be"),
    ],
)
def test_formats_that_cannot_be(
    spark: Any, cluster: SyncCluster, topic: str, kind: str, schema: str, event_time: str | None, told: str
) -> None:
    from kraftlite.spark.jobs.decode import decode

    with pytest.raises(ValueError, match=told):
        decode(read(spark, cluster, topic), form(kind, schema, event_time))


# --- the lake


class Killed(Exception):
    pass


class Dying:
    """Hadoop's file system until it has changed something `steps` times: then the process is gone."""

    def __init__(self, fs: Any, steps: int) -> None:
        self._fs, self.left = fs, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._fs, name)
        if name not in ("delete", "rename", "create", "mkdirs"):
            return found

        def act(*args: Any) -> Any:
            if self.left == 0:
                raise Killed(name)
            self.left -= 1
            return found(*args)

        return act


def frame(spark: Any, first: int, count: int = 4) -> Any:
    """Two days, and no order by day."""
    return spark.range(first, first + count, 1, 2).selectExpr("id", "concat('2013-01-0', 1 + id % 2) as event_date")


def ids(*ranges: range) -> list[tuple[int]]:
    return sorted(((it,) for one in ranges for it in one), key=repr)


def crash_everywhere(path: Path, open_lake: Callable[[], Any], act: Callable[[Any], Any], check: Callable[[], None]) -> int:
    """`act` on a copy of the lake for each number of steps it may take; then a new process does it again. How many crashes."""
    import shutil

    before = path.with_name("before")
    shutil.copytree(path, before)
    for steps in range(100):
        shutil.rmtree(path)
        shutil.copytree(before, path)
        lake = open_lake()
        lake._fs = Dying(lake._fs, steps)
        try:
            act(lake)
        except Killed:
            act(open_lake())
            check()
        else:
            check()
            return steps
    raise AssertionError("it never ends")


def test_a_crash_at_any_step_of_a_batch(spark: Any, tmp_path: Path) -> None:
    from kraftlite.spark.jobs.lake import Lake

    path = tmp_path / "lake"

    def opened() -> Any:
        return Lake(spark, str(path), partition_by=("event_date",))

    opened().write(0, frame(spark, 0))
    crashes = crash_everywhere(
        path,
        opened,
        lambda lake: lake.write(1, frame(spark, 4)),
        lambda: assert_rows(path, range(8)),
    )
    assert crashes >= 4


def assert_rows(path: Path, *ranges: range) -> None:
    assert lake_rows(path, "id") == ids(*ranges)


def test_a_crash_at_any_step_of_a_compaction(spark: Any, tmp_path: Path) -> None:
    """Batches up to 1 are committed; the files of batch 2 must stay its own, as it may run again."""
    from kraftlite.spark.jobs.lake import Lake

    path = tmp_path / "lake"

    def opened() -> Any:
        return Lake(spark, str(path), partition_by=("event_date",))

    for batch in range(3):
        opened().write(batch, frame(spark, batch * 4))

    def check() -> None:
        assert_rows(path, range(12))
        names = sorted(it.name for it in opened().files())
        assert [it for it in names if it.startswith("part-00000002")]
        assert len([it for it in names if it.startswith("merged-")]) == 2
        assert not [it for it in names if it.startswith(("part-00000000", "part-00000001"))]

    crashes = crash_everywhere(path, opened, lambda lake: lake.compact(1), check)
    assert crashes >= 6
    opened().write(2, frame(spark, 100))
    assert_rows(path, range(8), range(100, 104))


def test_a_crash_in_the_compaction_of_what_is_merged_already(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merged file may get the name of one that it replaces."""
    from kraftlite.spark.jobs import lake as module

    path = tmp_path / "lake"

    def opened() -> Any:
        return module.Lake(spark, str(path))

    for batch in range(2):
        opened().write(batch, frame(spark, batch * 4))
    monkeypatch.setattr(module, "MAX_ROWS", 4)
    opened().compact(1)
    assert len(opened().files()) == 2, "two merged files of the same batch"
    monkeypatch.setattr(module, "MAX_ROWS", 1_000)
    crash_everywhere(path, opened, lambda lake: lake.compact(1), lambda: assert_rows(path, range(8)))
    assert [it.name[:15] for it in opened().files()] == ["merged-00000001"]


def test_a_compaction_takes_so_many_files_and_whole_batches(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kraftlite.spark.jobs import lake as module

    monkeypatch.setattr(module, "MAX_ROWS", 2)
    lake = module.Lake(spark, str(tmp_path / "lake"))
    for batch in range(3):
        lake.write(batch, frame(spark, batch * 4).coalesce(1))
    before = lake.files()
    assert [it.batch for it in before] == [0, 0, 1, 1, 2, 2]
    monkeypatch.setattr(module, "MAX_ROWS", 1_000)
    monkeypatch.setattr(module, "MAX_MERGED", 3)
    assert lake.compact(2) == (6, 5), "two files are one: the third is of a batch that would be cut"
    assert [it.name for it in lake.files() if it.batch] == [it.name for it in before if it.batch]
    assert_rows(tmp_path / "lake", range(12))


def test_a_small_file_beside_the_data_is_small(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kraftlite.spark.jobs import lake as module

    lake = module.Lake(spark, str(tmp_path / "lake"))
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 10)
    lake.write_text("schema.txt", "x" * 10)
    assert lake.read_text("schema.txt") == "x" * 10
    with pytest.raises(ValueError, match=r"lake/schema.txt has 11 bytes; allowed are at most 10"):
        lake.write_text("schema.txt", "x" * 11)
    (tmp_path / "lake" / module.MANIFEST).write_text("x" * 11)
    with pytest.raises(ValueError, match=r"lake/_compaction.json has 11 bytes"):
        module.Lake(spark, str(tmp_path / "lake"))


# --- aggregate

MINUTES = [
    [*range(10)],
    [*range(10, 20)],
    [*range(20, 29), 8],  # late, and in time
    [*range(40, 49), 12],  # so is this: its window ends at 20, the watermark is 18
    [*range(50, 59), 1],  # its window was given out long ago
    [*range(60, 69), 23],  # and so was this one's
]
LATE = {(4, 1), (5, 23)}
LENGTH, DELAY = 10, 10


def event(minute: int, index: int) -> dict[str, Any]:
    moment = datetime.datetime(2013, 1, 1) + datetime.timedelta(minutes=minute)
    return {"carrier": "AB"[index % 2], "delay": None if index == 7 else minute - 5, "at": moment.isoformat(sep=" ")}


def expected(final: bool) -> dict[tuple[int, str], tuple[Any, ...]]:
    """By window (its first minute) and carrier: rows, values, sum, mean, min and max; `final`: only what the watermark passed."""
    groups: dict[tuple[int, str], list[float | None]] = defaultdict(list)
    for batch, minutes in enumerate(MINUTES):
        for index, minute in enumerate(minutes):
            if (batch, minute) not in LATE:
                it = event(minute, index)
                groups[minute // LENGTH * LENGTH, it["carrier"]].append(it["delay"])
    watermark = max(max(it) for it in MINUTES) - DELAY
    found = {}
    for (start, carrier), delays in groups.items():
        known = [it for it in delays if it is not None]
        if not final or start + LENGTH <= watermark:
            found[start, carrier] = (len(delays), len(known), sum(known), sum(known) / len(known), min(known), max(known))
    return found


def results(rows: Any) -> dict[tuple[int, str], tuple[Any, ...]]:
    began = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC).timestamp()
    columns = ("rows", "values", "sum", "mean", "min", "max")
    found = rows.selectExpr(
        "unix_seconds(window_start) as start", "unix_seconds(window_end) as end", "carrier", *columns
    ).collect()
    by_window = {(round(it.start - began) // 60, it.carrier): tuple(it[name] for name in columns) for it in found}
    assert len(by_window) == len(found), "a window was given out twice"
    assert all(it.end - it.start == LENGTH * 60 for it in found)
    return by_window


@pytest.mark.parametrize("mode", ["append", "update"])
def test_aggregate_is_what_plain_python_makes_of_it(
    spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path, mode: str
) -> None:
    from kraftlite.spark.jobs.aggregate import Windows, aggregate, latest_results

    one = f"{topic}-one"
    create(cluster, one, 1)
    windows = Windows(group_by=("carrier",), value="delay", length="10 minutes", watermark="10 minutes", mode=mode)
    given: dict[str, Any] = {
        "form": form("json", "carrier string, delay string, at timestamp", "at"),
        "windows": windows,
        "checkpoint": str(tmp_path / "checkpoint"),
        "out": str(tmp_path / "out"),
        "max_offsets": 10,
    }
    late = rows = malformed = 0
    for part in (MINUTES[:3], MINUTES[3:]):  # and a restart between them
        values = [json.dumps(event(minute, index)).encode() for minutes in part for index, minute in enumerate(minutes)]
        fill(cluster, one, sent(values))
        report = aggregate(spark, source(cluster, one), result_topic=topic if part is MINUTES[:3] else None, **given)
        late, rows, malformed = late + report.late_rows, rows + report.rows, malformed + report.malformed_rows
    assert (rows, malformed, late) == (60, 0, len(LATE))
    found = spark.read.parquet(given["out"])
    if mode == "append":
        assert results(found) == expected(final=True)
    else:
        assert results(latest_results(found, ("carrier",))) == expected(final=False)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_aggregate_to_a_topic(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path, exactly_once: bool) -> None:
    from kraftlite.spark.jobs.aggregate import Windows, aggregate

    results_topic = f"{topic}-results"
    create(cluster, results_topic)
    values = [b'{"carrier":"A","delay":"%s","at":"2013-01-01 10:%02d:00"}' % (b"NA" if it == 3 else b"5", it) for it in range(10)]
    fill(cluster, topic, [*sent(values), *sent([b"{"])])
    report = aggregate(
        spark,
        source(cluster, topic),
        form=form("json", "carrier string, delay string, at timestamp", "at"),
        windows=Windows(group_by=("carrier",), value="delay", length="10 minutes", mode="update"),
        checkpoint=str(tmp_path / "checkpoint"),
        result_topic=results_topic,
        exactly_once=exactly_once,
    )
    assert (report.malformed_rows, report.late_rows) == (1, 0)
    settle(cluster.bootstrap_servers)
    (row,) = read(spark, cluster, results_topic, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}).collect()
    assert [it.key for it in row.headers or ()] == (["kraftlite.batch"] if exactly_once else [])
    key, value = json.loads(row.key), json.loads(row.value)
    assert key == {"window_start": "2013-01-01T10:00:00.000Z", "carrier": "A"}
    assert {name: value[name] for name in ("rows", "values", "sum", "mean")} == {"rows": 10, "values": 9, "sum": 45, "mean": 5}


def test_aggregate_says_what_is_wrong(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    from kraftlite.spark.jobs.aggregate import Windows, aggregate

    given: dict[str, Any] = {"form": form("json", "a int, at timestamp", "at"), "checkpoint": str(tmp_path / "checkpoint")}
    with pytest.raises(ValueError, match="nowhere to write to"):
        aggregate(spark, source(cluster, topic), windows=Windows(group_by=("a",), value="a"), **given)
    with pytest.raises(ValueError, match="exactly once is about the result topic, and none is given"):
        aggregate(spark, source(cluster, topic), windows=Windows(group_by=("a",), value="a"), out="x", exactly_once=True, **given)
    with pytest.raises(ValueError, match="column 'b' is not there; the schema has a, at"):
        aggregate(spark, source(cluster, topic), windows=Windows(group_by=("b",), value="a"), out=str(tmp_path / "out"), **given)


# --- backfill


def test_backfill_ranges(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    """Record i is in partition i % 3 at offset i // 3. What a backfill writes replaces what the one before it wrote."""
    from kraftlite.spark.jobs.backfill import backfill

    wanted = fill(cluster, topic, numbered(60))
    places = {(it.partition, it.offset): it.value for it in wanted}
    start = wanted[0].timestamp_ms or 0
    out = tmp_path / "out"
    exact = {
        "startingOffsets": json.dumps({topic: {"0": 5, "1": 0, "2": 19}}),
        "endingOffsets": json.dumps({topic: {"0": 8, "1": 0, "2": -1}}),
    }
    report = backfill(spark, source(cluster, topic, "", **exact), out=str(out))
    assert (report.rows, report.offsets) == (4, {f"{topic}-0": (5, 7), f"{topic}-2": (19, 19)})
    assert sorted(lake_rows(out, "_partition", "_offset")) == [(0, 5), (0, 6), (0, 7), (2, 19)]
    times = {"startingTimestamp": str(start + 10), "endingTimestamp": str(start + 20)}
    report = backfill(spark, source(cluster, topic, "", **times), out=str(out))
    found = lake_rows(out, "_partition", "_offset", "value")
    assert sorted(int(value[1:]) for _, _, value in found) == [*range(10, 20)]
    assert all(places[partition, offset] == value for partition, offset, value in found)
    assert report.rows == 10
