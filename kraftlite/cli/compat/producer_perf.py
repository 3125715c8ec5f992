"""kafka-producer-perf-test. Source: TO-32; Kafka's ProducerPerformance."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, addresses, key_values, read_properties, whole
from kraftlite.cli.files import read_text

_WINDOW_S = 5.0
_POLL_EVERY = 200
_MIB = 1024.0 * 1024.0
_TRANSACTIONAL_ID = "performance-producer-"
_TRANSACTION_MS = 3_000
_TRANSACTION_TIMEOUT_S = 60.0


def _parser() -> Parser:
    parser = Parser("kafka-producer-perf-test", "This tool is used to verify the producer performance.")
    parser.connection()
    for name in ("num-records", "transaction-duration-ms", "reporting-interval"):
        parser.add_argument(f"--{name}", type=whole(64))
    parser.add_argument("--warmup-records", type=whole(64), default=0, metavar="N", help="sent before the steady state begins")
    parser.add_argument("--record-size", type=whole(32))
    parser.add_argument("--throughput", type=float, metavar="RECORDS/S", help="-1: as many as there may be")
    for name in ("topic", "payload-file", "payload-delimiter", "transactional-id"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--payload-monotonic", action="store_true")
    parser.add_argument("--print-metrics", action="store_true")
    parser.add_argument("--producer-props", "--command-property", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    parser.add_argument("--producer.config", dest="producer_config", metavar="FILE")
    return parser


def run(arguments: Sequence[str], connect: Callable[..., Any] = clients.producer) -> int:
    options = _parser().read(arguments)
    for name in ("topic", "num_records", "throughput"):
        if getattr(options, name) is None:
            raise UsageError(f"argument --{name.replace('_', '-')} is required")
    for name in ("num_records", "reporting_interval"):
        if (value := getattr(options, name)) is not None and value <= 0:
            raise UsageError(f"--{name.replace('_', '-')} should be greater than zero")
    if options.warmup_records >= options.num_records:
        raise UsageError(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records."
        )
    if math.isnan(options.throughput):
        raise UsageError("--throughput nan: allowed is a number of records a second, or -1")
    if sum((options.record_size is not None, options.payload_file is not None, options.payload_monotonic)) != 1:
        raise UsageError("one of the arguments --record-size --payload-file --payload-monotonic is required")
    if options.print_metrics:
        raise UsageError("--print-metrics is not supported")
    values: dict[str, str] = {}
    for path, option in ((options.producer_config, "--producer.config"), (options.command_config, "--command-config")):
        values.update({} if path is None else read_properties(path, option))
    values.update(key_values(options.producer_props, "--producer-props"))
    options.bootstrap_server = options.bootstrap_server or values.get("bootstrap.servers")
    brokers = addresses(options)
    values.pop("bootstrap.servers", None)
    transaction_ms = _transaction_ms(options, values)
    Run(connect(brokers, clients.translated(values)), options, transaction_ms).go()
    return 0


def _transaction_ms(options: argparse.Namespace, values: dict[str, str]) -> int | None:
    """The time that each transaction lasts; None: there are none. An id or a duration asks for them; the other has a default."""
    asked = options.transaction_duration_ms
    if asked is not None and asked <= 0:
        raise UsageError("--transaction-duration-ms should be greater than zero")
    if options.transactional_id is not None:
        values["transactional.id"] = options.transactional_id
    if asked is None and "transactional.id" not in values:
        return None
    values.setdefault("transactional.id", f"{_TRANSACTIONAL_ID}{random.randrange(1 << 64):016x}")
    return _TRANSACTION_MS if asked is None else asked


class Stats:
    """Latencies in ms from the call to the acknowledgement, of all records or of those of the steady state, in windows."""

    def __init__(self, window_s: float, *, steady: bool = False) -> None:
        self._window_s = window_s
        self._steady = steady
        self.silent = False
        """The windows are not printed: those of the steady state are."""
        self._latencies: list[float] = []
        self._window: list[float] = []
        self._bytes = self._window_bytes = 0
        self._began = self._window_began = time.monotonic()

    def add(self, latency_ms: float, size: int) -> None:
        self._latencies.append(latency_ms)
        self._window.append(latency_ms)
        self._bytes += size
        self._window_bytes += size

    def end_window(self) -> None:
        """Print the window if its time is up, and begin another."""
        now = time.monotonic()
        seconds = now - self._window_began
        if seconds < self._window_s:
            return
        count = len(self._window)
        if self._steady and count and count == len(self._latencies):
            click.echo("In steady state.")
        if not self.silent:
            average, worst = (sum(self._window) / count, max(self._window)) if count else (0.0, 0.0)
            click.echo(
                f"{count} records sent, {count / seconds:.1f} records/sec ({self._window_bytes / seconds / _MIB:.2f} MB/sec), "
                f"{average:.1f} ms avg latency, {worst:.1f} ms max latency."
            )
        self._window, self._window_bytes, self._window_began = [], 0, now

    def print_total(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        found = sorted(self._latencies) or [0.0]
        count = len(self._latencies)

        def at(share: float) -> int:
            return round(found[min(len(found) - 1, int(share * len(found)))])

        click.echo(
            f"{count}{' steady state' if self._steady else ''} records sent, {count / seconds:.6f} records/sec "
            f"({self._bytes / seconds / _MIB:.2f} MB/sec), "
            f"{sum(found) / len(found):.2f} ms avg latency, {found[-1]:.2f} ms max latency, {at(0.5)} ms 50th, "
            f"{at(0.95)} ms 95th, {at(0.99)} ms 99th, {at(0.999)} ms 99.9th."
        )


class Run:
    """One measurement."""

    def __init__(self, producer: Any, options: argparse.Namespace, transaction_ms: int | None = None) -> None:
        self._transaction_ms = transaction_ms
        self._transaction_began: float | None = None
        self._producer = producer
        self._options = options
        self._payloads = self._read()
        self._window_s = _WINDOW_S if options.reporting_interval is None else options.reporting_interval / 1000
        self._stats = [Stats(self._window_s)]
        """That of all records; then that of the steady state."""
        self._failed = 0

    def _read(self) -> list[bytes]:
        if self._options.record_size is not None:
            if self._options.record_size <= 0:
                raise UsageError("--record-size should be greater than zero")
            return [bytes(random.randrange(65, 91) for _ in range(self._options.record_size))]
        if self._options.payload_file is None:
            return []
        delimiter = (self._options.payload_delimiter or "\\n").replace("\\n", "\n")
        click.echo(f"Reading payloads from: {self._options.payload_file}")
        try:
            found = [line.encode() for line in read_text(self._options.payload_file).split(delimiter) if line]
        except ValueError as error:
            raise ToolError(f"--payload-file {self._options.payload_file}: {error}") from None
        except OSError as error:
            raise ToolError(f"--payload-file {self._options.payload_file}: {error.strerror or error}") from None
        if not found:
            raise ToolError("Payload file contains no records")
        click.echo(f"Number of records read: {len(found)}")
        return found

    def go(self) -> None:
        options = self._options
        if self._transaction_ms is not None:
            self._producer.init_transactions(_TRANSACTION_TIMEOUT_S)
        if options.warmup_records > 0:
            click.echo(
                f"Warmup first {options.warmup_records} records. Steady state results will print after the complete test summary."
            )
        self._stats = [Stats(self._window_s)]
        began = time.monotonic()
        for number in range(options.num_records):
            payload = random.choice(self._payloads) if self._payloads else str(number).encode()
            self._begin_transaction()
            if number == options.warmup_records > 0:
                self._stats[0].silent = True
                self._stats.append(Stats(self._window_s, steady=True))
            self._send(payload)
            self._commit_when_due()
            if number % _POLL_EVERY == 0:
                self._producer.poll(0)
                self._report_window()
            if options.throughput >= 0:
                due = began + (number + 1) / (options.throughput or 1)
                while time.monotonic() < due:
                    self._producer.poll(min(0.01, max(0.0, due - time.monotonic())))
        while self._producer.flush(0.5):
            self._report_window()
        self._commit()
        for stats in self._stats:
            stats.print_total()
        if self._failed:
            raise ToolError(f"{self._failed} of {options.num_records} records were not acknowledged")

    def _begin_transaction(self) -> None:
        if self._transaction_ms is not None and self._transaction_began is None:
            self._producer.begin_transaction()
            self._transaction_began = time.monotonic()

    def _commit_when_due(self) -> None:
        began = self._transaction_began
        if began is not None and self._transaction_ms is not None and (time.monotonic() - began) * 1000 >= self._transaction_ms:
            self._commit()

    def _commit(self) -> None:
        """End the transaction that is open, if there is one."""
        if self._transaction_began is not None:
            self._producer.commit_transaction(_TRANSACTION_TIMEOUT_S)
            self._transaction_began = None

    def _send(self, payload: bytes) -> None:
        sent = time.monotonic()
        counted = tuple(self._stats)

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failed += 1
                return
            for stats in counted:
                stats.add((time.monotonic() - sent) * 1000, len(payload))

        while True:
            try:
                self._producer.produce(self._options.topic, value=payload, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.05)

    def _report_window(self) -> None:
        for stats in self._stats:
            stats.end_window()
