"""The columns of a scan are the headers that `kraftlite.log.batch` reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.columns.scan import HEADERS, scan_batches
from kraftlite.log.batch import Record, build_batch, check_crc, iter_headers, parse_header

NOW_MS = 1_700_000_000_000

batches = st.builds(
    build_batch,
    st.lists(st.builds(lambda value: Record(None, value), st.binary(max_size=9)), max_size=4),
    base_offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 2**31 - 1),
    timestamp_ms=st.integers(-1, 2**45),
    codec=st.integers(0, 4),
    control=st.booleans(),
    transactional=st.booleans(),
    producer_id=st.integers(-1, 2**62),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
)


@given(st.lists(batches, max_size=5), st.integers(0, 2**40))
def test_every_field(found: list[bytes], base_position: int) -> None:
    data = b"".join(found)
    scan = scan_batches(memoryview(data), base_position=base_position)
    assert scan.headers.dtype == HEADERS
    assert (scan.stopped_at, scan.why) == (base_position + len(data), "")
    wanted = []
    for position, header in iter_headers(data):
        first = (base_position + position, header.base_offset, header.size_bytes, header.partition_leader_epoch, 2, True)
        wanted.append((*first, *header[5:], header.crc))
    assert scan.headers.tolist() == wanted


@given(batches, batches, st.data())
def test_a_bad_crc_does_not_stop_it(first: bytes, second: bytes, choice: st.DataObject) -> None:
    data = bytearray(first + second)
    data[choice.draw(st.integers(17, len(first) - 1))] ^= choice.draw(st.integers(1, 255))
    assert not check_crc(data[: len(first)], parse_header(data))
    scan = scan_batches(data)
    assert scan.headers["crc_ok"].tolist() == [False, True]
    assert scan.why == ""
    assert scan_batches(data, check_crc=False).headers["crc_ok"].tolist() == [True, True]


@given(batches, batches, st.data())
def test_a_torn_tail(first: bytes, second: bytes, choice: st.DataObject) -> None:
    scan = scan_batches(first + second[: choice.draw(st.integers(1, len(second) - 1))], base_position=7)
    assert (len(scan.headers), scan.stopped_at, scan.why) == (1, 7 + len(first), "torn")


BATCH = build_batch([Record(b"k", b"v")], timestamp_ms=NOW_MS, base_offset=5)


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"\0" * 100, "bad length"),
        (BATCH[:8] + b"\xff" * 4 + BATCH[12:], "bad length"),
        (BATCH[:16] + b"\1" + BATCH[17:], "bad magic"),
        (BATCH[:8] + b"\x7f\xff\xff\xff" + BATCH[12:], "torn"),
    ],
)
def test_what_is_no_batch(tail: bytes, why: str) -> None:
    scan = scan_batches(BATCH + tail)
    assert (len(scan.headers), scan.stopped_at, scan.why) == (1, len(BATCH), why)


def test_it_stops_before_the_end_that_is_asked_for() -> None:
    data = BATCH + build_batch([Record(b"k", b"v")], timestamp_ms=NOW_MS, base_offset=9)

    def found(end: int) -> Any:
        scan = scan_batches(data, end=end)
        return scan.headers["base_offset"].tolist(), scan.stopped_at, scan.why

    assert found(9) == ([5], len(BATCH), "")
    assert found(10) == ([5, 9], len(data), "")
    assert found(5) == ([], 0, "")


def test_nothing() -> None:
    scan = scan_batches(b"", base_position=3)
    assert (scan.headers.size, scan.stopped_at, scan.why) == (0, 3, "")
