"""The metadata at an offset is that of the snapshot before it and the records behind that."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from kraftlite.model.ids import NodeId
from kraftlite.postmortem.files import NoMetadata, find
from kraftlite.postmortem.replay import MetadataAt
from tests.harness.metadata_log import MetadataLog, snapshot
from tests.harness.metadata_support import LogMaker, image_of, topic


def metadata(directory: Path, end: int | None = None) -> MetadataAt:
    return MetadataAt(find([directory])[0], end=end)


def topics(image: MetadataImage) -> list[str]:
    return list(image.topics.by_name)


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """Offset 0: a leader; 1 and 2: topic a; 3 and 4: topic b; 5: nothing."""
    found = MetadataLog(tmp_path / "__cluster_metadata-0")
    found.leader(1000, 1, 1)
    found.add(1010, *topic("a", 1))
    found.add(1020, *topic("b", 2))
    found.add(1030, NoOpRecord())
    return found


def test_to_41_each_offset_has_its_image(log: MetadataLog) -> None:
    found = metadata(log.directory)
    assert [topics(found.at(offset)) for offset in range(6)] == [[], ["a"], ["a"], ["a", "b"], ["a", "b"], ["a", "b"]]
    assert found.at(1).topics.by_name["a"].partitions == {}
    last = found.at()
    assert last.offset == 5 and last.provenance.last_contained_log_time_ms == 1030
    assert last == found.at(5)
    assert found.notes.all() == []


def test_an_offset_behind_the_end_cannot_be_told(log: MetadataLog) -> None:
    with pytest.raises(NoMetadata, match="there is no offset 6; what can be read ends with offset 5"):
        metadata(log.directory).at(6)
    with pytest.raises(NoMetadata, match="there is no offset 4; what can be read ends with offset 3"):
        metadata(log.directory, end=4).at(4)


def test_what_is_not_committed_is_not_shown(log: MetadataLog) -> None:
    snapshot(log.directory, 5, [*topic("a", 1), *topic("b", 2)])
    assert topics(metadata(log.directory, end=3).at()) == ["a"]
    assert metadata(log.directory, end=3).at().offset == 2


def test_a_metadata_transaction_is_seen_when_it_has_ended(log: MetadataLog) -> None:
    begin = log.add(2000, BeginTransactionRecord(name="t"), *topic("c", 3))
    end = log.add(2010, EndTransactionRecord())
    log.add(2020, BeginTransactionRecord(name="t"), *topic("d", 4))
    log.add(2030, AbortTransactionRecord(reason="no"))
    found = metadata(log.directory)
    assert [topics(found.at(offset)) for offset in (begin, begin + 2, end, log.offset - 2, log.offset - 1)] == [
        ["a", "b"],
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b", "c"],
        ["a", "b", "c"],
    ]


def test_every_offset_is_the_same_with_and_without_snapshots(tmp_path: Path) -> None:
    """Valid logs of every kind of record: replayed from the beginning, and from any snapshot on."""
    records = LogMaker(random.Random(7)).take(200)
    log = MetadataLog(tmp_path / "whole")
    for at in range(0, len(records), 3):
        log.add(1000 + at, *records[at : at + 3])
        if at % 60 == 30:
            log.roll()
    cut = MetadataLog(tmp_path / "cut", base=99)
    cut.add(1099, *records[99:])
    snapshot(cut.directory, 99, list(image_of(records[:99]).write()), time_ms=1096)
    whole, behind = metadata(log.directory), metadata(cut.directory)
    for offset in range(98, len(records), 17):
        one, other = whole.at(offset), behind.at(offset)
        assert list(one.write()) == list(other.write()) == list(image_of(records[: offset + 1]).write())
    with pytest.raises(NoMetadata, match="nothing is there of offset 97; the files begin with offset 98"):
        behind.at(97)


def test_to_43_a_log_without_its_beginning_shows_what_it_can(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "__cluster_metadata-0", base=100)
    unknown = [PartitionChangeRecord(topic_id=topic("x", 9)[0].topic_id, partition=n, leader=NodeId(1)) for n in range(6)]  # type: ignore[union-attr]
    log.add(2000, *unknown, *topic("a", 1))
    found = metadata(log.directory)
    assert topics(found.at()) == ["a"] and found.at().offset == 107
    notes = found.notes.all()
    assert "begins with offset 100, without a snapshot: what was before is not known" in notes[0]
    assert "metadata record at offset 100" in notes[1] and "left out" in notes[1]
    assert len(notes) == 5 and "more records do not fit" in notes[4]
    with pytest.raises(NoMetadata, match="nothing is there of offset 99; the files begin with offset 100"):
        found.at(99)


def test_a_gap_behind_a_snapshot_is_told(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "__cluster_metadata-0", base=100)
    log.add(2000, *topic("b", 2))
    snapshot(log.directory, 50, topic("a", 1))
    found = metadata(log.directory)
    assert topics(found.at()) == ["a", "b"]
    assert "offsets 50 to 99 are missing, and what they changed is not known" in found.notes.all()[0]


def test_a_snapshot_alone_has_the_time_of_its_header(tmp_path: Path) -> None:
    path = snapshot(tmp_path, 50, topic("a", 1), epoch=3, time_ms=1234)
    found = MetadataAt(find([path])[0])
    image = found.at()
    assert topics(image) == ["a"]
    where = image.provenance
    assert (where.last_contained_offset, where.last_contained_epoch, where.last_contained_log_time_ms) == (49, 3, 1234)
    assert found.at(49) == image
    with pytest.raises(NoMetadata, match="there is no offset 50; what can be read ends with offset 49"):
        found.at(50)
    with pytest.raises(NoMetadata, match="nothing is there of offset 48; the files begin with offset 49"):
        found.at(48)


def test_the_oldest_state_is_the_one_that_the_whole_log_follows(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "__cluster_metadata-0", base=10)
    log.add(2000, *topic("b", 2), *topic("c", 3))
    for end, records in ((5, topic("z", 9)), (10, topic("a", 1)), (12, [*topic("a", 1), *topic("b", 2)])):
        snapshot(log.directory, end, records)
    image, start = metadata(log.directory).oldest()
    assert (topics(image), start) == (["a"], 10)
    image, start = metadata(log.directory).base()
    assert (topics(image), start) == (["a", "b"], 12)


def test_records_that_do_not_parse_do_not_end_the_replay(log: MetadataLog) -> None:
    log.add(2000, ConfigRecord(resource_type=2, resource_name="a", name="k", value="v"))
    data = log.path.read_bytes()
    assert metadata(log.directory).at().configs.get(2, "a")["k"] == "v"
    log.path.write_bytes(data[:-3])
    found = metadata(log.directory)
    assert found.at().offset == 5 and not found.notes.damaged and len(found.notes.all()) == 1
