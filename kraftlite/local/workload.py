"""A client that writes to a topic and reads it, and says all the while what it was told: `python -m kraftlite.local.workload`.

It prints a report as a line of JSON (docs/PAGE.md, "Clients") four times a second. The page runs one, and shows what it says
beside what the cluster says of the same time.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from kraftlite.local.client import client_config
from kraftlite.local.secure import records_security
from kraftlite.local.state import BOOTSTRAP_VARIABLE, LocalCluster, LocalError, load
from kraftlite.obs.client_report import MAX_PARTITIONS

MAX_RATE: Final = 1_000
GAP_MS: Final = 300
"""The least time without an acknowledgement that counts as a gap."""
MAX_GAPS: Final = 20
_EVERY_MS: Final = 250
_TURN_S: Final = 0.02
_LATENCIES: Final = 1_000
_FLUSH_S: Final = 10.0
_IN_DOUBT: Final = "_MSG_TIMED_OUT"
"""The error by which librdkafka speaks of a record that nobody answered for: it may be there or not."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Told:
    """All that the client was told of one partition. Times are wall milliseconds."""

    acked: int = 0
    refused: int = 0
    in_doubt: int = 0
    outstanding: int = 0
    waits_ms: int | None = None
    """Since when something is sent and nothing is acknowledged."""

    def sent(self, at_ms: int) -> None:
        self.outstanding += 1
        if self.waits_ms is None:
            self.waits_ms = at_ms

    def ack(self, at_ms: int) -> tuple[int, int] | None:
        """Returns the gap that ends with it, if it was one."""
        since_ms, self.waits_ms = self.waits_ms, None
        self.acked += 1
        self.outstanding -= 1
        if self.outstanding:
            self.waits_ms = at_ms
        return (since_ms, at_ms) if since_ms is not None and at_ms - since_ms >= GAP_MS else None

    def failed(self, *, in_doubt: bool) -> None:
        """It waits on: what was refused is not acknowledged."""
        self.outstanding -= 1
        self.in_doubt += in_doubt
        self.refused += not in_doubt


@dataclass(slots=True)
class Account:
    """All that one client was told."""

    client: str
    topic: str
    sent: int = 0
    consumed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    partitions: dict[int, Told] = field(default_factory=dict)
    gaps: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    """Partition, from, until."""
    _latencies: deque[int] = field(default_factory=lambda: deque(maxlen=_LATENCIES))

    def send(self, partition: int, at_ms: int) -> None:
        self.sent += 1
        self.partitions.setdefault(partition, Told()).sent(at_ms)

    def answer(self, partition: int, sent_ms: int, at_ms: int, error: str | None) -> None:
        """`error`: the name of a code; None: acknowledged."""
        told = self.partitions[partition]
        if error is not None:
            self.errors[error] += 1
            told.failed(in_doubt=error == _IN_DOUBT)
            return
        gap = told.ack(at_ms)
        self._latencies.append(at_ms - sent_ms)
        if gap is not None:
            self.gaps.append((partition, *gap))

    def report(self, at_ms: int) -> dict[str, Any]:
        ordered = sorted(self._latencies)
        return {
            "client": self.client,
            "topic": self.topic,
            "at": at_ms,
            "sent": self.sent,
            "consumed": self.consumed,
            "errors": dict(self.errors.most_common(10)),
            "p50": ordered[len(ordered) // 2] if ordered else None,
            "p99": ordered[len(ordered) * 99 // 100] if ordered else None,
            "partitions": [
                [number, it.acked, it.refused, it.in_doubt, it.outstanding, it.waits_ms]
                for number, it in sorted(self.partitions.items())
            ],
            "gaps": [list(gap) for gap in self.gaps],
        }


def run(
    cluster: LocalCluster, account: Account, rate: int, say: Callable[[dict[str, Any]], None], over: Callable[[], bool]
) -> None:
    """Until `over`; then what is under way gets ten seconds. Raises LocalError."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    config = {**client_config(_brokers(cluster)), **records_security(cluster), "client.id": account.client}
    producer: Any = Producer(
        {**config, "acks": "all", "enable.idempotence": True, "linger.ms": 5, "retry.backoff.max.ms": 200}
        | {"delivery.timeout.ms": 120_000, "queue.buffering.max.messages": 100_000}
    )
    consumer: Any = Consumer({**config, "group.id": account.client, "enable.auto.commit": False, "auto.offset.reset": "latest"})
    try:
        numbers = _partitions(producer, account.topic)
        ends = [consumer.get_watermark_offsets(TopicPartition(account.topic, number), timeout=20)[1] for number in numbers]
        consumer.assign([TopicPartition(account.topic, *it) for it in zip(numbers, ends, strict=True)])
        began, said_ms = time.monotonic(), 0
        while not over():
            due = int((time.monotonic() - began) * rate) - account.sent
            if due > rate:  # it was paused: what it did not send then is not sent at once
                began += (due - 1) / rate
                due = 1
            for _ in range(due):
                _send(producer, account, numbers[account.sent % len(numbers)])
            producer.poll(_TURN_S)
            account.consumed += sum(it.error() is None for it in consumer.consume(1_000, timeout=0))
            if now_ms() - said_ms >= _EVERY_MS:
                said_ms = now_ms()
                say(account.report(said_ms))
        producer.flush(_FLUSH_S)
        say(account.report(now_ms()))
    except KafkaException as error:
        raise LocalError(f"the client failed: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _brokers(cluster: LocalCluster) -> str:
    """The addresses of the brokers: those of clients of this machine lead nowhere in a container."""
    inside = os.environ.get(BOOTSTRAP_VARIABLE) if cluster.is_contained else None
    return inside or cluster.bootstrap_servers


def _partitions(producer: Any, topic: str) -> list[int]:
    found = producer.list_topics(topic, timeout=20).topics[topic]
    if found.error is not None or not found.partitions:
        raise LocalError(f"there is no topic {topic}")
    return sorted(found.partitions)[:MAX_PARTITIONS]


def _send(producer: Any, account: Account, partition: int) -> None:
    at_ms = now_ms()

    def answered(error: Any, _: Any) -> None:
        account.answer(partition, at_ms, now_ms(), None if error is None else error.name())

    try:
        producer.produce(account.topic, value=f"{account.client} {account.sent}", partition=partition, on_delivery=answered)
    except BufferError:
        return  # all that fits is under way: the next turn tries again
    account.send(partition, at_ms)


def _closed() -> bool:
    """Return whether standard input, which whoever started this holds open, has been closed."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready) and not os.read(0, 1)


@click.command()
@click.option("--topic", required=True, metavar="NAME")
@click.option("--rate", type=click.IntRange(1, MAX_RATE), default=100, show_default=True, help="Records a second.")
@click.option("--client", default="workload", show_default=True, metavar="NAME", help="Its client.id.")
@click.option("--until-eof", is_flag=True, help="End when standard input is closed.")
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, metavar="DIR")
def main(topic: str, rate: int, client: str, until_eof: bool, data_dir: Path) -> None:
    """Write to a topic of the local cluster, read it, and print a report four times a second, until Ctrl-C."""
    account = Account(client=client, topic=topic)

    def say(report: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()

    try:
        run(load(data_dir.absolute()), account, rate, say, _closed if until_eof else lambda: False)
    except LocalError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it any more


if __name__ == "__main__":
    main()
