"""How long `consume --timeout` waits, by a clock that a fake consumer moves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraftlite.cli.consume import _json_line, _loop


class Message:
    """A record, or without a value the end of its partition."""

    def __init__(self, partition: int, value: bytes | None = None) -> None:
        self._partition, self._value = partition, value

    def partition(self) -> int:
        return self._partition

    def error(self) -> Any:
        return None if self._value is not None else End()

    def value(self) -> bytes | None:
        return self._value


class End:
    def name(self) -> str:
        return "_PARTITION_EOF"


class FakeConsumer:
    """Its answers come at their times (s); a poll without one takes as long as it may."""

    def __init__(self, answers: dict[float, list[Message]]) -> None:
        self._answers = sorted(answers.items())
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def consume(self, wanted: int, timeout_s: float) -> list[Message]:
        if self._answers and self._answers[0][0] <= self.now + timeout_s:
            at, messages = self._answers.pop(0)
            self.now = max(self.now, at)
            return messages
        self.now += timeout_s
        return []


def read(consumer: FakeConsumer, timeout: float) -> int:
    return _loop(consumer, lambda message: message.value() or b"", None, timeout, {0, 1}, consumer.clock)


@pytest.mark.parametrize(
    "first", [[Message(0, b"a"), Message(0)], [Message(0)]], ids=["the first has records", "the first is empty"]
)
def test_to_31_a_partition_whose_broker_answers_last_is_waited_for(
    first: list[Message], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    consumer = FakeConsumer({0.1: first, 3.0: [Message(1, b"b"), Message(1)]})
    read(consumer, 0.5)
    assert capfdbinary.readouterr().out.endswith(b"b")
    assert 3.5 <= consumer.now < 3.8, "then the time runs from the last record"


def test_to_31_the_time_runs_once_all_have_said_that_they_have_nothing() -> None:
    consumer = FakeConsumer({0.1: [Message(0)], 2.0: [Message(1)]})
    assert read(consumer, 0.5) == 0
    assert 2.5 <= consumer.now < 2.8


def test_to_31_a_partition_that_never_answers_is_given_up() -> None:
    consumer = FakeConsumer({0.1: [Message(0)]})
    assert read(consumer, 0.5) == 0
    assert 10.0 <= consumer.now < 11.0


class Record:
    """A record with headers."""

    def __init__(self, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._headers = headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 7

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 3

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def test_json_tells_every_header_in_order_also_of_one_name() -> None:
    """As kcat tells them: name and value in turns. The object beside it has the last of each name."""
    found = json.loads(_json_line(Record([("a", b"1"), ("b", None), ("a", b"2")])))
    assert found["header_list"] == ["a", "1", "b", None, "a", "2"]
    assert found["headers"] == {"a": "2", "b": None}
    assert json.loads(_json_line(Record(None)))["header_list"] == []
