"""kafka-verifiable-producer: numbered records, and a JSON line for each acknowledgement. Source: TO-29; VerifiableProducer."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, UsageError, addresses, told_to_stop, whole


def say(name: str, **facts: object) -> None:
    """One event, as the verifiable tools print it."""
    click.echo(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **facts}, separators=(",", ":")))


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "kafka-verifiable-producer", "This tool produces increasing integers and prints JSON for each acknowledgement."
    )
    parser.connection()
    parser.add_argument("--topic")
    parser.add_argument("--max-messages", type=whole(32), default=-1)
    parser.add_argument("--throughput", type=whole(32), default=-1)
    parser.add_argument("--acks", type=whole(32), choices=(0, 1, -1), default=-1)
    parser.add_argument("--producer.config", dest="producer_config", metavar="FILE")
    parser.add_argument("--message-create-time", type=whole(64), default=-1)
    parser.add_argument("--value-prefix", type=whole(32))
    parser.add_argument("--repeating-keys", type=whole(32))
    options = parser.read(arguments)
    if not options.topic:
        raise UsageError("argument --topic is required")
    if options.message_create_time < -1:
        raise UsageError(f"Invalid timestamp: {options.message_create_time}. Timestamp should always be non-negative or null.")
    files = [(options.command_config, "--command-config"), (options.producer_config, "--producer.config")]
    config = {"acks": options.acks, "retries": 0, "enable.idempotence": False, "linger.ms": 0, **clients.properties(files, [])}
    Writer(clients.producer(addresses(options), config), options).go()
    return 0


class Writer:
    """Sends until it has sent enough or is told to stop, then tells how much was acknowledged."""

    def __init__(self, producer: Any, options: argparse.Namespace) -> None:
        self._producer = producer
        self._options = options
        self._stopping = False
        self._sent = self._acked = 0

    def go(self) -> None:
        began = time.monotonic()
        with told_to_stop(self._stop):
            say("startup_complete")
            self._send_all(began)
            self._producer.flush()
        say("shutdown_complete")
        rate = self._acked / max(time.monotonic() - began, 1e-3)
        say(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._options.throughput,
            avg_throughput=rate,
        )

    def _stop(self, _number: int, _frame: object) -> None:
        self._stopping = True

    def _send_all(self, began: float) -> None:
        options = self._options
        while not self._stopping and (options.max_messages < 0 or self._sent < options.max_messages):
            self._send(self._sent)
            self._producer.poll(0)
            if options.throughput > 0:
                due = began + self._sent / options.throughput
                while not self._stopping and time.monotonic() < due:
                    self._producer.poll(min(0.05, max(0.0, due - time.monotonic())))

    def _send(self, number: int) -> None:
        options = self._options
        value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
        repeating = options.repeating_keys
        key = None if repeating is None else str(number % repeating if repeating > 0 else number)
        arguments: dict[str, object] = {"value": value.encode(), "key": None if key is None else key.encode()}
        if options.message_create_time >= 0:
            arguments["timestamp"] = options.message_create_time + number

        def delivered(error: Any, message: Any) -> None:
            facts = {"key": key, "value": value}
            if error is not None:
                say("producer_send_error", topic=options.topic, **facts, exception=error.name(), message=error.str())
                return
            self._acked += 1
            offset = -1 if message.offset() is None else message.offset()  # as Kafka's, without acknowledgements
            say("producer_send_success", **facts, topic=options.topic, partition=message.partition(), offset=offset)

        while True:
            try:
                self._producer.produce(options.topic, on_delivery=delivered, **arguments)
                break
            except BufferError:
                self._producer.poll(0.05)
        self._sent += 1
