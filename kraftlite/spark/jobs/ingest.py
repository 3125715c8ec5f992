"""`kraftlite pipeline ingest`: topics to Parquet, by day, exactly once; what is malformed goes to quarantine with its reason.

The query's checkpoint says which offsets a batch has; `lake.Lake` makes a batch's files the same however often it runs. So a
driver that is killed at any point and started again loses nothing and repeats nothing.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kraftlite.spark.jobs.decode import REASON, Format, decode, good, infer_schema, malformed
from kraftlite.spark.jobs.lake import Lake
from kraftlite.spark.jobs.running import OnProgress, Source, trigger_of, wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA_FILE = "kraftlite-schema.ddl"


@dataclass(slots=True, kw_only=True)
class IngestReport:
    """The counts of one run. `quarantined` has them by reason."""

    out: str
    quarantine: str
    rows: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    files: int = 0
    merged_files: int = 0
    seconds: float = 0.0
    schema: str | None = None


def ingest(
    spark: SparkSession,
    source: Source,
    *,
    out: str,
    checkpoint: str,
    quarantine: str | None = None,
    form: Format | None = None,
    trigger: str = "available-now",
    max_offsets: int | None = 1_000_000,
    compact: bool = True,
    on_progress: OnProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> IngestReport:
    """Run until the topics are read (available-now) or `stop` says so.

    A json or csv `form` without a schema gets one from a sample, which is kept beside the checkpoint: a query keeps its schema.
    Raises ValueError for options that do not fit, and what Spark and the client raise.
    """
    form = form if form is not None else Format(kind="raw")
    quarantine = quarantine if quarantine is not None else f"{out.rstrip('/')}_quarantine"
    form = with_schema(spark, source, form, checkpoint)
    began = time.monotonic()
    report = IngestReport(out=out, quarantine=quarantine, schema=form.schema)
    lake = Lake(spark, out, partition_by=("event_date",))
    bad_lake = Lake(spark, quarantine)
    last = -1

    def write(batch: DataFrame, batch_id: int) -> None:
        nonlocal last
        decoded = decode(batch, form).persist()
        try:
            counts = {row[REASON]: int(row["count"]) for row in decoded.groupBy(REASON).count().collect()}
            report.rows += counts.pop(None, 0)
            for reason, count in counts.items():
                report.quarantined[reason] = report.quarantined.get(reason, 0) + count
            bad_lake.write(batch_id, malformed(decoded) if counts else None)
            lake.write(batch_id, good(decoded))
            last = batch_id
        finally:
            decoded.unpersist()

    query: Any = (
        source.stream(spark, max_offsets)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .queryName(f"ingest-{zlib.crc32(out.encode()):08x}")
        .trigger(**trigger_of(trigger))
        .start()
    )
    report.batches = wait(query, "ingest", on_progress, stop).batches
    # A query that ended by itself has committed its last batch; one that was stopped may have to run it again.
    committed = last if trigger == "available-now" and stop is None else last - 1
    if compact and committed >= 0:
        before, after = lake.compact(committed)
        report.merged_files = before - after
    report.files = len(lake.files())
    report.seconds = time.monotonic() - began
    return report


def with_schema(spark: SparkSession, source: Source, form: Format, checkpoint: str) -> Format:
    """The format with the schema given, kept beside the checkpoint by an earlier run, or inferred from a sample and kept."""
    if form.kind == "raw" or form.schema is not None:
        return form
    kept = Lake(spark, f"{checkpoint.rstrip('/')}-schema")
    schema = kept.read_text(SCHEMA_FILE)
    if schema is None:
        schema = infer_schema(spark, form.kind, source.batch(spark, startingOffsets="earliest"), dict(form.options))
        kept.write_text(SCHEMA_FILE, schema)
    return Format(kind=form.kind, schema=schema, event_time=form.event_time, options=form.options)
