"""Queries over segment files give the records and batches that were written, in every cut, or an error that names the place."""

from __future__ import annotations

import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import IntegerType, StructField, StructType

from kraftlite.host.disk import HostDisk
from kraftlite.log import checkpoints
from kraftlite.log.batch import HEADER_BYTES, Record, build_batch, iter_headers, iter_records
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.segments.files import CHUNK_BYTES
from kraftlite.spark.offsets import DataLoss
from kraftlite.spark.segments.source import BATCH_COLUMNS
from kraftlite.spark.source.datasource import KraftliteDataSource
from kraftlite.spark.source.readers import COLUMNS, HEADERS
from tests.harness.audit_cluster import END, RECORDS, START_MS, TP, Broker, flip, make_cluster, record_batch

Cluster = dict[str, Broker]
FIELDS = {field.name: field for field in (*COLUMNS, HEADERS, *BATCH_COLUMNS)}
PER_SEGMENT = 40
"""Offsets of a segment of `make_cluster`."""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return make_cluster(tmp_path)


def dirs(cluster: Cluster) -> str:
    return ",".join(f"{name}={broker.path}" for name, broker in cluster.items())


def fields(names: str) -> StructType:
    return StructType([FIELDS[name] for name in names.split()])


def plan(path: str, columns: str | StructType = "", **options: str) -> tuple[Any, list[Any]]:
    """The reader and its tasks, each with what travels to a worker."""
    given = {"scan": "segments", "path": path, **{name.lower().replace("__", "."): value for name, value in options.items()}}
    source = KraftliteDataSource(given)
    wanted = fields(columns) if isinstance(columns, str) else columns
    reader = source.reader(wanted if wanted.fields else source.schema())
    return reader, [pickle.loads(pickle.dumps(it)) for it in reader.partitions()]


def query(path: str, columns: str | StructType = "", **options: str) -> list[dict[str, Any]]:
    reader, tasks = plan(path, columns, **options)
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def offsets(path: str, **options: str) -> list[int]:
    return [row["offset"] for row in query(path, "offset", **options)]


def place(error: ApiError) -> str:
    assert error.code == ErrorCode.CORRUPT_MESSAGE
    return str(error.message).split(":", 1)[0]


# records


def test_every_column(cluster: Cluster) -> None:
    found = query(dirs(cluster))
    assert len(found) == END
    assert list(found[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    for offset, row in enumerate(found):
        assert (row["key"], row["offset"]) == (f"k{offset}".encode(), offset)
        assert row["value"] == f"value-{offset}".encode() + b"." * 40
        assert (row["topic"], row["partition"], row["timestampType"]) == ("orders", 0, 0)
        assert row["timestamp"].timestamp() * 1000 == START_MS + offset // RECORDS * RECORDS * 10 + offset % RECORDS
    with_more = query(dirs(cluster), "broker headers", includeHeaders="true")
    assert with_more == [{"broker": "b1", "headers": None}] * END
    assert query(dirs(cluster), "broker", startingOffsets='{"orders":{"0":119}}') == [{"broker": "b1"}]


def test_any_range_in_any_cut_is_read_once_and_in_order(cluster: Cluster) -> None:
    rng = random.Random(7)
    for _ in range(40):
        start, end = sorted(rng.sample(range(END + 1), 2))
        cut = (
            {"minPartitions": str(rng.randint(1, 30))}
            if rng.random() < 0.5
            else {"maxRecordsPerPartition": str(rng.randint(1, 30))}
        )
        ends = {"startingOffsets": f'{{"orders":{{"0":{start}}}}}', "endingOffsets": f'{{"orders":{{"0":{end}}}}}'}
        assert offsets(dirs(cluster), arrowBatchRows=str(rng.randint(1, 9)), **cut, **ends) == list(range(start, end))


def test_min_partitions_is_how_many_tasks_there_are(cluster: Cluster) -> None:
    assert [len(plan(dirs(cluster), minPartitions=str(it))[1]) for it in (1, 4, 9)] == [1, 4, 9]


@pytest.mark.parametrize("damage", ["gone", "zeros", "beyond", "shifted"])
def test_an_index_is_only_a_hint(cluster: Cluster, damage: str) -> None:
    index = cluster["b1"].segments[1].with_suffix(".index")
    data = index.read_bytes()
    if damage == "gone":
        index.unlink()
    elif damage == "zeros":
        index.write_bytes(data[: len(data) // 16 * 8] + bytes(8 * 100))
    elif damage == "beyond":
        index.write_bytes(b"\0\0\0\1\x7f\xff\xff\xf0")
    else:
        index.write_bytes(b"".join(data[at : at + 7] + bytes([data[at + 7] ^ 1]) for at in range(0, len(data), 8)))
    for start in range(PER_SEGMENT, 2 * PER_SEGMENT, 7):
        assert offsets(dirs(cluster), startingOffsets=f'{{"orders":{{"0":{start}}}}}') == list(range(start, END))


def test_a_batch_that_is_larger_than_a_chunk(cluster: Cluster) -> None:
    large = build_batch(
        [Record(b"k", b"x" * (2 * CHUNK_BYTES)), Record(b"k", None)], base_offset=80, leader_epoch=2, timestamp_ms=START_MS
    )
    cluster["b1"].rewrite(2, lambda batches: [large, record_batch(82, 2)])
    cluster["b1"].set_offsets(checkpoints.HW_CHECKPOINT, 87)
    found = query(f"b1={cluster['b1'].path}", "offset value", startingOffsets='{"orders":{"0":79}}')
    assert [len(row["value"] or b"") for row in found] == [48, 2 * CHUNK_BYTES, 0, *[48] * 5]
    assert len(query(f"b1={cluster['b1'].path}", view="batches")) == 18


def test_one_directory_is_enough(cluster: Cluster) -> None:
    assert query(str(cluster["b2"].path), "broker")[0] == {"broker": "data"}
    (cluster["b2"].path / "meta.properties").write_text("#\nnode.id=5\nversion=1\n")
    assert query(str(cluster["b2"].path), "broker")[0] == {"broker": "b5"}


# which replica, and how far


def test_the_replica_with_the_highest_high_watermark_is_read_up_to_it(cluster: Cluster) -> None:
    for name, hw in (("b1", 50), ("b2", 63), ("b3", 62)):
        cluster[name].set_offsets(checkpoints.HW_CHECKPOINT, hw)
    assert {row["broker"] for row in query(dirs(cluster), "broker")} == {"b2"}
    assert offsets(dirs(cluster)) == list(range(63))
    assert offsets(dirs(cluster), endAt="logEnd") == list(range(END))


def test_of_equal_ones_the_longest_log_and_then_the_first_name(cluster: Cluster) -> None:
    for broker in cluster.values():
        broker.set_offsets(checkpoints.HW_CHECKPOINT, 50)
    cluster["b1"].rewrite(2, lambda batches: batches[:3])
    assert {row["broker"] for row in query(dirs(cluster), "broker")} == {"b2"}


def test_without_a_high_watermark_the_log_is_read_to_its_end(cluster: Cluster) -> None:
    for broker in cluster.values():
        (broker.path / checkpoints.HW_CHECKPOINT).unlink()
    assert offsets(dirs(cluster)) == list(range(END))


def test_a_damaged_checkpoint_is_not_taken_for_none(cluster: Cluster) -> None:
    only = cluster["b1"]
    (only.path / checkpoints.HW_CHECKPOINT).write_text("0\n2\norders\n")
    with pytest.raises(ValueError, match=r"orders-0 ends is not known: .*replication-offset-checkpoint: line 3 is 'orders'"):
        offsets(str(only.path))
    assert offsets(str(only.path), endAt="logEnd") == list(range(END))


def test_records_before_the_log_start_are_not_there(cluster: Cluster) -> None:
    cluster["b1"].set_offsets(checkpoints.LOG_START_CHECKPOINT, 43)
    one = str(cluster["b1"].path)
    assert offsets(one) == list(range(43, END))
    with pytest.raises(DataLoss, match="startingOffsets for orders-0 is 42, which has offsets 43 to 120"):
        offsets(one, startingOffsets='{"orders":{"0":42}}')


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [(0, 10**15, 0, END), (START_MS + 451, START_MS + 900, 46, 90), (START_MS + 455, START_MS + 851, 50, 86)],
)
def test_times(cluster: Cluster, start: int, end: int, first: int, last: int) -> None:
    assert offsets(dirs(cluster), startingTimestamp=str(start), endingTimestamp=str(end)) == list(range(first, last))


def test_a_time_behind_the_last_record_that_can_be_read(cluster: Cluster) -> None:
    cluster["b1"].set_offsets(checkpoints.HW_CHECKPOINT, 100)
    late = str(START_MS + 1_010)
    with pytest.raises(ValueError, match="no offset matched the starting time of orders-0"):
        offsets(str(cluster["b1"].path), startingTimestamp=late)
    assert offsets(str(cluster["b1"].path), startingTimestamp=late, endAt="logEnd") == list(range(105, END))


def test_topics(cluster: Cluster, tmp_path: Path) -> None:
    """Internal ones only when they are named."""
    for name in ("__consumer_offsets-3", "__cluster_metadata-0", "payments-1"):
        shutil.copytree(cluster["b1"].directory, cluster["b1"].path / name)
    one = str(cluster["b1"].path)

    def found(**options: str) -> set[tuple[str, int]]:
        return {(row["topic"], row["partition"]) for row in query(one, "topic partition", **options)}

    assert found() == found(subscribePattern=".*") == {("orders", 0), ("payments", 1)}
    assert found(subscribe="__consumer_offsets,__cluster_metadata") == {("__consumer_offsets", 3), ("__cluster_metadata", 0)}
    assert found(assign='{"payments":[1]}') == found(subscribePattern="pay.*") == {("payments", 1)}
    assert found(view="batches") == {("orders", 0), ("payments", 1)}
    with pytest.raises(ValueError, match="there is no nothing"):
        found(subscribe="nothing")
    assert query(str(tmp_path / "node-1")) == []


def test_control_batches_give_no_rows_and_pushed_filters_narrow(cluster: Cluster) -> None:
    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    marker = control_batch(
        [EndTxnMarker(commit=True, coordinator_epoch=1)], timestamp_ms=START_MS, base_offset=120, producer_id=7
    )
    cluster["b1"].rewrite(2, lambda batches: [*batches, marker])
    cluster["b1"].set_offsets(checkpoints.HW_CHECKPOINT, END + 1)
    assert offsets(dirs(cluster)) == list(range(END))
    source = KraftliteDataSource({"scan": "segments", "path": dirs(cluster), "pushdown": "true"})
    reader: Any = source.reader(fields("offset"))
    reader.pushFilters([GreaterThanOrEqual(("offset",), 70), LessThan(("offset",), 75)])
    (partition,) = reader.partitions()
    (task,) = partition.value
    assert (task.range.start, task.range.end) == (70, 75) and partition.plan is not None


# damage


def test_a_bad_crc(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    broker = cluster["b1"]
    size = len(broker.batches(1)[0])
    flip(broker.segments[1], 2 * size + HEADER_BYTES + 9)
    with pytest.raises(ApiError, match="the CRC of the batch at offset 50 does not match") as error:
        offsets(str(broker.path))
    assert place(error.value) == f"{broker.segments[1]} at byte {2 * size}"
    assert offsets(str(broker.path), failOnDataLoss="false") == [it for it in range(END) if not 50 <= it < 55]
    assert f"{broker.segments[1]} at byte {2 * size}: the CRC of the batch at offset 50" in caplog.text
    assert offsets(str(broker.path), endingOffsets='{"orders":{"0":50}}') == list(range(50))


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda batch: batch[:16] + b"\1" + batch[17:], 5),
        (lambda batch: batch[:8] + b"\x40" + batch[9:], 5),
        (lambda batch: batch[:8] + b"\0\0\0\0" + batch[12:], 5),
        (lambda batch: batch[: len(batch) // 2], 10),
    ],
    ids=["magic", "longer than the file", "no length", "half of it, and it claims the next"],
)
def test_bytes_that_are_no_batch(cluster: Cluster, change: Any, lost: int) -> None:
    broker = cluster["b1"]
    size = len(broker.batches(1)[0])
    broker.rewrite(1, lambda batches: [*batches[:2], change(batches[2]), *batches[3:]])
    with pytest.raises(ApiError) as error:
        offsets(str(broker.path))
    assert place(error.value) == f"{broker.segments[1]} at byte {2 * size}"
    assert offsets(str(broker.path), failOnDataLoss="false") == [it for it in range(END) if not 50 <= it < 50 + lost]


def test_records_that_do_not_parse(cluster: Cluster) -> None:
    from tests.harness.audit_cluster import with_crc

    broker = cluster["b1"]
    size = len(broker.batches(1)[0])
    broker.rewrite(1, lambda b: [*b[:2], with_crc(b[2][:HEADER_BYTES] + b"\x02" + b[2][HEADER_BYTES + 1 :]), *b[3:]])
    with pytest.raises(ApiError) as error:
        offsets(str(broker.path))
    assert place(error.value) == f"{broker.segments[1]} at byte {2 * size}"
    assert offsets(str(broker.path), failOnDataLoss="false") == [it for it in range(END) if not 50 <= it < 55]


@pytest.mark.parametrize("last", [False, True])
def test_a_torn_end_below_the_high_watermark(cluster: Cluster, last: bool) -> None:
    broker, segment = cluster["b1"], 2 if last else 1
    path = broker.segments[segment]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ApiError) as error:
        offsets(str(broker.path))
    assert place(error.value) == f"{path} at byte {sum(map(len, broker.batches(segment)))}"
    gone = range(115, 120) if last else range(75, 80)
    assert offsets(str(broker.path), failOnDataLoss="false") == [it for it in range(END) if it not in gone]
    if last:
        assert offsets(str(broker.path), endAt="logEnd") == list(range(115)), "behind the end of the log"


def test_a_hole_in_a_log_that_is_not_compacted(cluster: Cluster) -> None:
    broker = cluster["b1"]
    size = len(broker.batches(1)[0])
    broker.rewrite(1, lambda batches: [*batches[:2], *batches[3:]])
    with pytest.raises(
        DataLoss, match=f"{broker.segments[1]} at byte {2 * size}: offsets 50 to 54 of orders-0 are not in the log"
    ):
        offsets(str(broker.path))
    assert offsets(str(broker.path), failOnDataLoss="false") == [it for it in range(END) if not 50 <= it < 55]
    checkpoints.write_offset_checkpoint(HostDisk(), str(broker.path / checkpoints.CLEANER_CHECKPOINT), {TP: 80})
    assert offsets(str(broker.path)) == [it for it in range(END) if not 50 <= it < 55], "compaction leaves holes"


@pytest.mark.parametrize("start", [0, PER_SEGMENT, PER_SEGMENT + 3])
def test_the_end_of_a_segment_is_missing(cluster: Cluster, start: int) -> None:
    broker = cluster["b1"]
    broker.rewrite(1, lambda batches: batches[:-1])
    with pytest.raises(DataLoss, match=f"offsets 75 to 79 of orders-0 cannot be read: {broker.segments[1]} does not have them"):
        offsets(str(broker.path), startingOffsets=f'{{"orders":{{"0":{start}}}}}')


def test_batches_out_of_order(cluster: Cluster) -> None:
    broker = cluster["b1"]
    broker.rewrite(1, lambda batches: [*batches[:2], batches[1], *batches[2:]])
    with pytest.raises(ApiError, match="the batch at offset 45 comes behind later ones"):
        offsets(str(broker.path))
    assert offsets(str(broker.path), failOnDataLoss="false") == list(range(END))


def test_a_log_that_is_shorter_than_its_high_watermark(cluster: Cluster) -> None:
    broker = cluster["b1"]
    broker.rewrite(2, lambda batches: batches[:-1])
    with pytest.raises(DataLoss, match="offsets 115 to 119 of orders-0 cannot be read"):
        offsets(str(broker.path))
    assert offsets(str(broker.path), failOnDataLoss="false") == list(range(115))


# files of running brokers


def read_all(reader: Any, tasks: list[Any]) -> list[int]:
    return [row["offset"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("tasks", ["1", "12"])
def test_what_retention_deletes_after_planning_is_a_loss(cluster: Cluster, tasks: str) -> None:
    broker = cluster["b1"]
    strict = plan(str(broker.path), "offset", minPartitions=tasks)
    loose = plan(str(broker.path), "offset", minPartitions=tasks, failOnDataLoss="false")
    broker.segments[0].unlink()
    with pytest.raises(DataLoss, match=r"offsets 0 to \d+ of orders-0 cannot be read: there is no segment with it in"):
        read_all(*strict)
    assert read_all(*loose) == list(range(PER_SEGMENT, END))
    shutil.rmtree(broker.directory)
    assert read_all(*loose) == []


@pytest.mark.parametrize("tasks", ["1", "12"])
def test_segments_that_compaction_puts_together_after_planning(cluster: Cluster, tasks: str) -> None:
    broker = cluster["b1"]
    checkpoints.write_offset_checkpoint(HostDisk(), str(broker.path / checkpoints.CLEANER_CHECKPOINT), {TP: 80})
    planned = plan(str(broker.path), "offset", minPartitions=tasks)
    second = broker.batches(1)
    broker.rewrite(0, lambda batches: [batches[0], batches[7], *second[1:6]])
    broker.segments[1].unlink()
    kept = [*range(5), *range(35, 40), *range(45, 70), *range(80, END)]
    assert read_all(*planned) == kept


def test_what_is_appended_and_rolled_after_planning_is_not_read(cluster: Cluster) -> None:
    broker = cluster["b1"]
    planned = plan(str(broker.path), "offset", endAt="logEnd")
    broker.rewrite(2, lambda batches: [*batches, record_batch(END, 2)])
    (broker.directory / f"{END + 5:020d}.log").write_bytes(record_batch(END + 5, 2))
    assert read_all(*planned) == list(range(END))
    assert offsets(str(broker.path), endAt="logEnd") == list(range(END + 10))


def test_a_segment_that_has_just_been_rolled(cluster: Cluster) -> None:
    broker = cluster["b1"]
    (broker.directory / f"{END:020d}.log").write_bytes(b"")
    assert offsets(str(broker.path)) == offsets(str(broker.path), endAt="logEnd") == list(range(END))
    assert len(query(str(broker.path), view="batches")) == END // RECORDS


# batches


def expected_batches(cluster: Cluster) -> list[dict[str, Any]]:
    found = []
    for name, broker in cluster.items():
        for path in broker.segments:
            for position, header in iter_headers(path.read_bytes()):
                found.append(
                    {
                        "broker": name,
                        "topic": "orders",
                        "partition": 0,
                        "segment": path.name,
                        "position": position,
                        "size": header.size_bytes,
                        "base_offset": header.base_offset,
                        "last_offset": header.last_offset,
                        "records": header.count,
                        "leader_epoch": header.partition_leader_epoch,
                        "producer_id": header.producer_id,
                        "producer_epoch": header.producer_epoch,
                        "base_sequence": header.base_sequence,
                        "first_timestamp": header.base_timestamp,
                        "max_timestamp": header.max_timestamp,
                        "compression": "none",
                        "transactional": header.is_transactional,
                        "control": header.is_control,
                        "crc": header.crc,
                        "crc_ok": True,
                    }
                )
    return found


def batches(path: str, columns: str = "", **options: str) -> list[dict[str, Any]]:
    found = query(path, columns, view="batches", **options)
    for row in found:
        for name in {"first_timestamp", "max_timestamp"} & set(row):
            row[name] = None if row[name] is None else int(row[name].timestamp() * 1000)
    return found


def test_a_row_per_batch_of_every_replica(cluster: Cluster) -> None:
    expected = expected_batches(cluster)
    assert batches(dirs(cluster)) == expected and list(expected[0]) == [field.name for field in BATCH_COLUMNS]
    assert batches(dirs(cluster), arrowBatchRows="3") == expected
    for tasks in (2, 7, 40):
        assert batches(dirs(cluster), minPartitions=str(tasks)) == expected
        assert len(plan(dirs(cluster), view="batches", minPartitions=str(tasks))[1]) >= 0.8 * tasks
    assert batches(dirs(cluster), "position topic") == [{"position": row["position"], "topic": "orders"} for row in expected]


def test_batches_of_other_kinds(cluster: Cluster) -> None:
    made = [
        build_batch([Record(None, b"v" * 90)], base_offset=120, timestamp_ms=-1, codec=4),
        build_batch([Record(None, b"v")], base_offset=121, timestamp_ms=2**62, codec=3, transactional=True, producer_id=9),
        control_batch([EndTxnMarker(commit=True, coordinator_epoch=1)], timestamp_ms=5, base_offset=122, producer_id=9),
    ]
    cluster["b1"].rewrite(2, lambda before: made)
    columns = "compression transactional control producer_id first_timestamp"
    assert [tuple(row.values()) for row in batches(str(cluster["b1"].path), columns)[16:]] == [
        ("zstd", False, False, -1, None),
        ("lz4", True, False, 9, None),
        ("none", True, True, 9, 5),
    ]


def test_a_crc_that_does_not_match_is_a_row(cluster: Cluster) -> None:
    size = len(cluster["b2"].batches(1)[0])
    flip(cluster["b2"].segments[1], 2 * size + HEADER_BYTES + 9)
    bad = [row for row in batches(dirs(cluster)) if not row["crc_ok"]]
    assert [(row["broker"], row["position"], row["base_offset"]) for row in bad] == [("b2", 2 * size, 50)]


def test_a_torn_end_ends_a_segment(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for segment in (1, 2):
        path = cluster["b1"].segments[segment]
        path.write_bytes(path.read_bytes()[:-3])
    found = batches(str(cluster["b1"].path))
    assert [row["base_offset"] for row in found] == [it for it in range(0, END, RECORDS) if it not in (75, 115)]
    assert [record.args[0] for record in caplog.records] == [str(cluster["b1"].segments[1])]  # type: ignore[index]


def test_bytes_between_batches_that_are_none(cluster: Cluster) -> None:
    broker = cluster["b1"]
    size = len(broker.batches(1)[0])
    broker.rewrite(1, lambda batches: [*batches[:2], b"\0" * 100, *batches[3:]])
    with pytest.raises(ApiError) as error:
        batches(str(broker.path))
    assert place(error.value) == f"{broker.segments[1]} at byte {2 * size}"
    assert len(batches(str(broker.path), failOnDataLoss="false")) == END // RECORDS - 1


def test_a_file_that_is_gone(cluster: Cluster) -> None:
    broker = cluster["b1"]
    reader, tasks = plan(str(broker.path), "base_offset", view="batches")
    broker.segments[0].unlink()
    with pytest.raises(DataLoss, match=r"00000000000000000000\.log is gone"):
        [row for task in tasks for row in reader.read(task)]


def test_a_file_that_compaction_replaces_after_planning(cluster: Cluster) -> None:
    broker = cluster["b1"]
    reader, tasks = plan(str(broker.path), "base_offset", view="batches", minPartitions="12")
    loose, same = plan(str(broker.path), "base_offset", view="batches", minPartitions="12", failOnDataLoss="false")
    broker.rewrite(1, lambda batches: [batches[0], build_batch([Record(b"k", b"v")], base_offset=46, timestamp_ms=1)])
    with pytest.raises(DataLoss, match=f"{broker.segments[1]} was replaced since the query was planned"):
        [row for task in tasks for row in reader.read(task)]
    found = [row["base_offset"] for task in same for batch in loose.read(task) for row in batch.to_pylist()]
    assert found == [*range(0, 41, 5), 46, *range(80, END, 5)]


def test_a_column_that_there_is_not(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="column crc_ok int cannot be read; the columns are broker string, topic string"):
        query(dirs(cluster), StructType([StructField("crc_ok", IntegerType())]), view="batches")
    with pytest.raises(ValueError, match="column crc_ok boolean cannot be read"):
        query(dirs(cluster), "crc_ok")
    with pytest.raises(ValueError, match="includeHeaders"):
        query(dirs(cluster), "headers")


def test_the_partitions_of_several_brokers(cluster: Cluster) -> None:
    """Each has the high watermark of its own broker."""
    shutil.copytree(cluster["b1"].directory, cluster["b3"].path / "orders-1")
    checkpoints.write_offset_checkpoint(
        HostDisk(), str(cluster["b3"].path / checkpoints.HW_CHECKPOINT), {TP: 60, TopicPartition("orders", 1): 90}
    )
    found = query(dirs(cluster), "broker partition offset")
    assert [tuple(row.values()) for row in found] == [
        *(("b1", 0, offset) for offset in range(END)),
        *(("b3", 1, offset) for offset in range(90)),
    ]
    assert all(record.value for record in iter_records(cluster["b1"].batches(0)[0]))
