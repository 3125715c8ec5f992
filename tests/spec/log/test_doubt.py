"""LG-26 to LG-28: a recovery point or a clean shutdown vouches only for what the files do not contradict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftlite.host.disk import HostDisk
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.model.limits import MIB
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.log import LogDoubted
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, append, end_txn, everything, open_log, values

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def filled(disk: MemDisk, count: int = 20, config: LogConfig = SMALL) -> Log:
    log = open_log(disk, config)
    for number in range(count):
        append(log, "x" * 60, f"v{number}", pid=1, seq=2 * number)
    log.close()
    return log


def path_of(base: int, suffix: str = "log") -> str:
    return f"{DIR}/{base:020d}.{suffix}"


def cut(disk: MemDisk, path: str, drop: int) -> None:
    disk.write_file_atomically(path, disk.read_file(path)[:-drop])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["tail torn", "tail garbage", "last gone", "middle gone", "middle short", "txnindex"])
def test_lg_27_what_was_flushed_and_is_not_there_is_found_without_a_scan(clean: bool, damage: str) -> None:
    disk = MemDisk()
    log = filled(disk)
    bases = log.segment_base_offsets
    good, batch_bytes = everything(log), len(disk.read_file(path_of(0))) // (bases[1] // 2)
    last, middle = path_of(bases[-1]), path_of(bases[2])
    match damage:
        case "tail torn":
            cut(disk, last, 7)
        case "tail garbage":
            disk.write_file_atomically(last, disk.read_file(last) + b"\x07" * 90)
        case "last gone":
            disk.unlink(last)
        case "middle gone":
            disk.unlink(middle)
        case "middle short":
            cut(disk, middle, batch_bytes)
        case "txnindex":
            disk.write_file_atomically(path_of(bases[2], "txnindex"), b"x" * 34)
    tracer = ListTracer()
    again = open_log(disk, SMALL, clean=clean, recovery_point=log.leo, tracer=tracer)
    assert good.startswith(everything(again)), "what is left is a prefix: no hole, no junk"
    assert again.recovery_point <= again.leo
    assert [event for event in tracer.events if isinstance(event, LogDoubted)] or damage in (
        "tail torn",
        "tail garbage",
        *(["last gone"] if not clean else []),  # then the segment before it is checked anyway
    )
    expected = {"middle gone": bases[2], "middle short": bases[3] - 2, "last gone": bases[-1], "tail torn": log.leo - 2}
    assert again.leo == expected.get(damage, log.leo)
    append(again, "next", pid=1, seq=again.leo)
    assert values(again)[-1] == (again.leo - 1, b"next")


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "without indexes"])
def test_lg_27_a_segment_whose_batches_are_there_twice_is_cut_behind_the_first(which: int, policy: str, indexed: bool) -> None:
    """A copy that was resumed appends what was there: the offsets at the end are right, and those before begin again. An index
    that is made anew of them has its last entry in the second half, behind which nothing begins again."""
    disk, tracer = MemDisk(), ListTracer()
    config = LogConfig(segment_bytes=600, index_interval_bytes=100, cleanup_policy=(policy,))
    log = filled(disk, config=config)
    path, good = path_of(log.segment_base_offsets[which]), everything(log)
    disk.write_file_atomically(path, disk.read_file(path) * 2)
    for kind in () if indexed else ("index", "timeindex"):
        disk.unlink(path.replace(".log", f".{kind}"))
    again = open_log(disk, config, clean=True, recovery_point=log.leo, tracer=tracer)
    assert [event for event in tracer.events if isinstance(event, LogDoubted)]
    assert good.startswith(everything(again))
    assert again.leo == log.leo if which == -1 else again.leo == log.segment_base_offsets[which + 1]


@pytest.mark.parametrize("clean", [True, False])
def test_lg_28_indexes_that_are_all_gone_are_made_again_with_the_aborted_transactions(clean: bool) -> None:
    """Kafka recovers a segment that has no offset index: its transaction index, too."""
    disk = MemDisk()
    log = open_log(disk, SMALL)
    for number in range(24):
        append(log, "x" * 60, f"v{number}", pid=number % 2, seq=number - number % 2, txn=True)
        if number % 6 > 3:
            end_txn(log, number % 2, commit=number > 12 and number % 2 == 0)
    log.close()
    assert len(log.segment_base_offsets) > 3
    for name in disk.listdir(DIR):
        if name.endswith("index"):
            disk.unlink(f"{DIR}/{name}")
    again = open_log(disk, SMALL, clean=clean, recovery_point=log.leo)
    assert [list(segment.txn_index) for segment in again.segments] == [list(segment.txn_index) for segment in log.segments]
    assert sum(len(segment.txn_index) for segment in again.segments) > 3


def test_lg_27_nothing_is_doubted_that_is_as_it_was_closed() -> None:
    for config in (SMALL, LogConfig()):
        disk, tracer = MemDisk(), ListTracer()
        log = filled(disk, config=config)
        again = open_log(disk, config, clean=True, recovery_point=log.leo, tracer=tracer)
        assert everything(again) == everything(log)
        assert not [event for event in tracer.events if isinstance(event, LogDoubted)]


def test_lg_27_holes_in_a_compacted_log_are_no_damage() -> None:
    disk, config = MemDisk(), LogConfig(segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",))
    log = filled(disk, config=config)
    cut(disk, path_of(0), len(disk.read_file(path_of(0))) // (log.segment_base_offsets[1] // 2))
    again = open_log(disk, config, clean=True, recovery_point=log.leo)
    assert again.leo == log.leo


@pytest.mark.parametrize("entry", [0, 3, -1])
@pytest.mark.parametrize("half", [3, 7])
def test_lg_28_an_index_entry_that_no_batch_confirms_rebuilds_the_index(entry: int, half: int) -> None:
    """One bit, such that the entries still increase: byte 3 is of the offset, byte 7 of the position."""
    disk, config = MemDisk(), LogConfig(segment_bytes=1 << 20, index_interval_bytes=300)
    log = filled(disk, 40, config)
    path = path_of(0, "index")
    good = disk.read_file(path)
    damaged = bytearray(good)
    damaged[(len(good) // 8 + entry) % (len(good) // 8) * 8 + half] ^= 1
    disk.write_file_atomically(path, bytes(damaged))
    again = open_log(disk, config, clean=True, recovery_point=log.leo)
    for offset in range(log.leo):
        assert again.read(offset, 1, up_to=log.leo) == log.read(offset, 1, up_to=log.leo)
    for timestamp in (0, 1 << 60):
        assert again.offset_for_timestamp(timestamp, up_to=log.leo) == log.offset_for_timestamp(timestamp, up_to=log.leo)
    again.close()
    assert disk.read_file(path) == good


class Bounded(HostDisk):
    """A disk of which no file of half a GiB and more is read whole."""

    def read_file(self, path: str) -> bytes:
        stat = self.stat(path)
        assert stat is not None and stat.size < 512 * MIB, path
        return super().read_file(path)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")], ids=["log", "log and indexes"])
def test_lg_27_a_hole_of_a_terabyte_is_cut_off_and_not_read(tmp_path: Path, clean: bool, suffixes: tuple[str, ...]) -> None:
    """Such a file has no blocks for it, so that any disk may have it; read, it would fill the memory."""
    log = open_log(HostDisk(), SMALL, directory=f"{tmp_path}/t-0")
    for _ in range(30):
        append(log, "x" * 50, "y")
    (log.close if clean else log.close_files)()
    last = max(path.stem for path in (tmp_path / "t-0").glob("*.log"))
    for suffix in suffixes:
        path = tmp_path / "t-0" / f"{last}{suffix}"
        path.touch()
        os.truncate(path, 1 << 40)
    log = open_log(Bounded(), SMALL, directory=f"{tmp_path}/t-0", recovery_point=60 if clean else 0, clean=clean)
    assert (log.log_start_offset, log.leo) == (0, 60)
    append(log, "z")
    assert values(log)[-1] == (60, b"z")
    log.close()
    assert sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log")) < MIB
