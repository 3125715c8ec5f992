"""Options mean what they mean in Spark's Kafka source, and every refusal names the option, its value and what is allowed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import EARLIEST, LATEST
from kraftlite.spark.segments import options as segment_options
from kraftlite.spark.source import options as opts
from kraftlite.spark.source.options import At, SourceOptions, parse

BASE = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}
VALUES: dict[str, tuple[str, str, Any]] = {
    # option: value, field, what it becomes
    "subscribe": ("a, b,a", "topics", ("a", "b")),
    "subscribePattern": ("t.*", "pattern", "t.*"),
    "assign": ('{"b":[1,0],"a":[2]}', "assigned", (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))),
    "startingOffsets": ('{"t":{"0":3}}', "starting", At(offsets={TopicPartition("t", 0): 3})),
    "startingTimestamp": ("17", "starting", At(timestamp_ms=17)),
    "startingOffsetsByTimestamp": ('{"t":{"0":5}}', "starting", At(timestamps_ms={TopicPartition("t", 0): 5})),
    "startingOffsetsByTimestampStrategy": ("Latest", "no_match_is_latest", True),
    "endingOffsets": ('{"t":{"0":5}}', "ending", At(offsets={TopicPartition("t", 0): 5})),
    "endingTimestamp": ("0", "ending", At(timestamp_ms=0)),
    "endingOffsetsByTimestamp": ('{"t":{"0":5}}', "ending", At(timestamps_ms={TopicPartition("t", 0): 5})),
    "failOnDataLoss": ("FALSE", "fail_on_data_loss", False),
    "minPartitions": ("7", "min_partitions", 7),
    "maxRecordsPerPartition": ("8", "max_records", 8),
    "includeHeaders": ("True", "include_headers", True),
    "groupIdPrefix": ("mine", "group_prefix", "mine"),
    "maxOffsetsPerTrigger": ("9", "max_offsets", 9),
    "minOffsetsPerTrigger": ("3", "min_offsets", 3),
    "maxTriggerDelay": ("2m", "max_trigger_delay_ms", 120_000),
    "fetchOffset.numRetries": ("5", "offset_retries", 5),
    "fetchOffset.retryIntervalMs": ("20", "offset_retry_ms", 20),
    "pushdown": ("true", "pushdown", True),
    "arrowBatchRows": ("100", "batch_rows", 100),
    "commitOffsets": ("false", "commit_offsets", False),
}


def given(streaming: bool = False, **options: str) -> SourceOptions:
    return parse({**BASE, **{name.replace("__", "."): value for name, value in options.items()}}, streaming=streaming)


def with_option(name: str, value: str) -> dict[str, str]:
    strategy = name.lower() in opts.STRATEGIES
    return {"kafka.bootstrap.servers": "here:9092", **({} if strategy else {"subscribe": "t"}), name: value}


@pytest.mark.parametrize("spell", [str, str.lower, str.upper, str.swapcase])
@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_option_in_any_case(name: str, spell: Any) -> None:
    value, field, wanted = VALUES[name]
    found = parse(with_option(spell(name), value), streaming=name.lower() in opts.STREAM_ONLY)
    assert getattr(found, field) == wanted
    default = parse(BASE, streaming=name.lower() in opts.STREAM_ONLY)
    assert getattr(default, field) != wanted, "the value of this test is the default: it shows nothing"


def test_every_known_option_is_in_the_table() -> None:
    others = {"kafkaconsumer.polltimeoutms", "parser", *(name.lower() for name in segment_options.NAMES)}
    assert {name.lower() for name in VALUES} | others == set(opts.NAMES)


def test_the_poll_timeout_is_how_long_a_read_tries() -> None:
    assert given(kafkaConsumer__pollTimeoutMs="5000").settings.retry_timeout_ms == 5_000
    both = {"kafkaConsumer.pollTimeoutMs": "5000", "kafka.default.api.timeout.ms": "7000"}
    assert parse({**BASE, **both}, streaming=False).settings.retry_timeout_ms == 7_000


def test_defaults_are_those_of_spark() -> None:
    stream, batch = parse(BASE, streaming=True), parse(BASE, streaming=False)
    assert (stream.starting, batch.starting, batch.ending) == (At(symbol=LATEST), At(symbol=EARLIEST), At(symbol=LATEST))
    assert stream.fail_on_data_loss and not stream.include_headers and not stream.no_match_is_latest
    assert (stream.max_offsets, stream.min_offsets, stream.min_partitions, stream.max_records) == (None,) * 4
    assert (stream.max_trigger_delay_ms, stream.offset_retries, stream.offset_retry_ms) == (15 * 60_000, 3, 1_000)


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_a_time_for_all_goes_before_times_for_each_and_these_before_offsets(which: str) -> None:
    offsets = {f"{which}Offsets": '{"t":{"0":1}}'}
    each = {**offsets, f"{which}OffsetsByTimestamp": '{"t":{"0":2}}'}
    every = {**each, f"{which}Timestamp": "3"}
    found = [getattr(given(**it), which) for it in (offsets, each, every)]
    assert found == [At(offsets={TopicPartition("t", 0): 1}), At(timestamps_ms={TopicPartition("t", 0): 2}), At(timestamp_ms=3)]


@pytest.mark.parametrize("name", sorted(opts.NAMES[it] for it in opts.STREAM_ONLY))
def test_what_is_for_streams_is_refused_in_a_batch(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is for streaming queries; it is not valid in batch queries"):
        parse(with_option(name, VALUES[name][0]), streaming=False)


@pytest.mark.parametrize("name", sorted(opts.NAMES[it] for it in opts.BATCH_ONLY))
def test_what_is_for_batches_is_refused_in_a_stream(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is for batch queries; it is not valid in streaming queries"):
        parse(with_option(name, VALUES[name][0]), streaming=True)


NUMBERS = ("minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "arrowBatchRows")
NUMBERS += ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs")


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "1.5"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_positive(name: str, value: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(with_option(name, value), streaming=name.lower() in opts.STREAM_ONLY)
    for part in (name, repr(value), "positive number"):
        assert part in str(caught.value)


@pytest.mark.parametrize("value", ["yes", "1", ""])
@pytest.mark.parametrize("name", ["failOnDataLoss", "includeHeaders", "pushdown", "commitOffsets"])
def test_booleans_are_true_or_false(name: str, value: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(with_option(name, value), streaming=name.lower() in opts.STREAM_ONLY)
    for part in (name, repr(value), "true and false"):
        assert part in str(caught.value)


SPECIFIC = '{"t":{"0":5}}'


@pytest.mark.parametrize(
    ("streaming", "options", "told"),
    [
        (False, {"startingOffsets": "newest"}, ["startingOffsets", "'newest'", "earliest, latest"]),
        (False, {"startingOffsets": "[1]"}, ["startingOffsets", "'[1]'", "earliest, latest"]),
        (False, {"startingOffsets": "{"}, ["startingOffsets", "'{'", '"topicA"']),
        (False, {"startingOffsets": '{"t":[1]}'}, ["startingOffsets", "[1]", '"topicA"']),
        (False, {"startingOffsets": '{"t":{"x":1}}'}, ["startingOffsets", '"x"', '"topicA"']),
        (False, {"startingOffsets": '{"t":{"0":"1"}}'}, ["startingOffsets", '"1"', '"topicA"']),
        (False, {"startingOffsets": '{"t":{"0":true}}'}, ["startingOffsets", "true", '"topicA"']),
        (False, {"startingOffsets": '{"t":{"0":-3}}'}, ["startingOffsets", "-3", "-1 for latest and -2 for earliest"]),
        (False, {"startingOffsets": "latest"}, ["startingOffsets", "latest", "batch"]),
        (False, {"startingOffsets": '{"t":{"0":-1}}'}, ["startingOffsets", "t-0", "latest", "batch"]),
        (False, {"endingOffsets": "earliest"}, ["endingOffsets", "earliest", "batch"]),
        (False, {"endingOffsets": '{"t":{"0":-2}}'}, ["endingOffsets", "t-0", "earliest", "batch"]),
        (False, {"startingOffsets": SPECIFIC, "endingOffsets": '{"t":{"1":9}}'}, ["t-0, t-1", "same partitions"]),
        (False, {"startingOffsets": SPECIFIC, "endingOffsets": '{"t":{"0":4}}'}, ["t-0", "5", "greater", "4"]),
        (
            False,
            {"startingOffsetsByTimestamp": SPECIFIC, "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            ["startingOffsetsByTimestamp", "t-0", "5", "greater", "4"],
        ),
        (False, {"startingTimestamp": "noon"}, ["startingTimestamp", "'noon'", "milliseconds"]),
        (False, {"startingTimestamp": "-1"}, ["startingTimestamp", "'-1'", "milliseconds"]),
        (False, {"startingTimestamp": str(2**63)}, ["startingTimestamp", "'9223372036854775808'", "milliseconds"]),
        (False, {"endingOffsetsByTimestamp": f'{{"t":{{"0":{2**63}}}}}'}, ["endingOffsetsByTimestamp", "9223372036854775808"]),
        (
            False,
            {"startingTimestamp": "10", "endingTimestamp": "9"},
            ["startingTimestamp", "10", "greater", "endingTimestamp", "9"],
        ),
        (True, {"kafka.group.id": "lag", "commitOffsets": "false"}, ["kafka.group.id", "'lag'", "commitOffsets", "false"]),
        (True, {"groupIdPrefix": "lag", "commitOffsets": "false"}, ["groupIdPrefix", "'lag'", "commitOffsets", "false"]),
        (False, {"endingTimestamp": "1e3"}, ["endingTimestamp", "'1e3'", "milliseconds"]),
        (
            False,
            {"startingOffsetsByTimestamp": '{"t":{"0":-1}}'},
            ["startingOffsetsByTimestamp", "-1", "of 0 to 9223372036854775807 ms"],
        ),
        (False, {"startingOffsetsByTimestamp": "{}"}, ["startingOffsetsByTimestamp", "'{}'", "each partition"]),
        (False, {"endingOffsetsByTimestamp": "5"}, ["endingOffsetsByTimestamp", "5", '"topicA"']),
        (False, {"startingOffsetsByTimestampStrategy": "guess"}, ["Strategy", "'guess'", "error and latest"]),
        (False, {"parser": "java"}, ["parser", "'java'", "auto, numpy and numba"]),
        (True, {"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "'soon'", "15m"]),
        (True, {"maxTriggerDelay": "5 fortnights"}, ["maxTriggerDelay", "'5 fortnights'", "15m"]),
        (
            True,
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            ["minOffsetsPerTrigger", "9", "higher", "maxOffsetsPerTrigger", "8"],
        ),
        (True, {"startingOffset": "earliest"}, ["'startingoffset'", "did you mean 'startingOffsets'", "kafka.*"]),
        (True, {"checkpoint": "x"}, ["'checkpoint' is not known. Known are kafka.*", "maxOffsetsPerTrigger"]),
        (True, {"bootstrap.servers": "x:1"}, ["'bootstrap.servers'", "'kafka.bootstrap.servers'"]),
        (True, {"kafka.bootstrap.servers": " "}, ["'kafka.bootstrap.servers'", "must be specified"]),
        (True, {"kafka.bootstrap.servers": "nowhere"}, ["kafka.bootstrap.servers", "'nowhere'", "host:port"]),
        (True, {"kafka.Compression.Type": "zstd"}, ["kafka.compression.type='zstd'", "for writing", "kafka.fetch.max.bytes"]),
        (False, {"kafka.acks": "1"}, ["kafka.acks='1'", "the source has no use for it"]),
        (True, {"kafka.auto.offset.reset": "latest"}, ["'auto.offset.reset'", "startingOffsets"]),
        (True, {"kafka.Enable.Auto.Commit": "true"}, ["'enable.auto.commit'", "progress"]),
        (True, {"kafka.key.deserializer": "x"}, ["'key.deserializer'", "bytes"]),
        (True, {"kafka.value.deserializer": "x"}, ["'value.deserializer'", "bytes"]),
        (True, {"kafka.interceptor.classes": "x"}, ["'interceptor.classes'", "as they are"]),
        (True, {"subscribe": " , "}, ["'subscribe'", "' , '"]),
        (True, {"subscribePattern": "x"}, ["Only one", "subscribe, subscribePattern, assign"]),
    ],
)
def test_what_is_refused_is_named_with_its_value_and_what_is_allowed(
    streaming: bool, options: dict[str, str], told: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:
        parse({**BASE, **options}, streaming=streaming)
    for part in told:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "One of the following options must be specified for the source: subscribe, subscribePattern, assign"),
        ({"subscribePattern": " "}, "'subscribePattern' is ' '"),
        ({"subscribePattern": "("}, r"'subscribePattern' is '(', which is not a regular expression"),
        ({"assign": "t"}, "'assign' is 't'"),
        ({"assign": "{}"}, "'assign' is '{}'"),
        ({"assign": '{"t":[]}'}, "'assign' is"),
        ({"assign": '{"t":[-1]}'}, "'assign' is"),
        ({"assign": '{"t":["0"]}'}, "'assign' is"),
        ({"assign": '{"t":[true]}'}, "'assign' is"),
        ({"assign": '{"t":0}'}, "'assign' is"),
    ],
)
def test_one_strategy_with_a_value_that_can_be(options: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse({"kafka.bootstrap.servers": "here:9092", **options}, streaming=True)
    assert told in str(caught.value)


def test_no_servers() -> None:
    with pytest.raises(ValueError, match=r"'kafka\.bootstrap\.servers' must be specified"):
        parse({"subscribe": "t"}, streaming=True)


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2min", 120_000), ("1h", 3_600_000), (" 7 ", 7)]
)
def test_delays(text: str, ms: int) -> None:
    assert given(streaming=True, maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize(("text", "symbol"), [("earliest", EARLIEST), (" EARLIEST ", EARLIEST), ("Latest", LATEST)])
def test_symbols_in_any_case(text: str, symbol: int) -> None:
    assert given(streaming=True, startingOffsets=text).starting == At(symbol=symbol)


def test_offsets_of_a_stream_may_be_symbols() -> None:
    found = given(streaming=True, startingOffsets='{"t":{"0":-1,"1":-2,"2":7}}').starting.offsets
    assert found == {TopicPartition("t", 0): LATEST, TopicPartition("t", 1): EARLIEST, TopicPartition("t", 2): 7}


def test_starting_and_ending_may_differ_in_kind() -> None:
    found = given(startingTimestamp="5", endingOffsets='{"t":{"0":4}}')
    assert (found.starting.timestamp_ms, found.ending.offsets) == (5, {TopicPartition("t", 0): 4})


def test_latest_as_the_end_of_one_partition_is_behind_any_start() -> None:
    assert given(startingOffsets=SPECIFIC, endingOffsets='{"t":{"0":-1}}').ending.offsets == {TopicPartition("t", 0): LATEST}


def test_a_pattern_is_looked_for_in_the_name() -> None:
    """As in Spark, which finds it anywhere; what is meant to be the whole name says so."""
    base = {"kafka.bootstrap.servers": "here:9092"}
    found = parse({**base, "subscribePattern": " t[0-9] "}, streaming=True)
    assert [it for it in ("t1", "t12", "at1", "t") if found.matches(it)] == ["t1", "t12", "at1"]
    found = parse({**base, "subscribePattern": "^t[0-9]$"}, streaming=True)
    assert [it for it in ("t1", "t12", "at1", "t") if found.matches(it)] == ["t1"]


def test_group_id_is_for_progress_and_the_rest_for_the_client() -> None:
    found = given(kafka__group__id="mine", kafka__isolation__level="read_committed", kafka__client__id="me")
    assert (found.group_id, found.settings.read_committed, found.settings.client_id) == ("mine", True, "me")


def test_travels_to_tasks() -> None:
    found = given(streaming=True, startingOffsets=SPECIFIC, maxOffsetsPerTrigger="5")
    assert pickle.loads(pickle.dumps(found)) == found
