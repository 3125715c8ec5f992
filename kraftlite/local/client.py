"""Talking to a cluster as any client does: librdkafka's settings, and single requests for what librdkafka lacks."""

from __future__ import annotations

import socket
import struct
import time
from io import BytesIO
from typing import Any, TypeVar

from kraftlite.local.state import LocalError

T = TypeVar("T")
_CONNECT_TIMEOUT_S = 3.0
_PROBE_TIMEOUT_S = 5.0
"""For an answer to ApiVersions: long enough for a broker on a busy machine, short enough to be told of a port that is silent."""
_UNREACHABLE_S = 5.0
"""For how long addresses that take no connection are tried again: as long as a broker may take to start."""
_MAX_RESPONSE = 64 << 20
_QUORUM_TRIES = 40
_QUORUM_PAUSE_S = 0.25


class ClientError(LocalError):
    """No broker answered, or it refused; the message is one line."""


def client_config(bootstrap: str) -> dict[str, Any]:
    """What every librdkafka client of ours has in common: quiet, and quick to try again."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "kraftlite-cli",
        "log_level": 0,
        "error_cb": lambda error: None,
        "socket.connection.setup.timeout.ms": 5000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
    }


def reach(bootstrap: str, timeout_s: float = _UNREACHABLE_S, probe_s: float = _PROBE_TIMEOUT_S) -> None:
    """Wait until one of the brokers answers as a Kafka broker; raises ClientError when none does, with each one's reason.

    One that takes the connection has `probe_s` for its answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        reasons = {}
        for address in bootstrap.split(","):
            try:
                _exchange(address.strip(), _PROBE, time.monotonic() + probe_s)
            except (OSError, ValueError) as error:
                reasons[address.strip()] = _reason(error)
            else:
                return
        if time.monotonic() >= deadline:
            raise ClientError(_nobody(reasons))
        time.sleep(0.25)


_PROBE = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions v0 without a client id: what every broker answers."""


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, TimeoutError):
        return "it takes connections and answers nothing" if isinstance(error, _Silent) else "the connection timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Unreachable(OSError):
    """The address takes no connection. `strerror` says why."""


class _Silent(TimeoutError):
    """The connection stands, and no answer came."""


def _nobody(reasons: dict[str, str]) -> str:
    return f"no broker answered ({'; '.join(f'{address}: {reason}' for address, reason in reasons.items())})"


def ask(bootstrap: str, request: Any, response_type: type[T], timeout_s: float = 15.0) -> T:
    """Send one request (a kio message) to the first broker that answers; raises ClientError when none does."""
    from kio.serial import entity_reader, entity_writer

    payload = _frame(request, entity_writer)
    began = time.monotonic()
    deadline = began + timeout_s
    reasons: dict[str, str] = {}
    while True:
        unreachable = True
        for address in bootstrap.split(","):
            try:
                raw = _exchange(address.strip(), payload, deadline)
            except (OSError, ValueError) as error:
                reasons[address.strip()] = _reason(error)
                unreachable = unreachable and isinstance(error, _Unreachable)
                continue
            header_type = response_type.__header_schema__  # type: ignore[attr-defined]
            header, size = entity_reader(header_type)(raw, 0)
            message, _ = entity_reader(response_type)(raw, size)  # type: ignore[type-var]
            assert header.correlation_id == 1
            return message
        if time.monotonic() >= min(deadline - 1, began + _UNREACHABLE_S if unreachable else deadline):
            raise ClientError(_nobody(reasons))
        time.sleep(0.25)


def _frame(request: Any, entity_writer: Any) -> bytes:
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=1,
        client_id="kraftlite-cli",
    )
    buffer = BytesIO()
    entity_writer(header_type)(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def _exchange(address: str, payload: bytes, deadline: float) -> bytes:
    """One request and its answer. Raises OSError or ValueError, whose text says what is wrong with the address."""
    host, _, port = address.rpartition(":")
    left = max(0.2, min(_CONNECT_TIMEOUT_S, deadline - time.monotonic()))
    try:
        connection = socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=left)
    except OSError as error:
        raise _Unreachable(
            error.errno, "the connection timed out" if isinstance(error, TimeoutError) else error.strerror
        ) from None
    with connection:
        connection.sendall(payload)
        head = _read(connection, 4, deadline)
        (size,) = struct.unpack(">i", head)
        if size < 4 or size > _MAX_RESPONSE:
            raise ValueError(_no_kafka(head))
        if size in _HTTP2_SETTINGS:  # a size that an answer could have, too: what comes next tells
            rest = _read(connection, 4, deadline)
            if rest == bytes(4):
                raise ValueError(_GRPC)
            return rest + _read(connection, size - 4, deadline)
        return _read(connection, size, deadline)


_HTTP2_SETTINGS = range(0x04, 0x10000, 0x100)
"""The first four bytes of HTTP/2's first frame, its length and type, read as the size of an answer."""
_GRPC = "it speaks gRPC, which nodes talk to one another; clients need a broker's Kafka listener"


def _no_kafka(head: bytes) -> str:
    """What speaks there, by its first four bytes."""
    if head == b"HTTP":
        return "it speaks HTTP, not Kafka's protocol"
    if head[0] in (0x15, 0x16) and head[1] == 3:
        return "it speaks TLS, which is not supported"
    return f"it does not speak Kafka's protocol: its answer begins with 0x{head.hex()}"


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        connection.settimeout(max(0.5, deadline - time.monotonic()))
        try:
            data = connection.recv(min(size - len(parts), 1 << 20))
        except TimeoutError:
            raise _Silent from None
        if not data:
            raise ValueError("it closed the connection without an answer")
        parts += data
    return bytes(parts)


def fetch_quorum(bootstrap: str) -> dict[str, Any]:
    """The quorum as its leader describes it. While an election runs it is asked again, for ten seconds."""
    import kraftlite.protocol.kio_import  # noqa: F401

    # isort: split
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
    from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse

    asked: Any = TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),))  # type: ignore[arg-type]
    reason = ""
    for _ in range(_QUORUM_TRIES):
        answer = ask(bootstrap, DescribeQuorumRequest(topics=(asked,)), DescribeQuorumResponse)
        partition = answer.topics[0].partitions[0] if answer.topics and answer.topics[0].partitions else None
        code = answer.error_code if answer.error_code != 0 or partition is None else partition.error_code
        if code == 0 and partition is not None:
            return _as_dict(partition, answer.nodes)
        reason = answer.error_message or getattr(code, "name", str(code)).upper()
        time.sleep(_QUORUM_PAUSE_S)
    raise ClientError(f"the quorum did not answer: {reason}")


def _as_dict(partition: Any, nodes: Any) -> dict[str, Any]:
    from kraftlite.model.ids import uuid_to_str

    endpoints = {int(node.node_id): [f"{item.name}://{item.host}:{item.port}" for item in node.listeners] for node in nodes}

    def replica(item: Any) -> dict[str, Any]:
        directory = item.replica_directory_id
        return {
            "id": int(item.replica_id),
            "directory_id": None if directory is None or directory.int == 0 else uuid_to_str(directory),
            "log_end_offset": int(item.log_end_offset),
            "last_fetch_timestamp": int(item.last_fetch_timestamp),
            "last_caught_up_timestamp": int(item.last_caught_up_timestamp),
            "endpoints": endpoints.get(int(item.replica_id), []),
        }

    return {
        "leader_id": int(partition.leader_id),
        "leader_epoch": int(partition.leader_epoch),
        "high_watermark": int(partition.high_watermark),
        "voters": sorted((replica(item) for item in partition.current_voters), key=lambda item: item["id"]),
        "observers": sorted((replica(item) for item in partition.observers), key=lambda item: item["id"]),
    }
