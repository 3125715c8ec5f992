"""A load generator that is librdkafka and nothing else: batches in, native callbacks out, no Python object per message.

The Python client costs about a microsecond per record, which would measure Python instead of the broker. This drives the library
that confluent-kafka bundles through ctypes: `rd_kafka_produce_batch` with payloads that are not copied, delivery reports as
events, and for consuming `rd_kafka_consume_callback_queue` with a native no-op as callback.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

PRODUCER, CONSUMER = 0, 1
EVENT_DR = 0x1
PARTITION_UA = -1
OFFSET_BEGINNING = -2


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int32),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


def _load() -> ctypes.CDLL:
    import confluent_kafka

    libs = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(libs.glob("librdkafka-*.so*")) or sorted(libs.glob("librdkafka*.so*"))
    if not found:
        raise RuntimeError(f"no bundled librdkafka in {libs}: confluent-kafka was not installed from a wheel")
    import confluent_kafka.cimpl  # loads the libraries that librdkafka needs

    lib = ctypes.CDLL(str(found[0]))
    lib.rd_kafka_conf_new.restype = c_void_p
    lib.rd_kafka_conf_set.argtypes = [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]
    lib.rd_kafka_conf_set_events.argtypes = [c_void_p, c_int]
    lib.rd_kafka_new.restype = c_void_p
    lib.rd_kafka_new.argtypes = [c_int, c_void_p, c_char_p, c_size_t]
    lib.rd_kafka_topic_new.restype = c_void_p
    lib.rd_kafka_topic_new.argtypes = [c_void_p, c_char_p, c_void_p]
    lib.rd_kafka_produce_batch.argtypes = [c_void_p, c_int32, c_int, POINTER(Message), c_int]
    lib.rd_kafka_queue_get_main.restype = c_void_p
    lib.rd_kafka_queue_get_main.argtypes = [c_void_p]
    lib.rd_kafka_queue_poll.restype = c_void_p
    lib.rd_kafka_queue_poll.argtypes = [c_void_p, c_int]
    lib.rd_kafka_event_type.argtypes = [c_void_p]
    lib.rd_kafka_event_message_count.restype = c_size_t
    lib.rd_kafka_event_message_count.argtypes = [c_void_p]
    lib.rd_kafka_event_message_next.restype = POINTER(Message)
    lib.rd_kafka_event_message_next.argtypes = [c_void_p]
    lib.rd_kafka_event_destroy.argtypes = [c_void_p]
    lib.rd_kafka_queue_new.restype = c_void_p
    lib.rd_kafka_queue_new.argtypes = [c_void_p]
    lib.rd_kafka_queue_destroy.argtypes = [c_void_p]
    lib.rd_kafka_consume_start_queue.argtypes = [c_void_p, c_int32, c_int64, c_void_p]
    lib.rd_kafka_consume_stop.argtypes = [c_void_p, c_int32]
    lib.rd_kafka_consume_callback_queue.argtypes = [c_void_p, c_int, c_void_p, c_void_p]
    lib.rd_kafka_topic_destroy.argtypes = [c_void_p]
    lib.rd_kafka_destroy.argtypes = [c_void_p]
    lib.rd_kafka_poll.argtypes = [c_void_p, c_int]
    lib.rd_kafka_err2str.restype = c_char_p
    return lib


@dataclass(frozen=True)
class Throughput:
    records: int
    errors: int
    bytes: int
    seconds: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


class Client:
    """One librdkafka handle."""

    def __init__(self, kind: int, config: Mapping[str, str]) -> None:
        self.lib = _load()
        error = ctypes.create_string_buffer(512)
        conf = self.lib.rd_kafka_conf_new()
        for name, value in config.items():
            if self.lib.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, 512) != 0:
                raise ValueError(error.value.decode())
        if kind == PRODUCER:
            self.lib.rd_kafka_conf_set_events(conf, EVENT_DR)
        self.handle = self.lib.rd_kafka_new(kind, conf, error, 512)
        if not self.handle:
            raise ValueError(error.value.decode())

    def topic(self, name: str) -> int:
        topic: int = self.lib.rd_kafka_topic_new(self.handle, name.encode(), None)
        return topic

    def close(self) -> None:
        self.lib.rd_kafka_destroy(self.handle)


def produce(
    config: Mapping[str, str],
    topic: str,
    *,
    records: int,
    size: int,
    partition: int = PARTITION_UA,
    batch: int = 1000,
    deadline_s: float = 60,
) -> Throughput:
    """Send `records` of `size` bytes as fast as they are taken; the clock runs until the last delivery report."""
    client = Client(PRODUCER, config)
    lib = client.lib
    rkt = client.topic(topic)
    payload = ctypes.create_string_buffer((bytes(range(256)) * (size // 256 + 1))[:size], size)
    messages = (Message * batch)()
    for message in messages:
        message.payload, message.len = ctypes.addressof(payload), size
    queue = lib.rd_kafka_queue_get_main(client.handle)
    sent = done = errors = 0
    start = time.perf_counter()
    try:
        while done + errors < records:
            if time.perf_counter() - start > deadline_s:
                break
            want = min(batch, records - sent)
            taken = lib.rd_kafka_produce_batch(rkt, partition, 0, messages, want) if want else 0
            sent += taken
            while event := lib.rd_kafka_queue_poll(queue, 0 if want and taken else 20):
                if lib.rd_kafka_event_type(event) == EVENT_DR:
                    count = lib.rd_kafka_event_message_count(event)
                    if lib.rd_kafka_event_message_next(event).contents.err:
                        errors += count
                    else:
                        done += count
                lib.rd_kafka_event_destroy(event)
                if taken:
                    break
        seconds = time.perf_counter() - start
    finally:
        lib.rd_kafka_queue_destroy(queue)
        lib.rd_kafka_topic_destroy(rkt)
        client.close()
    return Throughput(done, errors, done * size, seconds)


def consume(
    config: Mapping[str, str], topic: str, *, partitions: int, records: int, size: int, deadline_s: float = 60
) -> Throughput:
    """Read `records` from the beginning of all partitions; the clock starts with the first record."""
    client = Client(CONSUMER, config)
    lib = client.lib
    rkt = client.topic(topic)
    queue = lib.rd_kafka_queue_new(client.handle)
    noop = ctypes.cast(lib.rd_kafka_message_timestamp, c_void_p)
    got = 0
    start = first = time.perf_counter()
    try:
        for partition in range(partitions):
            lib.rd_kafka_consume_start_queue(rkt, partition, OFFSET_BEGINNING, queue)
        while got < records and time.perf_counter() - start < deadline_s:
            n = lib.rd_kafka_consume_callback_queue(queue, 200, noop, None)
            if got == 0:
                first = time.perf_counter()
                if n <= partitions:
                    continue  # no records: word that a partition's leader is not known yet; it takes librdkafka half a second
            got += max(n, 0)
        seconds = time.perf_counter() - first
        for partition in range(partitions):
            lib.rd_kafka_consume_stop(rkt, partition)
    finally:
        lib.rd_kafka_queue_destroy(queue)
        lib.rd_kafka_topic_destroy(rkt)
        client.close()
    return Throughput(got, 0, got * size, seconds)
