"""Metadata records, logs and snapshots: Apache Kafka reads ours, and we read its, record by record and image by image."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.metadata.codec import MetadataSerde, as_json
from kraftlite.metadata.features import METADATA_VERSIONS
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.kafka_records.layout import Layout
from kraftlite.metadata.kafka_records.table import LAYOUTS
from kraftlite.model.ids import MIGRATING_DIR, uuid_to_str
from tests.clients.java import tools
from tests.harness.metadata_files import MetadataFiles, RawBatch, image_of_batches, raw_batches
from tests.harness.record_samples import full, instances, plain, type_and_versions

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
SERDE = MetadataSerde()
LEVELS = (7, 11, 13, 16, 17, 22, 23, 30)


def run(program: str, lines: Iterable[str]) -> list[dict[str, Any]]:
    """What a program here answers to these lines, a line each."""
    command = tools.java(program, more=[tools.programs()])
    text = "".join(f"{it}\n" for it in lines).encode()
    done = subprocess.run(command, input=text, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:].decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def dumped(*files: Path) -> list[dict[str, Any]]:
    """The payloads of all data records, by kafka-dump-log."""
    done = tools.kafka_tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    assert (done.code, done.err) == (0, "")
    assert not [line for line in done.lines if "isvalid: false" in line or "payload: Error" in line or "Could not" in line]
    return [json.loads(line.split("payload: ", 1)[1]) for line in done.lines if line.startswith("|") and "payload: " in line]


def theirs(batches: Sequence[RawBatch]) -> list[dict[str, Any]]:
    """The records of Apache Kafka's image of these batches."""
    return run(
        "MetadataImages",
        (json.dumps({"base": it.base_offset, "records": [value.hex() for value in it.values]}) for it in batches),
    )


def ours(image: MetadataImage) -> list[dict[str, Any]]:
    level = image.features.metadata_version
    assert level is not None
    encode = MetadataSerde(level).encode
    return [as_json(encode(record)) for record in image.write()]


def comparable(records: Iterable[dict[str, Any]]) -> list[str]:
    """In one order, with what is a set on both sides in one order too."""
    found = []
    for record in records:
        data = dict(record["data"])
        for name, key in (("endPoints", "name"), ("features", "name"), ("entity", "entityType")):
            if name in data:
                data[name] = sorted(data[name], key=lambda it: it[key])
        if "logDirs" in data:
            data["logDirs"] = sorted(data["logDirs"])
        if record["type"] == "ACCESS_CONTROL_ENTRY_RECORD":
            data = dict(sorted(data.items()))
        if record["type"] == "PRODUCER_IDS_RECORD":
            data.update(brokerId=-1, brokerEpoch=-1)  # who asked is no part of either image
        if record["type"] == "PARTITION_RECORD" and record["version"] and not data["directories"]:
            # Not assigned since before there were directories: an image of Kafka says so of each replica, and reads both alike.
            data["directories"] = [uuid_to_str(MIGRATING_DIR)] * len(data["replicas"])
        found.append(json.dumps({**record, "data": data}, sort_keys=True))
    return sorted(found)


def shell(file: Path) -> set[str]:
    """The nodes of the tree that kafka-metadata-shell makes of a file. At the end of a file it closes what it has loaded, so that
    one that is read before the command begins shows an empty tree, or waits for ever: then it is tried again."""
    for _ in range(8):
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Not all of /image: `find` fails on a quota of a default entity, of its own logs too.
            command = ("--snapshot", str(file), "find", "/image/topics/byName")
            done = tools.kafka_tool("kafka-metadata-shell", *command, timeout_s=20)
            assert done.code == 0 and "rror loading" not in done.err, done.err
            if any(line.startswith("/image/topics/byName/") for line in done.lines):
                return set(done.lines)
    raise AssertionError(f"kafka-metadata-shell showed no topic of {file}")


def level_of(layout: Layout, version: int) -> int:
    return next(since for since, written in layout.versions if written <= version)


def test_each_record_at_each_version_is_what_apache_kafka_writes(java: None) -> None:
    given = [sample(*it) for it in type_and_versions() for sample in (full, plain)]
    answers = run("MetadataRecords", map(json.dumps, given))
    assert len(answers) == len(given) == 2 * sum(it.max_version + 1 for it in LAYOUTS.values())
    by_type = {it.shown: it for it in LAYOUTS.values()}
    for asked, answer in zip(given, answers, strict=True):
        assert "error" not in answer, (asked, answer)
        data = bytes.fromhex(answer["hex"])
        assert as_json(data) == answer["json"]
        layout = by_type[asked["type"]]
        record = SERDE.decode(data)
        again = MetadataSerde(level_of(layout, asked["version"])).encode(record)
        if layout.lowest:
            assert SERDE.decode(again) == record
        else:
            assert again == data, asked


def test_apache_kafka_reads_whatever_we_write(java: None) -> None:
    written: list[bytes] = []

    @settings(max_examples=500, deadline=None, database=None)
    @given(st.sampled_from(list(type_and_versions())).flatmap(lambda it: st.tuples(st.just(it), instances(*it))))
    def write(drawn: tuple[tuple[Layout, int], Any]) -> None:
        (layout, version), record = drawn
        written.append(MetadataSerde(level_of(layout, version)).encode(record))

    write()
    for data, answer in zip(written, run("MetadataRecords", (it.hex() for it in written)), strict=True):
        assert answer == {"json": as_json(data), "hex": data.hex()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MetadataFiles, list[Path]]]:
    """A log through the levels of metadata.version, and a snapshot at each."""
    found = MetadataFiles(tmp_path_factory.mktemp("metadata"), 41)
    snapshots = []
    for level in LEVELS:
        assert level in METADATA_VERSIONS
        found.history(level, 60)
        snapshots.append(found.snapshot())
    yield found, snapshots


def test_the_image_of_our_log_and_of_each_snapshot_is_the_same_in_apache_kafka(
    java: None, files: tuple[MetadataFiles, list[Path]]
) -> None:
    found, snapshots = files
    for file in (found.log, *snapshots):
        batches = list(raw_batches(file))
        mine = ours(image_of_batches(batches))
        assert comparable(theirs(batches)) == comparable(mine), file.name
    types = {it["type"] for it in mine}
    assert types >= {"TOPIC_RECORD", "PARTITION_RECORD", "REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD", "CONFIG_RECORD"}


def test_kafka_dump_log_prints_our_log_and_snapshots_as_log_dump_does(
    java: None, files: tuple[MetadataFiles, list[Path]]
) -> None:
    found, snapshots = files
    mine = [as_json(value) for batch in raw_batches(found.log, *snapshots) for value in batch.values]
    assert dumped(found.log, *snapshots) == mine
    assert {it["version"] for it in mine if it["type"] == "PARTITION_RECORD"} == {0, 1, 2}


def test_kafka_metadata_shell_shows_our_log_and_snapshots(java: None, files: tuple[MetadataFiles, list[Path]]) -> None:
    found, snapshots = files
    for file in (found.log, snapshots[-1]):
        image = image_of_batches(raw_batches(file))
        shown = shell(file)
        partitions = {f"/image/topics/byName/{topic.name}/{index}" for topic in image.topics for index in topic.partitions}
        assert partitions == {
            it for it in shown if it.startswith("/image/topics/byName/") and it.count("/") == 5 and it[-1].isdigit()
        }
