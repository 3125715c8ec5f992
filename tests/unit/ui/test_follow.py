"""Trace files are read while they grow: each event once, also over a rotation, and damage costs itself alone."""

from __future__ import annotations

import json
from pathlib import Path

from kraftlite.obs.tail import Tail
from kraftlite.ui.follow import Record


def line(number: int, **more: object) -> str:
    return json.dumps({"ts": number, "node": 1, "event": "node.started", "number": number, **more}) + "\n"


def numbers(tail: Tail) -> list[int]:
    tail.look()
    found = []
    while tail.head is not None:
        found.append(int(tail.take().event.get("number")))
    return found


def test_each_event_once_and_half_a_line_later(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    tail = Tail(path)
    assert numbers(tail) == []
    path.write_text(line(1) + line(2)[:20])
    assert numbers(tail) == [1]
    with path.open("a") as file:
        file.write(line(2)[20:] + line(3))
    assert numbers(tail) == [2, 3] and numbers(tail) == []


def test_what_was_left_of_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    tail = Tail(path)
    path.write_text(line(1))
    assert numbers(tail) == [1]
    with path.open("a") as file:
        file.write(line(2))
    path.rename(tmp_path / "trace.jsonl.1")
    path.write_text(line(3))
    assert numbers(tail) == [2, 3]


def test_damage_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xff\n[]\n{}\n" + b"[" * 200_000 + b"\n" + line(1).encode())
    assert numbers(Tail(path)) == [1]


def test_the_end_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line(number, text="x" * 100) for number in range(1_000)))
    found = numbers(Tail(path, newest=10_000))
    assert found[-1] == 999 and 10 < len(found) < 100
    path.rename(tmp_path / "trace.jsonl.1")
    path.write_text(line(1_000))
    longer = numbers(Tail(path, newest=10_000))
    assert longer[-2:] == [999, 1_000] and longer[0] >= found[0], "the newest of both halves"
    assert numbers(Tail(path, newest=5)) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "node-1"
    folder.mkdir()
    (folder / "trace.jsonl").mkdir()
    record = Record()
    assert record.read([folder / "trace.jsonl"]) == 0
    assert record.unread is not None and record.unread.startswith("trace.jsonl of node-1 cannot be read: ")
    (folder / "trace.jsonl").rmdir()
    (folder / "trace.jsonl").write_text(line(1))
    assert record.read([folder / "trace.jsonl"]) == 1 and record.unread is None
    record.close()


def test_the_record_is_of_all_files_by_time(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    one.write_text(line(5) + line(1))
    two.write_text(line(3))
    record = Record()
    assert record.read([one, two, tmp_path / "missing"]) == 3
    assert [event.ms for event in record.history().events] == [1, 3, 5]
    assert record.read([one, two]) == 3 and record.history() is record.history()


def test_a_line_without_its_facts_makes_no_history_fail(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    damaged = {"ts": 5, "node": 1, "event": "partition.leader_started", "tp": ["orders", 0], "cause": "record@50"}
    path.write_text(json.dumps(damaged) + "\n" + line(1))
    record = Record()
    assert record.read([path]) == 1
    assert [event.event for event in record.history().events] == ["node.started"]
    record.close()
