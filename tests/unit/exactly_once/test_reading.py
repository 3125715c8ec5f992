"""What is read from the state topic: outcomes by markers and control batches, decisions in order, and nothing that others wrote.

Source: SX-01, SX-03.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.exactly_once.protocol_core import Fate
from kraftlite.exactly_once.reading import DecisionReader, StateLost, as_record, fate_of
from kraftlite.exactly_once.records import Decision, Entry, Marker
from kraftlite.log.batch import Record, build_batch, empty_batch, parse_header
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.record_requests import EARLIEST, Fetched, OffsetAt

ENTRY = Entry(
    task=1,
    transactional_id="p-q/1",
    producer_id=7,
    epoch=3,
    rows=2,
    fingerprint="0" * 32,
    marker_partition=1,
    marker_offset=5,
)
MARKER = Marker(query="q", task=1, batch=4, run="r", rows=2, fingerprint="0" * 32)


class Log:
    """A client to whom one partition has these batches."""

    def __init__(self, *batches: bytes, start: int = 0, end: int | None = None) -> None:
        self.batches, self.start = batches, start
        self.end = end if end is not None else max((parse_header(it).next_offset for it in batches), default=start)
        self.settings = SimpleNamespace(retry_timeout_ms=0)
        self.fetches: list[int] = []

    def list_offsets(self, wanted: dict[TopicPartition, int], *, read_committed: bool) -> dict[TopicPartition, OffsetAt]:
        assert not read_committed, "who reads what is committed stops at the first transaction that is open"
        return {tp: OffsetAt(self.start if at == EARLIEST else self.end, -1, 0) for tp, at in wanted.items()}

    def fetch(self, _tp: TopicPartition, offset: int, *, read_committed: bool, max_wait_ms: int) -> Fetched:
        assert not read_committed and max_wait_ms > 0
        self.fetches.append(offset)
        left = [it for it in self.batches if parse_header(it).next_offset > offset][:2]
        return Fetched(memoryview(b"".join(left)), self.end, self.end, self.start, ())


def at(offset: int, *records: Record, producer: int = 7, epoch: int = 3, transactional: bool = True) -> bytes:
    return build_batch(
        records or [as_record(MARKER)],
        base_offset=offset,
        timestamp_ms=1,
        transactional=transactional,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=0,
    )


def ends(offset: int, *, commit: bool, producer: int = 7) -> bytes:
    marker = EndTxnMarker(commit=commit, coordinator_epoch=0)
    return control_batch([marker], timestamp_ms=1, base_offset=offset, producer_id=producer, producer_epoch=3)


OTHER = at(6, Record(b"k", b"v"), producer=9)


@pytest.mark.parametrize(
    ("log", "fate"),
    [
        (Log(at(5)), Fate.OPEN),
        (Log(at(5), ends(6, commit=True)), Fate.COMMITTED),
        (Log(at(5), ends(6, commit=False)), Fate.ABORTED),
        (Log(at(5), OTHER, ends(7, commit=True, producer=9), ends(8, commit=False)), Fate.ABORTED),
        (Log(at(5), OTHER, ends(7, commit=False, producer=9)), Fate.OPEN),
        (Log(at(5), ends(6, commit=False), at(7), ends(8, commit=True)), Fate.ABORTED),
        (Log(at(4, Record(b"a", b"b"), as_record(MARKER)), ends(6, commit=True)), Fate.COMMITTED),
        (Log(empty_batch(parse_header(at(5))), OTHER), Fate.ABORTED),
        (Log(empty_batch(parse_header(at(5))), empty_batch(parse_header(ends(6, commit=False)))), Fate.ABORTED),
        (Log(at(5), empty_batch(parse_header(ends(6, commit=True, producer=9))), ends(7, commit=True)), Fate.COMMITTED),
        (Log(at(9), ends(10, commit=True), start=2), Fate.ABORTED),
        (Log(ends(6, commit=False), at(7), ends(8, commit=True), start=2), Fate.ABORTED),
        (Log(at(1, Record(b"a", b"b")), at(5), ends(6, commit=True), end=6), Fate.OPEN),
    ],
)
def test_sx_03_the_next_control_batch_of_the_producer_tells(log: Any, fate: Fate) -> None:
    """A marker that the cleaner has removed was aborted. What lies at or behind the end that was asked for does not count yet."""
    assert fate_of(log, "s", "q", 4, ENTRY) is fate


@pytest.mark.parametrize(
    "log",
    [
        Log(at(0), end=5),
        Log(at(8), start=6),
        Log(at(5, Record(b"q/1", b"{}"))),
        Log(at(5, as_record(replace(MARKER, batch=5)))),
        Log(at(5, as_record(replace(MARKER, task=2)))),
        Log(at(5, as_record(replace(MARKER, rows=3)))),
        Log(at(5, as_record(replace(MARKER, fingerprint="1" * 32)))),
        Log(at(5, Record(b"q/1", None))),
        Log(at(5, producer=8)),
        Log(at(5, epoch=4)),
        Log(at(5, transactional=False)),
        Log(at(5)[:-1] + b"\x01"),
    ],
)
def test_sx_01_anything_else_in_the_markers_place_is_an_error(log: Any) -> None:
    with pytest.raises(StateLost, match="s-1"):
        fate_of(log, "s", "q", 4, ENTRY)


def test_a_partition_that_gives_nothing_is_not_waited_for_without_end() -> None:
    with pytest.raises(ClientError, match="nothing came from 6 on"):
        fate_of(Log(at(5), end=9), "s", "q", 4, ENTRY)  # type: ignore[arg-type]


def decision(batch: int, query: str = "q") -> Decision:
    return Decision(query=query, batch=batch, run="r", entries=())


def read(reader: DecisionReader, *batches: bytes, **more: int) -> tuple[Decision | None, Sequence[int]]:
    log = Log(*batches, **more)
    return reader.read(log, "s"), log.fetches  # type: ignore[arg-type]


def test_sx_01_the_last_committed_decision_counts() -> None:
    """Not the last one that was written, not one of another query, and not one without a transaction."""
    reader = DecisionReader("q")
    assert read(reader) == (None, [])
    first = (
        at(0, as_record(decision(1))),
        ends(1, commit=True),
        at(2, as_record(decision(2))),
        ends(3, commit=False),
        at(4, as_record(decision(8, "other")), producer=9),
        at(5, as_record(decision(9)), transactional=False),
        at(6, Record(b"other", b"nonsense"), producer=9),
    )
    assert read(reader, *first)[0] == decision(1)
    more = (at(7, as_record(decision(3))), at(8, Record(b"k", b"v"), producer=9), ends(9, commit=True))
    found, fetches = read(reader, *first, *more)
    assert found == decision(3) and fetches[0] == 7, "what was read before is not read again"
    assert read(reader, *first, *more) == (decision(3), [])
    gone = (at(10, Record(b"q", None)), ends(11, commit=True))
    assert read(reader, *first, *more, *gone)[0] is None, "somebody has deleted it"


def test_sx_01_a_decision_that_cannot_be_read_is_an_error() -> None:
    for record in (Record(b"q", b"{}"), Record(b"q", b"\xff")):
        with pytest.raises(StateLost, match="s-0 at 0"):
            read(DecisionReader("q"), at(0, record), ends(1, commit=True))
    with pytest.raises(ClientError, match="a decision about q is under way in a transaction that is still open"):
        read(DecisionReader("q"), at(0, as_record(decision(1))))
    reader = DecisionReader("q")
    read(reader, at(0, as_record(decision(1))), ends(1, commit=True))
    with pytest.raises(StateLost, match="it has been read up to 2, and its end is 0: it was made anew, or cut"):
        read(reader)
