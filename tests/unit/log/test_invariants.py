"""Each invariant of a log: broken, and seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.log.context import LogContext
from kraftlite.log.log import Log
from tests.harness.log_support import append, end_txn, open_log

Break = Callable[[LogContext], object]


def log_with_everything() -> tuple[Log, LogContext]:
    """Offsets 0 to 5 in several segments; two epochs; an open transaction, an undecided one; flushed up to 6. And its state."""
    log = open_log(config=LogConfig(segment_bytes=200))
    append(log, "a", pid=1, seq=0)
    append(log, "b", pid=2, seq=0, txn=True)
    end_txn(log, 2, commit=True)
    append(log, "c", pid=3, seq=0, txn=True, epoch=2)
    append(log, "d", "e", epoch=2)
    log.flush_sync()
    log.update_hw(2)
    ctx = log._ctx
    ctx.check(producers=True)
    assert len(ctx.segments) > 1 and log.leo == 6
    return log, ctx


def put(name: str, value: object) -> Break:
    return lambda ctx: setattr(ctx, name, value)


BROKEN: dict[str, tuple[Break, str]] = {
    "the HW above the end": (put("hw", 7), r"not log start 0 <= HW 7 <= LEO 6"),
    "the HW below the start": (put("log_start_offset", 3), r"not log start 3 <= HW 2 <= LEO 6"),
    "a negative start": (put("log_start_offset", -1), r"not log start -1 <="),
    "the recovery point above the end": (put("recovery_point", 7), r"recovery point 7 outside \[0, LEO 6\]"),
    "compacted beyond the end": (put("clean_offset", 7), r"compacted up to 7, the log ends at 6"),
    "segments out of order": (lambda ctx: ctx.segments._segments.reverse(), r"segments \(.*\) do not ascend"),
    "a start before the first segment": (
        lambda ctx: ctx.segments.drop_first(),
        r"the first segment begins at \d+, the log at 0",
    ),
    "an active segment behind the end": (
        lambda ctx: setattr(ctx.segments.active, "base_offset", 9),
        r"the active segment begins at 9, the log ends at 6",
    ),
    "records in a directory that may be nobody's": (put("claimed", False), r"not durably its own"),
    "epochs out of order": (lambda ctx: ctx.epochs._starts.reverse(), r"epochs \(.*\) do not ascend"),
    "an epoch behind the end": (lambda ctx: ctx.epochs.assign(5, 7), r"epoch \(5, 7\) begins behind the log's end 6"),
    "an open transaction behind the end": (
        lambda ctx: ctx.producers._open.update({9: 6}),
        r"an open transaction began at 6, the log ends at 6",
    ),
    "a marker behind the end": (
        lambda ctx: ctx.producers._undecided.update({1: 8}),
        r"a transaction was ended at 8, the log ends at 6",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_log_is_seen(what: str) -> None:
    _log, ctx = log_with_everything()
    change, told = BROKEN[what]
    change(ctx)
    with pytest.raises(AssertionError, match=told):
        ctx.check(producers=False)


def test_a_producer_behind_the_end_is_seen_when_producers_are_looked_at() -> None:
    _log, ctx = log_with_everything()
    entry = dict(ctx.producers.items())[1]
    entry.batches[-1] = entry.batches[-1]._replace(last_offset=6)
    ctx.check(producers=False)
    with pytest.raises(AssertionError, match="producer 1 wrote offset 6, the log ends at 6"):
        ctx.check(producers=True)
