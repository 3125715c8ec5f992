"""Metadata logs are found in what a person names, and read as far as they are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlite.cli.metadata_files import opened
from kraftlite.log.batch import Record, build_batch
from kraftlite.metadata.records import NoOpRecord, TopicRecord
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.postmortem.files import NoMetadata, find
from kraftlite.postmortem.reading import MAX_NOTES, Notes, Reader, entries_of, last_record, read_metadata_log
from tests.harness.metadata_log import MetadataLog, snapshot
from tests.harness.metadata_support import topic


def offsets(directory: Path, reader: Reader, **limits: int) -> list[int]:
    return [entry.offset for entry in entries_of(reader.log(find([directory])[0].segments, **limits))]


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    found = MetadataLog(tmp_path / "node" / "data" / "__cluster_metadata-0")
    found.leader(1000, 1, 1)
    found.add(1010, *topic("a", 1, 2))
    return found


def test_a_log_is_found_in_what_is_near_it(log: MetadataLog, tmp_path: Path) -> None:
    snapshot(log.directory, 4, topic("a", 1))
    snapshot(log.directory, 0, [])  # what formatting leaves behind
    (log.directory / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"half")
    (log.directory / "00000000000000000004.snapshot").write_bytes(b"of producers")
    for given in (log.directory, log.directory.parent, tmp_path):
        (found,) = find([given])
        assert [base for base, _ in found.segments] == [0]
        assert [name for name, _ in found.snapshots] == [OffsetAndEpoch(epoch=1, offset=4)]
    (named,) = find([log.path, log.directory / "00000000000000000000-0000000001.checkpoint"])
    assert len(named.segments) == 1 and len(named.snapshots) == 1


def test_how_far_a_log_goes(log: MetadataLog, tmp_path: Path) -> None:
    other = MetadataLog(tmp_path / "other" / "__cluster_metadata-0")
    other.leader(1000, 1, 1)
    assert [last_record(found) for found in find([tmp_path])] == [(1, 3), (1, 0)]
    other.leader(1000, 1, 2)
    other.roll()
    other.raw(b"torn")
    assert [last_record(found) for found in find([tmp_path])] == [(1, 3), (2, 1)]
    snapshot(log.directory, 7, [], epoch=1)
    assert last_record(find([log.directory])[0]) == (1, 6)


def test_what_is_behind_damage_does_not_make_a_log_go_furthest(log: MetadataLog, tmp_path: Path) -> None:
    first_bytes = log.path.stat().st_size
    whole = log.path.read_bytes()
    log.add(2000, NoOpRecord())
    log.add(3000, NoOpRecord())
    assert last_record(find([log.directory])[0]) == (1, 5)
    data = log.path.read_bytes()
    for damaged in (b"\xff" * 12, bytes([data[first_bytes + 70] ^ 1])):
        log.path.write_bytes(data[: first_bytes + 70] + damaged + data[first_bytes + 70 + len(damaged) :])
        assert last_record(find([log.directory])[0]) == (1, 3)
    other = tmp_path / "other" / "__cluster_metadata-0"
    other.mkdir(parents=True)
    (other / log.path.name).write_bytes(data[: -(len(data) - len(whole)) // 2])
    metadata = opened([tmp_path])
    assert metadata.files.name == str(other) and metadata.at().offset == 4
    (log.directory / "00000000000000000009.log").write_bytes(data)  # offsets are missing before it
    assert last_record(find([log.directory])[0]) == (1, 3)


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000000.index", "x.log", "x.checkpoint"])
def test_what_is_no_part_of_a_log_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(NoMetadata, match="is not named like a part of a metadata log"):
        find([tmp_path / name])


def test_where_there_is_no_log_it_says_so(tmp_path: Path, log: MetadataLog) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(NoMetadata, match="there is no __cluster_metadata-0 with segments or snapshots in or below it"):
        find([tmp_path / "orders-0"])
    with pytest.raises(NoMetadata, match=r"is a file and .* a directory"):
        find([log.path, log.directory])
    with pytest.raises(NoMetadata, match="no such file"):
        find([tmp_path / "00000000000000000007.log"])
    assert list(read_metadata_log(tmp_path / "orders-0")) == []


def test_entries_have_offset_epoch_time_and_batch(log: MetadataLog) -> None:
    found = list(read_metadata_log(log.directory))
    assert [(entry.offset, entry.epoch, entry.time_ms, entry.batch) for entry in found] == [
        (0, 1, 1000, 0),
        (1, 1, 1010, 1),
        (2, 1, 1010, 1),
        (3, 1, 1010, 1),
    ]
    assert found[1].record == topic("a", 1)[0]


def test_limits_cut_batches_and_segments(log: MetadataLog) -> None:
    log.roll()
    log.add(2000, NoOpRecord(), NoOpRecord())
    log.roll()
    log.add(3000, NoOpRecord())
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3, 4, 5, 6]
    assert offsets(log.directory, reader, start=2, end=5) == [2, 3, 4]
    assert offsets(log.directory, reader, start=6) == [6]
    assert offsets(log.directory, reader, start=7) == []
    assert reader.notes.all() == []


def test_to_43_a_torn_end_is_no_damage(log: MetadataLog) -> None:
    whole = log.path.read_bytes()
    batch = build_batch([Record(None, b"value")], base_offset=4, leader_epoch=1, timestamp_ms=5)
    for cut in (9, 30, 61, len(batch) - 1):
        log.path.write_bytes(whole + batch[:cut])
        reader = Reader()
        assert offsets(log.directory, reader) == [0, 1, 2, 3]
        (note,) = reader.notes.all()
        assert f"the last {cut} bytes, from byte {len(whole)} on, are the beginning of a batch" in note
        assert not reader.notes.damaged


def test_zeros_at_the_end_are_a_file_that_was_laid_out(log: MetadataLog) -> None:
    log.raw(bytes(3_000_000))
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3]
    assert reader.notes.all() == []


def test_to_43_a_changed_byte_costs_what_is_behind_it(log: MetadataLog) -> None:
    first_bytes = log.path.stat().st_size
    log.add(2000, TopicRecord(name="b", topic_id=topic("b", 2)[0].topic_id))  # type: ignore[union-attr]
    log.add(3000, NoOpRecord())
    data = bytearray(log.path.read_bytes())
    data[first_bytes + 70] ^= 1
    log.path.write_bytes(data)
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3]
    (note,) = reader.notes.all()
    assert f"the batch at byte {first_bytes}, offset 4, is damaged (its CRC is wrong): nothing behind it is read" in note
    assert reader.notes.damaged


def test_garbage_and_holes_are_told(log: MetadataLog) -> None:
    log.roll()
    log.raw(b"\xff" * 100)
    log.offset = 9
    log.roll()
    log.add(3000, NoOpRecord())
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3]
    assert "there is no batch at byte 0 of 100: nothing behind it is read" in reader.notes.all()[0]
    (log.directory / f"{4:020d}.log").unlink()
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3]
    assert "offsets 4 to 8 are missing before" in reader.notes.all()[0]


def test_offsets_that_go_back_end_the_log(log: MetadataLog) -> None:
    position = log.path.stat().st_size
    log.raw(build_batch([Record(None, b"")], base_offset=2, leader_epoch=1, timestamp_ms=5))
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3]
    assert f"the batch at byte {position} begins with offset 2, behind 3" in reader.notes.all()[0]


def test_to_43_a_record_that_nobody_knows_is_left_out(log: MetadataLog) -> None:
    log.raw(build_batch([Record(None, b"\x01\x7f\x63"), Record(None, None)], base_offset=4, leader_epoch=1, timestamp_ms=5))
    log.offset = 6
    log.add(3000, NoOpRecord())
    reader = Reader()
    assert offsets(log.directory, reader) == [0, 1, 2, 3, 6]
    assert "the record at offset 4 is left out" in reader.notes.all()[0]


def test_a_segment_that_is_gone_meanwhile_is_told(log: MetadataLog) -> None:
    (files,) = find([log.directory])
    log.path.unlink()
    reader = Reader()
    assert list(reader.log(files.segments)) == []
    assert "was deleted while it was read" in reader.notes.all()[0]


def test_a_snapshot_that_is_not_whole_is_told(tmp_path: Path) -> None:
    path = snapshot(tmp_path, 4, topic("a", 1))
    reader = Reader()
    assert len(list(entries_of(reader.snapshot(path)))) == 4
    assert reader.notes.all() == []
    path.write_bytes(path.read_bytes()[:-10])
    assert len(list(entries_of(reader.snapshot(path)))) == 3
    assert "does not end with the footer of a snapshot" in reader.notes.all()[-1]
    path.write_bytes(b"")
    reader = Reader()
    assert list(reader.snapshot(path)) == []
    assert "does not begin with the header of a snapshot" in reader.notes.all()[0]


def test_notes_are_bounded_and_said_once() -> None:
    notes = Notes()
    for number in range(MAX_NOTES + 5):
        notes.add(f"sentence {number}")
        notes.add("sentence 0")
    assert len(notes.all()) == MAX_NOTES + 1
    assert notes.all()[-1] == "and 5 more such sentences"
