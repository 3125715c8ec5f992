"""Streaming events into a topic while remembering what was acknowledged, and the read-back that compares.

Every record carries its number in the header `seq`. Kept per record: a checksum of key and value, partition and offset, which
is what it takes to say that each acknowledged record is there exactly once, in order, unchanged, and that nothing else is.
"""

from __future__ import annotations

import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from kraftlite.local.client import client_config
from kraftlite.local.source import Event, Source
from kraftlite.local.state import LocalError

HEADER = "seq"
_POLL_EVERY = 256
_READ_BATCH = 5000
_READ_IDLE_S = 30.0


def checksum(key: bytes | None, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key) if key is not None else 1)


@dataclass(slots=True)
class Gap:
    """The longest time without an acknowledgement of a partition. Times are wall milliseconds."""

    last_ack_ms: int = 0
    longest_ms: int = 0
    began_ms: int = 0
    ended_ms: int = 0

    def ack(self, now_ms: int) -> None:
        if self.last_ack_ms and now_ms - self.last_ack_ms > self.longest_ms:
            self.longest_ms, self.began_ms, self.ended_ms = now_ms - self.last_ack_ms, self.last_ack_ms, now_ms
        self.last_ack_ms = now_ms


@dataclass(slots=True)
class Ledger:
    """The records that were sent and those that were acknowledged, by record number."""

    sums: array[int] = field(default_factory=lambda: array("L"))
    partitions: array[int] = field(default_factory=lambda: array("i"))
    """-1 until acknowledged."""
    offsets: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    """The time at which each record was acknowledged (wall milliseconds), -1 until then."""
    acknowledged: int = 0
    failed: int = 0
    first_error: str | None = None
    errors: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The reason by record number why it was not acknowledged, and when that was known (wall milliseconds)."""
    bytes_sent: int = 0
    gaps: dict[int, Gap] = field(default_factory=dict)

    def sent(self, key: bytes | None, value: bytes) -> int:
        self.sums.append(checksum(key, value))
        self.partitions.append(-1)
        self.offsets.append(-1)
        self.times.append(-1)
        self.bytes_sent += len(value)
        return len(self.sums) - 1

    def acked(self, number: int, partition: int, offset: int, now_ms: int) -> None:
        self.partitions[number] = partition
        self.offsets[number] = offset
        self.times[number] = now_ms
        self.acknowledged += 1
        gap = self.gaps.get(partition)
        if gap is None:
            gap = self.gaps[partition] = Gap()
        gap.ack(now_ms)

    def refused(self, number: int, error: str, reason: str, now_ms: int) -> None:
        self.failed += 1
        self.errors[number] = (error, now_ms)
        self.first_error = self.first_error or f"{error}: {reason}"

    def history(self, topic: str) -> Iterator[dict[str, Any]]:
        """A line for each record, as `kraftlite pipeline audit --history` reads them."""
        for number, total in enumerate(self.sums):
            line: dict[str, Any] = {"topic": topic, "seq": number, "checksum": total}
            if self.partitions[number] >= 0:
                place = {"partition": self.partitions[number], "offset": self.offsets[number], "time_ms": self.times[number]}
                yield {**line, **place}
            else:
                error, time_ms = self.errors.get(number, ("UNANSWERED", -1))
                yield {**line, "error": error, "time_ms": time_ms}


class Pace:
    """The speed of sending: `limit` records a second, None: as fast as it goes. Set from another thread."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._allowance = 0.0
        self._at = time.monotonic()

    def wait_ms(self, count: int) -> float:
        """Return how long to wait before the next records, `count` having been sent since the last call."""
        now = time.monotonic()
        limit = self.limit
        if limit is None:
            self._allowance, self._at = 0.0, now
            return 0.0
        self._allowance = min(self._allowance + (now - self._at) * limit, limit / 10) - count
        self._at = now
        return max(0.0, -self._allowance / limit) * 1000


class Streamer:
    """Sends a source's events with acks=all and idempotence. `run` returns when every record has its answer."""

    def __init__(self, bootstrap: str, topic: str, source: Source, pace: Pace) -> None:
        self.topic = topic
        self.source = source
        self.pace = pace
        self.ledger = Ledger()
        self.finished = threading.Event()
        self._producer: Any = Producer(
            {
                **client_config(bootstrap),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                # How long librdkafka may wait before it asks again who leads: by default up to a second after an election.
                "retry.backoff.max.ms": 200,
                "delivery.timeout.ms": 120_000,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "topic.metadata.refresh.interval.ms": 5_000,
            }
        )

    def run(self, progress: Callable[[], None]) -> None:
        try:
            since = 0
            for event in self.source.events:
                self._send(event)
                since += 1
                if since >= _POLL_EVERY:
                    self._breathe(since)
                    since = 0
                    progress()
            while self._producer.flush(0.1):
                progress()
            progress()
        except KafkaException as error:
            raise LocalError(f"the producer failed: {error.args[0].str()}") from None
        finally:
            self.finished.set()

    def _breathe(self, count: int) -> None:
        """Serve acknowledgements, and keep the pace."""
        left_ms = self.pace.wait_ms(count)
        self._producer.poll(0)
        deadline = time.monotonic() + left_ms / 1000
        while (left := deadline - time.monotonic()) > 0:
            self._producer.poll(min(left, 0.01))

    def _send(self, event: Event) -> None:
        number = self.ledger.sent(event.key, event.value)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.ledger.acked(number, message.partition(), message.offset(), time.time_ns() // 1_000_000)
            else:
                self.ledger.refused(number, error.name(), error.str(), time.time_ns() // 1_000_000)

        arguments: dict[str, Any] = {"timestamp": event.timestamp_ms} if event.timestamp_ms is not None else {}
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    key=event.key,
                    value=event.value,
                    headers=[(HEADER, b"%d" % number)],
                    on_delivery=delivered,
                    **arguments,
                )
                return
            except BufferError:
                self._producer.poll(0.05)


@dataclass(slots=True)
class Verdict:
    """The result of the read-back."""

    sent: int
    acknowledged: int
    read: int = 0
    lost: int = 0
    duplicated: int = 0
    foreign: int = 0
    altered: int = 0
    misplaced: int = 0
    """The number of records at another partition or offset than the acknowledgement said."""
    out_of_order: int = 0
    unacknowledged_present: int = 0

    @property
    def holds(self) -> bool:
        wrong = self.lost + self.duplicated + self.foreign + self.altered + self.misplaced + self.out_of_order
        return wrong == 0 and self.acknowledged > 0 and self.acknowledged == self.sent

    def line(self) -> str:
        if self.holds:
            return (
                f"VERDICT: nothing lost. {self.acknowledged:,} records acknowledged, {self.read:,} read back: "
                "each exactly once, in order, unchanged, and no other."
            )
        found = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "never sent": self.foreign,
            "altered": self.altered,
            "misplaced": self.misplaced,
            "out of order": self.out_of_order,
            "not acknowledged": self.sent - self.acknowledged,
        }
        listed = ", ".join(f"{count:,} {name}" for name, count in found.items() if count)
        return f"VERDICT: FAILED. Of {self.sent:,} records: {listed or 'none was acknowledged'}."


def read_back(bootstrap: str, topic: str, partitions: int, ledger: Ledger, progress: Callable[[int], None]) -> Verdict:
    """Read the whole topic and compare it with the ledger."""
    verdict = Verdict(sent=len(ledger.sums), acknowledged=ledger.acknowledged)
    consumer: Any = Consumer({**client_config(bootstrap), "group.id": "kraftlite-verify", "enable.auto.commit": False})
    seen = bytearray(len(ledger.sums))
    last_number = dict.fromkeys(range(partitions), -1)
    try:
        ends = {}
        for index in range(partitions):
            _, ends[index] = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30.0)
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        pending = {index for index, end in ends.items() if end > 0}
        idle_since = time.monotonic()
        while pending:
            messages = consumer.consume(_READ_BATCH, 0.2)
            for message in messages:
                if message.error() is not None:
                    continue
                _compare(message, ledger, seen, last_number, verdict)
                if message.offset() >= ends[message.partition()] - 1:
                    pending.discard(message.partition())
            progress(verdict.read)
            if messages:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _READ_IDLE_S:
                break
    except KafkaException as error:
        raise LocalError(f"reading back failed: {error.args[0].str()}") from None
    finally:
        consumer.close()
    verdict.lost = sum(1 for number, partition in enumerate(ledger.partitions) if partition >= 0 and not seen[number])
    return verdict


def _compare(message: Any, ledger: Ledger, seen: bytearray, last_number: dict[int, int], verdict: Verdict) -> None:
    verdict.read += 1
    number = next((int(value) for name, value in message.headers() or [] if name == HEADER), -1)
    if not 0 <= number < len(seen):
        verdict.foreign += 1
        return
    if seen[number]:
        verdict.duplicated += 1
        return
    seen[number] = 1
    partition, offset = message.partition(), message.offset()
    if checksum(message.key(), message.value()) != ledger.sums[number]:
        verdict.altered += 1
    if ledger.partitions[number] < 0:
        verdict.unacknowledged_present += 1
    elif (ledger.partitions[number], ledger.offsets[number]) != (partition, offset):
        verdict.misplaced += 1
    if number <= last_number[partition]:
        verdict.out_of_order += 1
    last_number[partition] = number
