"""Compaction under power cuts, and against a model: the newest record per key, and everything that was not compacted yet."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftlite.log.batch import Record, build_batch, iter_batches
from kraftlite.log.cleaner import Cleaning, look
from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.log.retention import apply_retention
from tests.harness.cleaning import clean, keyed, read_committed
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, end_txn, everything, open_log

CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=700, index_interval_bytes=100, delete_retention_ms=0)


def put(
    log: Log, rows: list[tuple[bytes, bytes | None]], *, pid: int = -1, seq: int = -1, txn: bool = False, codec: int = 0
) -> None:
    made = build_batch(
        [Record(key, value) for key, value in rows],
        timestamp_ms=NOW,
        codec=codec,
        producer_id=pid,
        producer_epoch=0 if pid >= 0 else -1,
        base_sequence=seq,
        transactional=txn,
    )
    log.append_as_leader(bytearray(made), leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)


def build(disk: MemDisk) -> Log:
    """Several groups of segments, transactions among them; everything flushed."""
    log = open_log(disk, CONFIG)
    for number in range(40):
        put(log, [(b"k%d" % (number % 5), b"value-%d" % number)], codec=number % 2)
        if number % 10 == 3:
            put(log, [(b"t", b"x" * 40)], pid=7, seq=number // 10, txn=True)
            end_txn(log, 7, commit=number % 20 == 3)
    log.roll()
    put(log, [(b"k0", b"active")])
    log.update_hw(log.leo)
    log.flush_sync()
    return log


def by_group(log: Log, groups: list[tuple[int, int]]) -> list[list[bytes]]:
    """The batches of each offset range."""
    found: list[list[bytes]] = [[] for _ in groups]
    for header, view in iter_batches(everything(log)):
        found[next(at for at, (start, end) in enumerate(groups) if start <= header.base_offset < end)].append(bytes(view))
    return found


def ranges(log: Log) -> list[tuple[int, int]]:
    cleaning = Cleaning(look(log, NOW), MemDisk(), map_bytes=1 << 20, wall_ms=NOW)
    cleaning.offsets.latest = look(log, NOW).up_to - 1
    found = [(group[0].base_offset, group[-1].end_offset) for group in cleaning.groups()]
    return [*found, (found[-1][1], 1 << 60)]


def reference() -> tuple[list[tuple[int, int]], list[list[bytes]], list[list[bytes]], int]:
    """The groups, their content before and after a cleaning, and how many operations on the disk it takes."""
    disk = MemDisk()
    log = build(disk)
    groups = ranges(log)
    before = by_group(log, groups)
    counter = disk.inject("", path=DIR, times=None, after=1 << 40)
    clean(log, disk)
    return groups, before, by_group(log, groups), (1 << 40) - counter.after


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_lg_46_after_a_power_cut_at_any_step_each_group_is_old_or_new(seed: int | None) -> None:
    groups, before, after, steps = reference()
    assert steps > 100 and len(groups) > 3
    seen = set()
    aborted = build(MemDisk()).aborted_transactions(0, 1 << 60)
    assert len(aborted) == 2
    for step in range(steps + 1):
        disk = MemDisk()
        log = build(disk)
        checkpoint = log.recovery_point
        disk.inject("", path=DIR, times=None, after=step)
        try:
            clean(log, disk)
        except OSError:
            assert step < steps
        disk.heal()
        disk.crash(None if seed is None else random.Random(seed * 10_000 + step))
        again = open_log(disk, CONFIG, recovery_point=checkpoint)
        found = by_group(again, groups)
        done = sum(content == new != old for content, new, old in zip(found, after, before, strict=True))
        assert found == [*after[:done], *before[done:]], f"step {step}: groups are swapped in order, each whole"
        assert not [name for name in disk.listdir(DIR) if name.endswith((".swap", ".cleaned", ".deleted"))]
        assert again.leo == log.leo and again.aborted_transactions(0, again.leo) == aborted
        put(again, [(b"k1", b"on it goes")])
        again.update_hw(again.leo)
        clean(again, disk)
        assert len({key for _, key, _ in keyed(again)}) == 6
        seen.add(done)
    changed = sum(new != old for new, old in zip(after, before, strict=True))
    assert seen == set(range(changed + 1)), "crashes met every state"


@dataclass
class World:
    """A compacted log and what a consumer must be able to learn from it."""

    rng: random.Random
    disk: MemDisk = field(default_factory=MemDisk)
    sequences: dict[int, int] = field(default_factory=dict)
    open_txn: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    model: dict[bytes, bytes | None] = field(default_factory=dict)
    checkpoint: int = 0
    passes: int = 0

    def __post_init__(self) -> None:
        self.log = open_log(self.disk, CONFIG)

    def row(self) -> tuple[bytes, bytes | None]:
        value = None if self.rng.random() < 0.2 else b"v%d" % self.rng.randrange(1 << 30)
        return b"key-%02d" % self.rng.randrange(12) * self.rng.choice([1, 1, 1, 5]), value

    def append(self) -> None:
        rows = [self.row() for _ in range(self.rng.randint(1, 4))]
        pid = self.rng.choice([-1, -1, 1, 2])
        seq = self.sequences.get(pid, 0) if pid >= 0 else -1
        put(self.log, rows, pid=pid, seq=seq, codec=self.rng.choice([0, 0, 4]))
        self.sequences[pid] = seq + len(rows)
        self.model.update(rows)

    def append_transactional(self) -> None:
        rows = [self.row() for _ in range(self.rng.randint(1, 3))]
        seq = self.sequences.get(9, 0)
        put(self.log, rows, pid=9, seq=seq, txn=True)
        self.sequences[9] = seq + len(rows)
        self.open_txn += rows

    def end(self) -> None:
        if not self.open_txn:
            return
        commit = self.rng.random() < 0.5
        end_txn(self.log, 9, commit=commit)
        rows, self.open_txn = self.open_txn, []
        if commit:
            # Offsets decide: what was written while the transaction was open and comes later wins.
            self.model = {}
            self.log.update_hw(self.log.leo)
            self.model = {key: value for _, key, value in read_committed(self.log)} | {
                key: value for key, value in self.model.items() if key not in dict(rows)
            }

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush_sync()
        self.checkpoint = self.log.recovery_point

    def clean(self) -> None:
        self.log.update_hw(self.log.leo)
        before, committed = keyed(self.log), read_committed(self.log)
        todo = look(self.log, NOW)
        if not todo.dirty_bytes:
            return
        clean(self.log, self.disk, wall_ms=NOW + self.passes)
        self.passes += 1
        self.checkpoint = self.log.recovery_point
        end = self.log.clean_offset
        assert end == todo.up_to
        after = keyed(self.log)
        assert [row for row in after if row[0] >= end] == [row for row in before if row[0] >= end], "not touched"
        assert set(after) <= set(before), "what is left is as it was"
        newest = {key: offset for offset, key, _ in committed if offset < end}
        for offset, key, value in committed:
            if offset < end and newest[key] == offset and value is not None:
                assert (offset, key, value) in after, "the newest value of each key is left"
        below = [row for row in read_committed(self.log) if row[0] < end]
        assert len(below) == len({key for _, key, _ in below}), "and nothing but that"
        assert latest(read_committed(self.log)) == latest(committed), "a consumer ends where it would have ended"

    def retain(self) -> None:
        self.log.update_hw(self.log.leo)
        apply_retention(self.log, NOW)

    def restart(self) -> None:
        self.log.update_hw(self.log.leo)
        before, progress, producers = read_committed(self.log), self.log.clean_offset, self.producers()
        everything_before, lso = everything(self.log), self.log.last_stable_offset
        if self.rng.random() < 0.5:
            self.log.close()
            self.log = open_log(self.disk, CONFIG, clean=True, recovery_point=self.log.leo)
        else:
            self.flush()
            self.disk.crash(self.rng)
            self.log = open_log(self.disk, CONFIG, recovery_point=self.checkpoint)
        self.log.clean_offset = progress
        self.log.update_hw(self.log.leo)
        assert everything(self.log) == everything_before
        assert read_committed(self.log) == before and self.log.last_stable_offset == lso
        assert self.producers() == producers, "no pass took a producer's last word"

    def producers(self) -> dict[int, tuple[int, int | None]]:
        return {p.producer_id: (p.last_sequence, p.txn_start_offset) for p in self.log.active_producers()}


def latest(rows: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    found = {key: value for _, key, value in rows}
    return {key: value for key, value in found.items() if value is not None}


@settings(max_examples=80)
@example(seed=1, length=120)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120))
def test_random_histories_with_compaction(seed: int, length: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    steps = [world.append] * 8 + [world.append_transactional] * 3 + [world.end] * 3
    steps += [world.roll, world.flush, world.clean, world.clean, world.retain, world.restart]
    for _ in range(length):
        rng.choice(steps)()
    world.end()
    world.roll()
    world.clean()
