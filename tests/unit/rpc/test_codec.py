"""Messages and frames as bytes."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.model.errors import ApiError, ErrorCode, error_code
from kraftlite.model.messages import methods
from kraftlite.model.messages.methods import ALL_METHODS, FETCH_SNAPSHOT, RAFT_FETCH, REPLICA_FETCH, VOTE
from kraftlite.model.messages.replica import ReplicaFetchResponse
from kraftlite.model.method import Method
from kraftlite.rpc import codec
from kraftlite.rpc.pbmap import MalformedMessage, mapper
from tests.harness.message_strategies import instances

BOTH = [(method, cls) for method in ALL_METHODS for cls in (method.request, method.response)]


@pytest.mark.parametrize(("method", "cls"), BOTH, ids=[f"{method}-{cls.__name__}" for method, cls in BOTH])
def test_every_message_maps_to_its_protobuf_field_by_field(method: Method, cls: type[Any]) -> None:
    codec.MessageCodec(method, cls)  # TypeError when a field is forgotten or of another type on one side


def test_every_method_is_declared_in_its_service() -> None:
    from kraftlite._pb import controller_pb2, faults_pb2, introspection_pb2, raft_pb2, replica_pb2, transactions_pb2

    declared = {}
    for module in (raft_pb2, controller_pb2, replica_pb2, introspection_pb2, transactions_pb2, faults_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for rpc in service.methods:
                declared[f"/{service.full_name}/{rpc.name}"] = rpc
    assert set(declared) == {codec.path(method) for method in ALL_METHODS}
    for method in ALL_METHODS:
        rpc = declared[codec.path(method)]
        suffix = "Frame" if method.hot else ""
        assert (rpc.client_streaming, rpc.server_streaming) == (method.hot, method.hot or method.streamed)
        assert rpc.input_type.name == method.request.__name__ + suffix
        assert rpc.output_type.name == method.response.__name__ + suffix


@settings(max_examples=500)
@given(
    st.sampled_from([both for both in BOTH if not both[0].hot]).flatmap(lambda both: st.tuples(st.just(both), instances(both[1])))
)
def test_every_unary_message_reads_back_as_it_was_written(case: tuple[tuple[Method, type[Any]], Any]) -> None:
    (method, cls), message = case
    found = codec.MessageCodec(method, cls)
    assert found.decode(found.encode(message)) == message


@settings(max_examples=300)
@given(
    st.sampled_from([both for both in BOTH if both[0].hot]).flatmap(lambda both: st.tuples(st.just(both), instances(both[1]))),
    st.integers(0, 2**64 - 1),
)
def test_every_hot_message_reads_back_from_its_frame(case: tuple[tuple[Method, type[Any]], Any], correlation_id: int) -> None:
    (method, cls), message = case
    found = codec.MessageCodec(method, cls)
    frame = codec.decode_frame(codec.encode_head_frame(correlation_id, *found.split(message)))
    assert frame.correlation_id == correlation_id and frame.head is not None
    assert found.join(frame.head, frame.payload) == message


def test_frames_are_the_protobuf_messages_that_the_service_declares() -> None:
    from kraftlite._pb import replica_pb2

    response = ReplicaFetchResponse(error=ErrorCode.NONE, session_id=5, partitions=(), payload=b"r" * 1000)
    data = codec.encode_head_frame(7, *codec.MessageCodec(REPLICA_FETCH, ReplicaFetchResponse).split(response))
    frame = replica_pb2.ReplicaFetchResponseFrame.FromString(data)
    assert (frame.correlation_id, frame.head.session_id, frame.payload) == (7, 5, b"r" * 1000)
    assert codec.decode_frame(frame.SerializeToString()) == codec.decode_frame(data)
    refusal = codec.encode_refusal_frame(8, ApiError(ErrorCode.NOT_CONTROLLER, "é"))
    found = replica_pb2.ReplicaFetchResponseFrame.FromString(refusal)
    assert (found.refusal.error, found.refusal.message) == (41, "é")
    assert replica_pb2.ReplicaFetchResponseFrame.FromString(codec.encode_failure_frame(8, "why")).failure == "why"
    assert replica_pb2.ReplicaFetchRequestFrame.FromString(codec.encode_cancel_frame(9)).cancel


def test_refusals_failures_and_cancels_read_back() -> None:
    for message in (None, "", "no é"):
        error = codec.decode_frame(codec.encode_refusal_frame(1, ApiError(ErrorCode.NOT_CONTROLLER, message))).refusal
        assert error is not None and (error.code, error.message) == (ErrorCode.NOT_CONTROLLER, message)
    assert codec.decode_frame(codec.encode_failure_frame(2, "x" * 300)).failure == "x" * 300
    assert codec.decode_frame(codec.encode_cancel_frame(2**63)).cancel
    assert error_code(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        codec.decode_frame(data)


@pytest.mark.parametrize("method", [VOTE, FETCH_SNAPSHOT, RAFT_FETCH])
def test_what_is_not_the_message_is_malformed(method: Method) -> None:
    found = codec.MessageCodec(method, method.response)
    with pytest.raises(MalformedMessage, match=method.response.__name__):
        found.join(b"\xff\xff", b"")
    with pytest.raises(MalformedMessage):
        found.join(b"\x08\x90\x4e", b"")  # error = 10000, which is no ErrorCode


def test_none_unchanged_and_empty_differ_on_the_wire() -> None:
    cls = methods.ELECT_LEADERS.request
    found = codec.MessageCodec(methods.ELECT_LEADERS, cls)
    none, empty = (cls(election_type=0, partitions=value, timeout_ms=1) for value in (None, ()))
    assert found.encode(none) != found.encode(empty)
    assert found.decode(found.encode(empty)).partitions == ()
    selector = methods.DELETE_TOPICS.request
    named = found = codec.MessageCodec(methods.DELETE_TOPICS, selector)
    from kraftlite.model.messages.controller import TopicSelector

    for entry in (TopicSelector(name="", topic_id=None), TopicSelector(name=None, topic_id=UUID(int=0))):
        assert named.decode(named.encode(selector(topics=(entry,), timeout_ms=1))).topics == (entry,)


def test_the_committed_protobuf_code_is_up_to_date() -> None:
    root = Path(__file__).resolve().parents[3]
    sys.path.insert(0, str(root / "scripts"))
    try:
        import gen_proto
    finally:
        sys.path.remove(str(root / "scripts"))
    assert gen_proto.stale() == []


def test_a_dataclass_that_is_not_like_its_message_does_not_compile() -> None:
    from kraftlite._pb import common_pb2

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Forgotten:
        host: str

    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongType:
        host: str
        port: bytes

    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongPresence:
        host: str | None
        port: int

    for cls, message in (
        (Forgotten, r"has fields \['host'\], but kraftlite.v1.Endpoint has \['host', 'port'\]"),
        (WrongType, r"WrongType\.port: must be bytes in protobuf"),
        (WrongPresence, r"WrongPresence\.host: must be optional in protobuf"),
    ):
        with pytest.raises(TypeError, match=message):
            mapper(cls, common_pb2.Endpoint)
