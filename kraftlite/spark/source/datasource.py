"""`format("kraftlite")`: the source, and the door to the sink. Options and schema are looked at in a planner process.

Source: Spark's Kafka source for columns, options and their meaning; PySpark's Python data source API.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kraftlite.spark.source import options as opts
from kraftlite.spark.source.readers import BatchReader, PushdownReader, StreamReader, columns_of, schema_of


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
        if found.files is not None:
            from kraftlite.spark.segments.source import files_schema

            return files_schema(found)
        return schema_of(found.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        found = opts.parse(dict(self.options), streaming=False)
        if found.files is not None:
            from kraftlite.spark.segments.source import files_reader

            return files_reader(found, schema)
        columns = columns_of(schema, found.include_headers)
        return PushdownReader(found, columns) if found.pushdown else BatchReader(found, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        found = opts.parse(dict(self.options), streaming=True)
        return StreamReader(found, columns_of(schema, found.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kraftlite.spark.sink.datasink import sink_writer

        if overwrite:
            raise ValueError('mode "overwrite" is not supported: records of a topic cannot be replaced; use "append"')
        writer: DataSourceWriter = sink_writer(dict(self.options), schema, streaming=False)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kraftlite.spark.sink.datasink import sink_writer

        writer: DataSourceStreamWriter = sink_writer(dict(self.options), schema, streaming=True)
        return writer


def _only_streaming(given: dict[str, str]) -> bool:
    """Return True if the options say what only a streaming query may say: to start at the latest offset."""
    return given.get("startingoffsets", "").strip().lower() == "latest" or "-1" in given.get("startingoffsets", "")
