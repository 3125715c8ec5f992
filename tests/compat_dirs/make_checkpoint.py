"""Writes the checkpoint of a streaming query with the code of another version, for the test that this one goes on from it.

    PYTHONPATH=TREE python tests/compat_dirs/make_checkpoint.py DIRECTORY

TREE is a checkout of that version. DIRECTORY gets `checkpoint.tar.gz` and `written.json`, what the sink had written by then. They
are committed and never changed again. Nothing but what both versions have is imported.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

SOURCE, SINK = "old-in", "old-out"
PARTITIONS, RECORDS, PER_BATCH = 3, 30, 12


def fill(bootstrap: str, first: int, end: int) -> None:
    """Records v0, v1, …, in turn over the partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, end):
        producer.produce(SOURCE, f"v{number}".encode(), f"k{number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0, "records without a verdict"


def run(spark: Any, bootstrap: str, checkpoint: Path) -> None:
    """The query: what is there, in batches of `PER_BATCH` records, to its end."""
    rows = spark.readStream.format("kraftlite").option("kafka.bootstrap.servers", bootstrap).option("subscribe", SOURCE)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(PER_BATCH)).load()
    writer = rows.selectExpr("key", "value").writeStream.format("kraftlite").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", SINK).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    assert query.exception() is None


def written(bootstrap: str, count: int) -> list[list[str]]:
    """[key, value, the header `kraftlite.batch`] of the records in the sink's topic, at least `count`."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    options = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(options)
    found: list[list[str]] = []
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(SINK, index), timeout=60)[1] for index in range(PARTITIONS)]
        assert sum(ends) >= count, f"{sum(ends)} of {count} records"
        for index, end in enumerate(ends):
            consumer.assign([TopicPartition(SINK, index, OFFSET_BEGINNING)])
            position = 0
            while position < end:
                message = consumer.poll(60)
                assert message is not None, f"nothing within 60 s at {SINK}-{index}"
                if message.error() is None:
                    position = message.offset() + 1
                    texts = (message.key(), message.value(), dict(message.headers() or ())["kraftlite.batch"])
                    found.append([bytes(text).decode() for text in texts])
    finally:
        consumer.close()
    return found


def archive(checkpoint: Path) -> bytes:
    """The same bytes for the same files: names in order, no owner, no times."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(checkpoint.rglob("*")):
            if path.is_file():
                info = tarfile.TarInfo(str(path.relative_to(checkpoint.parent)))
                info.size = path.stat().st_size
                tar.addfile(info, io.BytesIO(path.read_bytes()))
    return gzip.compress(raw.getvalue(), mtime=0)


def main(target: Path) -> None:
    from kraftlite.spark.session import session
    from kraftlite.testing import SyncCluster

    spark = session("test", master="local[2]")
    with tempfile.TemporaryDirectory() as folder, SyncCluster(controllers=1, brokers=1) as cluster:
        checkpoint = Path(folder) / "checkpoint"
        for topic in (SOURCE, SINK):
            cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        fill(cluster.bootstrap_servers, 0, RECORDS)
        run(spark, cluster.bootstrap_servers, checkpoint)
        target.mkdir()
        (target / "checkpoint.tar.gz").write_bytes(archive(checkpoint))
        rows = written(cluster.bootstrap_servers, RECORDS)
        (target / "written.json").write_text(json.dumps(rows, indent=0) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
