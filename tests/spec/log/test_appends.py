"""LG-09 to LG-25, RP-36: what may be appended."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from kraftlite.log.batch import Record, build_batch, check_crc, iter_records, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.control import EndTxnMarker, KRaftVersion, LeaderChange, control_batch
from kraftlite.log.log import AppendOrigin, Log, RecordsRejected, UnexpectedAppend
from kraftlite.log.validation import check_size
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_BATCH_BYTES, MAX_INT32
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, append, batch, end_txn, everything, open_log, values


def refused(log: Log, code: ErrorCode, made: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> ApiError:
    """The append is refused with `code` and changes nothing."""
    before = log.leo, log.size_bytes, log.epoch_entries, log.active_producers()
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(made, leader_epoch=9, wall_ms=NOW, origin=origin)
    assert caught.value.code == code, caught.value
    assert (log.leo, log.size_bytes, log.epoch_entries, log.active_producers()) == before
    return caught.value


def patched(made: bytearray, layout: str, position: int, value: int) -> bytearray:
    """Change a header field and make the CRC right again."""
    struct.pack_into(layout, made, position, value)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return made


def test_lg_09_crc_and_sizes() -> None:
    log = open_log(config=LogConfig(max_message_bytes=500, segment_bytes=450))
    damaged = batch("abc")
    damaged[-2] ^= 1
    refused(log, ErrorCode.CORRUPT_MESSAGE, damaged)
    refused(log, ErrorCode.MESSAGE_TOO_LARGE, batch("x" * 600))
    refused(log, ErrorCode.RECORD_LIST_TOO_LARGE, batch("x" * 400))
    refused(log, ErrorCode.INVALID_RECORD, batch("abc")[:-1])


@pytest.mark.parametrize("allowed", [MAX_BATCH_BYTES - 1, MAX_BATCH_BYTES, MAX_BATCH_BYTES + 1, MAX_INT32])
def test_lg_09_no_batch_is_larger_than_what_followers_can_be_sent(allowed: int) -> None:
    config = LogConfig.from_map({"max.message.bytes": str(allowed)})
    most = min(allowed, MAX_BATCH_BYTES)
    check_size(most, config, AppendOrigin.CLIENT)
    with pytest.raises(ApiError, match=f"MESSAGE_TOO_LARGE.* max.message.bytes allows {most}"):
        check_size(most + 1, config, AppendOrigin.CLIENT)


def test_lg_10_invalid_records() -> None:
    log = open_log()
    refused(log, ErrorCode.INVALID_RECORD, bytearray(build_batch([Record(b"", b"")], timestamp_ms=NOW, control=True)))
    refused(log, ErrorCode.INVALID_RECORD, batch("a") + batch("b"))
    refused(log, ErrorCode.INVALID_RECORD, patched(batch("a", "b"), ">i", 23, 5))
    refused(log, ErrorCode.INVALID_RECORD, patched(batch("a"), ">i", 57, 0))
    refused(log, ErrorCode.INVALID_RECORD, batch("a", base_offset=3))
    refused(log, ErrorCode.INVALID_RECORD, batch("a", pid=5, seq=-1))
    compacted = open_log(config=LogConfig(cleanup_policy=("compact",)))
    error = refused(compacted, ErrorCode.INVALID_RECORD, batch("a", "b", key=None))
    assert isinstance(error, RecordsRejected) and [index for index, _ in error.record_errors] == [0, 1]
    assert append(log, "a", key=None).base_offset == 0, "without compaction no key is needed"


def test_lg_11_leader_stamps_offset_epoch_and_append_time() -> None:
    log = open_log()
    append(log, "first", epoch=3)
    sent = batch("second", ts=NOW - 50)
    original = bytes(sent)
    info = log.append_as_leader(sent, leader_epoch=3, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    assert (info.base_offset, info.last_offset, info.append_time_ms, info.leo) == (1, 1, -1, 2)
    stored = log.read(1, 1 << 20, up_to=2)
    assert stored[:8] == (1).to_bytes(8, "big") and stored[12:16] == (3).to_bytes(4, "big")
    assert stored[16:] == original[16:], "CRC and all that it covers stay"

    log.update_config(LogConfig(message_timestamp_type="LogAppendTime"))
    info = append(log, "third", epoch=3, ts=5, wall_ms=NOW + 7)
    stored = log.read(2, 1 << 20, up_to=3)
    header = parse_header(stored)
    assert info.append_time_ms == NOW + 7 and header.is_log_append_time and header.max_timestamp == NOW + 7
    assert check_crc(stored)


def test_lg_12_timestamps_out_of_bounds_name_the_records() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = open_log(config=config)
    error = refused(log, ErrorCode.INVALID_TIMESTAMP, batch("a", "b", "c", ts=NOW - 1001, deltas=(0, 1000, 1600)))
    assert isinstance(error, RecordsRejected) and [index for index, _ in error.record_errors] == [0, 2]
    append(log, "ok", "ok", ts=NOW - 1000, deltas=(0, 1500))
    only_after = open_log(config=replace(config, message_timestamp_before_max_ms=2**63 - 1))
    refused(only_after, ErrorCode.INVALID_TIMESTAMP, batch("a", ts=NOW + 501))
    append(only_after, "old", ts=1)
    append(open_log(), "by default an hour of the future goes, and all of the past", "b", ts=NOW + 3_600_000, deltas=(0, -NOW))
    refused(open_log(), ErrorCode.INVALID_TIMESTAMP, batch("a", ts=NOW + 3_600_001))
    refused(open_log(), ErrorCode.INVALID_TIMESTAMP, patched(batch("a"), ">h", 21, 0x08))


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)])
def test_lg_13_forced_codec_recompresses(name: str, codec: int) -> None:
    log = open_log(config=LogConfig(compression_type=name))
    append(log, "a" * 500, "b", codec=0 if codec else 4, pid=4, seq=0)
    stored = log.read(0, 1 << 20, up_to=2)
    header = parse_header(stored)
    assert (header.codec, header.producer_id, header.base_sequence, header.count) == (codec, 4, 0, 2)
    assert [record.value for record in iter_records(stored)] == [b"a" * 500, b"b"] and check_crc(stored)


def test_lg_14_exactly_one_batch_of_format_2() -> None:
    log = open_log()
    refused(log, ErrorCode.INVALID_RECORD, bytearray())
    refused(log, ErrorCode.INVALID_RECORD, batch("a") + batch("b"))
    for magic in (0, 1):
        old = batch("a")
        old[16] = magic
        refused(log, ErrorCode.INVALID_RECORD, old)
        refused(log, ErrorCode.INVALID_RECORD, old[:30])
    assert log.leo == 0


def test_lg_15_nothing_but_format_2_is_stored() -> None:
    log = open_log()
    old = batch("a", epoch=0)
    old[16] = 1
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(old)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE and log.leo == 0


def test_lg_16_a_resend_of_the_last_five_batches_is_answered_not_appended() -> None:
    log = open_log()
    for number in range(6):
        append(log, "a", "b", pid=1, seq=2 * number)
    for number in range(1, 6):
        info = append(log, "a", "b", pid=1, seq=2 * number)
        assert info.duplicate and (info.base_offset, info.last_offset) == (2 * number, 2 * number + 1)
        assert info.append_time_ms == NOW
    assert log.leo == 12


def test_lg_17_sequences_must_continue() -> None:
    log = open_log()
    append(log, "a", pid=1, seq=500)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch("b", pid=1, seq=502))
    for number in range(501, 507):
        append(log, "b", pid=1, seq=number)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch("b", pid=1, seq=500))
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch("b", pid=1, pepoch=1, seq=7))
    append(log, "new epoch", pid=1, pepoch=1, seq=0)
    append(log, "near the end", "x", pid=2, seq=2**31 - 2)
    append(log, "wrapped", pid=2, seq=0)
    spanning = open_log()
    append(spanning, "a", "b", "c", pid=2, seq=2**31 - 2)
    assert append(spanning, "a", "b", "c", pid=2, seq=2**31 - 2).duplicate
    append(spanning, "d", pid=2, seq=1)


def test_lg_18_older_producer_epochs_are_fenced_for_data_and_markers() -> None:
    log = open_log()
    append(log, "a", pid=1, pepoch=3, seq=0, txn=True)
    refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, batch("b", pid=1, pepoch=2, seq=1, txn=True))
    with pytest.raises(ApiError) as caught:
        end_txn(log, 1, commit=True, pepoch=2)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH and log.leo == 1


@pytest.mark.parametrize("clean", [True, False])
def test_lg_19_producer_state_survives_a_restart(clean: bool) -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=400))
    for number in range(9):
        append(log, "a" * 50, pid=1, seq=number)
    append(log, "open", pid=2, txn=True)
    before = log.active_producers()
    if clean:
        log.close()
    again = open_log(disk, LogConfig(segment_bytes=400), clean=clean)
    assert again.active_producers() == before
    assert append(again, "a" * 50, pid=1, seq=8).duplicate
    refused(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch("b", pid=1, seq=10))
    again.update_hw(again.leo)
    assert again.last_stable_offset == 9


@pytest.mark.parametrize("segment_bytes", [400, 1 << 20])
@pytest.mark.parametrize("clean", [True, False])
def test_lg_16_lg_19_the_last_five_batches_are_known_after_a_restart(clean: bool, segment_bytes: int) -> None:
    """All replicas may restart while a client has several requests under way; it sends all of them again."""
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=segment_bytes))
    for number in range(9):
        append(log, "a" * 50, pid=1, seq=number)
        append(log, "b" * 50, pid=2, seq=number)
    if clean:
        log.close()
    again = open_log(disk, LogConfig(segment_bytes=segment_bytes), clean=clean)
    for number in range(4, 9):
        info = append(again, "a" * 50, pid=1, seq=number)
        assert info.duplicate and info.base_offset == 2 * number
    refused(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch("a" * 50, pid=1, seq=3))
    assert not append(again, "c", pid=1, seq=9).duplicate


def test_lg_16_lg_19_large_batches_behind_them_do_not_hide_small_ones() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig())
    append(log, "small", pid=1, seq=0)
    append(log, "x" * 400_000, pid=1, seq=1)
    append(log, "y" * 400_000, pid=2, seq=0)
    log.close()
    again = open_log(disk, LogConfig(), clean=True)
    assert append(again, "small", pid=1, seq=0).duplicate


def test_lg_19_corrupt_snapshots_fall_back_to_an_earlier_one_or_to_the_batches() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=400))
    for number in range(9):
        append(log, "a" * 50, pid=1, seq=number)
    log.close()
    before = log.active_producers()
    snapshots = [path for path in disk.tree(DIR) if path.endswith(".snapshot")]
    assert len(snapshots) > 2
    for path in reversed(snapshots):
        disk.overwrite(path, 8, b"\xff\xff")
        again = open_log(disk, LogConfig(segment_bytes=400), clean=True)
        assert again.active_producers() == before
        assert disk.stat(path) is None, "a corrupt snapshot is not kept"


def test_lg_20_snapshots_of_live_segments_and_the_newest_are_kept() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=400))
    for number in range(20):
        append(log, "a" * 50, pid=1, seq=number)
    log.update_hw(log.leo)
    log.delete_segments_before(log.segment_base_offsets[-2])
    log.close()
    names = [int(path.rpartition("/")[2][:20]) for path in disk.tree(DIR) if path.endswith(".snapshot")]
    assert names == sorted({*log.segment_base_offsets, log.leo})


def test_lg_20_snapshot_format() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "a", "b", pid=7, pepoch=2, seq=5, txn=True)
    log.close()
    raw = disk.read_file(f"{DIR}/{2:020d}.snapshot")
    version, crc, count = struct.unpack_from(">hIi", raw)
    assert (version, crc, count) == (1, crc32c(raw[6:]), 1)
    assert struct.unpack(">qhiqiqiq", raw[10:]) == (7, 2, 6, 1, 1, NOW, -1, 0)


def test_lg_21_idle_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    log = open_log(config=LogConfig(producer_id_expiration_ms=1000))
    append(log, "a", pid=1)
    append(log, "b", pid=2, txn=True)
    assert log.remove_expired_producers(NOW + 999) == 0
    assert log.remove_expired_producers(NOW + 1000) == 1
    assert [producer.producer_id for producer in log.active_producers()] == [2]
    append(log, "an unknown producer may start anywhere", pid=1, seq=77)


def test_lg_22_markers_and_coordinator_epochs() -> None:
    log = open_log()
    append(log, "a", pid=1, txn=True)
    end_txn(log, 1, commit=True, coordinator_epoch=5)
    with pytest.raises(ApiError) as caught:
        end_txn(log, 1, commit=True, coordinator_epoch=4)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    info = end_txn(log, 99, commit=False, coordinator_epoch=1)
    assert info.base_offset == 2 and log.leo == 3, "a marker for an unknown producer takes one offset"
    assert values(log) == [(0, b"a")]
    append(log, "same epoch goes on", pid=1, seq=1)


def test_lg_23_last_stable_offset() -> None:
    log = open_log()
    append(log, "plain")
    assert log.last_stable_offset == log.hw == 0
    append(log, "a", pid=1, txn=True)
    append(log, "b", pid=2, txn=True)
    log.update_hw(3)
    assert log.last_stable_offset == 1
    end_txn(log, 1, commit=False)
    assert log.last_stable_offset == 1, "the marker is not below the HW: undecided"
    log.update_hw(4)
    assert log.last_stable_offset == 2
    end_txn(log, 2, commit=True)
    log.update_hw(5)
    assert log.last_stable_offset == log.hw == 5
    assert log.aborted_transactions(0, 5) == ((1, 1),)
    assert log.aborted_transactions(0, 1) == () and log.aborted_transactions(4, 5) == ()
    assert log.aborted_transactions(2, 5) == ((1, 1),), "an overlap is enough"


def test_lg_23_aborted_list_over_segments_and_restarts() -> None:
    disk, config = MemDisk(), LogConfig(segment_bytes=300)
    log = open_log(disk, config)
    expected = []
    for number in range(12):
        expected.append((number, append(log, "x" * 60, pid=number, txn=True).base_offset))
        end_txn(log, number, commit=False)
    assert len(log.segments) > 3
    assert log.aborted_transactions(0, log.leo) == tuple(expected)
    assert log.aborted_transactions(10, 13) == tuple(expected[5:7])
    for clean in (False, True):
        log.close()
        log = open_log(disk, config, clean=clean)
        assert log.aborted_transactions(0, log.leo) == tuple(expected)


def test_lg_24_plain_write_inside_an_open_transaction() -> None:
    log = open_log()
    append(log, "a", pid=1, seq=0, txn=True)
    refused(log, ErrorCode.INVALID_TXN_STATE, batch("b", pid=1, seq=1))


async def test_lg_25_no_fsync_by_default_and_flush_messages_asks_for_it() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "a")  # whose directory it is becomes durable with the first (LG-03)
    before = disk.syncs
    for _ in range(99):
        append(log, "a")
    assert disk.syncs == before and log.recovery_point == 0
    log.update_config(LogConfig(flush_messages=1))
    append(log, "b")
    assert disk.syncs > before and log.recovery_point == log.leo
    disk.crash()
    assert open_log(disk).leo == 101


def test_rp_36_followers_take_only_what_continues_their_log() -> None:
    log = open_log()
    log.append_as_follower(batch("a", "b", base_offset=0, epoch=3))
    for wrong in (
        batch("c", base_offset=1, epoch=3),
        batch("c", base_offset=3, epoch=3),
        batch("c", base_offset=2, epoch=2),
        batch("c", base_offset=2, epoch=3) + batch("d", base_offset=4, epoch=3),
    ):
        with pytest.raises(UnexpectedAppend):
            log.append_as_follower(wrong)
        assert log.leo == 2
    damaged = batch("c", base_offset=2, epoch=3)
    damaged[-1] ^= 1
    with pytest.raises(ApiError, match="CRC"):
        log.append_as_follower(damaged)
    # a partial batch at the end is left for the next fetch
    info = log.append_as_follower(batch("c", base_offset=2, epoch=4) + batch("d", base_offset=3, epoch=4)[:-3])
    assert info is not None and (info.base_offset, info.last_offset, info.batch_count) == (2, 2, 1)
    assert log.epoch_entries == ((3, 0), (4, 2))
    assert log.append_as_follower(batch("e", base_offset=3, epoch=9), leader_epoch=8) is None
    assert log.append_as_follower(b"") is None


def test_rp_36_the_first_batch_may_straddle_the_log_start() -> None:
    log = open_log(log_start_offset=12)
    assert (log.log_start_offset, log.leo) == (12, 12)
    log.append_as_follower(batch("a", "b", "c", "d", base_offset=10, epoch=1))
    assert (log.log_start_offset, log.leo) == (12, 14)
    assert parse_header(log.read(12, 1 << 20, up_to=14)).base_offset == 10
    assert log.epoch_entries == ((1, 12),), "an epoch begins no earlier than the log"
    with pytest.raises(ApiError):
        log.read(11, 1 << 20, up_to=14)
    with pytest.raises(UnexpectedAppend):
        open_log(log_start_offset=12).append_as_follower(batch("a", "b", base_offset=10, epoch=1))


def test_followers_of_compacted_topics_accept_gaps() -> None:
    log = open_log(config=LogConfig(cleanup_policy=("compact",)))
    log.append_as_follower(batch("a", base_offset=5, epoch=1) + batch("b", base_offset=9, epoch=1))
    assert log.leo == 10 and values(log) == [(5, b"a"), (9, b"b")]
    with pytest.raises(UnexpectedAppend):
        log.append_as_follower(batch("c", base_offset=12, epoch=1), allow_gaps=False)


def test_raft_leader_appends_large_and_control_batches() -> None:
    log = open_log(config=LogConfig(max_message_bytes=100))
    change = LeaderChange(leader_id=NodeId(1), voters=(NodeId(1), NodeId(2)), granting_voters=(NodeId(1),))
    made = bytearray(control_batch([change, KRaftVersion(kraft_version=0)], timestamp_ms=NOW))
    log.append_as_leader(made, leader_epoch=5, wall_ms=NOW, origin=AppendOrigin.RAFT_LEADER)
    many = bytearray(build_batch([Record(None, b"x" * 10)] * 50, timestamp_ms=NOW, base_offset=2))
    info = log.append_as_leader(many, leader_epoch=5, wall_ms=NOW, origin=AppendOrigin.RAFT_LEADER)
    assert (info.base_offset, info.last_offset, log.latest_epoch) == (2, 51, 5)
    refused(
        log, ErrorCode.INVALID_RECORD, bytearray(control_batch([EndTxnMarker(commit=True, coordinator_epoch=0)], timestamp_ms=0))
    )
    assert len(everything(log)) == log.size_bytes
