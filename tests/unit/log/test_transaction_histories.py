"""TP-25, TP-30, TP-34, TP-38, TP-39: random transactions, markers, cuts, restarts and power cuts on a leader and a follower: what
the log says of transactions equals what its batches say, read one after the other by rules of this test's own."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.config import LogConfig
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.log.log import Log
from tests.harness.disk import MemDisk
from tests.harness.log_support import append, end_txn, open_log

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)
PRODUCERS = (1, 2, 3, 4)
ABORT_KEY = bytes(4)


class Ended(NamedTuple):
    """A transaction and its marker."""

    producer_id: int
    first: int
    marker: int
    aborted: bool
    stable: int


class Story(NamedTuple):
    """The transactions that a sequence of batches tells."""

    opened: dict[int, int]
    ended: list[Ended]
    epochs: dict[int, tuple[int, int]]
    """Producer id -> epoch, coordinator epoch."""

    def stable(self, hw: int, log_start: int) -> int:
        holding = [first for first in self.opened.values() if first < hw]
        holding += [it.first for it in self.ended if it.marker >= hw and it.first < hw]
        return max(log_start, min(holding, default=hw))


def read(batches: list[bytes]) -> Story:
    """Read the batches in order."""
    opened: dict[int, int] = {}
    ended: list[Ended] = []
    epochs: dict[int, tuple[int, int]] = {}
    for data in batches:
        for header, view in iter_batches(data):
            pid = header.producer_id
            if pid < 0:
                continue
            _, coordinator = epochs.get(pid, (-1, -1))
            if header.is_control:
                record = next(iter_records(view))
                assert record.key is not None and record.value is not None
                coordinator = max(coordinator, int.from_bytes(record.value[2:6], "big", signed=True))
                first = opened.pop(pid, None)
                if first is not None:
                    stable = min(opened.values(), default=header.base_offset + 1)
                    ended.append(Ended(pid, first, header.base_offset, record.key == ABORT_KEY, stable))
            elif header.is_transactional:
                opened.setdefault(pid, header.base_offset)
            epochs[pid] = header.producer_epoch, coordinator
    return Story(opened, ended, epochs)


@dataclass
class Replica:
    """One log and its disk; a power cut keeps what was flushed."""

    disk: MemDisk = field(default_factory=MemDisk)
    checkpoint: int = 0

    def __post_init__(self) -> None:
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> Log:
        log = open_log(self.disk, CONFIG, recovery_point=self.checkpoint, clean=clean)
        log.on_recovery_point_lowered = self.lowered
        return log

    def lowered(self, log: Log) -> None:
        self.checkpoint = log.recovery_point

    def flush(self) -> None:
        self.checkpoint = self.log.flush_sync()

    def restart(self, hw: int, *, clean: bool) -> None:
        """Stop and start; the HW begins again from a checkpoint that may be old."""
        if clean:
            self.log.close()
            self.checkpoint = self.log.recovery_point
        self.log = self.open(clean=clean)
        self.log.update_hw(hw)


@dataclass
class World:
    """A leader whose every batch is in `batches`, and a follower that has a prefix of them."""

    rng: random.Random
    batches: list[bytes] = field(default_factory=list)
    leader: Replica = field(default_factory=Replica)
    follower: Replica = field(default_factory=Replica)
    coordinator: int = 0

    # steps

    def write(self, *, txn: bool) -> None:
        pid = self.rng.choice(PRODUCERS)
        known = {it.producer_id: it for it in self.leader.log.active_producers()}.get(pid)
        epoch = 0 if known is None else known.producer_epoch
        sequence = 0 if known is None else (known.last_sequence + 1) & 0x7FFFFFFF
        if known is not None and self.rng.random() < 0.2:
            epoch, sequence = epoch + 1, 0
        if known is not None and known.txn_start_offset is not None:
            txn = True
        values = ["v" * self.rng.randrange(60)] * self.rng.randint(1, 3)
        append(self.leader.log, *values, pid=pid, pepoch=epoch, seq=sequence, txn=txn)
        self.took()

    def transactional(self) -> None:
        self.write(txn=True)

    def idempotent(self) -> None:
        self.write(txn=False)

    def plain(self) -> None:
        append(self.leader.log, "p" * self.rng.randrange(100))
        self.took()

    def mark(self) -> None:
        pid = self.rng.choice(PRODUCERS)
        known = {it.producer_id: it for it in self.leader.log.active_producers()}.get(pid)
        epoch = 0 if known is None else known.producer_epoch
        version = self.rng.choice((0, 2))
        self.coordinator += self.rng.random() < 0.1
        end_txn(
            self.leader.log,
            pid,
            commit=self.rng.random() < 0.5,
            pepoch=epoch + (version == 2),
            version=version,
            coordinator_epoch=self.coordinator,
        )
        self.took()

    def took(self) -> None:
        log = self.leader.log
        offset = 0 if not self.batches else next_offset(self.batches[-1])
        self.batches.append(log.read(offset, 1 << 20, up_to=log.leo))

    def fetch(self) -> None:
        """The follower takes some batches, and the HW of then."""
        behind = [it for it in self.batches if next_offset(it) > self.follower.log.leo]
        taken = behind[: self.rng.randint(0, 6)]
        if taken:
            self.follower.log.append_as_follower(b"".join(taken))
        self.leader.log.update_hw(self.follower.log.leo)
        if self.rng.random() < 0.7:
            self.follower.log.update_hw(min(self.leader.log.hw, self.follower.log.leo))

    def cut(self) -> None:
        """The follower leads from here on: what the leader has more is cut off."""
        replica = self.rng.choice((self.leader, self.follower))
        log = replica.log
        offset = self.rng.randint(max(0, log.leo - 8), log.leo)
        log.truncate_to(offset, allow_below_hw=True)
        self.settle()

    def restart(self) -> None:
        replica = self.rng.choice((self.leader, self.follower))
        if self.rng.random() < 0.3:
            replica.flush()
        hw = self.rng.randint(max(0, replica.log.hw - 6), replica.log.hw)
        replica.restart(hw, clean=self.rng.random() < 0.5)

    def power_cut(self) -> None:
        replica = self.rng.choice((self.leader, self.follower))
        if self.rng.random() < 0.7:
            replica.flush()
        hw = self.rng.randint(max(0, replica.log.hw - 6), replica.log.hw)
        replica.disk.crash(self.rng)
        replica.restart(hw, clean=False)
        self.settle()

    def settle(self) -> None:
        """Forget the batches that the leader has lost, here and at the follower."""
        leo = self.leader.log.leo
        self.batches = [it for it in self.batches if next_offset(it) <= leo]
        self.follower.log.truncate_to(leo, allow_below_hw=True)

    def hw_back(self) -> None:
        """A new leader may know an older HW."""
        log = self.follower.log
        log.update_hw(self.rng.randint(max(0, log.hw - 6), log.hw))

    def roll(self) -> None:
        self.leader.log.roll()

    def advance_start(self) -> None:
        log = self.rng.choice((self.leader, self.follower)).log
        if log.hw > log.log_start_offset and self.rng.random() < 0.3:
            log.increment_log_start(self.rng.randint(log.log_start_offset, log.hw), "request")

    # checks

    def check(self) -> None:
        for replica in (self.leader, self.follower):
            log = replica.log
            log.check(producers=True)
            story = read([it for it in self.batches if next_offset(it) <= log.leo])
            assert log.last_stable_offset == story.stable(log.hw, log.log_start_offset)
            found = {it.producer_id: it for it in log.active_producers()}
            assert {pid: it.txn_start_offset for pid, it in found.items() if it.txn_start_offset is not None} == story.opened
            assert {pid: (it.producer_epoch, it.coordinator_epoch) for pid, it in found.items()} == story.epochs
            aborted = [it for it in story.ended if it.aborted]
            index = [entry for segment in log.segments for entry in segment.txn_index]
            assert index == [AbortedTransaction(it.producer_id, it.first, it.marker, it.stable) for it in aborted]
            start = self.rng.randint(0, log.leo)
            end = self.rng.randint(start, log.leo)
            wanted = tuple((it.producer_id, it.first) for it in aborted if it.marker >= start and it.first < end)
            assert log.aborted_transactions(start, end) == wanted


def next_offset(batch: bytes) -> int:
    return next(header.next_offset for header, _ in iter_batches(batch))


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 80))
def test_tp_25_tp_30_tp_38_transactions_are_what_the_batches_say(seed: int, length: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    steps = [world.transactional] * 6 + [world.idempotent, world.plain] + [world.mark] * 5 + [world.fetch] * 5
    steps += [world.cut, world.restart, world.power_cut, world.hw_back, world.roll, world.advance_start]
    for _ in range(length):
        log = world.leader.log
        hw, stable, leo = log.hw, log.last_stable_offset, log.leo
        rng.choice(steps)()
        if log is world.leader.log and log.hw >= hw and log.leo >= leo:
            assert log.last_stable_offset >= stable, "it never goes back in one leadership"
        world.check()
