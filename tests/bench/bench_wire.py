"""What the codecs and a whole request cost, against kio and kafka-python.

Run it by hand: `python -m tests.bench.bench_wire [--json]`.
Times are CPU microseconds per message, the best of several rounds; state goals as ratios to the lines beside them.
"""

from __future__ import annotations

import asyncio
import io
import json
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer import FetchResponse as PyFetchResponse
from kafka.protocol.metadata import MetadataResponse as PyMetadataResponse
from kafka.protocol.producer import ProduceRequest as PyProduceRequest
from kafka.protocol.producer import ProduceResponse as PyProduceResponse
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.kio_codec import build_entity
from kraftlite.replication.api import ProduceResult
from kraftlite.wire import fetch_codec, hot_codec, metadata_codec
from kraftlite.wire.frames import Connection, ConnectionLimits
from kraftlite.wire.turns import Turns
from tests.harness.wire_fakes import LISTENER, Harness, batch, broker, encode_body, image, partition, request_bytes

ROUNDS = 5


def cost(work: Callable[[], object], *, seconds: float = 0.15) -> float:
    """CPU microseconds per call."""
    times, best = 1, float("inf")
    while True:
        started = time.process_time()
        for _ in range(times):
            work()
        spent = time.process_time() - started
        if spent >= seconds / ROUNDS:
            break
        times *= 4
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - started) / times)
    return best * 1e6


def kio_write(api_key: int, version: int, values: dict[str, Any]) -> Callable[[], bytes]:
    schema = load_response_schema(api_key, version)
    write = entity_writer(schema)

    def work() -> bytes:
        buffer = io.BytesIO()
        write(buffer, build_entity(schema, values))
        return buffer.getvalue()

    return work


def produce_request(count: int) -> bytes:
    parts = [{"index": index, "records": bytes(16 * 1024)} for index in range(count)]
    topic = {"name": "events", "partition_data": parts}
    return encode_body(0, 9, {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": [topic]})


def produce_codec() -> dict[str, float]:
    found: dict[str, float] = {}
    for count in (1, 10):
        body = produce_request(count)
        view = memoryview(bytearray(body))
        read = entity_reader(load_request_schema(0, 9))
        found[f"produce v9 decode, {count} x 16 KiB: hand"] = cost(lambda view=view: hot_codec.parse_produce(view, 0, 9))
        found[f"produce v9 decode, {count} x 16 KiB: kio"] = cost(lambda body=body, read=read: read(body, 0))
        found[f"produce v9 decode, {count} x 16 KiB: kafka-python"] = cost(lambda body=body: PyProduceRequest[9].decode(body))
        done = [hot_codec.ProducedPartition(index, 0, 5, -1, 0, None, None) for index in range(count)]
        topics = [hot_codec.ProducedTopic("events", None, done)]
        values = {
            "throttle_time": 0,
            "responses": [
                {
                    "name": "events",
                    "partition_responses": [
                        {
                            "index": index,
                            "error_code": 0,
                            "base_offset": 5,
                            "log_append_time": None,
                            "log_start_offset": 0,
                            "record_errors": [],
                            "error_message": None,
                        }
                        for index in range(count)
                    ],
                }
            ],
        }
        body = hot_codec.encode_produce(1, 9, topics)[9:]
        message = PyProduceResponse[9].decode(body)
        found[f"produce v9 response, {count}: hand"] = cost(lambda topics=topics: hot_codec.encode_produce(1, 9, topics))
        found[f"produce v9 response, {count}: kio"] = cost(kio_write(0, 9, values))
        found[f"produce v9 response, {count}: kafka-python"] = cost(lambda message=message: message.encode())
    return found


def fetch_codecs() -> dict[str, float]:
    found: dict[str, float] = {}
    records = bytes(1024 * 1024)
    one = fetch_codec.FetchedPartition(0, 0, 9, 9, 0, None, -1, records, None, None)
    topics = [fetch_codec.FetchedTopic("events", None, [one])]
    message = PyFetchResponse[12].decode(b"".join(fetch_codec.encode_fetch(1, 12, topics))[9:])
    found["fetch v12 response, 1 MiB: hand"] = cost(lambda: fetch_codec.encode_fetch(1, 12, topics))
    found["fetch v12 response, 1 MiB: kafka-python"] = cost(lambda: message.encode())
    for count in (1, 10, 100):
        parts = [{"partition": index, "fetch_offset": 5, "partition_max_bytes": 100} for index in range(count)]
        values: dict[str, Any] = {
            "replica_id": -1,
            "max_wait": 1,
            "min_bytes": 1,
            "topics": [{"topic": "events", "partitions": parts}],
            "forgotten_topics_data": [],
        }
        body = encode_body(1, 12, values)
        view = memoryview(bytearray(body))
        read = entity_reader(load_request_schema(1, 12))
        found[f"fetch v12 decode, {count}: hand"] = cost(lambda view=view: fetch_codec.parse_fetch(view, 0, 12))
        found[f"fetch v12 decode, {count}: kio"] = cost(lambda body=body, read=read: read(body, 0))
    return found


def metadata_codecs() -> dict[str, float]:
    found: dict[str, float] = {}
    view = image([broker(1), broker(2), broker(3)], {f"topic-{number}": [partition([1, 2, 3])] * 3 for number in range(100)})
    cache = MetadataCache("c")
    cache.set_image(view)

    def topics() -> list[bytes]:
        return [
            metadata_codec.encode_topic(cache.topic_metadata(topic, LISTENER, listener_errors=True), 12) for topic in view.topics
        ]

    brokers = metadata_codec.encode_brokers(cache.alive_brokers(LISTENER), 12)
    encoded = topics()

    def frame(parts: list[bytes]) -> bytes:
        return metadata_codec.encode_metadata(1, 12, brokers=brokers, cluster_id="c", controller_id=1, topics=parts)

    body = frame(encoded)[9:]
    message = PyMetadataResponse[12].decode(body)
    schema = load_response_schema(3, 12)
    entity = entity_reader(schema)(body, 0)[0]

    def kio() -> None:
        entity_writer(schema)(io.BytesIO(), entity)

    found["metadata v12, 100 x 3, first time in an image: hand"] = cost(lambda: frame(topics()))
    found["metadata v12, 100 x 3, again: hand"] = cost(lambda: frame(encoded))
    found["metadata v12, 100 x 3: kio (encode only)"] = cost(kio)
    found["metadata v12, 100 x 3: kafka-python (encode only)"] = cost(lambda: message.encode())
    return found


class _Sink:
    """A transport that swallows."""

    written = 0

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if name == "peername" else None

    def writelines(self, parts: list[bytes]) -> None:
        self.written += sum(map(len, parts))

    def set_write_buffer_limits(self, **_limits: int) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def close(self) -> None:
        return None


async def requests() -> dict[str, float]:
    """A whole Produce in the broker's process but for sockets and log: frame, parse, handlers, fake append, response, write."""
    found: dict[str, float] = {}
    for size in (100, 1024, 16 * 1024):
        h = Harness({"events": [partition([1])]})
        h.replicas.append = lambda entries, *, acks, timeout_ms, on_done, lease, transaction: on_done(  # type: ignore[method-assign]
            [ProduceResult(tp=entries[0].tp, error=ErrorCode.NONE, base_offset=5)]
        )
        h.listener._server = object()  # type: ignore[assignment]
        connection = Connection(h.listener, h.apis.handle_request, ConnectionLimits(max_request_bytes=1 << 30))
        connection.connection_made(_Sink())  # type: ignore[arg-type]
        values = {
            "transactional_id": None,
            "acks": 1,
            "timeout": 1000,
            "topic_data": [{"name": "events", "partition_data": [{"index": 0, "records": bytes(batch(bytes(size)))}]}],
        }
        payload = request_bytes(0, 9, values, 1)
        frame = struct.pack(">i", len(payload)) + payload

        turns = h.listener.share.turns

        def work(connection: Connection = connection, frame: bytes = frame, turns: Turns = turns) -> None:
            turns._used_ns = connection.used_ns = 0  # as in a new turn of the loop: the loop does not run meanwhile
            at = 0
            while at < len(frame):
                target = connection.get_buffer(-1)
                taken = min(len(target), len(frame) - at)
                target[:taken] = frame[at : at + taken]
                connection.buffer_updated(taken)
                at += taken

        found[f"whole produce, {size} B, without sockets and log"] = cost(work)
    return found


def main() -> None:
    found = produce_codec() | fetch_codecs() | metadata_codecs() | asyncio.run(requests())
    if "--json" in sys.argv:
        print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1))
        return
    for name, value in found.items():
        print(f"{value:10.2f} us  {name}")


if __name__ == "__main__":
    main()
