"""Options and columns of the sink, before Spark runs anything. No JVM, no cluster.

Source: Spark's KafkaWriter (what is required, which types, the words of the errors).
"""

from __future__ import annotations

import pickle

import pytest

from kraftlite.client.settings import ClientSettings
from kraftlite.spark.sink.producing import HEADERS_TYPE, check_columns

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from kraftlite.spark.sink.datasink import BatchWriter, Committed, StreamWriter, sink_settings, sink_writer

B = {"kafka.bootstrap.servers": "one:9092"}
FULL = "key string, value binary, topic string, partition int, headers array<struct<key:string,value:binary>>"


def schema(ddl: str) -> StructType:
    """`StructType.fromDDL` asks a JVM; so few types are parsed here."""
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, IntegerType, LongType, StringType

    headers = StructType().add("key", StringType()).add("value", BinaryType())
    kinds = {
        "string": StringType(),
        "binary": BinaryType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "double": DoubleType(),
        HEADERS_TYPE: ArrayType(headers),
        "array<string>": ArrayType(StringType()),
    }
    found = StructType()
    for part in ddl.split(", "):
        name, _, kind = part.partition(" ")
        found = found.add(name, kinds[kind])
    return found


@pytest.mark.parametrize(
    "ddl", ["value string", "value binary", FULL, "value string, offset bigint, other double", "key binary, value string"]
)
def test_columns_that_a_sink_takes(ddl: str) -> None:
    """As in Spark, columns that a record has no place for are not looked at."""
    for streaming, kind in ((False, BatchWriter), (True, StreamWriter)):
        writer = sink_writer({**B, "topic": "t"}, schema(ddl), streaming=streaming)
        assert type(writer) is kind
        assert isinstance(writer, DataSourceStreamArrowWriter if streaming else DataSourceArrowWriter)
        assert pickle.loads(pickle.dumps(writer)).__dict__ == writer.__dict__


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("key string, other string", "Required attribute 'value' not found; the attributes are key, other"),
        ("value int", "value attribute unsupported type int. value must be a\\(n\\) string or binary"),
        ("key bigint, value string", "key attribute unsupported type bigint. key must be a\\(n\\) string or binary"),
        ("value string, partition bigint", "partition attribute unsupported type bigint. partition must be a\\(n\\) int"),
        (
            "value string, headers array<string>",
            "headers attribute unsupported type array<string>. headers must be a\\(n\\) array<struct<",
        ),
    ],
)
def test_columns_that_it_does_not_take(ddl: str, said: str) -> None:
    for streaming in (False, True):
        with pytest.raises(ValueError, match=said):
            sink_writer({**B, "topic": "t"}, schema(ddl), streaming=streaming)


def test_a_topic_comes_from_the_option_or_from_the_column() -> None:
    with pytest.raises(ValueError, match="topic option required when no 'topic' attribute is present"):
        sink_writer(B, schema("value string"), streaming=False)
    sink_writer(B, schema("value string, topic string"), streaming=False)
    with pytest.raises(ValueError, match=r"topic attribute unsupported type int. topic must be a\(n\) string"):
        sink_writer(B, schema("value string, topic int"), streaming=False)
    sink_writer({**B, "topic": "t"}, schema("value string, topic int"), streaming=False)
    with pytest.raises(ValueError, match="topic=' ': allowed is the name of a topic"):
        sink_settings({**B, "topic": " "})


def test_the_first_of_two_columns_of_a_name_counts() -> None:
    check_columns([("value", "string"), ("value", "int")], "t")
    with pytest.raises(ValueError, match="value attribute unsupported type int"):
        check_columns([("value", "int"), ("value", "string")], "t")


def test_options() -> None:
    given = {**B, "Topic": " t ", "Kraftlite.Sink.Headers": "False", "kafka.compression.type": "zstd", "checkpointLocation": "/x"}
    found = sink_settings(given)
    assert found.client == ClientSettings(bootstrap=("one:9092",), client_id="kraftlite-spark", compression="zstd")
    assert (found.topic, found.stamped) == ("t", False)
    assert sink_settings({**B, "kraftlite.sink.mode": "at_least_once"}).stamped


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kraftlite.sink.mode", "exactly_once", "no transaction coordinator yet; use at_least_once, and in readers drop"),
        ("kraftlite.sink.mode", "twice", "kraftlite.sink.mode='twice': allowed is at_least_once"),
        ("kraftlite.sink.headers", "yes", "kraftlite.sink.headers='yes': allowed is true or false"),
        ("topics", "t", "option topics is not known to the sink; did you mean topic\\?"),
        ("startingOffsets", "earliest", "option startingoffsets is not known to the sink"),
        ("kafka.linger.ms", "5", "kafka.linger.ms='5' cannot be honoured"),
        ("kafka.key.serializer", "x", "kafka.key.serializer='x' cannot be honoured"),
        ("kafka.transactional.id", "x", "kafka.transactional.id='x' cannot be honoured"),
    ],
)
def test_options_that_cannot_be_honoured(name: str, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sink_settings({**B, name: value})


def test_a_streams_writer_is_for_a_streams_tasks() -> None:
    """Outside of Spark there is no query, and no batch that a record could name."""
    writer = sink_writer({**B, "topic": "t"}, schema("value string"), streaming=True)
    with pytest.raises(RuntimeError, match=r"Spark does not tell sql.streaming.queryId and streaming.sql.batchId"):
        writer.write(iter(()))
    batch = sink_writer({**B, "topic": "t"}, schema("value string"), streaming=False)
    assert batch.write(iter(())) == Committed(rows=0, bytes=0)


def test_aborted_tasks_may_have_said_nothing(caplog: pytest.LogCaptureFixture) -> None:
    batch = sink_writer({**B, "topic": "t"}, schema("value string"), streaming=False)
    stream = sink_writer({**B, "topic": "t"}, schema("value string"), streaming=True)
    assert isinstance(batch, BatchWriter) and isinstance(stream, StreamWriter)
    batch.commit([Committed(rows=1, bytes=2)])
    stream.commit([Committed(rows=1, bytes=2)], 3)
    batch.abort([None, Committed(rows=5, bytes=2)])
    stream.abort([None, None], 7)
    assert [it.message for it in caplog.records] == [
        "the job failed: at least 5 of its records are written, and stay",
        "batch 7 failed: at least 0 of its records are written, and stay",
    ]
