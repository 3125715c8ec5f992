"""Options and columns of the sink, before Spark runs anything. No JVM, no cluster.

Source: Spark's KafkaWriter (what is required, which types, the words of the errors).
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from kraftlite.client.settings import ClientSettings
from kraftlite.spark.sink.producing import HEADERS_TYPE, ExactlyOnce, SinkError, check_columns

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from kraftlite.exactly_once.protocol_core import CommitFailed
from kraftlite.spark.sink.committing import Begun, Committed, Part
from kraftlite.spark.sink.datasink import BatchWriter, StreamWriter, sink_writer
from kraftlite.spark.sink.options import sink_settings

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
        ("kraftlite.sink.mode", "twice", "kraftlite.sink.mode='twice': allowed is at_least_once"),
        ("kraftlite.sink.headers", "yes", "kraftlite.sink.headers='yes': allowed is true or false"),
        ("topics", "t", "option topics is not known to the sink; did you mean topic\\?"),
        ("startingOffsets", "earliest", "option startingoffsets is not known to the sink\\. Known are kafka"),
        (
            "kafka.Isolation.Level",
            "read_committed",
            "kafka.isolation.level='read_committed' is for reading, .*allowed are kafka.acks",
        ),
        ("kafka.fetch.max.bytes", "5", "kafka.fetch.max.bytes='5' is for reading, the sink has no use for it"),
        ("kafka.linger.ms", "5", "kafka.linger.ms='5' cannot be honoured"),
        ("kafka.key.serializer", "x", "kafka.key.serializer='x' cannot be honoured"),
        ("kafka.transactional.id", "x", "cannot be honoured: .*kraftlite.sink.transactional.id.prefix begins them"),
        ("kafka.transaction.timeout.ms", "5", "cannot be honoured: only a sink with kraftlite.sink.mode=exactly_once has"),
        ("kraftlite.sink.job.id", "j", "kraftlite.sink.job.id='j' means nothing without kraftlite.sink.mode=exactly_once"),
        ("kraftlite.sink.state.topic", "t", "means nothing without"),
        ("kraftlite.sink.transactional.id.prefix", "p", "means nothing without"),
    ],
)
def test_options_that_cannot_be_honoured(name: str, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sink_settings({**B, name: value})


EXACTLY = {**B, "kraftlite.sink.mode": "Exactly_Once"}
BEGUN = Begun(run="r", since=0)


def test_sx_01_options() -> None:
    found = sink_settings(EXACTLY).exactly_once
    assert found == ExactlyOnce(prefix="kraftlite", state_topic="__kraftlite_sink_state", timeout_ms=900_000, job=None)
    own = {"transactional.id.prefix": "p", "state.topic": " s ", "job.id": "j.1"}
    given = {**EXACTLY, **{f"kraftlite.sink.{name}": it for name, it in own.items()}, "kafka.transaction.timeout.ms": "5000"}
    assert sink_settings(given).exactly_once == ExactlyOnce(prefix="p", state_topic="s", timeout_ms=5_000, job="j.1")
    assert sink_settings(B).exactly_once is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.transaction.timeout.ms", "0", "kafka.transaction.timeout.ms='0': allowed is a whole number from 1 to 2147483647"),
        ("kafka.transaction.timeout.ms", "soon", "allowed is a whole number"),
        ("kafka.transaction.timeout.ms", "9" * 5000, "allowed is a whole number"),
        ("kraftlite.sink.transactional.id.prefix", "a/b", "prefix='a/b': allowed are 1 to 200 letters"),
        ("kraftlite.sink.job.id", "", "job.id='': allowed are 1 to 200 letters"),
        ("kraftlite.sink.state.topic", "a b", "topic='a b': allowed are"),
        ("topic", "__kraftlite_sink_state", "allowed is another one than kraftlite.sink.state.topic"),
        ("kafka.acks", "1", "needs kafka.acks=all and kafka.enable.idempotence=true"),
        ("kafka.enable.idempotence", "false", "needs kafka.acks=all"),
    ],
)
def test_sx_01_options_that_are_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sink_settings({**EXACTLY, name: value})


def test_sx_05_an_output_has_a_name() -> None:
    """A stream is known by its query; a batch needs a name, or nobody could tell that it is written again."""
    with pytest.raises(ValueError, match=r"job\.id='j' is for batches: a stream is known by its query's id"):
        sink_writer({**EXACTLY, "topic": "t", "kraftlite.sink.job.id": "j"}, schema("value string"), streaming=True)
    batch = BatchWriter(sink_settings({**EXACTLY, "topic": "t"}), BEGUN)
    with pytest.raises(SinkError, match=r"by which name is this output known .* kraftlite.sink.job.id tells it"):
        batch.write(iter(()))


def test_sx_01_reports_are_those_of_one_run() -> None:
    """A driver decides about what every task of one run has told, and about nothing else."""
    batch = BatchWriter(sink_settings({**EXACTLY, "topic": "t", "kraftlite.sink.job.id": "j"}), BEGUN)
    one = batch.write(iter(()))
    assert one.part is not None and (one.part.query, one.part.batch, one.part.task, one.entry) == ("j", 0, 0, None)
    for messages, said in (
        ([one, None], "1 of 2 tasks did not tell what they staged"),
        ([], "0 of 0 tasks"),
        ([one, Committed(rows=1, bytes=1)], "1 of 2 tasks"),
        ([one, replace(one, part=replace(one.part, task=1, run="other"))], "not those of one run"),
        ([one, replace(one, part=replace(one.part, task=1, batch=1))], "not those of one run"),
        ([one, one], "not those of one run"),
    ):
        with pytest.raises(CommitFailed, match=said):
            batch.commit(messages)
    stream = StreamWriter(sink_settings({**EXACTLY, "topic": "t"}), BEGUN)
    with pytest.raises(CommitFailed, match="not those of one run of batch 7"):
        stream.commit([Committed(rows=0, bytes=0, part=Part(query="q", batch=6, run="r", task=0, since=0))], 7)


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
