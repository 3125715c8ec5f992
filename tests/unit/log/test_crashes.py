"""Random appends, truncations, flushes, restarts and power cuts against a model: a list of batches."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftlite.log.batch import iter_batches, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.log.producers import ProducerState
from tests.harness.disk import MemDisk
from tests.harness.log_support import append, end_txn, everything, open_log

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)


@dataclass
class World:
    """The log under test and what may be in it. `versions`: every content since everything was last durable."""

    disk: MemDisk = field(default_factory=MemDisk)
    epoch: int = 0
    checkpoint: int = 0
    start_checkpoint: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    batches: list[bytes] = field(default_factory=list)
    versions: list[list[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> Log:
        log = open_log(
            self.disk,
            CONFIG,
            recovery_point=self.checkpoint,
            log_start_offset=self.start_checkpoint,
            clean=clean,
            max_epoch=self.epoch,
        )
        log.on_recovery_point_lowered = self.write_checkpoint
        return log

    def write_checkpoint(self, log: Log) -> None:
        self.checkpoint = log.recovery_point

    def stored(self) -> list[bytes]:
        return [bytes(view) for _, view in iter_batches(everything(self.log))]

    def check(self) -> None:
        live = [batch for batch in self.batches if parse_header(batch).next_offset > self.log.log_start_offset]
        assert self.stored() == live
        expected = parse_header(self.batches[-1]).next_offset if self.batches else self.log.leo
        assert self.log.leo == expected
        self.log.check(producers=True)
        for header in map(parse_header, live):
            assert self.log.epoch_at(header.last_offset) == header.partition_leader_epoch

    def append(self, rng: random.Random) -> None:
        producer = rng.choice([-1, 1, 2])
        values = ["x" * rng.randrange(100) for _ in range(rng.randint(1, 3))]
        if producer > 0:
            sequence = self.sequences.get(producer, 0)
            append(self.log, *values, epoch=self.epoch, pid=producer, seq=sequence, txn=producer == 2)
            self.sequences[producer] = sequence + len(values)
        else:
            append(self.log, *values, epoch=self.epoch)
        self.note()

    def marker(self, rng: random.Random) -> None:
        end_txn(self.log, 2, commit=rng.random() < 0.5, epoch=self.epoch)
        self.note()

    def note(self) -> None:
        last = self.log.leo - 1
        self.batches.append(self.log.read(last, 1, up_to=self.log.leo))
        self.versions.append(list(self.batches))

    def truncate(self, rng: random.Random) -> None:
        if self.log.leo <= self.log.log_start_offset:
            return
        offset = rng.randint(self.log.log_start_offset, self.log.leo)
        self.log.truncate_to(offset, allow_below_hw=True)
        self.batches = [batch for batch in self.batches if parse_header(batch).next_offset <= offset]
        self.versions.append(list(self.batches))
        self.new_leader()

    def new_leader(self) -> None:
        self.epoch += 1
        self.sequences = {p.producer_id: p.last_sequence + 1 for p in self.log.active_producers()}

    def flush(self, rng: random.Random) -> None:
        self.log.flush_sync()
        self.checkpoint = self.log.recovery_point

    def drop_start(self, rng: random.Random) -> None:
        self.log.update_hw(self.log.leo)
        self.log.delete_segments_before(rng.randint(0, self.log.leo))
        self.log.deleted.purge(0, force=rng.random() < 0.5)
        # The owner checkpoints the log start before the data goes for good.
        self.start_checkpoint = self.log.log_start_offset

    def restart(self, rng: random.Random) -> None:
        self.log.close()
        self.checkpoint = self.log.recovery_point
        clean = rng.random() < 0.7
        self.log = self.open(clean=clean)
        self.check_producers()
        self.versions = [list(self.batches)]
        self.new_leader()

    def crash(self, rng: random.Random) -> None:
        durable = self.checkpoint
        self.disk.crash(rng if rng.random() < 0.8 else None)
        self.log = self.open(clean=False)
        found = self.stored()
        start = self.log.log_start_offset
        for version in reversed([[], *self.versions, list(self.batches)]):
            live = [batch for batch in version if parse_header(batch).next_offset > start]
            if live[: len(found)] == found:
                self.batches = live[: len(found)]
                break
        else:
            raise AssertionError("what was recovered never was in the log")
        assert self.log.leo >= durable, "flushed data was lost"
        self.check_producers()
        self.versions.append(list(self.batches))
        self.new_leader()

    def check_producers(self) -> None:
        """Producer state equals a replay of what is stored."""
        replayed = ProducerState()
        for header, view in iter_batches(everything(self.log)):
            if header.producer_id >= 0 and not header.is_control:
                replayed.append_batch(header, header.base_offset, header.max_timestamp)
            del view
        found = {p.producer_id: p.last_sequence for p in self.log.active_producers()}
        for producer_id, entry in replayed.items():
            assert found[producer_id] == entry.last_sequence


@pytest.mark.parametrize("crashes", [False, True])
@settings(max_examples=120)
@example(seed=645, length=60)  # a torn epoch file that parsed
@example(seed=1495, length=60)  # a cut that was undone beneath a newer segment
@example(seed=2_147_483_645, length=20)  # indexes of a segment that was active at the last flush
@example(seed=255, length=14)  # epochs collected from segments that were not checked yet
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_random_histories(crashes: bool, seed: int, length: int) -> None:
    rng, world = random.Random(seed), World()
    steps = [world.append] * 8 + [world.marker, world.truncate, world.flush, world.flush, world.drop_start, world.restart]
    steps += [world.crash, world.crash] if crashes else []
    for _ in range(length):
        rng.choice(steps)(rng)
        world.check()
