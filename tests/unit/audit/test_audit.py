"""Every kind of damage, put into real files by hand, is found where it is and called by its name; and nothing else is said."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("numpy")

from kraftlite.audit import findings as audit_findings
from kraftlite.audit.findings import Finding
from kraftlite.audit.partition import check_partition
from kraftlite.audit.scan import scan_segment
from kraftlite.cli.pipeline_audit import audit_command
from kraftlite.local.chaos import Times
from kraftlite.local.history import HistoryError, Injected, checksum, read_history
from kraftlite.local.stream import Ledger
from kraftlite.log import checkpoints
from kraftlite.log.batch import HEADER_BYTES, Record, build_batch, iter_headers, iter_records, parse_header, retained_batch
from kraftlite.segments import directories
from kraftlite.spark.jobs.audit import AuditInputError, AuditReport, audit, bundles_of
from tests.harness.audit_cluster import END, START_MS, Broker, acked, flip, make_cluster, record_batch, with_crc

Cluster = dict[str, Broker]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return make_cluster(tmp_path)


def run(cluster: Cluster, *history: Path, **options: object) -> AuditReport:
    dirs = {name: [broker.path] for name, broker in cluster.items()}
    return audit(dirs, engine="local", history=[str(path) for path in history], **options)  # type: ignore[arg-type]


def only(report: AuditReport) -> Finding:
    assert len(report.findings) == 1, report.findings
    return report.findings[0]


def place(found: Finding) -> tuple[str, str, str, int, int]:
    return found.kind, found.broker, Path(found.file).name, found.position, found.offset


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def test_a_healthy_cluster_has_no_findings(cluster: Cluster) -> None:
    report = run(cluster)
    assert report.ok and report.findings == ()
    (partition,) = report.partitions
    assert partition.compared_below == END
    assert [(r.broker, r.segments, r.batches, r.leo, r.hw, r.clean) for r in partition.replicas] == [
        (name, 3, 24, END, END, True) for name in ("b1", "b2", "b3")
    ]
    assert report.bytes == sum(path.stat().st_size for broker in cluster.values() for path in broker.segments)


# One replica's batches. Positions: every batch is of the same size, as their offsets have two digits from 10 on.


def second(broker: Broker) -> int:
    """Size of a batch of the second segment."""
    return len(broker.batches(1)[0])


def test_a_flipped_bit_in_a_record(cluster: Cluster) -> None:
    size = second(cluster["b2"])
    flip(cluster["b2"].segments[1], 2 * size + HEADER_BYTES + 9)
    assert place(only(run(cluster))) == ("bad_crc", "b2", name(40), 2 * size, 50)


@pytest.mark.parametrize("field_at", [23, 27, 35, 43, 57], ids=["last delta", "base time", "max time", "producer", "count"])
def test_a_flipped_bit_in_a_header(cluster: Cluster, field_at: int) -> None:
    size = second(cluster["b2"])
    flip(cluster["b2"].segments[1], 2 * size + field_at, 0x40)
    assert place(only(run(cluster))) == ("bad_crc", "b2", name(40), 2 * size, 50)


def test_a_flipped_bit_in_the_magic(cluster: Cluster) -> None:
    size = second(cluster["b2"])
    flip(cluster["b2"].segments[1], 2 * size + 16)
    found = only(run(cluster))
    assert place(found) == ("bad_header", "b2", name(40), 2 * size, 50)
    assert found.detail.startswith(f"{size} bytes")


@pytest.mark.parametrize(
    "bit", [(8, 0x40), (10, 0x01), (11, 0x01), (10, 0x02)], ids=["beyond the file", "longer", "by one", "much longer"]
)
def test_a_flipped_bit_in_the_length(cluster: Cluster, bit: tuple[int, int]) -> None:
    size = second(cluster["b2"])
    flip(cluster["b2"].segments[1], 2 * size + bit[0], bit[1])
    found = only(run(cluster))
    assert found.kind in ("bad_crc", "bad_header")
    assert place(found)[1:] == ("b2", name(40), 2 * size, 50)


def test_a_flipped_bit_in_the_base_offset(cluster: Cluster) -> None:
    size = second(cluster["b2"])
    flip(cluster["b2"].segments[1], 2 * size + 5)  # not covered by the CRC
    found = only(run(cluster))
    assert place(found) == ("misnumbered_batch", "b2", name(40), 2 * size, 50 + 65536)


def test_a_duplicated_batch(cluster: Cluster) -> None:
    size = second(cluster["b3"])
    cluster["b3"].rewrite(1, lambda batches: [*batches[:3], batches[2], *batches[3:]])
    found = only(run(cluster))
    assert place(found) == ("duplicate_batch", "b3", name(40), 3 * size, 50)


def test_a_swapped_pair_of_batches(cluster: Cluster) -> None:
    size = second(cluster["b1"])
    cluster["b1"].rewrite(1, lambda batches: [*batches[:3], batches[4], batches[3], *batches[5:]])
    found = only(run(cluster))
    assert place(found) == ("swapped_batches", "b1", name(40), 3 * size, 60)
    assert found.detail.startswith("2 batches that belong at 55")


def test_a_swapped_pair_of_batches_that_are_not_neighbours(cluster: Cluster) -> None:
    size = second(cluster["b1"])
    cluster["b1"].rewrite(1, lambda b: [b[0], b[5], *b[2:5], b[1], *b[6:]])
    found = only(run(cluster))
    assert place(found) == ("swapped_batches", "b1", name(40), size, 65)
    assert found.detail.startswith("5 batches that belong at 45")


def test_a_batch_that_is_missing(cluster: Cluster) -> None:
    size = second(cluster["b1"])
    cluster["b1"].rewrite(1, lambda batches: [*batches[:4], *batches[5:]])
    found = only(run(cluster))
    assert place(found) == ("offset_gap", "b1", name(40), 4 * size, 65)
    assert found.detail == "offsets 60 to 64 are missing"


def test_another_batch_in_the_place_of_one_that_is_there(cluster: Cluster) -> None:
    size = second(cluster["b1"])
    cluster["b1"].rewrite(1, lambda batches: [*batches[:4], record_batch(47, 2), *batches[4:]])
    assert place(only(run(cluster))) == ("offset_regression", "b1", name(40), 4 * size, 47)


def test_a_missing_segment_in_the_middle(cluster: Cluster) -> None:
    path = cluster["b2"].segments[1]
    path.unlink()
    found = only(run(cluster))
    assert place(found) == ("missing_segment", "b2", name(80), 0, 80)
    assert found.detail.startswith("offsets 40 to 79 are missing")


def test_a_missing_segment_with_its_indexes(cluster: Cluster) -> None:
    for path in cluster["b2"].directory.glob(f"{40:020d}*"):
        path.unlink()
    assert place(only(run(cluster))) == ("missing_segment", "b2", name(80), 0, 80)


def test_a_segment_in_the_middle_that_is_cut_inside_of_a_batch(cluster: Cluster) -> None:
    path, size = cluster["b2"].segments[1], second(cluster["b2"])
    path.write_bytes(path.read_bytes()[: 6 * size + 10])
    found = only(run(cluster))
    assert place(found) == ("segment_cut", "b2", name(40), 6 * size, 70)


def test_a_segment_in_the_middle_that_is_cut_between_batches(cluster: Cluster) -> None:
    path, size = cluster["b2"].segments[1], second(cluster["b2"])
    path.write_bytes(path.read_bytes()[: 6 * size])
    assert place(only(run(cluster))) == ("segment_cut", "b2", name(40), 6 * size, 70)


def test_a_segment_that_begins_below_the_end_of_the_one_before(cluster: Cluster) -> None:
    directory = cluster["b2"].directory
    cluster["b2"].rewrite(0, lambda batches: [*batches, record_batch(40, 0)])
    assert place(only(run(cluster))) == ("segment_overlap", "b2", name(40), 0, 40)
    assert directory.is_dir()


@pytest.mark.parametrize("seed", range(6))
def test_any_flipped_bit_of_a_log_or_an_index_is_found_where_it_is(cluster: Cluster, seed: int) -> None:
    """Whatever field it hits: one finding, in that file, and of a log in that batch."""
    draw = random.Random(seed)
    for _ in range(40):
        broker = cluster[draw.choice(sorted(cluster))]
        suffix = draw.choice([".log", ".log", ".index", ".timeindex"])
        path = draw.choice(broker.segments).with_suffix(suffix)
        data = path.read_bytes()
        at = draw.randrange(len(data))
        flip(path, at, 1 << draw.randrange(8))
        found = only(run(cluster))
        path.write_bytes(data)
        assert found.file == str(path), (at, found)
        if suffix == ".log":
            (begin,) = [p for p, header in iter_headers(data) if p <= at < p + header.size_bytes]
            assert found.position == begin, (at, found)


def test_segments_that_a_running_broker_replaces_meanwhile_are_read_again(cluster: Cluster) -> None:
    """As compaction does: the first takes in the second, which goes, after both were listed and before they were read."""
    (listed,) = [log_dir.replicas[0] for log_dir in directories.discover({"b1": [cluster["b1"].path]}, compacted=["orders"])]
    first, gone = cluster["b1"].segments[:2]
    first.write_bytes(first.read_bytes() + gone.read_bytes())
    for path in cluster["b1"].directory.glob(f"{40:020d}*"):
        path.unlink()
    for path in (first.with_suffix(".index"), first.with_suffix(".timeindex")):
        path.unlink()
    found = check_partition([listed], [scan_segment(segment) for segment in listed.segments])
    assert [replica.segments for replica in found.replicas] == [2]
    assert {finding.kind for finding in found.findings} == {"bad_index", "bad_time_index"}  # which were not made here
    shutil.rmtree(cluster["b1"].directory)
    found = check_partition([listed], [scan_segment(segment) for segment in listed.segments])
    assert [finding.kind for finding in found.findings] == ["unread"] * 3 and found.violations == 0


def test_a_segment_that_is_replaced_between_scan_and_comparison_is_read_again(cluster: Cluster) -> None:
    listed = [replica for name, broker in cluster.items() for replica in directories.discover({name: [broker.path]})[0].replicas]
    scans = [scan_segment(segment) for replica in listed for segment in replica.segments]
    for path in cluster["b1"].segments:  # other files, and other bytes where the old ones had batches
        other = path.with_suffix(".swap")
        other.write_bytes(path.read_bytes())
        other.rename(path)
    cluster["b2"].segments[1].unlink()
    found = check_partition(listed, scans)
    assert [(finding.kind, finding.broker) for finding in found.findings] == [("missing_segment", "b2")]


def test_what_cannot_be_read_is_no_verdict(cluster: Cluster) -> None:
    path = cluster["b2"].segments[1]
    path.unlink()
    path.mkdir()
    report = run(cluster)
    assert report.ok and not report.complete and only(report).kind == "unread"
    dirs = ",".join(f"{name}={broker.path}" for name, broker in cluster.items())
    found = command("--data-dirs", dirs)
    assert found.exit_code == 2 and "INCOMPLETE" in found.stdout


# The end of the log.


def test_a_lost_tail(cluster: Cluster) -> None:
    path, size = cluster["b3"].segments[2], len(cluster["b3"].batches(2)[-1])
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[: whole - 2 * size])
    found = only(run(cluster))
    assert place(found) == ("lost_tail", "b3", name(80), whole - 2 * size, 110)


def test_a_lost_last_segment(cluster: Cluster) -> None:
    for path in cluster["b3"].directory.glob(f"{80:020d}*"):
        path.unlink()
    found = only(run(cluster))
    assert (found.kind, found.broker, Path(found.file).name, found.offset) == ("lost_tail", "b3", name(40), 80)


def test_a_lost_tail_of_the_only_replica_that_crashed(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, brokers=1)
    cluster["b1"].crash()
    cluster["b1"].set_offsets(checkpoints.RECOVERY_POINT_CHECKPOINT, 40)
    cluster["b1"].rewrite(2, lambda batches: batches[:-1])
    assert place(only(run(cluster)))[:3] == ("lost_tail", "b1", name(80))


def test_a_torn_tail_of_a_crashed_broker_is_no_damage(cluster: Cluster) -> None:
    broker = cluster["b2"]
    broker.crash()
    with broker.segments[2].open("ab") as file:
        file.write(record_batch(END, 2)[:70])
    report = run(cluster)
    assert report.ok
    found = only(report)
    assert (found.severity, found.kind, found.offset) == ("note", "torn_tail", END)


def test_a_torn_tail_of_a_crashed_broker_below_its_watermark_is_damage(cluster: Cluster) -> None:
    broker = cluster["b2"]
    broker.crash()
    path = broker.segments[2]
    path.write_bytes(path.read_bytes()[:-20])
    size = len(cluster["b1"].batches(2)[-1])
    found = only(run(cluster))
    assert place(found) == ("lost_tail", "b2", name(80), path.stat().st_size + 20 - size, 115)


def test_a_torn_tail_after_a_clean_shutdown_is_damage(cluster: Cluster) -> None:
    path = cluster["b2"].segments[2]
    end = path.stat().st_size
    with path.open("ab") as file:
        file.write(record_batch(END, 2)[:70])
    assert place(only(run(cluster))) == ("segment_cut", "b2", name(80), end, END)


def test_unflushed_garbage_above_the_watermark_of_a_crashed_broker_is_no_damage(cluster: Cluster) -> None:
    broker = cluster["b2"]
    broker.crash()
    more = bytearray(record_batch(END, 2))
    more[-3:] = b"\0\0\0"
    with broker.segments[2].open("ab") as file:
        file.write(more)
    report = run(cluster)
    assert report.ok and only(report).kind == "torn_tail"


def test_more_than_the_watermark_may_differ(cluster: Cluster) -> None:
    """Uncommitted batches of two leaders: the next leader truncates them."""
    for broker, epoch in ((cluster["b1"], 2), (cluster["b2"], 3)):
        broker.crash()
        with broker.segments[2].open("ab") as file:
            file.write(record_batch(END, epoch, producer=epoch))
    assert run(cluster).findings == ()


# Between replicas.


def epoch_at(segment: Path, position: int, epoch: int) -> None:
    data = bytearray(segment.read_bytes())
    struct.pack_into(">i", data, position + 12, epoch)
    segment.write_bytes(data)


@pytest.mark.parametrize("broker", ["b1", "b2", "b3"])
@pytest.mark.parametrize("epoch", [1, 5])
def test_a_diverged_epoch(cluster: Cluster, broker: str, epoch: int) -> None:
    """The CRC does not cover it. Lower than its neighbours or higher, of the replica that the others are compared with, too."""
    size = second(cluster[broker])
    epoch_at(cluster[broker].segments[1], 6 * size, epoch)
    found = only(run(cluster))
    assert place(found) == ("epoch_diverged", broker, name(40), 6 * size, 70)
    assert Path(found.other).parts[-3:-1] == ("data", "orders-0")
    assert Path(found.other) != Path(found.file)


@pytest.mark.parametrize("broker", ["b1", "b2"])
def test_a_diverged_epoch_of_one_of_two(tmp_path: Path, broker: str) -> None:
    cluster = make_cluster(tmp_path, brokers=2)
    epoch_at(cluster[broker].segments[1], 6 * second(cluster[broker]), 1)
    found = only(run(cluster))
    assert (found.kind, found.broker, found.offset) == ("epoch_diverged", broker, 70)


def test_epochs_that_decrease_in_the_only_replica(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, brokers=1)
    size = second(cluster["b1"])
    epoch_at(cluster["b1"].segments[1], 6 * size, 5)
    found = only(run(cluster))
    assert place(found) == ("epoch_regression", "b1", name(40), 6 * size, 70)


def changed(batch: bytes, change: Callable[[list[Record]], list[Record]]) -> bytes:
    """The batch with other records and a good CRC."""
    return retained_batch(parse_header(batch), change(list(iter_records(batch))))


def swap_records(records: list[Record]) -> list[Record]:
    """Two records change places; offsets stay in order."""
    one, two = records[1], records[3]
    records[1], records[3] = two._replace(offset_delta=one.offset_delta), one._replace(offset_delta=two.offset_delta)
    return records


@pytest.mark.parametrize("broker", ["b1", "b3"])
def test_swapped_records_with_a_good_crc(cluster: Cluster, broker: str) -> None:
    size = second(cluster[broker])
    cluster[broker].rewrite(1, lambda batches: [*batches[:4], changed(batches[4], swap_records), *batches[5:]])
    assert place(only(run(cluster))) == ("swapped_records", broker, name(40), 4 * size, 61)


def test_swapped_records_with_the_old_crc(cluster: Cluster) -> None:
    size = second(cluster["b3"])

    def swap(batches: list[bytes]) -> list[bytes]:
        stored = batches[4][17:21]
        found = bytearray(changed(batches[4], swap_records))
        found[17:21] = stored
        return [*batches[:4], bytes(found), *batches[5:]]

    cluster["b3"].rewrite(1, swap)
    assert place(only(run(cluster))) == ("bad_crc", "b3", name(40), 4 * size, 60)


def test_swapped_records_that_took_their_offsets_along(cluster: Cluster) -> None:
    size = second(cluster["b3"])
    cluster["b3"].rewrite(1, lambda b: [*b[:4], changed(b[4], lambda r: [r[0], r[2], r[1], *r[3:]]), *b[5:]])
    found = only(run(cluster))
    assert (found.kind, found.position) == ("swapped_records", 4 * size)


@pytest.mark.parametrize("broker", ["b1", "b2", "b3"])
def test_another_value_with_a_good_crc(cluster: Cluster, broker: str) -> None:
    size = second(cluster[broker])

    def forge(records: list[Record]) -> list[Record]:
        records[2] = records[2]._replace(value=b"X" * len(records[2].value or b""))
        return records

    cluster[broker].rewrite(1, lambda batches: [*batches[:4], changed(batches[4], forge), *batches[5:]])
    found = only(run(cluster))
    assert place(found) == ("content_diverged", broker, name(40), 4 * size, 62)
    assert found.detail.startswith("the record's value differs")


def test_a_field_that_no_record_has(cluster: Cluster) -> None:
    """The producer's sequence: the records are the same, the bytes are not."""
    size = second(cluster["b2"])

    def change(batches: list[bytes]) -> list[bytes]:
        found = bytearray(batches[3])
        struct.pack_into(">i", found, 53, 4711)
        return [*batches[:3], with_crc(found), *batches[4:]]

    cluster["b2"].rewrite(1, change)
    assert place(only(run(cluster))) == ("content_diverged", "b2", name(40), 3 * size, 55)


def test_the_same_records_in_other_batches(cluster: Cluster) -> None:
    def join(batches: list[bytes]) -> list[bytes]:
        records = [r._replace(offset_delta=i) for i, r in enumerate([*iter_records(batches[2]), *iter_records(batches[3])])]
        joined = build_batch(records, base_offset=50, leader_epoch=0, timestamp_ms=START_MS)
        return [*batches[:2], joined, *batches[4:]]

    cluster["b2"].rewrite(1, join)
    found = run(cluster).violations[0]
    assert (found.kind, found.broker, found.offset) == ("content_diverged", "b2", 50)


def test_two_damages_are_two_findings(cluster: Cluster) -> None:
    size = second(cluster["b1"])
    flip(cluster["b1"].segments[1], 2 * size + HEADER_BYTES + 9)
    epoch_at(cluster["b3"].segments[1], 6 * size, 5)
    assert sorted(place(found)[:2] for found in run(cluster).findings) == [("bad_crc", "b1"), ("epoch_diverged", "b3")]


# Compacted topics.


def compact(broker: Broker) -> None:
    """Offsets are missing, in another way on each broker."""
    skip = int(broker.name[1:])
    broker.rewrite(0, lambda batches: [b for i, b in enumerate(batches) if i != skip])
    broker.rewrite(1, lambda b: [changed(b[0], lambda r: r[skip:]), *b[1:]])


def test_gaps_of_a_compacted_topic_are_none(cluster: Cluster) -> None:
    for broker in cluster.values():
        compact(broker)
    kinds = {found.kind for found in run(cluster, compacted=["orders"]).violations}
    assert kinds <= {"bad_index", "bad_time_index"}  # they were not written anew
    assert "offset_gap" in {found.kind for found in run(cluster).violations}


def test_a_cleaner_checkpoint_says_that_a_topic_is_compacted(cluster: Cluster) -> None:
    cluster["b2"].set_offsets(checkpoints.CLEANER_CHECKPOINT, 40)
    compact(cluster["b1"])
    assert not {found.kind for found in run(cluster).violations} & {"offset_gap", "content_diverged"}


def test_a_compacted_record_that_two_replicas_have_must_be_the_same(cluster: Cluster) -> None:
    compact(cluster["b1"])
    forged = list(iter_records(cluster["b2"].batches(1)[4]))
    forged[2] = forged[2]._replace(value=b"forged")
    cluster["b2"].rewrite(1, lambda b: [*b[:4], retained_batch(parse_header(b[4]), forged), *b[5:]])
    found = [f for f in run(cluster, compacted=["orders"]).violations if f.kind == "content_diverged"]
    assert [(f.broker, f.offset) for f in found] == [("b2", 62)]


# Indexes and checkpoints.


def entry(path: Path, at: int, layout: str, *values: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, at, *values)
    path.write_bytes(data)


def test_an_index_entry_with_another_position(cluster: Cluster) -> None:
    path = cluster["b2"].segments[1].with_suffix(".index")
    offset, position = struct.unpack_from(">ii", path.read_bytes(), 8)
    entry(path, 8, ">ii", offset, position + 1)
    assert place(only(run(cluster))) == ("bad_index", "b2", name(40, ".index"), 8, 40 + offset)


def test_index_entries_that_decrease(cluster: Cluster) -> None:
    path = cluster["b2"].segments[2].with_suffix(".index")
    entry(path, 8, ">ii", 1, 1)
    assert place(only(run(cluster)))[:4] == ("bad_index", "b2", name(80, ".index"), 8)


def test_an_index_of_odd_size_and_one_that_is_missing(cluster: Cluster) -> None:
    with cluster["b1"].segments[0].with_suffix(".index").open("ab") as file:
        file.write(b"abc")
    cluster["b2"].segments[0].with_suffix(".index").unlink()
    cluster["b3"].segments[0].with_suffix(".timeindex").unlink()
    assert [(f.kind, f.broker) for f in run(cluster).findings] == [
        ("bad_index", "b1"),
        ("bad_index", "b2"),
        ("bad_time_index", "b3"),
    ]


def test_a_time_index_entry_with_another_time(cluster: Cluster) -> None:
    path = cluster["b2"].segments[1].with_suffix(".timeindex")
    time, offset = struct.unpack_from(">qi", path.read_bytes(), 12)
    entry(path, 12, ">qi", time + 1, offset)
    assert place(only(run(cluster))) == ("bad_time_index", "b2", name(40, ".timeindex"), 12, 40 + offset)


def test_a_time_index_without_its_last_entry(cluster: Cluster) -> None:
    path = cluster["b2"].segments[1].with_suffix(".timeindex")
    path.write_bytes(path.read_bytes()[:-12])
    assert place(only(run(cluster)))[:3] == ("bad_time_index", "b2", name(40, ".timeindex"))


def test_a_preallocated_index_and_one_that_lags_are_good(cluster: Cluster) -> None:
    """As a crashed broker leaves them."""
    broker = cluster["b2"]
    broker.crash()
    last = broker.segments[2]
    with last.with_suffix(".index").open("ab") as file:
        file.write(b"\0" * 800)
    with last.with_suffix(".timeindex").open("ab") as file:
        file.write(b"\0" * 1200)
    cluster["b3"].crash()
    cluster["b3"].segments[2].with_suffix(".index").write_bytes(b"")
    cluster["b3"].segments[2].with_suffix(".timeindex").unlink()
    assert run(cluster).findings == ()


@pytest.mark.parametrize("checkpoint", [checkpoints.HW_CHECKPOINT, checkpoints.RECOVERY_POINT_CHECKPOINT])
def test_a_checkpoint_beyond_every_log(cluster: Cluster, checkpoint: str) -> None:
    cluster["b2"].set_offsets(checkpoint, 5000)
    found = only(run(cluster))
    assert (found.kind, found.broker, Path(found.file).name) == ("bad_checkpoint", "b2", checkpoint)
    assert found.detail == "orders-0 5000: the log ends at 120"


@pytest.mark.parametrize(
    "text", ["1\n", "1\n1\norders 0 5\n", "0\n2\norders 0 5\n", "0\n1\norders 0 x\n", "0\n2\norders 0 5\norders 0 6\n"]
)
def test_a_malformed_checkpoint(cluster: Cluster, text: str) -> None:
    path = cluster["b2"].path / checkpoints.LOG_START_CHECKPOINT
    path.write_text(text)
    found = only(run(cluster))
    assert (found.kind, found.file) == ("bad_checkpoint", str(path))


def test_a_log_start_beyond_the_log(cluster: Cluster) -> None:
    cluster["b2"].set_offsets(checkpoints.LOG_START_CHECKPOINT, 121)
    assert [(f.kind, f.broker) for f in run(cluster).findings][:1] == [("bad_checkpoint", "b2")]


def test_a_log_start_inside_of_a_segment_is_good(cluster: Cluster) -> None:
    cluster["b2"].set_offsets(checkpoints.LOG_START_CHECKPOINT, 53)
    report = run(cluster)
    assert report.findings == ()
    assert [replica.log_start for replica in report.partitions[0].replicas] == [0, 53, 0]


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("0\n2\n0 0\n2 40\n", 40),
        ("0\n1\n2 60\n", 0),
        ("0\n3\n0 0\n2 60\n4 100\n", 100),
        ("0\n2\n2 60\n0 0\n", -1),
        ("garbage", -1),
    ],
)
def test_an_epoch_checkpoint_that_contradicts_the_log(cluster: Cluster, text: str, offset: int) -> None:
    path = cluster["b3"].directory / checkpoints.LEADER_EPOCH_CHECKPOINT
    path.write_text(text)
    found = only(run(cluster))
    assert (found.kind, found.broker, found.file, found.offset) == ("bad_epoch_checkpoint", "b3", str(path), offset)


def test_an_epoch_checkpoint_that_lags_behind_a_crash_is_good(cluster: Cluster) -> None:
    cluster["b3"].crash()
    (cluster["b3"].directory / checkpoints.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
    assert run(cluster).findings == ()


def test_a_partition_that_is_gone(cluster: Cluster) -> None:
    directory = cluster["b2"].directory
    directory.rename(directory.with_name("orders-0.0123456789abcdef-delete"))
    report = run(cluster)
    assert [(f.severity, f.kind, f.broker) for f in report.findings] == [
        ("violation", "missing_replica", "b2"),
        ("note", "left_out", "b2"),
    ]


def test_topics_and_brokers_are_never_confused(tmp_path: Path) -> None:
    """A topic that is called like a broker's directory, in a path full of such names."""
    cluster = make_cluster(tmp_path / "orders-7" / "broker-0-1")
    report = run(cluster)
    assert [(p.topic, p.partition, len(p.replicas)) for p in report.partitions] == [("orders", 0, 3)]
    assert directories.split_name("broker-0-12") == ("broker-0", 12)
    assert directories.split_name("orders-x") is None and directories.split_name("-1") is None


# What producers were told.


def history(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_history_that_holds(cluster: Cluster, tmp_path: Path) -> None:
    lines = [acked(offset) for offset in range(END)]
    lines[3] = {
        **{k: v for k, v in acked(3).items() if k != "value"},
        "value_b64": base64.b64encode(f"value-3{'.' * 40}".encode()).decode(),
    }
    digest = hashlib.sha256(f"value-4{'.' * 40}".encode()).hexdigest()
    lines[4] = {"topic": "orders", "partition": 0, "offset": 4, "value_hash": f"sha256:{digest}"}
    lines[5] = {"topic": "orders", "partition": 0, "offset": 5, "checksum": checksum(b"k5", f"value-5{'.' * 40}".encode())}
    lines[6] = {"topic": "orders", "partition": 0, "offset": 6}
    lines.append({"topic": "orders", "error": "REQUEST_TIMED_OUT"})
    lines.append({"event": "kill", "node": 4, "time_ms": 5})
    report = run(cluster, history(tmp_path / "h.jsonl", lines))
    assert report.findings == ()
    assert (report.partitions[0].acked, report.partitions[0].unacked) == (END, 0)


def test_an_acknowledged_record_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    found = only(run(cluster, history(tmp_path / "h.jsonl", [acked(3), acked(END)])))
    assert (found.kind, found.offset, found.other) == ("acked_lost", END, f"{tmp_path}/h.jsonl:2")


def test_an_acknowledged_record_of_a_partition_that_nobody_has(cluster: Cluster, tmp_path: Path) -> None:
    found = only(run(cluster, history(tmp_path / "h.jsonl", [acked(3, partition=9)])))
    assert (found.kind, found.partition) == ("acked_lost", 9)


def test_acknowledged_records_that_were_lost_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    for broker in cluster.values():
        broker.rewrite(2, lambda batches: batches[:-1])
        for checkpoint in (checkpoints.HW_CHECKPOINT, checkpoints.RECOVERY_POINT_CHECKPOINT):
            broker.set_offsets(checkpoint, 115)
        broker.crash()
    report = run(cluster, history(tmp_path / "h.jsonl", [acked(offset) for offset in range(END)]))
    assert [f.offset for f in report.violations if f.kind == "acked_lost"] == list(range(115, END))


def test_an_acknowledged_record_that_was_changed_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    def forge(records: list[Record]) -> list[Record]:
        records[2] = records[2]._replace(value=b"X" * len(records[2].value or b""))
        return records

    size = second(cluster["b1"])
    for broker in cluster.values():
        broker.rewrite(1, lambda b: [*b[:4], changed(b[4], forge), *b[5:]])
    found = only(run(cluster, history(tmp_path / "h.jsonl", [acked(offset) for offset in range(END)])))
    assert place(found)[0] == "acked_changed" and place(found)[2:] == (name(40), 4 * size, 62)


def test_acknowledged_records_that_changed_places_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    for broker in cluster.values():
        broker.rewrite(1, lambda b: [*b[:4], changed(b[4], swap_records), *b[5:]])
    report = run(cluster, history(tmp_path / "h.jsonl", [acked(offset) for offset in range(END)]))
    assert [(f.kind, f.offset) for f in report.findings] == [("acked_reordered", 61), ("acked_reordered", 63)]
    assert report.findings[0].detail == "acknowledged at offset 61, it is at 63"


def test_records_whose_offsets_are_not_in_order_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    """No replica differs and no content does: only reading the records shows it."""
    for broker in cluster.values():
        broker.rewrite(1, lambda b: [*b[:4], changed(b[4], lambda r: [r[0], r[2], r[1], *r[3:]]), *b[5:]])
    report = run(cluster, history(tmp_path / "h.jsonl", [acked(offset) for offset in range(END)]))
    assert {f.kind for f in report.findings} <= {"swapped_records", "bad_records", "acked_lost"} and not report.ok


def test_a_record_that_its_producer_sent_earlier_lies_behind(cluster: Cluster, tmp_path: Path) -> None:
    lines = [acked(0, seq=0), acked(2, seq=1), acked(1, seq=2), acked(3, seq=3), acked(4, seq=0, producer="other")]
    found = only(run(cluster, history(tmp_path / "h.jsonl", lines)))
    assert (found.kind, found.offset) == ("acked_reordered", 1)


def test_an_acknowledged_record_that_is_there_twice(cluster: Cluster, tmp_path: Path) -> None:
    copy = build_batch(
        list(iter_records(record_batch(10, 2)))[:1], base_offset=END, leader_epoch=2, timestamp_ms=START_MS + END * 10
    )
    for broker in cluster.values():
        with broker.segments[2].open("ab") as file:
            file.write(copy)
    lines = [acked(offset) for offset in range(END)]
    found = only(run(cluster, history(tmp_path / "h.jsonl", lines)))
    assert (found.kind, found.offset, found.other) == ("acked_duplicated", END, f"{tmp_path}/h.jsonl:11")
    attempt = {**{k: v for k, v in acked(10).items() if k != "offset"}, "error": "REQUEST_TIMED_OUT"}
    assert run(cluster, history(tmp_path / "h.jsonl", [*lines, attempt])).findings == ()


def test_one_offset_that_was_promised_twice(cluster: Cluster, tmp_path: Path) -> None:
    kinds = [f.kind for f in run(cluster, history(tmp_path / "h.jsonl", [acked(3), {**acked(4), "offset": 3}])).findings]
    assert "history_conflict" in kinds and "acked_reordered" in kinds


def test_what_retention_removed_is_not_lost(cluster: Cluster, tmp_path: Path) -> None:
    for broker in cluster.values():
        for path in broker.directory.glob(f"{0:020d}*"):
            path.unlink()
        (broker.directory / checkpoints.LEADER_EPOCH_CHECKPOINT).write_text("0\n2\n0 40\n2 60\n")
    report = run(cluster, history(tmp_path / "h.jsonl", [acked(offset) for offset in range(END)]))
    assert report.findings == ()
    assert (report.partitions[0].acked, report.partitions[0].expired) == (END, 40)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"topic": "t", "partition": 0}', "an acknowledged record needs"),
        ('{"partition": 0, "offset": 1}', "neither a record"),
        ('{"event": "explode", "node": 1, "time_ms": 1}', "allowed are kill"),
        ('{"topic": "t", "partition": 0, "offset": 1, "value_hash": "abc"}', "allowed is algorithm:hex"),
        ('{"topic": "t", "partition": 0, "offset": 1, "value_b64": "?"}', "value_b64"),
        ("[]", "h.jsonl:2"),
        ("{", "h.jsonl:2"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_number(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(f'{{"event": "kill", "node": 1, "time_ms": 1}}\n{line}\n')
    with pytest.raises(HistoryError, match=r"h\.jsonl:2") as error:
        list(read_history(str(path)))
    assert what in str(error.value)
    path.write_text('{"event": "kill", "node": 1, "time_ms": 1}\n{"event": "ki')  # its writer was killed
    assert list(read_history(str(path))) == [Injected("kill", 1, 1)]


# What it takes and gives.


def test_every_class_is_in_the_table(cluster: Cluster) -> None:
    package = Path(audit_findings.__file__).parent
    code = "".join(path.read_text() for path in [*package.glob("*.py"), package.parent / "spark/jobs/audit.py"])
    assert len(set(audit_findings.KINDS)) == len(audit_findings.KINDS) >= 29
    unused = [kind for kind in audit_findings.KINDS if f'"{kind}"' not in code]
    assert unused == []


def test_the_report_is_json(cluster: Cluster) -> None:
    flip(cluster["b2"].segments[1], 400)
    report = json.loads(json.dumps(run(cluster).as_json()))
    assert report["ok"] is False and report["counts"] == {"bad_crc": 1}
    assert report["findings"][0]["severity"] == "violation"
    assert report["totals"]["replicas"] == 3 and report["partitions"][0]["violations"] == 1


def test_what_cannot_be_audited_is_said(tmp_path: Path, cluster: Cluster) -> None:
    with pytest.raises(AuditInputError, match="there is no such directory"):
        audit({"b1": [tmp_path / "nowhere"]}, engine="local")
    with pytest.raises(AuditInputError, match="no broker has a replica of payments; there are orders"):
        run(cluster, topics=["payments"])
    with pytest.raises(HistoryError, match="there is no such file"):
        run(cluster, tmp_path / "none-*.jsonl")
    with pytest.raises(ValueError, match="allowed are spark, local"):
        audit({"b1": [tmp_path]}, engine="flink")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AuditInputError, match="there is no partition"):
        audit({"b1": [tmp_path / "empty"]}, engine="local")


def test_data_dirs_are_parsed() -> None:
    found = directories.parse_data_dirs(["b4=/x/4, b5=/x/5", "b4=/y/4"])
    assert found == {"b4": [Path("/x/4"), Path("/y/4")], "b5": [Path("/x/5")]}
    for wrong in ("b4", "=x", "b4=", ""):
        with pytest.raises(ValueError, match="allowed is NAME=DIR"):
            directories.parse_data_dirs([wrong])


def test_segments_are_bundled_for_tasks(cluster: Cluster) -> None:
    found = directories.discover({name: [broker.path] for name, broker in cluster.items()})
    listed = [segment for log_dir in found for replica in log_dir.replicas for segment in replica.segments]
    bundles = bundles_of(listed)
    assert sorted(s.log_path for bundle in bundles for s in bundle) == sorted(s.log_path for s in listed)
    assert len(bundles) == 1
    assert len(bundles_of([replace(segment, log_bytes=40 << 20) for segment in listed])) == len(listed)


# What the demonstration writes, and the command.


def test_what_the_demonstration_writes_is_a_history(cluster: Cluster, tmp_path: Path) -> None:
    ledger = Ledger()
    for offset in range(END):
        number = ledger.sent(f"k{offset}".encode(), f"value-{offset}{'.' * 40}".encode())
        ledger.acked(number, 0, offset, 1000 + offset)
    ledger.refused(ledger.sent(None, b"x"), "_MSG_TIMED_OUT", "Local: Message timed out", 5000)
    ledger.sent(None, b"never answered")
    times = Times(broker=4, broker_killed_ms=100, restarted_ms=200)
    path = history(tmp_path / "h.jsonl", [*times.history(), *ledger.history("orders")])
    lines = list(read_history(str(path)))
    assert lines[:2] == [Injected("kill", 4, 100), Injected("start", 4, 200)]
    assert [(line.error, line.time_ms) for line in lines[-2:]] == [("_MSG_TIMED_OUT", 5000), ("UNANSWERED", -1)]  # type: ignore[union-attr]
    assert run(cluster, path).findings == ()
    ledger.sums[7] ^= 1
    assert only(run(cluster, history(tmp_path / "h.jsonl", list(ledger.history("orders"))))).kind == "acked_changed"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(audit_command, ["--engine", "local", *map(str, arguments)])


def test_the_command_ends_with_what_it_found(cluster: Cluster, tmp_path: Path) -> None:
    dirs = ",".join(f"{name}={broker.path}" for name, broker in cluster.items())
    good = command("--data-dirs", dirs)
    assert good.exit_code == 0 and "orders-0" in good.stdout and "no violation" in good.stdout
    flip(cluster["b2"].segments[1], 400)
    bad = command("--data-dirs", dirs, "--report", tmp_path / "r" / "report.json")
    assert bad.exit_code == 1 and "bad_crc" in bad.stdout and f"{cluster['b2'].segments[1]} position 351 offset 45" in bad.stdout
    assert json.loads((tmp_path / "r" / "report.json").read_text())["counts"] == {"bad_crc": 1}
    assert json.loads(command("--data-dirs", dirs, "--json").stdout)["ok"] is False
    for arguments in (
        ("--data-dirs", f"b1={tmp_path}/nowhere"),
        ("--data-dirs", "b1"),
        ("--data-dir", tmp_path),
        ("--data-dirs", dirs, "--history", tmp_path / "none"),
        ("--data-dirs", dirs, "--data-dir", tmp_path),
    ):
        assert command(*arguments).exit_code == 2, arguments
