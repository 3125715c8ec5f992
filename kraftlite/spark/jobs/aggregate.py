"""`kraftlite pipeline aggregate`: event-time windows with a watermark, to a topic and to Parquet.

In mode `append` a window is given out once, when the watermark has passed its end: late records that come before that are
counted, those behind it are dropped (and told). In mode `update` every batch gives out the windows that it changed; the newest
result of a window is the one that counts, by key in the topic (which may be compacted) and by `_batch` in Parquet.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kraftlite.spark.jobs.decode import REASON, Format, decode, good
from kraftlite.spark.jobs.ingest import with_schema
from kraftlite.spark.jobs.lake import Lake
from kraftlite.spark.jobs.running import OnProgress, Source, trigger_of, wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES: Final = ("append", "update")
BATCH: Final = "_batch"
QUALITY: Final = "quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The aggregates to compute per `group_by` and window of event time: rows, and count, sum, mean, min and max of `value`.

    `length`, `slide` and `watermark` are Spark's intervals, such as "1 hour".
    """

    group_by: tuple[str, ...]
    value: str
    length: str = "1 hour"
    slide: str | None = None
    watermark: str = "1 hour"
    mode: str = "append"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; allowed are {' and '.join(MODES)}")


@dataclass(slots=True, kw_only=True)
class AggregateReport:
    """The counts of one run. `late_rows` were dropped because the watermark had passed their window."""

    out: str | None
    result_topic: str | None
    rows: int = 0
    results: int = 0
    late_rows: int = 0
    malformed_rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    schema: str | None = field(default=None)


def aggregate(
    spark: SparkSession,
    source: Source,
    *,
    form: Format,
    windows: Windows,
    checkpoint: str,
    out: str | None = None,
    result_topic: str | None = None,
    exactly_once: bool = False,
    trigger: str = "available-now",
    max_offsets: int | None = 1_000_000,
    on_progress: OnProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> AggregateReport:
    """Run until the topics are read (available-now) or `stop` says so. `exactly_once`: the result topic is written in
    transactions. Raises ValueError when there is nowhere to write to."""
    if out is None and result_topic is None:
        raise ValueError("nowhere to write to: give an output directory, a result topic, or both")
    if exactly_once and result_topic is None:
        raise ValueError("exactly once is about the result topic, and none is given; Parquet is exact without it")
    from pyspark.sql import functions as F

    began = time.monotonic()
    form = with_schema(spark, source, form, checkpoint)
    report = AggregateReport(out=out, result_topic=result_topic, schema=form.schema)
    lake = Lake(spark, out) if out is not None else None

    def write(batch: DataFrame, batch_id: int) -> None:
        results = batch.persist()
        try:
            report.results += results.count()
            if lake is not None:
                lake.write(batch_id, results.selectExpr("*", f"{batch_id} as {BATCH}"))
            if result_topic is not None:
                _to_topic(results, source.client_options(), result_topic, windows.group_by, exactly_once=exactly_once)
        finally:
            results.unpersist()

    decoded = decode(source.stream(spark, max_offsets), form)
    decoded = decoded.observe(QUALITY, F.count_if(F.col(REASON).isNotNull()).alias("malformed"))
    query: Any = (
        results_of(good(decoded), windows)
        .writeStream.foreachBatch(write)
        .outputMode(windows.mode)
        .option("checkpointLocation", checkpoint)
        .queryName(f"aggregate-{zlib.crc32(checkpoint.encode()):08x}")
        .trigger(**trigger_of(trigger))
        .start()
    )

    def note(it: Any) -> None:
        report.late_rows += sum(int(state.numRowsDroppedByWatermark) for state in it.stateOperators)
        report.malformed_rows += int(it.observedMetrics[QUALITY].malformed) if QUALITY in it.observedMetrics else 0

    progress = wait(query, "aggregate", on_progress, stop, note)
    report.batches, report.rows = progress.batches, progress.rows
    report.seconds = time.monotonic() - began
    return report


def results_of(rows: DataFrame, windows: Windows) -> DataFrame:
    """Return the aggregates of decoded rows, streaming or not. Raises ValueError for a column that does not exist."""
    from pyspark.sql import functions as F

    for name in (*windows.group_by, windows.value):
        if name not in rows.columns:
            raise ValueError(f"column {name!r} is not there; the schema has {', '.join(rows.columns)}")
    value = F.col(f"`{windows.value}`").try_cast("double")
    grouped = rows.withWatermark("_event_time", windows.watermark).groupBy(
        F.window("_event_time", windows.length, windows.slide), *[F.col(f"`{name}`") for name in windows.group_by]
    )
    return grouped.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(value).alias("values"),
        F.sum(value).alias("sum"),
        F.avg(value).alias("mean"),
        F.min(value).alias("min"),
        F.max(value).alias("max"),
    ).select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *[F.col(f"`{name}`") for name in windows.group_by],
        *("rows", "values", "sum", "mean", "min", "max"),
    )


def latest_results(results: DataFrame, group_by: Sequence[str]) -> DataFrame:
    """Return the newest result of each window, from the Parquet files that output mode `update` has written."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    order = Window.partitionBy("window_start", *group_by).orderBy(F.col(BATCH).desc())
    return results.withColumn("_rank", F.row_number().over(order)).where("_rank = 1").drop("_rank", BATCH)


def _to_topic(results: DataFrame, client: Mapping[str, str], topic: str, group_by: Sequence[str], *, exactly_once: bool) -> None:
    """Key and value are JSON. The key is the window's, so a batch that runs again changes nothing for who reads by key; with
    `exactly_once` nobody who reads what is committed sees it twice."""
    from pyspark.sql import functions as F

    keys = F.to_json(F.struct("window_start", *[F.col(f"`{name}`") for name in group_by]))
    values = F.to_json(F.struct(*[F.col(f"`{name}`") for name in results.columns]))
    (
        results.select(keys.alias("key"), values.alias("value"))
        .write.format("kraftlite")
        .options(**client)
        .option("topic", topic)
        .option("kraftlite.sink.mode", "exactly_once" if exactly_once else "at_least_once")
        .mode("append")
        .save()
    )
