"""The demonstration's bookkeeping: what the verdict would notice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlite.local.source import lines
from kraftlite.local.state import LocalError
from kraftlite.local.stream import Gap, Ledger, Pace, Verdict, _compare


@dataclass
class Message:
    number: int | None
    place: tuple[int, int]
    content: bytes

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.number is None else [("seq", str(self.number).encode())]

    def partition(self) -> int:
        return self.place[0]

    def offset(self) -> int:
        return self.place[1]

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self.content


def ledger(count: int = 3) -> Ledger:
    made = Ledger()
    for number in range(count):
        made.sent(None, b"%d" % number)
        made.acked(number, 0, number, now_ms=1000 + number)
    return made


def judged(*messages: Message) -> Verdict:
    book = ledger()
    verdict = Verdict(sent=3, acknowledged=3)
    seen, last = bytearray(3), {0: -1, 1: -1}
    for message in messages:
        _compare(message, book, seen, last, verdict)
    verdict.lost = seen.count(0)
    return verdict


def good(number: int) -> Message:
    return Message(number, (0, number), b"%d" % number)


def test_the_verdict_holds_when_all_is_there_once_and_in_order() -> None:
    verdict = judged(good(0), good(1), good(2))
    assert verdict.holds
    assert "nothing lost" in verdict.line()


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ([good(0), good(2)], "1 lost"),
        ([good(0), good(1), good(1), good(2)], "1 duplicated"),
        ([good(0), good(1), good(2), Message(7, (0, 3), b"7")], "1 never sent"),
        ([good(0), good(1), good(2), Message(None, (0, 3), b"x")], "1 never sent"),
        ([good(0), good(1), Message(2, (0, 2), b"changed")], "1 altered"),
        ([good(0), good(1), Message(2, (0, 5), b"2")], "1 misplaced"),
        ([good(1), good(0), good(2)], "1 out of order"),
    ],
)
def test_the_verdict_falls(messages: list[Message], word: str) -> None:
    verdict = judged(*messages)
    assert not verdict.holds
    assert word in verdict.line()


def test_nothing_acknowledged_is_no_success() -> None:
    assert not Verdict(sent=0, acknowledged=0).holds
    assert "1 not acknowledged" in Verdict(sent=3, acknowledged=2).line()


def test_the_longest_gap() -> None:
    gap = Gap()
    for moment in (1000, 1010, 5000, 5001):
        gap.ack(moment)
    assert (gap.longest_ms, gap.began_ms, gap.ended_ms) == (3990, 1010, 5000)


def test_the_pace() -> None:
    pace = Pace(1000.0)
    pace.wait_ms(0)
    assert pace.wait_ms(1000) == pytest.approx(1000, abs=120)
    pace.limit = None
    assert pace.wait_ms(1_000_000) == 0.0


def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "input.jsonl"
    path.write_text('{"key": "a", "x": 1}\n\nplain text\n{"key": {"no": 1}}\n[1]\n')
    source = lines(str(path))
    assert source.count == 4
    events = list(source.events)
    assert [event.key for event in events] == [b"a", None, None, None]
    assert json.loads(events[0].value) == {"key": "a", "x": 1}
    with pytest.raises(LocalError, match=r"absent\.jsonl"):
        lines(str(tmp_path / "absent.jsonl"))
