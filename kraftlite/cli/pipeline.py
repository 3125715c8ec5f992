"""`kraftlite pipeline ingest|aggregate|backfill`: the jobs on Spark. Each prints its progress, then a table or JSON."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftlite.cli.common import output_option, pairs, print_json, print_table
from kraftlite.cli.target import Target, target_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraftlite.spark.jobs.decode import Format
    from kraftlite.spark.jobs.running import Source

F = TypeVar("F", bound=Callable[..., Any])


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_SOURCE = _options(
    target_options,
    click.option("--topics", metavar="TOPIC,…", help="What to read."),
    click.option("--topic-pattern", metavar="REGEX", help="What to read, by a pattern to be found in names instead."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="A further option of the source; repeatable."),
    click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Where Spark runs."),
    click.option("--spark-config", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
)
_FORMAT = _options(
    click.option("--format", "kind", type=click.Choice(["json", "csv", "raw"]), default="raw", show_default=True),
    click.option("--schema", metavar="DDL", help="Columns, as in 'id bigint, at timestamp'. Default: inferred from a sample."),
    click.option("--event-time", metavar="COLUMN", help="Default: the record's timestamp."),
    click.option("--format-option", "format_options", multiple=True, metavar="KEY=VALUE", help="Of Spark's JSON or CSV reader."),
)
_STREAM = _options(
    click.option("--checkpoint", required=True, metavar="DIR", help="What has been read; the job goes on from there."),
    click.option("--starting", default="earliest", show_default=True, help="earliest, latest or offsets as JSON."),
    click.option(
        "--trigger", default="available-now", show_default=True, help="available-now, or an interval (500ms) to run until Ctrl-C."
    ),
    click.option("--max-offsets", type=click.IntRange(1), default=1_000_000, show_default=True, help="In one batch."),
)


@click.command()
@_SOURCE
@_FORMAT
@_STREAM
@click.option("--out", required=True, metavar="DIR", help="Parquet, partitioned by event_date.")
@click.option("--quarantine", metavar="DIR", help="Malformed records and why. Default: OUT_quarantine.")
@click.option("--compact/--no-compact", default=True, show_default=True, help="Merge small files at the end.")
@output_option
def ingest(out: str, quarantine: str | None, compact: bool, output: str, **given: Any) -> None:
    """Topics to Parquet by day, exactly once; malformed records to a quarantine with the reason."""
    from kraftlite.spark.jobs import ingest as job

    source = _source(given, given["starting"])
    with _job(given) as spark, _telling() as (on_progress, stop):
        report = job.ingest(
            spark,
            source,
            out=out,
            checkpoint=given["checkpoint"],
            quarantine=quarantine,
            form=_format(given),
            trigger=given["trigger"],
            max_offsets=given["max_offsets"],
            compact=compact,
            on_progress=on_progress,
            stop=None if given["trigger"] == "available-now" else stop,
        )
    _print(report, output)


@click.command()
@_SOURCE
@_FORMAT
@_STREAM
@click.option("--group-by", required=True, metavar="COLUMN,…")
@click.option("--value", required=True, metavar="COLUMN", help="Counted, summed, averaged.")
@click.option("--window", default="1 hour", show_default=True, metavar="INTERVAL")
@click.option("--slide", metavar="INTERVAL", help="Windows that overlap.")
@click.option("--watermark", default="1 hour", show_default=True, metavar="INTERVAL", help="How late a record may come.")
@click.option("--mode", type=click.Choice(["append", "update"]), default="append", show_default=True)
@click.option("--out", metavar="DIR", help="Parquet.")
@click.option("--result-topic", metavar="TOPIC", help="JSON by the window's key.")
@click.option("--exactly-once", is_flag=True, help="Write the result topic in transactions: every result is committed once.")
@output_option
def aggregate(
    group_by: str, value: str, window: str, slide: str | None, watermark: str, mode: str, output: str, **given: Any
) -> None:
    """Event-time windows with a watermark, to a topic and to Parquet."""
    from kraftlite.spark.jobs import aggregate as job

    source = _source(given, given["starting"])
    with _job(given) as spark, _telling() as (on_progress, stop):
        windows = job.Windows(
            group_by=tuple(name.strip() for name in group_by.split(",") if name.strip()),
            value=value,
            length=window,
            slide=slide,
            watermark=watermark,
            mode=mode,
        )
        report = job.aggregate(
            spark,
            source,
            form=_format(given),
            windows=windows,
            checkpoint=given["checkpoint"],
            out=given["out"],
            result_topic=given["result_topic"],
            exactly_once=given["exactly_once"],
            trigger=given["trigger"],
            max_offsets=given["max_offsets"],
            on_progress=on_progress,
            stop=None if given["trigger"] == "available-now" else stop,
        )
    _print(report, output)


@click.command()
@_SOURCE
@_FORMAT
@click.option("--out", required=True, metavar="DIR", help="Parquet, partitioned by event_date; replaced.")
@click.option("--quarantine", metavar="DIR", help="Malformed records and why. Default: OUT_quarantine.")
@click.option("--from-offsets", metavar="JSON", help='earliest, or as {"t":{"0":23}}.')
@click.option("--to-offsets", metavar="JSON", help="latest, or as --from-offsets; exclusive.")
@click.option("--from-time", type=int, metavar="MS", help="Epoch milliseconds.")
@click.option("--to-time", type=int, metavar="MS", help="Epoch milliseconds; exclusive.")
@output_option
def backfill(out: str, quarantine: str | None, output: str, **given: Any) -> None:
    """A range of offsets or of time, once, to Parquet by day."""
    from kraftlite.spark.jobs import backfill as job

    ranges = {
        "startingOffsets": given["from_offsets"],
        "endingOffsets": given["to_offsets"],
        "startingTimestamp": given["from_time"],
        "endingTimestamp": given["to_time"],
    }
    source = _source(given, "", **{name: str(it) for name, it in ranges.items() if it is not None})
    with _job(given) as spark:
        report = job.backfill(spark, source, out=out, quarantine=quarantine, form=_format(given))
    _print(report, output)


def _source(given: dict[str, Any], starting: str, **more: str) -> Source:
    from kraftlite.spark.jobs.running import Source

    topics, pattern = given["topics"], given["topic_pattern"]
    target: Target = given["target"]
    if (topics is None) == (pattern is None):
        raise click.UsageError("give either --topics or --topic-pattern")
    return Source(
        bootstrap=target.bootstrap,
        topics=topics or pattern,
        pattern=pattern is not None,
        starting=starting,
        options={**_kafka_options(target), **pairs(given["options"], "--option"), **more},
    )


def _kafka_options(target: Target) -> dict[str, str]:
    """The properties of the client, as the source and the sink on Spark are given them. What cannot be honoured is refused here,
    before Spark starts."""
    target.cluster()
    return {f"kafka.{name}": value for name, value in target.properties.items()}


def _format(given: dict[str, Any]) -> Format:
    from kraftlite.spark.jobs.decode import Format

    return Format(
        kind=given["kind"],
        schema=given["schema"],
        event_time=given["event_time"],
        options=tuple(pairs(given["format_options"], "--format-option").items()),
    )


@contextmanager
def _job(given: dict[str, Any]) -> Iterator[SparkSession]:
    """A session, and errors as one line."""
    with spark_errors():
        from kraftlite.spark.session import session

        spark = session("job", master=given["master"], config=pairs(given["spark_config"], "--spark-config"), log_level="OFF")
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn the errors of Spark, the source and the jobs into one line. Without pyspark or Java it says what to install."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        raise click.ClickException("this command needs Spark: pip install 'kraftlite[spark]'") from None
    from pyspark.errors import PySparkException

    try:
        yield
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    except PySparkException as error:
        raise click.ClickException(last_words(str(error))) from None


def last_words(text: str) -> str:
    """The message of the Python exception that Spark's text tells of, or the text's first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        found = re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|DataLoss|OffsetOutOfRange|UnknownTopic): (.*)", line)
        if found is not None:
            return found[1]
    return lines[0] if lines else "Spark failed and did not say why"


@contextmanager
def _telling() -> Iterator[tuple[Callable[[Any], None], Callable[[], bool]]]:
    """(what shows progress, whether the user wants it to end)."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:

            def show(progress: Any) -> None:
                behind = "" if progress.behind is None else f", {progress.behind:,} behind"
                done = f"{progress.batches} batches, {progress.rows:,} rows, {progress.rows_per_s:,.0f}/s"
                live.update(Text(f"{progress.job}: {done}{behind}"))

            yield show, asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _print(report: Any, output: str) -> None:
    from kraftlite.spark.jobs.running import as_json

    found = as_json(report)
    if output == "json":
        print_json(found)
        return
    rows = []
    for name, value in found.items():
        if isinstance(value, float):
            value = f"{value:.1f}"
        if isinstance(value, dict):
            value = ", ".join(f"{key}: {it}" for key, it in value.items()) or "none"
        rows.append((name.replace("_", " ").upper(), value))
    print_table(("WHAT", "VALUE"), rows)
