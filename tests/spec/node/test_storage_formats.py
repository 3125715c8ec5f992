"""Directories that Apache Kafka's tool formats and kraftlite starts, the other way, and what formatting does with broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord, UserScramCredentialRecord
from kraftlite.model.ids import NodeId, uuid_from_str
from kraftlite.node import storage
from kraftlite.node.forming import Formation
from kraftlite.node.meta_properties import MetaProperties, read_meta_properties
from kraftlite.node.storage import StorageError
from kraftlite.raft.snapshots import BOOTSTRAP_SNAPSHOT_ID, SnapshotBatches
from tests.harness.disk import MemDisk
from tests.spec.node.test_storage import BOOTSTRAP, config, edited, formatted

FILE = "/m/bootstrap.checkpoint"


def records_of(disk: MemDisk, path: str) -> list[MetadataRecord]:
    found: list[MetadataRecord] = []
    for header, batch in iter_batches(disk.read_file(path)):
        if not header.is_control:
            found += [MetadataSerde().decode(it.value) for it in iter_records(batch) if it.value is not None]
    return found


def test_to_02_apache_kafka_begins_with_what_was_formatted_for_static_voters(tmp_path: Path) -> None:
    """It reads `bootstrap.checkpoint` alone: without it the users, and the levels of all features but one, were lost there."""
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, add_scram=("SCRAM-SHA-256=[name=alice,password=secret]",))
    found = records_of(disk, FILE)
    assert any(isinstance(it, UserScramCredentialRecord) for it in found) and records_of(disk, BOOTSTRAP) == found
    assert storage.verify(disk, server).bootstrap == tuple(found)


def kafkas(disk: MemDisk, *more: FeatureLevelRecord) -> None:
    """What Kafka 4.3's kafka-storage leaves where the voters are configured: the first records, and no metadata log yet."""
    records = [FeatureLevelRecord(name="metadata.version", level=30), *more]
    batches = SnapshotBatches(BOOTSTRAP_SNAPSHOT_ID, MetadataSerde(), 7)
    disk.write_file_atomically(FILE, b"".join((batches.header(), *batches.add(records), *batches.finish())))
    disk.rmtree("/m/__cluster_metadata-0")


def test_a_directory_that_apache_kafka_formatted_starts_once_its_log_is_said_to_be_new(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    kafkas(disk, FeatureLevelRecord(name="group.version", level=1))
    with pytest.raises(StorageError, match=r"Apache Kafka's kafka-storage.* never run.* make that directory"):
        storage.verify(disk, server)
    disk.makedirs("/m/__cluster_metadata-0")
    assert [it.level for it in storage.verify(disk, server).bootstrap or () if isinstance(it, FeatureLevelRecord)] == [30, 1]


@pytest.mark.parametrize(("name", "level"), [("share.version", 1), ("streams.version", 1), ("metadata.version", 31)])
def test_a_feature_that_there_is_not_is_named_before_anything_is_written(tmp_path: Path, name: str, level: int) -> None:
    """Kafka 4.3's tool turns two on that are not here; the node wrote them to its log, and ended each time that it read them."""
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, forming=Formation())
    kafkas(disk, FeatureLevelRecord(name=name, level=level))
    disk.makedirs("/m/__cluster_metadata-0")
    with pytest.raises(StorageError, match=rf"^/m/bootstrap\.checkpoint: .*{name}={level}.*format"):
        storage.verify(disk, server)
    kafkas(disk, FeatureLevelRecord(name="share.version", level=0))
    disk.makedirs("/m/__cluster_metadata-0")
    storage.verify(disk, server)


def test_to_02_a_data_directory_that_cannot_be_read_does_not_keep_the_others_from_being_formatted(tmp_path: Path) -> None:
    """A node is formatted with --ignore-formatted at each start of its container, also after one of its disks has failed."""
    disk, server = MemDisk(), config(tmp_path)
    disk.write_file_atomically("/d1", b"")
    lines = formatted(disk, server)
    assert lines == [
        "I/O error trying to read log directory /d1. Ignoring...",
        "Formatting data directory /d2 with metadata.version 4.3-IV0.",
        "Formatting metadata directory /m with metadata.version 4.3-IV0.",
    ]
    assert formatted(disk, server, ignore_formatted=True) == [lines[0], "All of the log directories are already formatted."]
    disk = MemDisk()
    disk.write_file_atomically("/m", b"")
    with pytest.raises(StorageError, match=r"^/m is not a directory"):
        formatted(disk, server)


def test_to_03_a_copied_directory_is_told_when_it_is_formatted_again(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.write_file_atomically("/d2/meta.properties", disk.read_file("/d1/meta.properties"))
    with pytest.raises(StorageError, match=r"/d2 and /d1 have the same directory\.id"):
        formatted(disk, server, ignore_formatted=True)


@pytest.mark.parametrize(("cluster", "written"), [("a\\b", "a\\\\b"), ("é\U0001f600", "\\u00e9\\ud83d\\ude00"), ("a:b!", "a:b!")])
def test_bl_14_the_file_is_one_of_javas_properties(tmp_path: Path, cluster: str, written: str) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, cluster)
    assert f"cluster.id={written}\n".encode() in disk.read_file("/d1/meta.properties")
    assert storage.verify(disk, server).cluster_id == cluster
    edited(disk, "/d1/meta.properties", f"cluster.id={written}", "cluster.id \\: a\\:b\\!")
    with pytest.raises(ValueError, match=r"/d1/meta\.properties: cluster\.id=: a:b!: allowed"):
        read_meta_properties(disk, "/d1")
    edited(disk, "/d1/meta.properties", "cluster.id \\: a\\:b\\!", "cluster.id\\=x: \\u12")
    with pytest.raises(ValueError, match=r"/d1/meta\.properties: line [0-9]+: \\u12 is not an escape"):
        read_meta_properties(disk, "/d1")


def test_bl_14_what_apache_kafka_escapes_is_read_back(tmp_path: Path) -> None:
    disk, directory = MemDisk(), uuid_from_str("3Db5QLSqSZieL3rJBUUegA")
    disk.makedirs("/d1")
    text = "#\n#Sun Nov 29 17:00:29 UTC 2026\nnode.id=1\ndirectory.id=3Db5QLSqSZieL3rJBUUegA\nversion=1\ncluster.id=a\\:\\u00E9\n"
    disk.write_file_atomically("/d1/meta.properties", text.encode())
    assert read_meta_properties(disk, "/d1") == MetaProperties(cluster_id="a:é", node_id=NodeId(1), directory_id=directory)
