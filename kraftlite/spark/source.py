"""`format("kraftlite")`: the source, and the door to the sink.

Where each method runs: options, schema and the planning of a batch query in a planner process, once per load; the planning of a
streaming query in one process that lives as long as the query; `read` in the tasks, each with a fresh copy of the reader.

Source: Spark's Kafka source for columns, options and their meaning; PySpark's Python data source API.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraftlite.spark import options as opts
from kraftlite.spark.client import ClientError, client_for
from kraftlite.spark.offsets import EARLIEST, Offsets, Range, from_tree, log, split, to_tree
from kraftlite.spark.options import SourceOptions
from kraftlite.spark.planning import Planner
from kraftlite.spark.pushdown import claim, narrow, understood
from kraftlite.spark.reading import Progress, Task, publish, read_range

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
QUERY_ID: Final = "sql.streaming.queryId"
EXECUTION_ID: Final = "spark.sql.execution.id"


class KraftliteDataSource(DataSource):
    """Topics of kraftlite, or of any other Kafka. Options: docs/SPARK.md."""

    @classmethod
    def name(cls) -> str:
        return "kraftlite"

    def schema(self) -> StructType:
        """Also the place where options are first looked at, so that a wrong one is told when the DataFrame is made."""
        given = dict(self.options)
        streaming = any(name in opts.STREAM_ONLY for name in given)
        try:
            found = opts.parse(given, streaming=streaming)
        except ValueError:
            if streaming:
                raise
            found = opts.parse(given, streaming=True) if _only_streaming(given) else opts.parse(given, streaming=False)
        return schema_of(found.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        found = opts.parse(dict(self.options), streaming=False)
        columns = columns_of(schema, found.include_headers)
        return PushdownReader(found, columns) if found.pushdown else BatchReader(found, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        found = opts.parse(dict(self.options), streaming=True)
        return StreamReader(found, columns_of(schema, found.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kraftlite.spark.sink import sink_writer

        if overwrite:
            raise ValueError('mode "overwrite" is not supported: records of a topic cannot be replaced; use "append"')
        writer: DataSourceWriter = sink_writer(dict(self.options), schema, streaming=False)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kraftlite.spark.sink import sink_writer

        writer: DataSourceStreamWriter = sink_writer(dict(self.options), schema, streaming=True)
        return writer


def _only_streaming(given: dict[str, str]) -> bool:
    """Whether the options say what only a streaming query may say: to start at the latest offset."""
    return given.get("startingoffsets", "").strip().lower() == "latest" or "-1" in given.get("startingoffsets", "")


def schema_of(include_headers: bool) -> StructType:
    return StructType([*COLUMNS, HEADERS] if include_headers else list(COLUMNS))


def columns_of(schema: StructType, include_headers: bool) -> tuple[str, ...]:
    """The columns that a query wants: all, or those of a schema given by the user, which saves the others.

    Raises ValueError for a column that there is not, or that has another type.
    """
    known = {field.name: field.dataType for field in (*COLUMNS, HEADERS)}
    for field in schema.fields:
        if field.name not in known or known[field.name] != field.dataType:
            there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise ValueError(f"column {field.name} {field.dataType.simpleString()} cannot be read; the columns are {there}")
        if field.name == "headers" and not include_headers:
            raise ValueError('column headers is only there with option "includeHeaders" set to "true"')
    return tuple(field.name for field in schema.fields)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _pause_ms(ms: int) -> None:
    time.sleep(ms / 1000)


class _Reader:
    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def _task(self, range_: Any) -> Task:
        options = self._options
        return Task(
            range=range_,
            columns=self._columns,
            settings=options.settings,
            fail_on_data_loss=options.fail_on_data_loss,
            parser=options.parser,
            batch_rows=options.batch_rows,
        )

    def _planner(self) -> Planner:
        return Planner(self._options, client_for(self._options.settings), _now_ms, _pause_ms)


class FetchPartition(InputPartition):
    """A task, for the first of a batch what to publish, and for filtered ranges the one plan that they are for."""

    def __init__(self, task: Task, progress: Progress | None = None, plan: str | None = None) -> None:
        super().__init__(task)
        self.progress = progress
        self.plan = plan


def _read(partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    if partition is None or partition.value is None:  # how Spark runs a batch query without partitions
        return
    assert isinstance(partition, FetchPartition)
    if partition.plan is not None:
        claim(partition.plan, str(_local_property(EXECUTION_ID)))
    if partition.progress is not None:
        _publish_from_task(partition.value, partition.progress)
    yield from read_range(partition.value)


def _local_property(name: str) -> str | None:
    """What Spark tells a task of the query that it belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


def _publish_from_task(task: Task, progress: Progress) -> None:
    query = _local_property(QUERY_ID)
    if query is None:
        log.warning("the query's id is not known in its tasks, so no group shows its progress")
        return
    publish(task.settings, f"{progress.group}-{query}", progress.offsets, progress.token)


def _begins(start: Offsets, end: Offsets, ranges: Sequence[Range]) -> Offsets:
    """Where a batch starts, in numbers: a symbol is what was planned for it, or the end where there is nothing to read."""
    begins = {tp: end[tp] if start.get(tp, EARLIEST) < 0 else start[tp] for tp in end}
    for it in reversed(ranges):
        begins[it.tp] = it.start
    return begins


class BatchReader(_Reader, DataSourceReader):
    """Resolves its range once, when the query is planned: a loaded DataFrame does not change, `load()` again to see more."""

    def partitions(self) -> Sequence[InputPartition]:
        ranges, plan = self._split(self._planner().plan_batch()), self._plan()
        return [FetchPartition(self._task(it), plan=plan) for it in ranges]

    def _plan(self) -> str | None:
        """A name, when these tasks are for one query only."""
        return None

    def _split(self, ranges: list[Any]) -> list[Any]:
        return split(ranges, self._options.min_partitions, self._options.max_records)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class PushdownReader(BatchReader):
    """Its own class because Spark refuses one that has `pushFilters` while spark.sql.python.filterPushdown.enabled is off.

    For one query per `load()`: Spark keeps the tasks that the last filter has left for all queries of a loaded DataFrame, those
    without a filter included (PythonScanBuilder.pushFilters). So the first query claims them, and another one fails.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._filters: list[Any] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Ranges become narrower; every filter is still Spark's to apply, since ranges are by offset and not by row."""
        self._filters = [it for it in map(understood, filters) if it is not None]
        return filters

    def _plan(self) -> str | None:
        return secrets.token_hex(16) if self._filters else None

    def _split(self, ranges: list[Any]) -> list[Any]:
        client = client_for(self._options.settings)
        return super()._split(narrow(ranges, self._filters, client))


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance plans for as long as the query runs; others, in tasks, only read."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._made: Planner | None = None
        self._group = options.group_id
        self._token = secrets.token_hex(8)
        self._published: Offsets = {}
        self._planned = False

    @property
    def _plans(self) -> Planner:
        if self._made is None:
            self._made = self._planner()
        return self._made

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return to_tree(self._plans.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        maximum = self._options.max_offsets
        return ReadAllAvailable() if maximum is None else ReadMaxRows(maximum)

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:
        """`limit` says nothing that the options do not say."""
        done = from_tree(start)
        self._publish(done)
        return to_tree(self._plans.latest(done))

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        plans = self._plans
        return to_tree(plans.heads(plans.partitions()))

    def prepareForTriggerAvailableNow(self) -> None:
        self._plans.prepare_available_now()

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> Sequence[InputPartition]:
        first, ends = from_tree(start), from_tree(end)
        ranges = self._plans.plan(first, ends)
        tasks = [FetchPartition(self._task(it)) for it in ranges]
        if tasks and self._group is None and self._options.commit_offsets:
            self._planned = True
            begins = _begins(first, ends, ranges)
            tasks[0].progress = Progress(offsets=begins, group=self._options.group_prefix, token=self._token)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        self._publish(from_tree(end))

    def _publish(self, done: Offsets) -> None:
        """Spark asks for the next end when all before `done` is processed."""
        if not self._options.commit_offsets or done == self._published:
            return
        if self._group is None and self._planned:
            self._group = self._find_group()
        if self._group is not None and publish(self._options.settings, self._group, done, self._token):
            self._published = dict(done)

    def _find_group(self) -> str | None:
        """The group that a task of this query has committed to."""
        client = client_for(self._options.settings)
        try:
            for group in client.list_groups():
                if group.startswith(f"{self._options.group_prefix}-") and self._token in client.committed_metadata(group):
                    return group
        except ClientError as error:
            log.warning("the query's group was not found: %s", error)
        return None
