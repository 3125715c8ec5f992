"""kafka-console-consumer and kafka-console-producer by their options alone: what Kafka 4.3's say of them, and print."""

from __future__ import annotations

import io
import struct
import sys
from typing import Any

import pytest

from kraftlite.cli.compat import console_consumer, console_producer
from kraftlite.cli.compat.formatters import Unreadable, formatter
from kraftlite.cli.compat.tool import ToolError, UsageError

NOBODY = "127.0.0.1:1"
OF_JAVA = "org.apache.kafka.common.serialization."


class Message:
    def __init__(self, key: bytes | None = None, value: bytes | None = None, headers: Any = None) -> None:
        self._parts = key, value, headers

    def key(self) -> bytes | None:
        return self._parts[0]

    def value(self) -> bytes | None:
        return self._parts[1]

    def headers(self) -> Any:
        return self._parts[2]

    def offset(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("LongDeserializer", struct.pack(">q", -7), "-7"),
        ("IntegerDeserializer", struct.pack(">i", 2**31 - 1), "2147483647"),
        ("ShortDeserializer", struct.pack(">h", -2), "-2"),
        ("DoubleDeserializer", struct.pack(">d", 7e-323), "6.9E-323"),
        ("DoubleDeserializer", struct.pack(">d", 12345678.5), "1.23456785E7"),
        ("DoubleDeserializer", struct.pack(">d", 1234567.25), "1234567.25"),
        ("DoubleDeserializer", struct.pack(">d", 100.0), "100.0"),
        ("DoubleDeserializer", struct.pack(">d", 0.001), "0.001"),
        ("DoubleDeserializer", struct.pack(">d", -0.00099), "-9.9E-4"),
        ("DoubleDeserializer", struct.pack(">d", -0.0), "-0.0"),
        ("DoubleDeserializer", struct.pack(">d", float("-inf")), "-Infinity"),
        ("DoubleDeserializer", struct.pack(">d", float("nan")), "NaN"),
        ("FloatDeserializer", struct.pack(">f", 0.1), "0.1"),
        ("FloatDeserializer", struct.pack(">I", 1), "1.4E-45"),
        ("FloatDeserializer", struct.pack(">f", 3.4028235e38), "3.4028235E38"),
        ("FloatDeserializer", struct.pack(">f", 16777216.0), "1.6777216E7"),
        ("BooleanDeserializer", b"\1", "true"),
        ("UUIDDeserializer", b"0123ABCD-0000-0000-0000-000000000000", "0123abcd-0000-0000-0000-000000000000"),
        ("StringDeserializer", "ä".encode(), "ä"),
    ],
)
def test_a_deserializer_named_among_the_properties_is_heeded(name: str, data: bytes, shown: str) -> None:
    """`--formatter-property value.deserializer=` printed the bytes as they are."""
    show = formatter(None, {"value.deserializer": OF_JAVA + name})
    assert show(Message(value=data)).decode() == f"{shown}\n"
    assert show(Message(value=None)) == b"null\n"


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("LongDeserializer", b"abc", "Size of data received by LongDeserializer is not 8"),
        ("BooleanDeserializer", b"\xff", "Unexpected byte received by BooleanDeserializer: -1"),
        ("UUIDDeserializer", b"\xff", "Error parsing data into UUID"),
    ],
)
def test_a_part_that_a_deserializer_cannot_read(name: str, data: bytes, told: str) -> None:
    show = formatter(None, {"print.key": "true", "key.deserializer": OF_JAVA + name})
    with pytest.raises(Unreadable, match=told):
        show(Message(key=data, value=b"v"))


def test_a_formatter_that_prints_no_part_prints_no_line() -> None:
    assert formatter(None, {"print.value": "false"})(Message(value=b"v")) == b""
    shown = {"print.headers": "true", "print.value": "false", "headers.deserializer": OF_JAVA + "ShortDeserializer"}
    assert formatter(None, shown)(Message(headers=[("a", b"\0\1"), ("b", None)])) == b"a:1,b:null\n"


def test_formatters_and_deserializers_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"--formatter org\.acme\.Mine is not supported; allowed is one of org\.apache"):
        formatter("org.acme.Mine", {})
    with pytest.raises(UsageError, match=r"key\.deserializer=org\.acme\.Mine is not supported; allowed is one of StringDes"):
        formatter(None, {"key.deserializer": "org.acme.Mine"})


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


OFFSET_KEY = b"\0\1" + _text("g") + _text("t") + struct.pack(">i", 4)


@pytest.mark.parametrize(
    ("version", "value", "shown"),
    [
        (
            3,
            struct.pack(">qi", 9, -1) + _text("m") + struct.pack(">q", 77),
            '"offset":9,"leaderEpoch":-1,"metadata":"m","commitT',
        ),
        (1, struct.pack(">q", 9) + _text("m") + struct.pack(">qq", 77, 88), '"commitTimestamp":77,"expireTimestamp":88}}}'),
    ],
)
def test_the_formatter_of_offsets(version: int, value: bytes, shown: str) -> None:
    show = formatter("org.apache.kafka.tools.consumer.OffsetsMessageFormatter", {})
    said = show(Message(OFFSET_KEY, struct.pack(">h", version) + value)).decode()
    key = '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":4}},"value":'
    assert said.startswith(f'{key}{{"version":{version},"data":{{"offset":9,') and shown in said
    assert show(Message(OFFSET_KEY, None)).decode() == key + "null}"
    assert show(Message(b"\0\2" + _text("g"), None)) == b"", "a group"
    for broken in (b"", b"\0", b"\0\3", b"\0\x63"):
        with pytest.raises(ToolError, match="Could not read record at offset 7 due to: "):
            show(Message(OFFSET_KEY, broken))


def test_the_formatter_of_groups() -> None:
    """What members said to each other is bytes, in base64, as Kafka's shows it."""
    member = _text("m1") + b"\xff\xff" + _text("c") + _text("/h") + struct.pack(">iii", 5, 6, 3) + b"\0\1\xff" + bytes(4)
    value = b"\0\3" + _text("consumer") + struct.pack(">i", 3) + _text("range") + _text("m1") + struct.pack(">qi", 123, 1)
    show = formatter("org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter", {})
    assert show(Message(b"\0\2" + _text("g"), value + member)).decode() == (
        '{"key":{"type":2,"data":{"group":"g"}},"value":{"version":3,"data":{"protocolType":"consumer","generation":3,'
        '"protocol":"range","leader":"m1","currentStateTimestamp":123,"members":[{"memberId":"m1","groupInstanceId":null,'
        '"clientId":"c","clientHost":"/h","rebalanceTimeout":5,"sessionTimeout":6,"subscription":"AAH/","assignment":""}]}}}'
    )
    assert show(Message(OFFSET_KEY, None)) == b"", "an offset"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--partition 0 --command-property group.id=g", "Options group and partition cannot be specified together."),
        ("--partition 0 --group g", "Options group and partition cannot be specified together."),
        ("--group a --command-property group.id=b", "Detected group ids: 'a', 'b'"),
        ("--command-property group.id=", "The configured group.id should not be an empty string"),
        (
            "--from-beginning --command-property auto.offset.reset=latest",
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
        ("--property a=b --formatter-property a=b", "Options --property and --formatter-property cannot be specified together"),
        (
            "--consumer-property a=b --command-property a=b",
            "Options --consumer-property and --command-property cannot be specified together",
        ),
        ("--value-deserializer nope", "value.deserializer=nope is not supported"),
    ],
)
def test_what_the_consumer_refuses(arguments: str, told: str) -> None:
    """With an empty group id the process was aborted; the others were taken, and the consumer waited for ever."""
    with pytest.raises(UsageError, match=told):
        console_consumer.run(["--bootstrap-server", NOBODY, "--topic", "t", *arguments.split()])


@pytest.mark.parametrize("limit", ["0", "-2"])
def test_a_limit_below_zero_is_reached_at_once(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "EARLIEST",
        "--timeout-ms",
        str(2**40),
        "--enable-systest-events",
    ]
    assert console_consumer.run(["--bootstrap-server", NOBODY, *arguments, f"--max-messages={limit}"]) == 0
    said = capsys.readouterr()
    assert "Processed a total of 0 messages" in said.err
    assert said.out == "shutdown_complete\n"


# --- the producer --------------------------------------------------------------------------------------------------------


class Taking:
    """A producer that has room, and refuses the values `no`."""

    def __init__(self) -> None:
        self.taken: list[tuple[bytes | None, bytes | None, Any]] = []
        self._told: list[Any] = []

    def list_topics(self, _topic: str, timeout: float) -> None:
        assert timeout > 0

    def produce(self, _topic: str, *, value: bytes | None, key: bytes | None, headers: Any, on_delivery: Any) -> None:
        self.taken.append((key, value, headers))
        self._told.append((on_delivery, value))

    def poll(self, _timeout: float) -> None:
        return

    def flush(self) -> None:
        for told, value in self._told:
            told(Refused() if value == b"no" else None, Message(value=value))
        self._told.clear()


class Refused:
    def str(self) -> str:
        return "refused"


def sent(data: bytes, *arguments: str) -> tuple[int, list[Any], dict[str, Any]]:
    """How many records were refused, what was produced, and the configuration of the producer."""
    producer = Taking()
    options, reader, config = console_producer.read(["--bootstrap-server", NOBODY, "--topic", "t", *arguments])
    failed = console_producer.Sending(producer, options.topic, 1000, sync=options.sync).all_of(reader, io.BytesIO(data))
    return failed, producer.taken, config


def test_lines_end_where_java_says() -> None:
    _, taken, _ = sent(b"a\r\r\nb\rc\n\nd\r")
    assert [value for _, value, _ in taken] == [b"a", b"", b"b", b"c", b"", b"d"]


HEADERS = "--reader-property=parse.headers=true"


def test_headers_are_split_as_java_splits() -> None:
    """A separator at the end was an error."""
    _, taken, _ = sent(b"h:1,\tv\n,,\tw\n", HEADERS)
    assert taken == [(None, b"v", [("h", b"1")]), (None, b"w", None)]
    with pytest.raises(ToolError, match="Header keys should not be equal to the null marker 'N' as they can't be null"):
        sent(b"N:1\tv\n", HEADERS, "--reader-property=null.marker=N")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("headers.delimiter=,", "headers.delimiter and headers.separator may not be equal"),
        ("headers.separator=:", "headers.separator and headers.key.separator may not be equal"),
        ("null.marker=:", "null.marker and headers.key.separator may not be equal"),
        ("null.marker=\t", "null.marker and key.separator may not be equal"),
    ],
)
def test_two_separators_that_are_the_same_are_refused(given: str, told: str) -> None:
    """Records were written with headers and keys that nobody meant."""
    with pytest.raises(UsageError, match=told):
        sent(b"", f"--reader-property={given}")


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ("--request-timeout-ms 100", "request.timeout.ms", 100),
        ("--max-memory-bytes 100000", "queue.buffering.max.kbytes", 98),
        ("--max-partition-memory-bytes 100 --batch-size 5", "batch.size", 100),
        ("--batch-size 0", "batch.size", 1),
        ("--timeout 9999999999", "linger.ms", 900_000),
        ("--socket-buffer-size -1", "socket.send.buffer.bytes", 0),
        ("--timeout 7 --command-property linger.ms=9", "linger.ms", 7),
        ("--command-property acks=1", "acks", "1"),
        ("--command-property acks=1 --request-required-acks 0", "acks", "0"),
    ],
)
def test_no_option_of_the_producer_is_dropped(arguments: str, key: str, value: object) -> None:
    """Four of them were taken and ignored, and a property counted more than the option that is the same."""
    assert sent(b"", *arguments.split())[2][key] == value


@pytest.mark.parametrize("arguments", ["--batch-size -1", "--timeout=-1", "--max-block-ms=-1", "--socket-buffer-size=-2"])
def test_values_below_what_kafka_takes(arguments: str) -> None:
    with pytest.raises(UsageError, match="Value must be at least"):
        sent(b"", *arguments.replace(" -", "=-").split())


def test_with_sync_nothing_follows_a_record_that_was_refused() -> None:
    """The rest was produced behind it, so that there was a hole in what was given."""
    status, taken, _ = sent(b"a\nno\nb\n", "--sync")
    assert (status, [value for _, value, _ in taken]) == (1, [b"a", b"no"])
    status, taken, _ = sent(b"a\nno\nb\n")
    assert (status, [value for _, value, _ in taken]) == (1, [b"a", b"no", b"b"])


def test_the_wait_for_brokers_has_an_end() -> None:
    arguments = ["--bootstrap-server", NOBODY, "--topic", "t", "--max-block-ms", "200"]
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"a\n"))
    try:
        with pytest.raises(ToolError, match=r"Topic t not present in metadata after 200 ms\."):
            console_producer.run(arguments)
    finally:
        sys.stdin = before
