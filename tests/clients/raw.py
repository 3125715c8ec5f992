"""One connection to one broker, on which any request can be sent in any version: by kio's schemas, or as bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import kraftlite.protocol.kio_import  # noqa: F401
from kraftlite.log.batch import BatchHeader, iter_batches
from kraftlite.protocol.kio_codec import decode_response
from tests.harness.local import PATIENCE_S, Cluster

# isort: split
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

CREATE_DELEGATION_TOKEN = 38


class Closed(ConnectionError):
    """The broker closed the connection instead of answering."""


class Connection:
    def __init__(self, address: str, timeout_s: float = PATIENCE_S) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation = 0

    @classmethod
    @contextlib.contextmanager
    def to(cls, cluster: Cluster, node_id: int | None = None) -> Iterator[Connection]:
        """To this broker, or to the first."""
        address = cluster.node(cluster.brokers[0] if node_id is None else node_id).kafka
        assert address is not None
        connection = cls(address)
        try:
            yield connection
        finally:
            connection.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes:
        """The next response, without its size. Raises Closed."""
        return self._bytes(struct.unpack(">i", self._bytes(4))[0])

    def _bytes(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                part = self._socket.recv(size - len(found))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed("the broker closed the connection")
            found += part
        return bytes(found)

    def send_request(self, request: Any) -> int:
        """Send one of kio's requests. Returns its correlation id."""
        self._correlation += 1
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self._correlation,
            client_id="raw",
        )
        buffer = BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(type(request))(buffer, request)
        self.send(buffer.getvalue())
        return self._correlation

    def answer(self, key: int, version: int) -> Any:
        """The next response, read in full: bytes that are left are an error of the broker."""
        return self.read(self.receive(), key, version)

    def read(self, raw: bytes, key: int, version: int) -> Any:
        if key == CREATE_DELEGATION_TOKEN:  # whose times are -1 where there are none, which kio does not read
            return decode_response(key, version, memoryview(raw))
        schema = load_response_schema(key, version)
        header, at = entity_reader(schema.__header_schema__)(raw, 0)
        message, end = entity_reader(schema)(raw, at)
        assert header.correlation_id == self._correlation
        assert at + end == len(raw), f"{len(raw)} bytes, of which {at} and {end} were read"
        return message

    def ask(self, request: Any) -> Any:
        self.send_request(request)
        return self.answer(request.__api_key__, request.__version__)

    def offered(self) -> dict[int, tuple[int, int]]:
        """The versions of every API, as the broker advertises them."""
        answer = self.ask(load_request_schema(18, 0)())
        return {int(it.api_key): (int(it.min_version), int(it.max_version)) for it in answer.api_keys}

    def batches(self, topic: str, partition: int = 0, offset: int = 0) -> list[BatchHeader]:
        """The headers of the batches from this offset on, of what one fetch returns."""
        from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic

        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=1 << 24,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait=_ms(0),
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
            rack_id="",
        )
        answer = self.ask(request)
        (found,) = (it for one in answer.responses for it in one.partitions)
        assert int(found.error_code) == 0, found
        return [header for header, _batch in iter_batches(found.records or b"")]


def _ms(value: int) -> Any:
    from datetime import timedelta

    return timedelta(milliseconds=value)
