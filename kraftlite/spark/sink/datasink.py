"""Spark's side of the sink: `df.write.format("kraftlite")` and `df.writeStream.format("kraftlite")`.

Columns, option `topic` and errors as in Spark's Kafka sink. Delivery is at least once: a task that fails is run again by Spark,
and after a crash the last batch is. In a streaming query every record carries `kraftlite.batch`, the same in every attempt, by
which a reader drops what is there twice. With `kraftlite.sink.mode=exactly_once` tasks only stage, and the driver's `commit`
makes what they have staged visible, once.

Departs: output mode update is not there, because Spark does not offer it to data sources in Python (`foreachBatch` does it); and
an option that would have no effect is refused.

Source: Spark's KafkaSourceProvider, KafkaWriter; DataSourceArrowWriter and DataSourceStreamArrowWriter of PySpark; SX-01, SX-05.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, overload

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraftlite.client.kafka_client import client_for
from kraftlite.exactly_once.records import check_name
from kraftlite.spark.sink.committing import Begun, Committed, Part, abort_staged, begin_run, commit_staged, staging_of
from kraftlite.spark.sink.options import JOB, sink_settings
from kraftlite.spark.sink.producing import KraftliteWriter, SinkError, SinkSettings, check_columns
from kraftlite.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("kraftlite.spark")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class BatchWriter(DataSourceArrowWriter):
    """One `save()`. Pickled to its tasks. `write` raises SinkError, ClientError and UnknownTopic; `commit` CommitFailed and
    ClientError."""

    def __init__(self, settings: SinkSettings, begun: Begun) -> None:
        self._settings, self._begun = settings, begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        part = None if self._settings.exactly_once is None else self._part(self._settings.exactly_once.job)
        stamp = part.stamp if part is not None and self._settings.stamped else None
        return write_task(self._settings, iterator, turn=_partition_id(), stamp=stamp, part=part)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._settings.exactly_once is not None:
            commit_staged(self._settings, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._settings, messages, "the job")

    def _part(self, job: str | None) -> Part:
        """A job is written once. Within `foreachBatch`, each of the query's batches is, by each job that it has in it."""
        streaming = _streaming()
        if streaming is None and job is None:
            raise SinkError(f"exactly once: by which name is this output known when it is written again? {JOB} tells it")
        query, batch = (job, 0) if streaming is None else streaming
        if streaming is not None and job is not None:
            query = check_name(f"{query}.{job}", f"{JOB} behind the query's id")
        return part_of(self._begun, str(query), batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a query. Pickled to its tasks. Errors as BatchWriter's."""

    def __init__(self, settings: SinkSettings, begun: Begun) -> None:
        self._settings, self._begun = settings, begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        streaming = _streaming()
        if streaming is None:
            raise RuntimeError(f"Spark does not tell {QUERY_ID} and {BATCH_ID}: a stream's writer is for its tasks only")
        query, batch = streaming
        part = part_of(self._begun, query, batch)
        stamp = part.stamp if self._settings.stamped else None
        exactly = None if self._settings.exactly_once is None else part
        return write_task(self._settings, iterator, turn=part.task + batch, stamp=stamp, part=exactly)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._settings.exactly_once is not None:
            commit_staged(self._settings, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(self._settings, messages, f"batch {batchId}")


@overload
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: Literal[False]) -> BatchWriter: ...
@overload
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: Literal[True]) -> StreamWriter: ...
@overload
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> BatchWriter | StreamWriter: ...
def sink_writer(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> BatchWriter | StreamWriter:
    """Options by name in any case. Raises ValueError for an option or column that cannot be honoured, before any row is read;
    exactly once, ClientError too."""
    settings = sink_settings(options)
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], settings.topic)
    if streaming and settings.exactly_once is not None and settings.exactly_once.job is not None:
        raise ValueError(f"{JOB}={settings.exactly_once.job!r} is for batches: a stream is known by its query's id")
    begun = begin_run(settings)
    return StreamWriter(settings, begun) if streaming else BatchWriter(settings, begun)


def write_task(
    settings: SinkSettings, iterator: Iterator[pa.RecordBatch], *, turn: int, stamp: str | None = None, part: Part | None = None
) -> Committed:
    """All rows of a task, acknowledged; with `part`, staged."""
    try:
        client = client_for(settings.client)
        staging = None if part is None or settings.exactly_once is None else staging_of(client, settings.exactly_once, part)
        with KraftliteWriter(client, settings, turn=turn, stamp=stamp, staging=staging) as writer:
            for batch in iterator:
                writer.add(batch)
            written = writer.finish()
        return Committed(rows=written.rows, bytes=written.bytes, part=part, entry=written.entry)
    finally:
        settle()


def part_of(begun: Begun, query: str, batch: int) -> Part:
    """The part of an output that this task makes."""
    return Part(query=query, batch=batch, run=begun.run, since=begun.since, task=_partition_id())


def _partition_id() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _streaming() -> tuple[str, int] | None:
    """The query and the batch that this task is a part of."""
    context = TaskContext.get()
    query, batch = (None if context is None else context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    return None if query is None or batch is None else (query, int(batch))


def _abort(settings: SinkSettings, messages: list[WriterCommitMessage | None], what: str) -> None:
    if settings.exactly_once is not None:
        abort_staged(settings, messages, what)
        return
    rows = sum(it.rows for it in messages if isinstance(it, Committed))
    log.warning("%s failed: at least %d of its records are written, and stay", what, rows)
