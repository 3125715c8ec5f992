"""produce TOPIC: one record per line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from kraftlite.cli.common import output_option, pairs, print_json
from kraftlite.cli.files import MAX_LINE_BYTES, bounded_lines
from kraftlite.cli.librdkafka import kafka_message
from kraftlite.cli.target import Target, target_options

_POLL_EVERY = 500
_PROGRESS_S = 0.2


@click.command("produce")
@click.argument("topic")
@click.option(
    "--input", "source", type=click.Path(allow_dash=True, path_type=Path), default="-", help="A file; - is standard input."
)
@click.option(
    "--key-separator", metavar="TEXT", help="What stands between key and value on a line; without it there are no keys."
)
@click.option("--null-marker", metavar="TEXT", help="A value of exactly this text becomes a tombstone.")
@click.option("--partition", type=click.IntRange(0), metavar="P", help="Write to this partition only.")
@click.option("--acks", type=click.Choice(["0", "1", "all", "-1"]), default="all", show_default=True)
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True)
@click.option("--header", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option(
    "--transactional-id", metavar="ID", help="Write all lines in one transaction, aborted unless every one was acknowledged."
)
@click.option("--producer-property", multiple=True, metavar="KEY=VALUE", help="A librdkafka property.")
@click.option(
    "--timeout", type=click.IntRange(1), default=120, show_default=True, metavar="S", help="How long one record may take."
)
@click.option("--progress/--no-progress", default=None, help="Default: on a terminal.")
@target_options
@output_option
def produce(topic: str, source: Path, target: Target, output: str, **options: Any) -> None:
    """Write one record per line of standard input or a file; exit status 1 unless every record was acknowledged."""
    from confluent_kafka import KafkaException

    if options["transactional_id"] and options["acks"] not in ("all", "-1"):
        raise click.UsageError("--transactional-id needs --acks all: a transaction counts where all in-sync replicas have it")
    # Our client creates no topics: a mistyped name must not become one.
    if topic not in target.cluster().topics([topic]):
        raise click.ClickException(f"Topic '{topic}' does not exist as expected; create it with: kraftlite create-topic {topic}")
    job = _Job(topic, target.librdkafka(), options)
    problem, interrupted = "", False
    try:
        with click.open_file(str(source), "rb") as lines:
            job.begin()
            job.run(lines)
    except OSError as error:
        problem = f"{source}: {error.strerror or error}"
    except KafkaException as error:
        problem = f"line {job.line}: {kafka_message(error)}"
    except _BadLine as error:
        problem = f"line {job.line} {error}"
    except KeyboardInterrupt:
        interrupted = True
    finally:
        job.clear_progress()
    if options["transactional_id"]:
        problem = job.end(problem, interrupted=interrupted) or problem
    if output == "json":
        print_json(
            {
                "topic": topic,
                "sent": job.sent,
                "acknowledged": job.acked,
                "failed": job.sent - job.acked,
                **({"outcome": job.outcome} if job.outcome else {}),
                "seconds": round(job.seconds, 3),
            }
        )
    else:
        rate = job.acked / job.seconds if job.seconds else 0
        ended = f"; the transaction was {job.outcome}" if job.outcome else ""
        click.echo(f"{job.acked} of {job.sent} records acknowledged in {job.seconds:.2f} s ({rate:,.0f}/s){ended}", err=True)
    if interrupted:
        raise click.Abort
    if problem:
        raise click.ClickException(problem)
    if job.acked != job.sent:
        raise click.ClickException(f"{job.sent - job.acked} of {job.sent} records were not acknowledged: {job.first_error}")


class _BadLine(Exception):
    """A line of the input that is no record."""


class _Job:
    def __init__(self, topic: str, client: dict[str, Any], options: dict[str, Any]) -> None:
        from confluent_kafka import KafkaException, Producer

        acks = "all" if options["acks"] == "-1" else options["acks"]
        config: dict[str, Any] = {
            **client,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": options["compression"],
            "linger.ms": 5,
            "message.timeout.ms": options["timeout"] * 1000,
            "topic.metadata.propagation.max.ms": 5000,
            **_transactional(options),
            **pairs(options["producer_property"], "--producer-property"),
        }
        try:
            self.producer: Any = Producer(config)
        except KafkaException as error:
            raise click.ClickException(f"--producer-property: {kafka_message(error)}") from None
        self.topic = topic
        self.options = options
        self.headers = list(pairs(options["header"], "--header").items()) or None
        self.sent = self.acked = self.line = 0
        self._separator = _unescaped(options["key_separator"] or "").encode()
        self.seconds = 0.0
        self.first_error = "no answer"
        self._failed = False
        self.outcome = ""
        """The end of the transaction: committed, aborted or, where the answer is missing, unknown."""
        self._began = False
        self._show = sys.stderr.isatty() if options["progress"] is None else bool(options["progress"])
        self._shown_at = 0.0

    def begin(self) -> None:
        """Take the transactional id over, and begin its transaction; nothing where there is none. Raises ClickException."""
        from confluent_kafka import KafkaException

        name = self.options["transactional_id"]
        if not name:
            return
        try:
            self.producer.init_transactions(self.options["timeout"])
            self.producer.begin_transaction()
        except KafkaException as error:
            raise click.ClickException(f"--transactional-id {name}: {kafka_message(error)}") from None
        self._began = True

    def end(self, problem: str, *, interrupted: bool) -> str:
        """Commit, or abort where anything went wrong. Returns why that failed; empty when it did not."""
        from confluent_kafka import KafkaException

        if not self._began:
            return ""
        commits = not problem and not interrupted and self.acked == self.sent
        try:
            if commits:
                self.producer.commit_transaction(self.options["timeout"])
            else:
                self.producer.abort_transaction(self.options["timeout"])
        except KafkaException as error:
            self.outcome = "unknown"
            return f"the transaction could not be {'committed' if commits else 'aborted'}: {kafka_message(error)}"
        self.outcome = "committed" if commits else "aborted"
        return ""

    def run(self, lines: IO[bytes]) -> None:
        """Whatever ends it early, the lines before it are written and counted."""
        started = time.monotonic()
        try:
            for key, value in self._records(lines):
                self._send(key, value)
                if self.sent % _POLL_EVERY == 0:
                    self.producer.poll(0)
                    self._progress()
        finally:
            try:
                self._drain()
            except (KeyboardInterrupt, SystemError):
                # SystemError: the binding lost the interrupt that came during its call. What was sent still counts.
                self._drain()
                raise KeyboardInterrupt from None
            finally:
                self.seconds = time.monotonic() - started

    def _drain(self) -> None:
        """Wait for what was sent; an error on the way ends the patience, not the wait."""
        while self.producer.flush(0.2) and not self._failed:
            self._progress()
        self.producer.flush(self.options["timeout"])

    def _records(self, lines: IO[bytes]) -> Iterator[tuple[bytes | None, bytes | None]]:
        null = self.options["null_marker"]
        for line in self._lines(lines):
            value: bytes | None = line.rstrip(b"\r\n")
            key: bytes | None = None
            if self._separator:
                assert value is not None
                key, found, value = value.partition(self._separator)
                if not found:
                    raise _BadLine(f"has no key separator {self.options['key_separator']!r}")
            yield key, None if null is not None and value == null.encode() else value

    def _lines(self, lines: IO[bytes]) -> Iterator[bytes]:
        try:
            for line in bounded_lines(lines):
                self.line += 1
                yield line
        except ValueError:
            self.line += 1
            raise _BadLine(f"has more than {MAX_LINE_BYTES} bytes, which no record can have") from None

    def _send(self, key: bytes | None, value: bytes | None) -> None:
        arguments: dict[str, Any] = {"key": key, "value": value, "on_delivery": self._delivered}
        if self.options["partition"] is not None:
            arguments["partition"] = self.options["partition"]
        if self.headers:
            arguments["headers"] = self.headers
        while True:
            try:
                self.producer.produce(self.topic, **arguments)
            except BufferError:
                self.producer.poll(0.1)
                self._progress()
                continue
            self.sent += 1
            return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked += 1
        elif not self._failed:
            self._failed = True
            self.first_error = f"{error.name()}: {error.str()}"

    def _progress(self) -> None:
        now = time.monotonic()
        if self._show and now - self._shown_at > _PROGRESS_S:
            self._shown_at = now
            click.echo(f"\r{self.acked:,} of {self.sent:,} records acknowledged", nl=False, err=True)

    def clear_progress(self) -> None:
        if self._shown_at:
            click.echo("\r" + " " * 60 + "\r", nl=False, err=True)


def _transactional(options: dict[str, Any]) -> dict[str, Any]:
    """A transaction may take as long as one of its records."""
    if not options["transactional_id"]:
        return {}
    return {"transactional.id": options["transactional_id"], "transaction.timeout.ms": options["timeout"] * 1000}


def _unescaped(text: str) -> str:
    """`\\t` as people type it in a shell."""
    return text.replace("\\t", "\t").replace("\\0", "\0")
