"""The sink through Spark: what lands in a topic, what is refused, and what a reader sees after a replay and after a dead leader.

Read back with the raw client, so that nothing here depends on the source. Source: Spark's KafkaWriter and KafkaSink.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kraftlite.client.kafka_client import client_for
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.session import register
from kraftlite.spark.sink.producing import BATCH_HEADER
from kraftlite.testing import SyncCluster, other_than
from tests.harness import embedded
from tests.spark.test_producing import Row, read, settings_of

pytestmark = [pytest.mark.spark]

HEADERS = "array(named_struct('key', 'a', 'value', cast('1' as binary)))"
BIG = 160_000
"""Rows of about 100 bytes: each task sends several times."""


def read_all(cluster: SyncCluster, topic: str) -> list[list[Row]]:
    client = client_for(settings_of(cluster).client)
    return [read(client, TopicPartition(topic, it)) for it in client.partitions_for(topic)]


def values_of(cluster: SyncCluster, topic: str) -> list[bytes | None]:
    return [value for rows in read_all(cluster, topic) for _, value, _ in rows]


def options_of(cluster: SyncCluster, topic: str | None = None) -> dict[str, str]:
    found = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.retry.backoff.ms": "20"}
    return found if topic is None else {**found, "topic": topic}


def save(rows: Any, cluster: SyncCluster, topic: str | None = None, **more: str) -> None:
    rows.write.format("kraftlite").options(**options_of(cluster, topic), **more).mode("append").save()


def source(spark: Any, cluster: SyncCluster, topic: str, **more: str) -> Any:
    options = {"subscribe": topic, "startingOffsets": "earliest", "commitOffsets": "false", **more}
    return spark.readStream.format("kraftlite").options(**options_of(cluster), **options).load()


def start(rows: Any, cluster: SyncCluster, topic: str | None, checkpoint: Path, mode: str = "append", **more: str) -> Any:
    writer = rows.writeStream.format("kraftlite").options(**options_of(cluster, topic), **more)
    return writer.option("checkpointLocation", str(checkpoint)).outputMode(mode).trigger(availableNow=True).start()


def finish(query: Any) -> Any:
    """The query, read to its end. Raises what it has failed with."""
    try:
        assert query.awaitTermination(60), "the query did not end"
    finally:
        query.stop()
    return query


# --- batch


@pytest.mark.parametrize("named", ["option", "column", "both"])
def test_every_combination_of_columns(spark: Any, cluster: SyncCluster, topic: str, named: str) -> None:
    """Key absent, string or binary; value string or binary; with and without partition and headers; the topic of the option, of
    the column, or of the option although there is a column. Nulls stay nulls, and other columns are not looked at."""
    sent: list[tuple[int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = []
    keys, kinds = ((None, "string", "binary"), ("string", "binary")) if named == "option" else (("string",), ("binary",))
    for at, (key, value, placed, headed) in enumerate(product(keys, kinds, (False, True), (False, True))):
        columns = [f"cast(v as {value}) as value", "n as other"]
        columns += [f"cast(k as {key}) as key"] if key else []
        columns += ["cast(n % 3 as int) as partition"] if placed else []
        columns += [f"if(n = 1, null, {HEADERS}) as headers"] if headed else []
        columns += [f"'{topic if named == 'column' else 'no-such-topic'}' as topic"] if named != "option" else []
        rows = [(0, f"k{at}", f"v{at}-0"), (1, None, f"v{at}-1"), (2, f"k{at}", None)]
        table = f"values (0, 'k{at}', 'v{at}-0'), (1, null, 'v{at}-1'), (2, 'k{at}', null) as t(n, k, v)"
        frame = spark.sql(f"select * from {table}").coalesce(1).selectExpr(*columns)
        save(frame, cluster, None if named == "column" else topic)
        for n, k, v in rows:
            headers = (("a", b"1"),) if headed and n != 1 else ()
            place = n % 3 if placed else None
            sent.append((place, k.encode() if k and key else None, v.encode() if v is not None else None, headers))
    found = [(number, *row) for number, rows_ in enumerate(read_all(cluster, topic)) for row in rows_]
    assert len(found) == len(sent)
    for place, *row in sent:
        at = next(i for i, it in enumerate(found) if it[1:] == tuple(row) and place in (None, it[0]))
        found.pop(at)
    assert found == []


def test_rows_with_the_same_key_stay_in_order(spark: Any, cluster: SyncCluster, topic: str) -> None:
    save(spark.range(0, 3_000, 1, 1).selectExpr("cast(id % 10 as string) as key", "cast(id as string) as value"), cluster, topic)
    partitions = read_all(cluster, topic)
    assert sum(len(rows) for rows in partitions) == 3_000
    for rows in partitions:
        numbers = [int(value or b"") for _, value, _ in rows]
        assert numbers == sorted(numbers) and numbers


def test_several_topics_in_one_write(spark: Any, cluster: SyncCluster, topic: str) -> None:
    other = f"{topic}-other"
    cluster.create_topic(other, 1)
    frame = spark.range(0, 100, 1, 2).selectExpr(f"if(id % 4 = 0, '{other}', '{topic}') as topic", "cast(id as string) as value")
    save(frame, cluster)
    assert sorted(int(it or b"") for it in values_of(cluster, other)) == list(range(0, 100, 4))
    assert sorted(int(it or b"") for it in values_of(cluster, topic)) == [it for it in range(100) if it % 4]


def test_another_thread(spark: Any, cluster: SyncCluster, topic: str) -> None:
    """Where Spark does not know the session by itself."""

    def write() -> None:
        register(spark)
        save(spark.range(3).selectExpr("cast(id as string) as value"), cluster, topic)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result(timeout=60)
    assert sorted(it or b"" for it in values_of(cluster, topic)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("columns", "topic_option", "said"),
    [
        ("'k' as key", True, "Required attribute 'value' not found"),
        ("1 as value", True, r"value attribute unsupported type int. value must be a\(n\) string or binary"),
        ("'v' as value, 1.5d as key", True, "key attribute unsupported type double"),
        ("'v' as value, array('h') as headers", True, "headers attribute unsupported type array<string>"),
        ("'v' as value, 1L as partition", True, r"partition attribute unsupported type bigint. partition must be a\(n\) int"),
        ("'v' as value, 1 as topic", False, "topic attribute unsupported type int"),
        ("'v' as value", False, "topic option required when no 'topic' attribute is present"),
        ("'v' as value, cast(null as string) as topic", False, "null topic present in the data"),
        ("'v' as value, 3 as partition", True, "partition 3 of topic .*: allowed is 0 to 2, or null"),
    ],
)
def test_columns_that_are_refused(
    spark: Any, cluster: SyncCluster, topic: str, columns: str, topic_option: bool, said: str
) -> None:
    """In the words of Spark's Kafka sink, from `save()` and from the query, and nothing is written."""
    frame = spark.sql(f"select {columns}")
    with pytest.raises(Exception, match=said):
        save(frame, cluster, topic if topic_option else None)
    assert values_of(cluster, topic) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kraftlite.sink.mode": "twice"}, "kraftlite.sink.mode='twice': allowed is at_least_once"),
        ({"topik": "x"}, "option topik is not known to the sink; did you mean topic"),
        ({"kafka.linger.ms": "5"}, "kafka.linger.ms='5' cannot be honoured"),
        ({"startingOffsets": "earliest"}, "option startingoffsets is not known to the sink"),
    ],
)
def test_options_that_are_refused(spark: Any, cluster: SyncCluster, topic: str, more: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        save(spark.sql("select 'v' as value"), cluster, topic, **more)
    assert values_of(cluster, topic) == []


def test_modes_of_save(spark: Any, cluster: SyncCluster, topic: str) -> None:
    """Spark itself refuses to ask a data source in Python whether something is there."""
    writer = spark.sql("select 'v' as value").write.format("kraftlite").options(**options_of(cluster, topic))
    with pytest.raises(Exception, match=r'mode "overwrite" is not supported: records of a topic cannot be replaced'):
        writer.mode("overwrite").save()
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(Exception, match=r"(?i)append"):
            writer.mode(mode).save()
    assert values_of(cluster, topic) == []


def test_the_broker_says_why(spark: Any, cluster: SyncCluster, topic: str) -> None:
    small = f"{topic}-small"
    cluster.create_topic(small, 1, config={"max.message.bytes": 500})
    with pytest.raises(
        Exception, match=f"{small}-0: MESSAGE_TOO_LARGE: batch of .* max.message.bytes allows 500; the records were"
    ):
        save(spark.sql("select repeat('x', 1000) as value"), cluster, small)


# --- streams


def stamps(rows: list[Row]) -> list[bytes]:
    return [dict(headers)[BATCH_HEADER] or b"" for _, _, headers in rows]


def seed(cluster: SyncCluster, topic: str, each: int) -> None:
    """`each` records in every partition, with their place as value."""
    for partition in range(3):
        embedded.produce(cluster, topic, [f"{partition}-{it:04d}" for it in range(each)], partition=partition)


def test_a_batch_that_runs_again_is_recognised(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    """Cut short when a part of it is written, and run again after a driver that dies between the last record and the commit log:
    the same records have the same ids, and who drops what he has seen has every record once."""
    out = f"{topic}-out"
    cluster.create_topic(out, 2)
    seed(cluster, topic, 40)

    def run(value: str = "value") -> str:
        rows = source(spark, cluster, topic, maxOffsetsPerTrigger="60", minPartitions="3").selectExpr("key", value)
        return str(finish(start(rows, cluster, out, tmp_path / "checkpoint")).id)

    def written() -> list[Row]:
        return [row for rows in read_all(cluster, out) for row in rows]

    with pytest.raises(Exception, match="broken in the middle"):
        run("if(value = cast('2-0010' as binary), raise_error('broken in the middle'), value) as value")
    part = len(written())
    assert 20 <= part < 60, "a whole task, and not all of them"
    query = run()
    assert len(written()) == part + 120
    ids = {tuple(stamp.decode().split("/")) for stamp in stamps(written())}
    assert ids == {(query, batch, str(task), str(index)) for batch, task, index in product("01", range(3), range(20))}
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    assert run() == query, "the query is another one"
    found = written()
    assert len(found) == part + 180
    by_id: dict[bytes, Row] = {}
    for stamp, row in zip(stamps(found), found, strict=True):
        assert by_id.setdefault(stamp, row) == row, "the same id for another record"
    wanted = [f"{partition}-{it:04d}".encode() for partition in range(3) for it in range(40)]
    assert sorted(value or b"" for _, value, _ in by_id.values()) == wanted


def test_rows_keep_their_own_headers(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    out = f"{topic}-out"
    cluster.create_topic(out, 1)
    seed(cluster, topic, 2)
    rows = source(spark, cluster, topic).selectExpr(
        "value", f"if(partition = 0, {HEADERS}, null) as headers", f"'{out}' as topic"
    )
    finish(start(rows, cluster, None, tmp_path / "one"))
    found = read_all(cluster, out)[0]
    assert {value: headers[:-1] for _, value, headers in found if value and value.endswith(b"1")} == {
        b"0-0001": (("a", b"1"),),
        b"1-0001": (),
        b"2-0001": (),
    }
    assert all(headers[-1][0] == BATCH_HEADER for _, _, headers in found) and len(found) == 6
    finish(start(rows, cluster, None, tmp_path / "two", **{"kraftlite.sink.headers": "false"}))
    assert [len(headers) for _, _, headers in read_all(cluster, out)[0][6:]] == [
        1 if value and value.startswith(b"0") else 0 for _, value, _ in read_all(cluster, out)[0][6:]
    ]


def test_output_modes(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    """Complete writes all results of every batch. Update is not Spark's to offer to data sources in Python: foreachBatch is."""
    out = f"{topic}-out"
    cluster.create_topic(out, 1)
    seed(cluster, topic, 20)

    def counts() -> Any:
        rows = source(spark, cluster, topic, maxOffsetsPerTrigger="30").groupBy("partition").count()
        return rows.selectExpr("cast(partition as string) as key", "cast(count as string) as value")

    def state(records: list[Row]) -> dict[bytes | None, bytes | None]:
        return {key: value for key, value, _ in records}

    wanted = {b"0": b"20", b"1": b"20", b"2": b"20"}
    finish(start(counts(), cluster, out, tmp_path / "complete", mode="complete"))
    complete = read_all(cluster, out)[0]
    assert len(complete) == 6 and state(complete) == wanted
    with pytest.raises(Exception, match=r"(?i)update"):
        finish(start(counts(), cluster, out, tmp_path / "refused", mode="update"))
    writer = counts().writeStream.foreachBatch(lambda batch, _id: save(batch, cluster, out)).outputMode("update")
    finish(writer.option("checkpointLocation", str(tmp_path / "update")).trigger(availableNow=True).start())
    update = read_all(cluster, out)[0][6:]
    assert len(update) == 6 and state(update) == wanted


def test_an_error_of_a_task_is_the_querys(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    seed(cluster, topic, 1)
    rows = source(spark, cluster, topic).selectExpr("value", "cast(null as string) as topic")
    with pytest.raises(Exception, match="null topic present in the data"):
        finish(start(rows, cluster, None, tmp_path / "checkpoint"))
    rows = source(spark, cluster, topic).selectExpr("value as key")
    with pytest.raises(Exception, match="Required attribute 'value' not found"):
        finish(start(rows, cluster, topic, tmp_path / "other"))


# --- failures


@pytest.mark.parametrize("how", ["batch", "stream"])
def test_a_leader_dies_in_the_middle(spark: Any, faults: SyncCluster, topic: str, tmp_path: Path, how: str) -> None:
    """Nothing is lost, nothing is there twice, and of each task the records of a partition are in order."""
    columns = ["cast({0} % 97 as string) as key", "lpad(cast({0} as string), 100, '0') as value"]
    columns += ["array(named_struct('key', 'task', 'value', cast(cast(spark_partition_id() as string) as binary))) as headers"]
    old = faults.leader(topic, 0)
    assert old is not None

    def kill() -> int:
        faults.wait_for(topic=topic, partition=0, hw=1, timeout=60)
        written = sum(faults.hw(topic, it) or 0 for it in range(3))
        faults.kill(old)
        return written

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        if how == "batch":
            save(spark.range(0, BIG, 1, 2).selectExpr(*(it.format("id") for it in columns)), faults, topic)
        else:
            rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=BIG, numPartitions=2).load()
            finish(start(rate.selectExpr(*(it.format("value") for it in columns)), faults, topic, tmp_path / "checkpoint"))
        written = killing.result()
    assert 0 < written < BIG, "the leader died too late to matter"
    faults.wait_for(topic=topic, leader=other_than(old))
    found = read_all(faults, topic)
    numbers = [int(value or b"") for rows in found for _, value, _ in rows]
    assert len({*numbers}) == BIG, "lost"
    assert len(numbers) == BIG, "twice"
    for rows in found:
        of_task: dict[bytes, list[int]] = {}
        for _, value, headers in rows:
            of_task.setdefault(dict(headers)["task"] or b"", []).append(int(value or b""))
        assert len(of_task) == 2 and all(them == sorted(them) for them in of_task.values())
