"""`scan=segments` in a session: what unit tests cannot see, since they run without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kraftlite.log.batch import HEADER_BYTES
from tests.harness.audit_cluster import END, START_MS, Broker, flip, make_cluster

pytestmark = [pytest.mark.spark]


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, Broker]:
    return make_cluster(tmp_path)


def load(spark: Any, cluster: dict[str, Broker], schema: str | None = None, **options: str) -> Any:
    path = ",".join(f"{name}={broker.path}" for name, broker in cluster.items())
    reader = spark.read.format("kraftlite").option("scan", "segments").options(**options)
    return (reader.schema(schema) if schema else reader).load(path)


def test_records_and_batches_and_their_types(spark: Any, cluster: dict[str, Broker]) -> None:
    rows = load(spark, cluster, minPartitions="2", includeHeaders="true").collect()
    assert [(bytes(row.key), row.topic, row.partition, row.offset) for row in rows] == [
        (f"k{it}".encode(), "orders", 0, it) for it in range(END)
    ]
    assert rows[0].timestamp.timestamp() * 1000 == START_MS and rows[0].headers is None
    few = load(spark, cluster, "offset bigint, broker string", endingOffsets='{"orders":{"0":3}}')
    assert [tuple(row) for row in few.collect()] == [(0, "b1"), (1, "b1"), (2, "b1")]
    flip(cluster["b2"].segments[1], HEADER_BYTES + 9)
    found = load(spark, cluster, view="batches").collect()
    assert [(row.broker, row.segment, row.position) for row in found if not row.crc_ok] == [("b2", f"{40:020d}.log", 0)]
    assert len(found) == 3 * END // 5 and found[0].max_timestamp.timestamp() * 1000 == START_MS + 4
    pruned = load(spark, cluster, "last_offset bigint, max_timestamp timestamp", view="batches").collect()
    assert max(row.last_offset for row in pruned) == END - 1


def test_filters_and_pushdown(spark: Any, cluster: dict[str, Broker]) -> None:
    frame = load(spark, cluster, pushdown="true").where("offset >= 70 and offset < 75 and partition = 0")
    assert sorted(row.offset for row in frame.collect()) == list(range(70, 75))
    assert load(spark, cluster, pushdown="true").where("topic = 'others'").count() == 0


def test_damage_is_named(spark: Any, cluster: dict[str, Broker]) -> None:
    flip(cluster["b1"].segments[1], HEADER_BYTES + 9)
    with pytest.raises(Exception, match=rf"{40:020d}\.log at byte 0: the CRC of the batch at offset 40 does not match"):
        load(spark, cluster).count()
    assert load(spark, cluster, failOnDataLoss="false").count() == END - 5


def test_a_stream_is_refused(spark: Any, cluster: dict[str, Broker], tmp_path: Path) -> None:
    reader = spark.readStream.format("kraftlite").option("scan", "segments").option("path", str(cluster["b1"].path))
    with pytest.raises(Exception, match="a stream is read from brokers"):
        reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
