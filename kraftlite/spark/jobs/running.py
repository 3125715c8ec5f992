"""The parts that all jobs share: where they read, how long they run, and what they say meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Any = 0.2
STOP_WAIT_S = 120.0
STOP_POLL_S = 0.01
KAFKA: Final = "kafka."


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The brokers and topics that a job reads. `options` are further options of the data source, by name."""

    bootstrap: str
    topics: str
    """With commas between them; or a pattern, when `pattern` is set."""
    pattern: bool = False
    starting: str = "earliest"
    options: Mapping[str, str] = field(default_factory=dict)

    def all_options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribePattern" if self.pattern else "subscribe": self.topics,
            **({"startingOffsets": self.starting} if self.starting else {}),
            **self.options,
        }

    def client_options(self) -> dict[str, str]:
        """The options of the client alone that are not about reading, for a sink that writes to the same brokers."""
        from kraftlite.spark.kafka_options import READING

        ours = {f"{KAFKA}{name}" for name in (*READING, "group.id")}
        given = {name: it for name, it in self.all_options().items() if name.lower().startswith(KAFKA)}
        return {name: it for name, it in given.items() if name.lower() not in ours}

    def stream(self, spark: SparkSession, max_offsets: int | None = None) -> DataFrame:
        options = self.all_options()
        if max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(max_offsets)
        return spark.readStream.format("kraftlite").options(**options).load()

    def batch(self, spark: SparkSession, **more: str) -> DataFrame:
        """Without the options that only a streaming query may have."""
        from kraftlite.spark.source.options import STREAM_ONLY

        options = {name: value for name, value in self.all_options().items() if name.lower() not in STREAM_ONLY}
        return spark.read.format("kraftlite").options(**{**options, **more}).load()


@dataclass(slots=True, kw_only=True)
class Progress:
    """The state of a job that runs; `on_progress` gets it again and again."""

    job: str
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    behind: int | None = None
    """Offsets that are there and not read yet."""


OnProgress = Callable[[Progress], None]


def trigger_of(text: str) -> dict[str, Any]:
    """Arguments of `DataStreamWriter.trigger`: available-now, or an interval such as 500ms or 2s. Raises ValueError."""
    if text == "available-now":
        return {"availableNow": True}
    found = re.fullmatch(r"(\d+)\s*(ms|s|m)", text)
    if found is None:
        raise ValueError(f"trigger is {text!r}; allowed are available-now, and intervals such as 500ms, 2s or 1m")
    unit = {"ms": "milliseconds", "s": "seconds", "m": "minutes"}[found[2]]
    return {"processingTime": f"{found[1]} {unit}"}


def wait(
    query: StreamingQuery,
    job: str,
    on_progress: OnProgress | None,
    stop: Callable[[], bool] | None = None,
    on_batch: Callable[[Any], None] | None = None,
) -> Progress:
    """Until the query ends, or `stop` says so. `on_batch` sees Spark's progress of each batch once.

    Raises the query's StreamingQueryException.
    """
    seen: dict[int, int] = {}
    progress = Progress(job=job)
    began = time.monotonic()
    while True:
        ended = query.awaitTermination(POLL_S)
        for it in query.recentProgress:
            if it.batchId in seen or "addBatch" not in it.durationMs:
                continue  # an idle trigger
            seen[it.batchId] = int(it.numInputRows)
            if on_batch is not None:
                on_batch(it)
            if it.sources:
                progress.behind = _distance(it.sources[0].endOffset, it.sources[0].latestOffset)
        progress.batches, progress.rows = len(seen), sum(seen.values())
        progress.rows_per_s = progress.rows / max(time.monotonic() - began, 1e-9)
        if on_progress is not None:
            on_progress(progress)
        if ended:
            return progress
        if stop is not None and stop():
            _stop_between_batches(query)


def _stop_between_batches(query: StreamingQuery) -> None:
    """A batch that is interrupted has to run again, so wait a while for its end."""
    deadline = time.monotonic() + STOP_WAIT_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(STOP_POLL_S)
    query.stop()


def _distance(end: str | None, latest: str | None) -> int | None:
    """None for a batch without data, of which Spark says null."""
    from kraftlite.spark.offsets import from_json

    if not (end and latest and end.startswith("{") and latest.startswith("{")):
        return None
    here, there = from_json(end), from_json(latest)
    return sum(max(0, offset - here.get(tp, 0)) for tp, offset in there.items())


def as_json(report: Any) -> dict[str, Any]:
    """A report's dataclass as JSON values."""
    return asdict(report)
