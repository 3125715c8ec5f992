"""The stranger of the simulator: what it sends is as wrong as it says, and what it must not get is noticed."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.log.config import LogConfig
from kraftlite.log.validation import AppendOrigin, check_leader_batch
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim import malformed
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.h_consumed import ConsumptionConsistent
from kraftlite.sim.checkers.h_strangers import StrangersRefused
from kraftlite.sim.history import Consumed, History, Strange
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.workloads import stranger

TP = TopicPartition("t", 0)
SEED = next(seed for seed in range(100) if stranger.comes_with(seed))


class Strict(StrangersRefused):
    """Nothing may have been lost."""

    def is_excused(self, tp: TopicPartition, topic_id: str | None = None) -> bool:
        return False


def checked(*, excused: bool = False, **facts: Any) -> None:
    history = History()
    history.strange.append(
        Strange(**{"client": "s", "tp": TP, "topic_id": None, "broker": NodeId(1), "invoked_us": 0, "error": "NONE", **facts})
    )
    kind = StrangersRefused if excused else Strict
    checker = kind.__new__(kind)
    checker.history = history
    checker.world = SimpleNamespace(  # type: ignore[assignment]
        cluster=SimpleNamespace(wall_offset_ms={}, shape=SimpleNamespace(config={})),
        losses=SimpleNamespace(excused={TP: "lost"} if excused else {}),
        notes={},
    )
    checker.at_end()


@pytest.mark.parametrize("kind", ["malformed batch: count-zero", "fetch at offset -1", "acks that are not there"])
def test_what_nobody_deserves_is_noticed(kind: str) -> None:
    with pytest.raises(Violation, match="succeeded"):
        checked(kind=kind)
    checked(kind=kind, error="INVALID_RECORD")


def test_what_is_sent_again_is_where_it_was() -> None:
    checked(kind="sent again, first at 7", offset=7)
    checked(kind="sent again, first at 7", offset=-1)
    checked(kind="sent again, first at 7", offset=9, excused=True)
    with pytest.raises(Violation, match="acknowledged at offset 9"):
        checked(kind="sent again, first at 7", offset=9)


class StrictReads(ConsumptionConsistent):
    """Nothing may have been lost."""

    def is_excused(self, tp: TopicPartition, topic_id: str | None = None) -> bool:
        return False


@pytest.mark.parametrize("where", ["read", "at the end"])
def test_the_record_of_a_zombie_is_nobodys_unless_its_producer_may_be_forgotten(where: str) -> None:
    def checked_read(expiration_ms: str, *, sent_us: int, value: str = stranger.ZOMBIE_VALUE) -> None:
        history = History()
        history.strange.append(
            Strange(client="s", kind=stranger.ZOMBIE, tp=TP, topic_id=None, broker=NodeId(1), invoked_us=sent_us, error="NONE")
        )
        if where == "read":
            read = Consumed(client="r", tp=TP, topic_id=None, broker=NodeId(1), at_us=5_000, hw=1, records=((0, value),))
            history.consumed.append(read)
        else:
            history.final_logs[TP] = ((0, value),)
        checker = StrictReads.__new__(StrictReads)
        checker.history = history
        checker.world = SimpleNamespace(  # type: ignore[assignment]
            cluster=SimpleNamespace(
                wall_offset_ms={}, shape=SimpleNamespace(config={"producer.id.expiration.ms": expiration_ms})
            ),
            notes={},
        )
        checker.at_end()

    checked_read("700", sent_us=4_000)
    for expiration_ms, value in (("86400000", stranger.ZOMBIE_VALUE), ("700", "ghost/1")):
        with pytest.raises(Violation, match=r"nobody ha[ds] produced"):
            checked_read(expiration_ms, sent_us=4_000, value=value)
    if where == "read":
        with pytest.raises(Violation, match="nobody had produced"):
            checked_read("700", sent_us=6_000)


@pytest.mark.parametrize("name", malformed.BY_ITS_HEADER)
def test_a_header_alone_shows_it(name: str) -> None:
    sound = bytes(build_batch([Record(key=None, value=b"v")] * malformed.RECORDS, timestamp_ms=1))
    check_leader_batch(sound, LogConfig(), AppendOrigin.CLIENT)
    with pytest.raises(ApiError):
        check_leader_batch(malformed.BY_ITS_HEADER[name](sound), LogConfig(), AppendOrigin.CLIENT)


@pytest.mark.parametrize("name", malformed.BY_ITS_RECORDS)
def test_what_only_the_records_show_has_a_fitting_header(name: str) -> None:
    """Otherwise it would be refused for something else."""
    sound = bytes(build_batch([Record(key=None, value=b"v")] * malformed.RECORDS, timestamp_ms=1))
    check_leader_batch(malformed.BY_ITS_RECORDS[name](sound), LogConfig(), AppendOrigin.REPLICATION)


def test_a_third_of_the_seeds_has_one_and_does_everything() -> None:
    assert 20 < sum(stranger.comes_with(seed) for seed in range(100)) < 46
    result = run(RunPlan(seed=SEED, duration_ms=10_000))
    assert result.outcome is Outcome.OK, result.story
    kinds = {it.kind.partition(":")[0].partition(",")[0].partition(" at ")[0] for it in result.history.strange}
    assert {"malformed batch", "fetch", "acks that are not there", "partition that is not there"} <= kinds
    assert all(it.error is not None for it in result.history.strange)


def test_the_same_seed_draws_the_same() -> None:
    assert malformed.malformed(random.Random(3), b"v", 1) == malformed.malformed(random.Random(3), b"v", 1)
