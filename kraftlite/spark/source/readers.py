"""The readers of batch and streaming queries, and the columns that they read.

Where each method runs: the planning of a batch query in a planner process, once per load; the planning of a streaming query in
one process that lives as long as the query; `read` in the tasks, each with a fresh copy of the reader.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
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

from kraftlite.client.kafka_client import client_for
from kraftlite.spark.offsets import EARLIEST, Offsets, Range, from_tree, log, split, to_tree, together
from kraftlite.spark.source.options import SourceOptions
from kraftlite.spark.source.planning import Cluster, Planner
from kraftlite.spark.source.progress import Progress, Publisher, publish
from kraftlite.spark.source.pushdown import claim, narrow, understood
from kraftlite.spark.source.reading import Task, read_range
from kraftlite.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from kraftlite.spark.segments.reading import SegmentTask

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


def schema_of(include_headers: bool) -> StructType:
    return StructType([*COLUMNS, HEADERS] if include_headers else list(COLUMNS))


def columns_of(schema: StructType, include_headers: bool, there: Iterable[StructField] = (*COLUMNS, HEADERS)) -> tuple[str, ...]:
    """The columns that a query wants: all, or those of a schema given by the user, which saves the others.

    Raises ValueError for a column that there is not, or that has another type.
    """
    known = {field.name: field.dataType for field in there}
    for field in schema.fields:
        if field.name not in known or known[field.name] != field.dataType:
            names = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise ValueError(f"column {field.name} {field.dataType.simpleString()} cannot be read; the columns are {names}")
        if field.name == "headers" and not include_headers:
            raise ValueError('column headers is only there with option "includeHeaders" set to "true"')
    return tuple(field.name for field in schema.fields)


def now_ms() -> int:
    return int(time.monotonic() * 1000)


def pause_ms(ms: int) -> None:
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
        return Planner(self._options, client_for(self._options.settings), now_ms, pause_ms)


class FetchPartition(InputPartition):
    """The range that a task of Spark reads. The first task of a batch also has what to publish, and filtered ranges have the one
    plan that they are for."""

    def __init__(self, tasks: tuple[Task | SegmentTask, ...], progress: Progress | None = None, plan: str | None = None) -> None:
        super().__init__(tasks)
        self.progress = progress
        self.plan = plan


def _read(
    partition: InputPartition | None, rows: Callable[[Any], Iterator[pa.RecordBatch]] = read_range
) -> Iterator[pa.RecordBatch]:
    if partition is None or partition.value is None:  # how Spark runs a batch query without partitions
        return
    assert isinstance(partition, FetchPartition)
    if partition.plan is not None:
        claim(partition.plan, str(_local_property(EXECUTION_ID)))
    if partition.progress is not None:
        _publish_from_task(partition.value[0], partition.progress)
    try:
        for task in partition.value:
            yield from rows(task)
    finally:
        settle()


def _local_property(name: str) -> str | None:
    """Return what Spark tells a task of the query that it belongs to."""
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
    """Return where a batch starts, in numbers: a symbol is what was planned for it, or the end where there is nothing to read."""
    begins = {tp: end[tp] if start.get(tp, EARLIEST) < 0 else start[tp] for tp in end}
    for it in reversed(ranges):
        begins[it.tp] = it.start
    return begins


class BatchReader(_Reader, DataSourceReader):
    """Resolves its range once, when the query is planned: a loaded DataFrame does not change, `load()` again to see more."""

    _rows: Callable[[Any], Iterator[pa.RecordBatch]] = staticmethod(read_range)

    def partitions(self) -> Sequence[InputPartition]:
        ranges = self._narrowed(self._planner().plan_batch(), client_for(self._options.settings))
        plan = self._plan()
        settle()
        return [FetchPartition((self._task(it),), plan=plan) for it in self._split(ranges)]

    def _plan(self) -> str | None:
        """A name, when these tasks are for one query only."""
        return None

    def _narrowed(self, ranges: list[Range], cluster: Cluster) -> list[Range]:
        return ranges

    def _split(self, ranges: list[Range]) -> list[Range]:
        return split(ranges, self._options.min_partitions, self._options.max_records)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._rows)


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

    def _narrowed(self, ranges: list[Range], cluster: Cluster) -> list[Range]:
        return narrow(ranges, self._filters, cluster)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance plans for as long as the query runs; others, in tasks, only read."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._made: Planner | None = None
        self._shown: Publisher | None = None

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
        end = self._plans.latest(done)
        self._publish(done, wait=end == done)
        return to_tree(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        plans = self._plans
        return to_tree(plans.heads(plans.partitions()))

    def prepareForTriggerAvailableNow(self) -> None:
        self._plans.prepare_available_now()

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> Sequence[InputPartition]:
        first, ends = from_tree(start), from_tree(end)
        ranges = self._plans.plan(first, ends)
        options = self._options
        alone = options.min_partitions is not None or options.max_records is not None
        groups = [[it] for it in ranges] if alone else together(ranges)
        tasks = [FetchPartition(tuple(map(self._task, them))) for them in groups]
        if tasks and options.commit_offsets:
            tasks[0].progress = self._publisher.expect(_begins(first, ends, ranges))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        self._publish(from_tree(end), wait=False)

    @property
    def _publisher(self) -> Publisher:
        if self._shown is None:
            options = self._options
            self._shown = Publisher(options.settings, options.group_id, options.group_prefix, secrets.token_hex(8))
        return self._shown

    def _publish(self, done: Offsets, *, wait: bool) -> None:
        """Spark asks for the next end when all before `done` is processed."""
        if self._options.commit_offsets:
            self._publisher.publish(done, wait=wait)
