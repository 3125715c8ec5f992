"""Spark's side of the sink: `df.write.format("kraftlite")` and `df.writeStream.format("kraftlite")`.

Columns, option `topic` and errors as in Spark's Kafka sink. Delivery is at least once: a task that fails is run again by Spark,
and after a crash the last batch is. In a streaming query every record carries `kraftlite.batch`, the same in every attempt, by
which a reader drops what is there twice.

Departs: output mode update is not there, because Spark does not offer it to data sources in Python (`foreachBatch` does it); and
an option that would have no effect is refused.

Source: Spark's KafkaSourceProvider, KafkaWriter; DataSourceArrowWriter and DataSourceStreamArrowWriter of PySpark.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, overload

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraftlite.client.kafka_client import client_for
from kraftlite.spark.kafka_options import client_settings
from kraftlite.spark.sink.producing import KraftliteWriter, SinkSettings, Written, check_columns
from kraftlite.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("kraftlite.spark")

NAMES: Final = ("topic", "kraftlite.sink.mode", "kraftlite.sink.headers")
MODES: Final = ("at_least_once", "exactly_once")
OF_SPARK: Final = ("checkpointlocation", "queryname", "path")
"""Options of Spark itself, which it hands on to the sink."""
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Committed(WriterCommitMessage):
    """The report of a task: rows, and bytes of encoded batches."""

    rows: int
    bytes: int


class BatchWriter(DataSourceArrowWriter):
    """One `save()`. Pickled to its tasks. `write` raises SinkError, ClientError and UnknownTopic."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        return _committed(write_task(self._settings, iterator, turn=_partition_id()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass  # every task has its acknowledgements

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _tell_of_abort(messages, "the job")


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a query. Pickled to its tasks. `write` raises SinkError, ClientError and UnknownTopic."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        task = _partition_id()
        context = TaskContext.get()
        query, batch = (None if context is None else context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if query is None or batch is None:
            raise RuntimeError(f"Spark does not tell {QUERY_ID} and {BATCH_ID}: a stream's writer is for its tasks only")
        stamp = f"{query}/{batch}/{task}" if self._settings.stamped else None
        return _committed(write_task(self._settings, iterator, turn=task + int(batch), stamp=stamp))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass  # every task has its acknowledgements

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _tell_of_abort(messages, f"batch {batchId}")


@overload
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: Literal[False]) -> BatchWriter: ...
@overload
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: Literal[True]) -> StreamWriter: ...
@overload
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> BatchWriter | StreamWriter: ...
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> BatchWriter | StreamWriter:
    """Options by name in any case. Raises ValueError for an option or column that cannot be honoured, before any row is read."""
    settings = sink_settings(options)
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], settings.topic)
    return StreamWriter(settings) if streaming else BatchWriter(settings)


def sink_settings(options: Mapping[str, str]) -> SinkSettings:
    """Raises ValueError naming the option, its value and what is allowed."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in NAMES and name not in OF_SPARK and not name.startswith("kafka."):
            near = difflib.get_close_matches(name, (*NAMES, "kafka.bootstrap.servers"), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"option {name} is not known to the sink{hint} Known are kafka.*, {', '.join(NAMES)}")
    mode = given.get("kraftlite.sink.mode", MODES[0]).strip().lower()
    if mode not in MODES:
        raise ValueError(f"kraftlite.sink.mode={given['kraftlite.sink.mode']!r}: allowed is {MODES[0]}")
    if mode == "exactly_once":
        instead = f"use {MODES[0]}, and in readers drop records whose header kraftlite.batch has been seen"
        raise ValueError(
            f"kraftlite.sink.mode='{mode}' cannot be honoured: the cluster has no transaction coordinator yet; {instead}"
        )
    stamped = given.get("kraftlite.sink.headers", "true").strip().lower()
    if stamped not in ("true", "false"):
        raise ValueError(f"kraftlite.sink.headers={given['kraftlite.sink.headers']!r}: allowed is true or false")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ValueError(f"topic={topic!r}: allowed is the name of a topic")
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    settings = client_settings(kafka)
    return SinkSettings(client=settings, topic=None if topic is None else topic.strip(), stamped=stamped == "true")


def write_task(settings: SinkSettings, iterator: Iterator[pa.RecordBatch], *, turn: int, stamp: str | None = None) -> Written:
    """All rows of a task, acknowledged."""
    try:
        with KraftliteWriter(client_for(settings.client), settings, turn=turn, stamp=stamp) as writer:
            for batch in iterator:
                writer.add(batch)
            return writer.finish()
    finally:
        settle()


def _partition_id() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _committed(written: Written) -> Committed:
    return Committed(rows=written.rows, bytes=written.bytes)


def _tell_of_abort(messages: list[WriterCommitMessage | None], what: str) -> None:
    rows = sum(it.rows for it in messages if isinstance(it, Committed))
    log.warning("%s failed: at least %d of its records are written, and stay", what, rows)
