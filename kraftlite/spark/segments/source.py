"""`scan=segments`: the readers of `format("kraftlite")` that need no broker, for batch queries. The options: docs/SPARK.md.

Source: docs/ON-DISK.md; `kraftlite.spark.segments.planning` says what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraftlite.spark.offsets import Range
from kraftlite.spark.segments.planning import FileCluster, pieces_of
from kraftlite.spark.segments.reading import (
    BATCH_TYPES,
    BROKER,
    BatchesTask,
    SegmentTask,
    read_batches,
    read_segments,
)
from kraftlite.spark.source.options import SourceOptions
from kraftlite.spark.source.planning import Planner
from kraftlite.spark.source.readers import (
    COLUMNS,
    HEADERS,
    BatchReader,
    FetchPartition,
    PushdownReader,
    columns_of,
    now_ms,
    pause_ms,
    schema_of,
)
from kraftlite.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

_BROKER_FIELD: Final = StructField(BROKER, StringType())
_SPARK_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "bool": BooleanType(),
    "timestamp[us, tz=UTC]": TimestampType(),
}
BATCH_COLUMNS: Final = tuple(StructField(name, _SPARK_TYPES[str(kind)]) for name, kind in BATCH_TYPES.items())


def files_schema(options: SourceOptions) -> StructType:
    """Without `broker` for records: it is there when it is asked for by name."""
    assert options.files is not None
    return StructType(list(BATCH_COLUMNS)) if options.files.batches else schema_of(options.include_headers)


def files_reader(options: SourceOptions, schema: StructType) -> DataSourceReader:
    """Raises ValueError for a column that there is not."""
    assert options.files is not None
    if options.files.batches:
        return BatchesReader(options, columns_of(schema, True, BATCH_COLUMNS))
    columns = columns_of(schema, options.include_headers, (*COLUMNS, _BROKER_FIELD, HEADERS))
    return PushdownSegmentReader(options, columns) if options.pushdown else SegmentReader(options, columns)


class SegmentReader(BatchReader):
    """Records of one replica of each partition."""

    _rows = staticmethod(read_segments)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        assert options.files is not None
        files = FileCluster(options.files)
        ranges = self._narrowed(Planner(options, files, now_ms, pause_ms).plan_batch(), files)
        plan = self._plan()
        return [FetchPartition((self._part(it, files),), plan=plan) for it in files.cut(self._split(ranges))]

    def _part(self, range_: Range, files: FileCluster) -> SegmentTask:
        return SegmentTask(
            range=range_,
            replica=files.part(range_),
            columns=self._columns,
            fail_on_data_loss=self._options.fail_on_data_loss,
            parser=self._options.parser,
            batch_rows=self._options.batch_rows,
        )


class PushdownSegmentReader(SegmentReader, PushdownReader):
    """A `PushdownReader` over files, for one query per `load()`."""


class BatchesReader(DataSourceReader):
    """The record batches of every replica, up to where each log ends."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        assert options.files is not None
        files = FileCluster(options.files)
        wanted = Planner(options, files, now_ms, pause_ms).demanded()
        segments = [segment for tp in wanted for replica in files.replicas[tp] for segment in replica.segments]
        return [
            InputPartition(
                BatchesTask(
                    pieces=tuple(pieces),
                    columns=self._columns,
                    fail_on_data_loss=options.fail_on_data_loss,
                    batch_rows=options.batch_rows,
                )
            )
            for pieces in pieces_of(segments, options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is not None and partition.value is not None:  # as Spark runs a query without partitions
            try:
                yield from read_batches(partition.value)
            finally:
                settle()
