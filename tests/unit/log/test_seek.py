"""Looking into a batch for a record: by the scanner where that can tell, by its records where it cannot; in steps. LG-51."""

from __future__ import annotations

import random

import pytest

from kraftlite.log.batch import Record, build_batch, iter_records, parse_header, record_timestamp, retained_batch
from kraftlite.log.codecs import CODEC_NAMES
from kraftlite.log.seek import SEEK_IN_PLACE, Seeker, TimestampOffset, Unfinished, first_record, newest_from
from kraftlite.log.validation import CHECK_IN_PLACE
from kraftlite.model.errors import ApiError

BASE, NOW = 100, 1_000_000


def found(batch: bytes, timestamp: int, start: int, seeker: Seeker | None = None) -> TimestampOffset | None:
    header = parse_header(batch)
    return (seeker or Seeker()).get((timestamp, start), lambda: first_record(batch, header, timestamp, start))


def expected(batch: bytes, timestamp: int, start: int) -> TimestampOffset | None:
    header = parse_header(batch)
    for record in iter_records(batch):
        when, offset = record_timestamp(header, record), header.base_offset + record.offset_delta
        if when >= timestamp and offset >= start:
            return TimestampOffset(when, offset, 7)
    return None


def batch_of(deltas: list[int], codec: int = 0) -> bytes:
    records = [Record(key=b"k", value=b"v" * 20, timestamp_delta=delta) for delta in deltas]
    return build_batch(records, base_offset=BASE, leader_epoch=7, timestamp_ms=NOW, codec=codec)


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("compacted", [False, True])
def test_the_first_of_its_time(codec: int, compacted: bool) -> None:
    entropy = random.Random(codec)
    for _ in range(20):
        batch = batch_of([entropy.randrange(50) for _ in range(entropy.randrange(1, 30))], codec)
        if compacted:
            left = [record for record in iter_records(batch) if entropy.random() < 0.5 or record.offset_delta == 0]
            batch = retained_batch(parse_header(batch), left)
        for timestamp in (0, NOW, *(NOW + entropy.randrange(52) for _ in range(5))):
            for start in (0, BASE, BASE + entropy.randrange(30)):
                assert found(batch, timestamp, start) == expected(batch, timestamp, start)


def test_more_records_of_that_time_come_before_the_start_than_the_scanner_names() -> None:
    batch = batch_of([5] * 3_000)
    assert found(batch, NOW, BASE + 2_500) == TimestampOffset(NOW + 5, BASE + 2_500, 7)
    assert found(batch, NOW, BASE + 900) == TimestampOffset(NOW + 5, BASE + 900, 7)


def test_the_newest_behind_an_offset() -> None:
    batch = batch_of([9, 3, 5, 4], codec=4)
    header = parse_header(batch)
    for start, newest in ((BASE, NOW + 9), (BASE + 1, NOW + 5), (BASE + 3, NOW + 4), (BASE + 4, -1)):
        assert Seeker().get(start, lambda start=start: newest_from(batch, header, start)) == newest  # type: ignore[misc]


def test_what_takes_long_is_finished_elsewhere() -> None:
    batch = batch_of([0] * 20_000 + [1], codec=4)
    seeker = Seeker(SEEK_IN_PLACE)
    with pytest.raises(Unfinished):
        found(batch, NOW + 1, 0, seeker)
    seeker.finish()
    for _ in range(2):
        assert found(batch, NOW + 1, 0, seeker) == TimestampOffset(NOW + 1, BASE + 20_000, 7)


def test_what_is_not_asked_for_any_more_is_begun_anew() -> None:
    """Compaction, or a truncation, may put another batch there meanwhile."""
    batch = batch_of([0] * 20_000 + [1], codec=4)
    seeker = Seeker(SEEK_IN_PLACE)
    with pytest.raises(Unfinished):
        found(batch, NOW + 1, 0, seeker)
    with pytest.raises(Unfinished):
        found(batch, NOW + 1, BASE + 1, seeker)
    seeker.finish()
    assert found(batch, NOW + 1, BASE + 1, seeker) == TimestampOffset(NOW + 1, BASE + 20_000, 7)


def test_a_damaged_batch_is_refused_however_often_it_is_asked_for() -> None:
    batch = bytearray(batch_of([1, 2, 3]))
    batch[61] = 0xFF
    seeker = Seeker(2 * CHECK_IN_PLACE)
    for _ in range(2):
        with pytest.raises(ApiError):
            found(bytes(batch), NOW + 9, 0, seeker)


def test_the_newest_of_very_many_is_looked_for_elsewhere() -> None:
    batch = batch_of([0] * 20_000, codec=1)
    seeker = Seeker(SEEK_IN_PLACE)
    for newest in (None, NOW):
        try:
            assert seeker.get("newest", lambda: newest_from(batch, parse_header(batch), BASE)) == newest
        except Unfinished:
            assert newest is None
            seeker.finish()
