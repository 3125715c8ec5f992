"""`kraftlite pipeline backfill`: a range of offsets or of time, once, to Parquet by day.

A backfill owns its directory: what it writes replaces what an earlier one wrote there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftlite.spark.jobs.decode import REASON, Format, decode, good, infer_schema, malformed
from kraftlite.spark.jobs.lake import Lake
from kraftlite.spark.jobs.running import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True, kw_only=True)
class BackfillReport:
    """`offsets`: what was read of each partition, [first, last]."""

    out: str
    quarantine: str
    rows: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    files: int = 0
    seconds: float = 0.0
    schema: str | None = None


def backfill(
    spark: SparkSession, source: Source, *, out: str, quarantine: str | None = None, form: Format | None = None
) -> BackfillReport:
    """The range is in the source's options (startingOffsets, startingTimestamp, endingOffsets, …). Raises what they raise."""
    form = form if form is not None else Format(kind="raw")
    quarantine = quarantine if quarantine is not None else f"{out.rstrip('/')}_quarantine"
    began = time.monotonic()
    rows = source.batch(spark)
    if form.kind != "raw" and form.schema is None:
        schema = infer_schema(spark, form.kind, rows, dict(form.options))
        form = Format(kind=form.kind, schema=schema, event_time=form.event_time, options=form.options)
    report = BackfillReport(out=out, quarantine=quarantine, schema=form.schema)
    lake, bad_lake = Lake(spark, out, partition_by=("event_date",)), Lake(spark, quarantine)
    decoded = decode(rows, form).persist()
    try:
        for row in decoded.groupBy(REASON).count().collect():
            if row[REASON] is None:
                report.rows = int(row["count"])
            else:
                report.quarantined[row[REASON]] = int(row["count"])
        ranges = decoded.groupBy("_topic", "_partition").agg({"_offset": "min"}).withColumnRenamed("min(_offset)", "first")
        ends = decoded.groupBy("_topic", "_partition").agg({"_offset": "max"}).withColumnRenamed("max(_offset)", "last")
        for row in ranges.join(ends, ["_topic", "_partition"]).orderBy("_topic", "_partition").collect():
            report.offsets[f"{row['_topic']}-{row['_partition']}"] = (int(row["first"]), int(row["last"]))
        lake.write(0, good(decoded))
        bad_lake.write(0, malformed(decoded) if report.quarantined else None)
    finally:
        decoded.unpersist()
    report.files = len(lake.files())
    report.seconds = time.monotonic() - began
    return report
