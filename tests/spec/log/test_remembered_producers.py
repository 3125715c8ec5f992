"""LG-19: what a log remembers of its producers, so that a truncation of its end does not read all of it again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError
from kraftlite.runtime.ports import File
from tests.harness.disk import MemDisk
from tests.harness.log_support import NOW, append, end_txn, open_log

DAY_MS = 86_400_000


def known(log: Log) -> Any:
    """All that a log says of its producers and their transactions."""
    return sorted(log.active_producers()), log.last_stable_offset, log.aborted_transactions(0, log.leo)


class _Reads(MemDisk):
    """Counts the bytes that are read of segments."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        if path.endswith(".log"):
            pread = file.pread

            def counted(length: int, offset: int) -> bytes:
                self.count += length
                return pread(length, offset)

            file.pread = counted  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("segment_bytes", [1 << 20, 4_000])
def test_lg_19_a_truncation_leaves_what_reading_the_whole_log_would(seed: int, segment_bytes: int) -> None:
    rng = random.Random(seed)
    config = LogConfig(segment_bytes=segment_bytes)
    logs = [open_log(MemDisk(), config, producer_batches=1), open_log(MemDisk(), config)]
    sequences: dict[tuple[int, int], int] = {}
    epochs = dict.fromkeys(range(4), 0)

    def both(act: Any) -> None:
        told = []
        for log in logs:
            try:
                told.append(repr(act(log)))
            except ApiError as error:
                told.append(str(error))
        assert told[0] == told[1]

    for _ in range(250):
        pid, deed = rng.randrange(4), rng.random()
        if deed < 0.75:
            epoch, txn = epochs[pid], pid >= 2
            seq = sequences.get((pid, epoch), 0)
            before = logs[0].leo
            both(lambda log, pid=pid, epoch=epoch, seq=seq, txn=txn: append(log, "v", pid=pid, pepoch=epoch, seq=seq, txn=txn))
            if logs[0].leo > before:
                sequences[pid, epoch] = seq + 1
        elif deed < 0.85 and pid >= 2:
            commit, bump = rng.random() < 0.5, rng.random() < 0.5
            epochs[pid] += bump
            epoch = epochs[pid]
            both(lambda log, pid=pid, epoch=epoch, commit=commit: end_txn(log, pid, pepoch=epoch, commit=commit))
        elif deed < 0.88:
            epochs[pid] += 1
        elif deed < 0.94:
            hw = rng.randint(logs[0].hw, logs[0].leo)
            both(lambda log, hw=hw: log.update_hw(hw))
        else:
            least = logs[0].hw if rng.random() < 0.9 else logs[0].log_start_offset
            to = rng.randint(max(least, logs[0].leo - 60), logs[0].leo)
            both(lambda log, to=to: log.truncate_to(to, allow_below_hw=True))
            for key in [*sequences]:
                sequences.pop(key)
            for it in logs[0].active_producers():
                epochs[it.producer_id] = max(it.producer_epoch, 0)
                sequences[it.producer_id, it.producer_epoch] = it.last_sequence + 1
        assert known(logs[0]) == known(logs[1])
    for log in logs:
        log.close()


def test_lg_19_a_truncation_of_the_end_reads_the_end() -> None:
    disk = _Reads()
    log = open_log(disk, producer_batches=50)
    for seq in range(2_000):
        append(log, "v" * 1_000, pid=seq % 5, seq=seq // 5)
    log.update_hw(1_990)
    disk.count = 0
    log.truncate_to(1_995)
    assert disk.count < log.size_bytes // 8
    assert [it.last_sequence for it in sorted(log.active_producers())] == [398] * 5
    resent = append(log, "v" * 1_000, pid=0, seq=395)
    assert resent.base_offset == 395 * 5 and log.leo == 1_995, "as if nothing had been cut"


def test_lg_19_a_log_that_was_opened_remembers_what_its_batches_told() -> None:
    disk = _Reads()
    log = open_log(disk)
    for seq in range(2_000):
        append(log, "v" * 1_000, pid=0, seq=seq)
    asyncio.run(log.flush())
    again = open_log(disk, recovery_point=log.leo, producer_batches=50)
    again.update_hw(1_990)
    disk.count = 0
    again.truncate_to(1_995)
    assert disk.count < again.size_bytes // 8 and again.active_producers()[0].last_sequence == 1_994


def test_lg_19_below_the_high_watermark_all_is_read_again() -> None:
    log = open_log(producer_batches=1)
    for seq in range(30):
        append(log, "v", pid=1, seq=seq, txn=True)
    end_txn(log, 1, commit=True)
    for seq in range(30, 60):
        append(log, "v", pid=1, seq=seq, txn=True)
    log.update_hw(10)
    log.truncate_to(40)
    assert log.last_stable_offset == 0
    log.update_hw(31)
    assert log.last_stable_offset == 31


def test_lg_19_producers_that_expired_meanwhile_may_have_batches_still() -> None:
    log = open_log(producer_batches=1)
    append(log, "a", pid=1, txn=True)
    for seq in range(40):
        append(log, "v", pid=2, seq=seq, ts=NOW + 2 * DAY_MS, wall_ms=NOW + 2 * DAY_MS)
    end_txn(log, 1, commit=True)
    assert log.remove_expired_producers(NOW + 2 * DAY_MS) == 1
    log.truncate_to(41)
    assert {it.producer_id: it.txn_start_offset for it in log.active_producers()} == {1: 0, 2: None}
