"""kafka-verifiable-producer and -consumer: the keys, offsets and order of what they print (TO-29, TO-30)."""

from __future__ import annotations

import json
from types import SimpleNamespace as Of
from typing import Any

import pytest

from kraftlite.cli.compat import verifiable_producer
from kraftlite.cli.compat.tool import UsageError
from kraftlite.cli.compat.verifiable_consumer import Reader
from kraftlite.cli.compat.verifiable_producer import Writer


class Producer:
    """Has each record acknowledged at once, at an offset or without one, or refused."""

    def __init__(self, offset: int | None = 5, error: Any = None) -> None:
        self.offset = offset
        self.error = error

    def produce(self, _topic: str, on_delivery: Any, **_record: Any) -> None:
        on_delivery(self.error, Of(offset=lambda: self.offset, partition=lambda: 0))

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self) -> None:
        pass


def said(producer: Producer, capsys: pytest.CaptureFixture[str], **options: Any) -> list[dict[str, Any]]:
    given = {"topic": "t", "max_messages": 3, "throughput": -1, "message_create_time": -1, "value_prefix": None}
    Writer(producer, Of(**given, **{"repeating_keys": None, **options})).go()  # type: ignore[arg-type]
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return found[1:4]


@pytest.mark.parametrize(
    ("repeating", "keys"), [(None, [None] * 3), (2, ["0", "1", "0"]), (0, ["0", "1", "2"]), (-1, ["0", "1", "2"])]
)
def test_to_29_keys_repeat_when_there_is_a_number_of_them(
    repeating: int | None, keys: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--repeating-keys 0` ended in a ZeroDivisionError."""
    assert [one["key"] for one in said(Producer(), capsys, repeating_keys=repeating)] == keys


def test_to_29_what_a_line_has_is_in_kafkas_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(said(Producer(), capsys)[0]) == ["timestamp", "name", "key", "value", "topic", "partition", "offset"]
    refused = said(Producer(error=Of(name=lambda: "N", str=lambda: "s")), capsys)[0]
    assert list(refused) == ["timestamp", "name", "topic", "key", "value", "exception", "message"]


def test_to_29_a_record_that_is_not_acknowledged_has_no_offset(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["offset"] for one in said(Producer(offset=None), capsys)] == [-1] * 3


def test_a_time_below_zero_is_refused() -> None:
    line = "--topic t --max-messages 1 --bootstrap-server 127.0.0.1:1 --message-create-time -5"
    with pytest.raises(UsageError, match="Invalid timestamp: -5"):
        verifiable_producer.run(line.split())


def test_to_30_records_are_printed_before_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    record = Of(
        error=lambda: None, topic=lambda: "t", partition=lambda: 0, offset=lambda: 0, key=lambda: None, value=lambda: b"v"
    )
    consumer = Of(subscribe=lambda *_, **__: None, consume=lambda *_: [record], commit=lambda **_: None, close=lambda: None)
    options: Any = Of(topic="t", max_messages=1, verbose=True, enable_autocommit=True)
    Reader(consumer, options).go()
    names = [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()]
    assert names == ["startup_complete", "record_data", "records_consumed", "shutdown_complete"]
