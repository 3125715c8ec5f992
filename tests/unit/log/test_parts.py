"""Smaller parts: control records, codecs, config, an independent parser, topic ids, expiry of names."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kraftlite.log import checkpoints, codecs
from kraftlite.log.batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    check_crc,
    iter_batches,
    iter_records,
    parse_header,
    read_varint,
    write_varint,
)
from kraftlite.log.config import LogConfig
from kraftlite.log.control import (
    EndTxnMarker,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    VoterNode,
    control_batch,
    decode_control,
    encode_control,
)
from kraftlite.log.log import Log, OpenLog
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.runtime.trace import ListTracer
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, TP, append, batch, open_log, values

N1, N2 = NodeId(1), NodeId(2)


@pytest.mark.parametrize(
    ("control", "key", "value"),
    [
        (EndTxnMarker(commit=True, coordinator_epoch=7), "00000001", "000000000007"),
        (EndTxnMarker(commit=False, coordinator_epoch=7), "00000000", "000000000007"),
        (
            LeaderChange(leader_id=N1, voters=(N1, N2), granting_voters=(N2,)),
            "00000002",
            "000000000001030000000100000000020002000000020000",
        ),
        (SnapshotHeader(last_contained_log_timestamp_ms=258), "00000003", "0000000000000000010200"),
        (SnapshotFooter(), "00000004", "000000"),
        (KRaftVersion(kraft_version=1), "00000005", "0000000100"),
        (
            KRaftVoters(
                voters=(
                    VoterNode(
                        voter_id=N1,
                        directory_id=UUID(int=9),
                        endpoints=(VoterEndpoint(name="C", host="h", port=9093),),
                    ),
                )
            ),
            "00000006",
            "00000200000001" + f"{9:032x}" + "020243026823850000000001000000",
        ),
    ],
)
def test_control_records_in_kafkas_encoding(control: object, key: str, value: str) -> None:
    record = encode_control(control)  # type: ignore[arg-type]
    assert (record.key or b"").hex() == key and (record.value or b"").hex() == value
    assert decode_control(record) == control
    made = control_batch([control], timestamp_ms=NOW, producer_id=3 if isinstance(control, EndTxnMarker) else -1)  # type: ignore[list-item]
    header = parse_header(made)
    assert header.is_control and header.is_transactional == isinstance(control, EndTxnMarker)
    assert [decode_control(found) for found in iter_records(made)] == [control]


def test_leader_change_version_1_carries_directory_ids() -> None:
    change = LeaderChange(
        leader_id=N1,
        voters=(N1,),
        granting_voters=(N1,),
        voter_directories=(UUID(int=5),),
        granting_directories=(UUID(int=6),),
    )
    assert decode_control(encode_control(change)) == change


def test_unknown_and_broken_control_records() -> None:
    assert decode_control(Record(b"\x00\x00\x00\x63", b"")) is None
    for record in (Record(None, b""), Record(b"\x00\x00\x00\x02", b"\x00"), Record(b"\x00\x00\x00\x06", b"\x00\x00\x05")):
        with pytest.raises(ApiError):
            decode_control(record)


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_an_independent_parser_reads_our_batches_and_we_read_its(codec: int) -> None:
    records = [Record(b"k", b"value" * 50, (("h", b"x"),), 5), Record(None, b"two", (), 9)]
    ours = build_batch(records, timestamp_ms=NOW, codec=codec, producer_id=9, producer_epoch=1, base_sequence=4)
    parsed = DefaultRecordBatch(ours)
    assert parsed.validate_crc()
    assert [(r.key, r.value, r.timestamp, r.headers) for r in parsed] == [
        (b"k", b"value" * 50, NOW + 5, [("h", b"x")]),
        (None, b"two", NOW + 9, []),
    ]
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for offset in range(3):
        builder.append(offset, NOW + offset, b"k", b"v" * 100, [("a", b"b")])
    theirs = bytes(builder.build())
    assert check_crc(theirs)
    assert [(r.offset_delta, r.value, r.timestamp_delta) for r in iter_records(theirs)] == [(n, b"v" * 100, n) for n in range(3)]


def test_snappy_is_framed_as_other_clients_frame_it() -> None:
    from aiokafka.codec import snappy_decode, snappy_encode

    data = b"abc" * 40_000
    assert snappy_decode(codecs.compress(codecs.SNAPPY, data)) == data
    assert codecs.decompress(codecs.SNAPPY, snappy_encode(data)) == data
    assert codecs.decompress(codecs.SNAPPY, snappy_encode(data, xerial_compatible=False)) == data


@pytest.mark.parametrize("codec", range(1, 5))
def test_damaged_compressed_records_are_corrupt(codec: int) -> None:
    made = bytearray(batch("x" * 500, codec=codec))
    for damaged in (made[:HEADER_BYTES] + b"\xff" * 20, made[:-5]):
        with pytest.raises(ApiError) as caught:
            list(iter_records(damaged))
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_decompression_is_bounded() -> None:
    for codec in range(1, 5):
        with pytest.raises(ApiError):
            codecs.decompress(codec, codecs.compress(codec, bytes(50_000)), 10_000)
        assert codecs.decompress(codec, codecs.compress(codec, bytes(10_000)), 10_000) == bytes(10_000)


@settings(max_examples=200)
@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varint(bytes(out), 0) == (value, len(out))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_garbage_never_parses_into_anything_but_errors(data: bytes) -> None:
    whole = bytearray(build_batch([Record(b"a", b"b")], timestamp_ms=0))[:HEADER_BYTES] + data
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    try:
        for _, view in iter_batches(whole):
            list(iter_records(view))
    except ApiError as error:
        assert error.code == ErrorCode.CORRUPT_MESSAGE


def test_config_from_map() -> None:
    config = LogConfig.from_map(
        {"segment.bytes": "100", "cleanup.policy": "compact, delete", "message.timestamp.type": "LogAppendTime", "x.y": "z"}
    )
    assert config.segment_bytes == 100 and config.compacted and config.log_append_time
    assert LogConfig.from_map({}) == LogConfig()
    for key, value in (("segment.bytes", "many"), ("cleanup.policy", "keep"), ("preallocate", "1"), ("compression.type", "zip")):
        with pytest.raises(ValueError, match=f"{key}='{value}': expected"):
            LogConfig.from_map({key: value})


def test_a_directory_belongs_to_one_topic_id() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "a")
    log.close()

    def reopen(topic_id: UUID | None) -> Log:
        return Log(OpenLog(disk=disk, directory=DIR, tp=TP, topic_id=topic_id, config=LogConfig(), clean=True, wall_ms=NOW))

    assert reopen(None).topic_id == UUID(int=12345)
    with pytest.raises(ApiError) as caught:
        reopen(UUID(int=99))
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    disk.overwrite(f"{DIR}/partition.metadata", 0, b"garbage: 0")
    with pytest.raises(OSError, match="expected `version"):
        reopen(None)


@pytest.mark.parametrize("torn", [b"", b"version: 0\ntop"])
def test_a_torn_claim_of_a_log_without_records_is_renewed(torn: bytes) -> None:
    disk = MemDisk()
    open_log(disk).close()
    disk.unlink(f"{DIR}/partition.metadata")
    disk.open(f"{DIR}/partition.metadata", create=True).pwritev([torn], 0)
    log = open_log(disk)
    append(log, "a")
    disk.crash()
    assert checkpoints.read_partition_metadata(disk, DIR) == log.topic_id


def test_a_claim_that_a_killed_process_left_in_the_page_cache_is_synced_by_the_next() -> None:
    disk = MemDisk()
    open_log(disk)
    append(open_log(disk), "a")
    disk.crash()
    assert checkpoints.read_partition_metadata(disk, DIR) == UUID(int=12345)


def test_directory_rename_and_removal_keep_open_files_working() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    for _ in range(4):
        append(log, "x" * 60)
    before = values(log)
    log.rename_directory("/data/orders-0.abc-delete")
    assert values(log) == before and disk.tree("/data")[0].startswith("/data/orders-0.abc-delete/")
    append(log, "still works")
    log.roll()
    log.close()
    assert all("-delete/" in path for path in disk.tree())


def test_trace_tells_what_happened_to_the_log() -> None:
    tracer = ListTracer()
    log = open_log(config=LogConfig(segment_bytes=200), tracer=tracer)
    for number in range(5):
        append(log, "x" * 60, epoch=number // 3)
    log.truncate_to(4)
    log.update_hw(4)
    log.delete_segments_before(2)
    log.truncate_fully_and_start_at(50)
    names = [event.event for event in tracer.events]
    assert names[0] == "log.opened"
    for name in (
        "log.rolled",
        "log.epoch_assigned",
        "log.truncated",
        "log.segment_deleted",
        "log.start_advanced",
        "log.restarted",
    ):
        assert name in names
    assert names.count("log.epoch_assigned") == 2, "never per batch"


def test_control_records_that_announce_more_than_they_hold_are_corrupt() -> None:
    """Five bytes announce four billion voters."""
    key = b"\x00\x00" + b"\x00\x02"
    for value in (
        b"\x00\x01" + bytes(4) + b"\xff\xff\xff\xff\x0f",
        b"\x00\x01" + bytes(4) + b"\x03" + bytes(4),
        b"\x00\x00" + bytes(4) + b"\x00\x00\x00",
    ):
        with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
            decode_control(Record(key, value))
