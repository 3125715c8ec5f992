"""LG-10, LG-14: batches with a right CRC and wrong content are refused, and nothing of them is appended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.log import codecs, scan
from kraftlite.log.batch import check_crc, iter_batches, iter_records, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, RecordsRejected
from kraftlite.log.scan import RecordScanner
from kraftlite.log.validation import BatchCheck, check_batch
from kraftlite.model.errors import ApiError
from tests.harness.log_support import batch, everything, open_log
from tests.harness.poison import (
    CODECS,
    COMPRESSED,
    GOOD,
    NOW,
    Poison,
    batch_of,
    compacted_poisons,
    fields,
    poisons,
    record,
    sized,
)

IMPLEMENTATIONS = {it.__module__: it for it in (scan.PythonScanner, scan.Scanner)}


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def scanner(request: pytest.FixtureRequest) -> type[RecordScanner]:
    return IMPLEMENTATIONS[request.param]


def wrong(found: Poison, config: LogConfig, scanner: type[RecordScanner]) -> str | None:
    """What is not as it should be when this batch comes to an empty log."""
    log, sent = open_log(config=config), bytearray(found.batch)
    verdict = BatchCheck(sent, config, NOW, scanner=scanner).finish()
    try:
        info = log.append_as_leader(sent, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT, verdict=verdict)
    except ApiError as error:
        named = tuple(index for index, _ in error.record_errors) if isinstance(error, RecordsRejected) else ()
        answer = error.code.name.lower(), named
        if log.leo or log.size_bytes or log.active_producers():
            return f"{found.name}: refused and appended"
    else:
        answer = "none", ()
        stored = everything(log)
        (one,) = [view for _, view in iter_batches(stored)]
        header = parse_header(stored)
        if not check_crc(one) or len(list(iter_records(one))) != info.leo or header.count != info.leo:
            return f"{found.name}: what is stored is not whole"
    return None if answer == (found.ours, found.we_name) else f"{found.name}: {answer}, expected {found.ours} {found.we_name}"


BY_THE_HANDLER = "transactional_id_authorization_failed"


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_lg_10_poisoned_batches(cleanup: str, scanner: type[RecordScanner]) -> None:
    families = [*poisons()] if cleanup == "delete" else [*compacted_poisons()]
    config = LogConfig(cleanup_policy=(cleanup,))
    assert [it for found in families if found.ours != BY_THE_HANDLER and (it := wrong(found, config, scanner))] == []


@pytest.mark.parametrize("target", [codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_lg_13_a_topic_with_a_codec_of_its_own_takes_no_poison(target: int, scanner: type[RecordScanner]) -> None:
    config = LogConfig(compression_type="uncompressed" if not target else codecs.CODEC_NAMES[target])
    assert [it for found in poisons() if found.ours != BY_THE_HANDLER and (it := wrong(found, config, scanner))] == []


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [2**62, 5, -1])
def test_the_highest_timestamp_is_what_the_records_say(codec: int, claimed: int) -> None:
    body = b"".join(record(fields(at, timestamp=delta)) for at, delta in enumerate((0, 70, 30)))
    log = open_log()
    sent = batch_of(body, 3, codec=codec, max_timestamp=claimed)
    log.append_as_leader(sent, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    stored = everything(log)
    assert parse_header(stored).max_timestamp == NOW + 70 and check_crc(stored)
    found = log.offset_for_timestamp(NOW + 1, up_to=log.leo)
    assert found is not None and (found.offset, found.timestamp) == (1, NOW + 70)
    assert log.offset_for_timestamp(2**61, up_to=log.leo) is None


@pytest.mark.parametrize(
    ("config", "codec", "highest", "kept"),
    [
        (LogConfig(), codecs.NONE, NOW, 0xFFC0),
        (LogConfig(), codecs.NONE, 5, 0x40),
        (LogConfig(), codecs.GZIP, 5, 0x41),
        (LogConfig(message_timestamp_type="LogAppendTime"), codecs.NONE, NOW, 0x48),
        (LogConfig(compression_type="zstd"), codecs.GZIP, NOW, 0x04),
        (LogConfig(compression_type="uncompressed"), codecs.ZSTD, NOW, 0x00),
    ],
)
def test_attributes_that_nobody_knows_end_where_the_header_is_written_anew(
    config: LogConfig, codec: int, highest: int, kept: int
) -> None:
    """And a delete horizon with the body: it would say that the tombstones are to go now."""
    log = open_log(config=config)
    sent = batch_of(GOOD, 3, codec=codec, attributes=(0xFFC0 | codec) - 2**16, max_timestamp=highest)
    log.append_as_leader(sent, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    stored = everything(log)
    assert parse_header(stored).attributes & 0xFFFF == kept and check_crc(stored)


@pytest.mark.parametrize(
    "behind", [bytes(61), bytes(100), bytes(8) + b"\xff" * 4 + bytes(60)], ids=["a header of zeros", "zeros", "a length below 0"]
)
def test_what_is_no_batch_behind_one_is_corrupt(behind: bytes) -> None:
    refusal = check_batch(batch_of(GOOD, 3) + behind, LogConfig(), NOW).refusal
    assert refusal is not None and refusal.code.name == "CORRUPT_MESSAGE"


@pytest.mark.parametrize(
    "behind", [b"\0", batch_of(GOOD, 3)[:60], batch_of(GOOD, 3)], ids=["a byte", "the beginning of one", "another one"]
)
def test_what_may_be_a_batch_behind_one_is_one_too_many(behind: bytes) -> None:
    refusal = check_batch(batch_of(GOOD, 3) + behind, LogConfig(), NOW).refusal
    assert refusal is not None and refusal.code.name == "INVALID_RECORD"


def test_a_duplicate_is_checked_before_it_is_known_as_one() -> None:
    """As in Kafka: what is poisoned is refused, whatever its sequence is."""
    log = open_log()
    good = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for _ in range(2):
        info = log.append_as_leader(batch_of(GOOD, 3, **good), leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
        assert info.base_offset == 0 and log.leo == 3
    for sequence in (0, 50):
        with pytest.raises(ApiError) as caught:
            sent = batch_of(GOOD[:-1], 3, **{**good, "base_sequence": sequence})
            log.append_as_leader(sent, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
        assert caught.value.code.name == "INVALID_RECORD"


def test_the_size_that_counts_is_that_of_the_append() -> None:
    """The config may change between the check and the append."""
    log = open_log()
    sent = batch("x" * 500)
    verdict = check_batch(sent, log.config, NOW)
    log.update_config(replace(log.config, max_message_bytes=100))
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(sent, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT, verdict=verdict)
    assert caught.value.code.name == "MESSAGE_TOO_LARGE" and log.leo == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_check_goes_on_in_small_steps(codec: int, scanner: type[RecordScanner]) -> None:
    body = b"".join(record(fields(at, value=sized(bytes(3000)))) for at in range(1000))
    sent = batch_of(body, 1000, codec=codec)
    config = LogConfig(max_message_bytes=10_000_000)
    check, turns = BatchCheck(sent, config, NOW, scanner=scanner), 0
    while check.verdict is None:
        used = check.advance(0)
        assert used <= 512 * 1024, "a step is short"
        turns += 1
    assert turns > 10 and check.verdict == check_batch(sent, config, NOW)
    assert check.verdict.refusal is None


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_unfolds_beyond_the_bound_is_refused(codec: int) -> None:
    config = LogConfig(max_message_bytes=10_000_000)
    for size, code in ((900_000, "none"), (1_100_000, "invalid_record")):
        sent = batch_of(record(fields(0, value=sized(bytes(size)))), 1, codec=codec)
        refusal = BatchCheck(sent, config, NOW, max_bytes=1_000_000).finish().refusal
        assert (refusal.code.name.lower() if refusal else "none") == code


def test_recompression_stops_where_the_topics_limit_is() -> None:
    """A small batch may unfold to much more than the topic would take."""
    sent = batch_of(record(fields(0, value=sized(bytes(50_000_000)))), 1, codec=codecs.ZSTD)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=100_000)
    check = BatchCheck(sent, config, NOW)
    used = 0
    while check.verdict is None:
        used += check.advance(0)
    assert check.verdict.refusal is not None and check.verdict.refusal.code.name == "MESSAGE_TOO_LARGE"
    assert used < 32 * 1_000_000, "it was not unpacked to its end"


def test_header_keys_that_are_not_utf_8_are_kept_as_they_are() -> None:
    body = record(fields(0, headers=b"\x02" + sized(b"\xff\xfe") + sized(b"b")))
    log = open_log(config=LogConfig(compression_type="zstd"))
    log.append_as_leader(batch_of(body, 1), leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    (found,) = iter_records(everything(log))
    assert [name.encode("utf-8", "surrogateescape") for name, _ in found.headers] == [b"\xff\xfe"]


def test_what_other_origins_write_is_not_looked_into() -> None:
    """The coordinator's and the raft leader's batches are their own; a follower trusts the CRC, as in Kafka."""
    log = open_log()
    for origin in (AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER):
        log.append_as_leader(batch_of(GOOD + b"?", 3), leader_epoch=0, wall_ms=NOW, origin=origin)
    log.append_as_follower(batch_of(GOOD + b"?", 3, base_offset=6, epoch=0, max_timestamp=2**62))
    assert log.leo == 9
