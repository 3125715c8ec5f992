"""What the client encodes and decodes by hand, against the broker's codecs and kio's.

Source: Kafka protocol guide: Produce v9, Fetch v12, ListOffsets v7.
"""

from __future__ import annotations

import pytest

from kraftlite.client.connection import PADDING_BYTES, VERSIONS, Buffer
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol import record_requests as protocol
from kraftlite.protocol.api_keys import FETCH, LIST_OFFSETS, PRODUCE
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.kio_codec import decode_request, encode_response
from kraftlite.protocol.record_requests import OffsetAt
from kraftlite.wire import fetch_codec, hot_codec

T0, T1, U7 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("ü", 7)
HEAD = b"\0\0\0\1\0"
"""Correlation id and no tags: where a response to a flexible request begins."""


def test_a_fetch_request_is_read_as_it_was_meant() -> None:
    body = protocol.encode_fetch(U7, 5, leader_epoch=3, max_bytes=1_000, max_wait_ms=200, read_committed=True)
    found = fetch_codec.parse_fetch(memoryview(body), 0, VERSIONS[FETCH])
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes, found.isolation_level) == (200, 1, 1_000, 1)
    assert (found.replica_id, found.session_id, found.session_epoch, found.rack_id, found.forgotten) == (-1, 0, -1, "", [])
    wanted = fetch_codec.FetchPartition(7, 3, 5, -1, 1_000)
    assert found.topics == [fetch_codec.FetchTopic("ü", None, [wanted])]


def fetch_response(error: int = 0, records: bytes = b"records" * 1_000, **changes: object) -> bytes:
    values = {
        "partition": 7,
        "error": error,
        "hw": 50,
        "last_stable_offset": 40,
        "log_start_offset": 3,
        "aborted": [(9, 10), (11, 12)],
        "preferred_read_replica": -1,
        "records": records,
        "diverging": (1, 2),
        "leader": (3, 4),
        **changes,
    }
    topic = fetch_codec.FetchedTopic("ü", None, [fetch_codec.FetchedPartition(**values)])  # type: ignore[arg-type]
    return b"".join(fetch_codec.encode_fetch(1, VERSIONS[FETCH], [topic]))[4:]


def test_a_fetch_response_is_a_view_of_its_frame() -> None:
    frame = memoryview(fetch_response())
    code, found = protocol.decode_fetch(frame, U7)
    assert code is ErrorCode.NONE
    assert found.records == b"records" * 1_000
    assert found.records.obj is frame.obj
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (50, 40, 3)
    assert found.aborted == ((9, 10), (11, 12))
    code, found = protocol.decode_fetch(memoryview(fetch_response(6, b"", aborted=None)), U7)
    assert (code, len(found.records), found.aborted) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, ())


def test_a_fetch_response_that_is_cut_off_or_of_something_else_is_refused() -> None:
    frame = fetch_response(records=b"records")
    for size in range(5, frame.index(b"records") + 7):
        with pytest.raises(ProtocolViolation):
            protocol.decode_fetch(memoryview(frame[:size]), U7)
    with pytest.raises(ProtocolViolation, match=r"ü-7 in the response to a fetch of ü-8"):
        protocol.decode_fetch(memoryview(frame), TopicPartition("ü", 8))


def test_produce_requests_and_responses() -> None:
    body = b"".join(protocol.encode_produce({T0: b"a" * 300, T1: b"b", U7: b"c"}, acks=-1, timeout_ms=9))
    found = hot_codec.parse_produce(memoryview(bytearray(body)), 0, VERSIONS[PRODUCE])
    assert (found.transactional_id, found.acks, found.timeout_ms) == (None, -1, 9)
    sent = [(it.name, [(one.partition, one.records) for one in it.partitions]) for it in found.topics]
    assert sent == [("t", [(0, b"a" * 300), (1, b"b")]), ("ü", [(7, b"c")])]
    part = {"log_append_time": -1, "log_start_offset": 0, "record_errors": [], "error_message": None}
    bad = {"record_errors": [{"batch_index": 0, "batch_index_error_message": "why"}]}
    answers = [
        {"name": "t", "partition_responses": [{"index": 0, "error_code": 0, "base_offset": 12, **part}]},
        {"name": "ü", "partition_responses": [{"index": 7, "error_code": 87, "base_offset": -1, **part, **bad}]},
    ]
    frame = HEAD + encode_response(PRODUCE, VERSIONS[PRODUCE], {"responses": answers, "throttle_time": 0})
    assert protocol.decode_produce(memoryview(frame)) == {
        T0: (ErrorCode.NONE, 12, ""),
        U7: (ErrorCode.INVALID_RECORD, -1, "why"),
    }


def test_list_offsets_with_times_that_no_calendar_has() -> None:
    body = protocol.encode_list_offsets({T0: (3, -1), T1: (-1, 1_000)}, read_committed=True)
    found = decode_request(LIST_OFFSETS, VERSIONS[LIST_OFFSETS], memoryview(body), 0)
    assert (found.replica_id, found.isolation_level) == (-1, 1)
    assert [(it.partition_index, it.current_leader_epoch) for it in found.topics[0].partitions] == [(0, 3), (1, -1)]
    part = {"error_code": 0, "timestamp": 1_000, "offset": 5, "leader_epoch": 2}
    answers = [{"name": "t", "partitions": [{"partition_index": 0, **part}, {"partition_index": 1, **part, "error_code": 5}]}]
    frame = HEAD + encode_response(LIST_OFFSETS, VERSIONS[LIST_OFFSETS], {"throttle_time": 0, "topics": answers})
    at = OffsetAt(5, 1_000, 2)
    assert protocol.decode_list_offsets(memoryview(frame)) == {
        T0: (ErrorCode.NONE, at),
        T1: (ErrorCode.LEADER_NOT_AVAILABLE, at),
    }
    far = bytearray(frame)
    place = frame.index((1_000).to_bytes(8, "big"))
    far[place : place + 8] = (2**62).to_bytes(8, "big")
    assert protocol.decode_list_offsets(memoryview(far))[T0][1].timestamp == 2**62


def test_the_buffer_is_used_again_and_grows_by_replacement() -> None:
    buffer = Buffer()
    first = buffer.take(1_000)
    first[:3] = b"abc"
    assert bytes(buffer.take(10)[:3]) == b"abc"
    large = buffer.take(50 << 20)
    assert len(large) == 50 << 20
    assert bytes(first[:3]) == b"abc", "a view of the smaller one is still there"
    assert len(memoryview(large.obj)) >= (50 << 20) + PADDING_BYTES  # type: ignore[arg-type]


def test_error_codes_of_the_future_are_server_errors() -> None:
    assert error_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_code(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR
