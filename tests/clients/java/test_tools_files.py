"""kafka-dump-log on the files of a cluster of processes: the formats on disk are Kafka's (docs/ON-DISK.md)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftlite.cli.dump import dump as log_dump
from tests.clients.java import tools
from tests.clients.java.test_metadata_records import shell
from tests.harness.local import Cluster, running, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
capability = pytest.mark.capability
RECORDS = 6000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def dump(*files: Path, flags: tuple[str, ...] = ()) -> list[str]:
    done = tools.kafka_tool("kafka-dump-log", "--files", ",".join(map(str, files)), *flags)
    assert done.code == 0, done.err
    # Kafka says this of its own files, too: it expects the first record of every segment at 0.
    wrong = re.sub(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n", "", done.err)
    assert wrong == ""
    return done.lines


@pytest.fixture(scope="module")
def data(java: None) -> Iterator[Path]:
    """The directory of a cluster that was used and shut down: `filled`, with indexes; `mixed`, with every codec; a group `g`."""
    config = {"log.index.interval.bytes": "4096", "metadata.log.max.record.bytes.between.snapshots": "2000"}
    with running(controllers=1, brokers=1, config=config) as cluster:
        cluster.create_topic("filled", replication=1, config={"segment.bytes": str(1 << 20)})
        assert (
            cluster.produce("filled", [f"{n}-" + "y" * 300 for n in range(RECORDS)], **{"linger.ms": 0, "batch.size": 4000}) == []
        )
        cluster.create_topic("mixed", replication=1)
        for codec in CODECS:
            values = [f"{codec}-{n}-" + "y" * 50 for n in range(20)]
            assert cluster.produce("mixed", values, **{"compression.type": codec, "enable.idempotence": True}) == []
        read_in_a_group(cluster)
        cluster.terminate(cluster.brokers[0])
        cluster.wait_stopped(cluster.brokers[0])
        yield cluster.data_dir


def read_in_a_group(cluster: Cluster) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["mixed"])
    wait_for("a record", lambda: (it := consumer.poll(0.2)) is not None and it.error() is None)
    consumer.commit(asynchronous=False)
    consumer.close()


def of(data: Path, pattern: str) -> list[Path]:
    found = sorted(data.glob(f"node-*/data/{pattern}"))
    assert found, pattern
    return found


@capability("kafka-dump-log")
def test_segments_and_indexes(data: Path) -> None:
    logs = of(data, "filled-0/*.log")
    assert len(logs) >= 2, "the segment was rolled"
    lines = dump(*logs, *of(data, "filled-0/*index"), flags=("--index-sanity-check",))
    assert sum("passed sanity check." in line for line in lines) + sum("is empty." in line for line in lines) == 2 * len(logs)
    for flag in ("--verify-index-only", "--deep-iteration"):
        lines = dump(*logs, *of(data, "filled-0/*index"), flags=(flag,))
        wrong = [line for line in lines if re.search("Mismatch|out of order|Found|isvalid: false|Invalid", line)]
        assert wrong == []
    records = [line for line in lines if line.startswith("|")]
    assert len(records) == RECORDS
    entries = [line for line in dump(*of(data, "filled-0/*.index")) if line.startswith("offset: ")]
    assert len(entries) > 100


@capability("kafka-dump-log")
def test_batches_of_every_codec_and_the_producers(data: Path) -> None:
    lines = dump(*of(data, "mixed-0/*.log"), flags=("--deep-iteration", "--print-data-log"))
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert {found[1] for line in batches if (found := re.search(r"compresscodec: (\w+)", line))} == set(CODECS)
    assert all("isvalid: true" in line and "magic: 2" in line for line in batches)
    payloads = [line.split("payload: ")[1] for line in lines if line.startswith("|")]
    assert payloads == [f"{codec}-{n}-" + "y" * 50 for codec in CODECS for n in range(20)]
    producers = [line for line in dump(*of(data, "mixed-0/*.snapshot")) if line.startswith("producerId: ")]
    assert len(producers) == len(CODECS)
    assert all(" lastSequence: 19 " in line for line in producers)


@capability("kafka-dump-log")
def test_offsets_of_a_group(data: Path) -> None:
    logs = of(data, "__consumer_offsets-*/*.log")
    lines = dump(*logs, flags=("--offsets-decoder",))
    assert any('key: {"type":"2","data":{"group":"g"}}' in line and '"protocolType":"consumer"' in line for line in lines)
    assert any('"group":"g","topic":"mixed","partition":0}} payload: {"version":"3","data":{"offset":' in line for line in lines)


@capability("kafka-dump-log")
def test_the_metadata_log(data: Path, tmp_path: Path) -> None:
    """Batches, control records and metadata records are Kafka's: the same payloads as `log dump` prints."""
    (folder,) = {it.parent for it in of(data, "__cluster_metadata-0/*.log") if "node-1" in str(it)}
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))  # the controller runs, and goes on writing
    logs, checkpoints = sorted(copied.glob("*.log")), sorted(copied.glob("*.checkpoint"))
    snapshots = [it for it in checkpoints if not it.name.startswith("0" * 20)]
    assert snapshots, "a snapshot was written"
    for file in (*logs, *checkpoints):
        lines = dump(file, flags=("--cluster-metadata-decoder",))
        assert all("isvalid: true" in line for line in lines if line.startswith("baseOffset: "))
        payloads = [json.loads(line.split("payload: ")[1]) for line in lines if "payload: " in line]
        done = CliRunner().invoke(log_dump, ["-o", "json", str(file)])
        assert done.exit_code == 0
        found = [json.loads(line) for line in done.output.splitlines()]
        assert [line["payload"] for line in found if "payload" in line] == payloads
        assert payloads or file.name.startswith("0" * 20), "only what it was formatted with has none"
        if file in snapshots:
            assert any("SnapshotHeader" in line for line in lines) and any("SnapshotFooter" in line for line in lines)
    lines = dump(logs[0], flags=("--cluster-metadata-decoder",))
    assert any('LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}]' in line for line in lines)


@capability("kafka-metadata-shell")
def test_the_metadata_as_a_tree(data: Path) -> None:
    (log, *_others) = of(data, "__cluster_metadata-0/*.log")
    assert {f"/image/topics/byName/{it}/0" for it in ("filled", "mixed")} <= shell(log)
