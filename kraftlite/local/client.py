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


def reach(bootstrap: str, timeout_s: float = 5.0) -> None:
    """Wait until one of the brokers takes connections; raises ClientError when none does, with each one's reason."""
    deadline = time.monotonic() + timeout_s
    while True:
        reasons = {}
        for address in bootstrap.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
            except OSError as error:
                reasons[address.strip()] = error.strerror or str(error)
            else:
                return
        if time.monotonic() >= deadline:
            raise ClientError(_nobody(reasons))
        time.sleep(0.25)


def _nobody(reasons: dict[str, str]) -> str:
    return f"no broker answered ({'; '.join(f'{address}: {reason}' for address, reason in reasons.items())})"


def ask(bootstrap: str, request: Any, response_type: type[T], timeout_s: float = 15.0) -> T:
    """Send one request (a kio message) to the first broker that answers; raises ClientError when none does."""
    from kio.serial import entity_reader, entity_writer

    payload = _frame(request, entity_writer)
    deadline = time.monotonic() + timeout_s
    reasons: dict[str, str] = {}
    while True:
        for address in bootstrap.split(","):
            try:
                raw = _exchange(address.strip(), payload, deadline)
            except (OSError, ValueError) as error:
                reasons[address.strip()] = getattr(error, "strerror", None) or str(error) or type(error).__name__
                continue
            header_type = response_type.__header_schema__  # type: ignore[attr-defined]
            header, size = entity_reader(header_type)(raw, 0)
            message, _ = entity_reader(response_type)(raw, size)  # type: ignore[type-var]
            assert header.correlation_id == 1
            return message
        if time.monotonic() >= deadline - 1:
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
    host, _, port = address.rpartition(":")
    left = max(0.2, min(_CONNECT_TIMEOUT_S, deadline - time.monotonic()))
    with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=left) as connection:
        connection.settimeout(max(0.5, deadline - time.monotonic()))
        connection.sendall(payload)
        (size,) = struct.unpack(">i", _read(connection, 4))
        if not 0 <= size <= _MAX_RESPONSE:
            raise ValueError(f"a response of {size} bytes")
        return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = connection.recv(min(size - len(parts), 1 << 20))
        if not data:
            raise ValueError("the connection was closed")
        parts += data
    return bytes(parts)


def fetch_quorum(bootstrap: str) -> dict[str, Any]:
    """The quorum as its leader describes it. While an election runs it is asked again, for ten seconds."""
    import kraftlite.wire.kio_import  # noqa: F401

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
