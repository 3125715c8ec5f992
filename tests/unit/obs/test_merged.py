"""Trace files of several nodes as one: each line once, a node's lines in order, no effect before its cause, while files grow and
are rotated."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kraftlite.model.ids import NodeId
from kraftlite.obs.merged import Merged
from kraftlite.obs.tail import MAX_AHEAD, MAX_LINE, Line, Tail
from kraftlite.obs.timeline import TimelineFile
from kraftlite.runtime.trace import controller, node

RECORD = "controller.record_appended"


def write(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def record(ts: int, offset: int, at: int = 1) -> dict[str, Any]:
    return {"ts": ts, "node": at, "event": RECORD, "offset": offset}


def effect(ts: int, offset: int, at: int) -> dict[str, Any]:
    return {"ts": ts, "node": at, "event": "partition.leader_started", "cause": f"record@{offset}"}


def merge(*paths: Path) -> list[Line]:
    merged = Merged([Tail(path) for path in paths])
    merged.look()
    merged.look()
    found = list(merged.settled())
    for tail in merged.tails:
        tail.close()
    return found


def told(lines: Iterable[Line]) -> list[tuple[int, str, Any]]:
    return [(it.event.node, it.event.event, it.event.get("offset", it.event.caused_by_record)) for it in lines]


@given(data=st.data(), nodes=st.integers(1, 4), skews=st.lists(st.integers(-50, 50), min_size=4, max_size=4))
def test_causes_come_first_however_wrong_the_clocks_are(data: st.DataObject, nodes: int, skews: list[int]) -> None:
    """Each record has one line, on any node; lines in the true order, each stamped by a clock of its own."""
    lines: list[dict[str, Any]] = []
    for ts in range(data.draw(st.integers(1, 25))):
        at = data.draw(st.integers(0, nodes - 1))
        known = [line["offset"] for line in lines if line["event"] == RECORD]
        cause = data.draw(st.sampled_from([None, *known, 10_000]))  # also one whose line is lost
        stamp = max(0, 100 + ts // 3 + skews[at])
        lines.append(record(stamp, ts, at) if cause is None else effect(stamp, cause, at) | {"n": ts})
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(at)) for at in range(nodes)]
        for line in lines:
            write(paths[line["node"]], line)
        found = [dict(it.raw) for it in merge(*paths)]
    assert sorted(map(str, found)) == sorted(map(str, lines))
    for at in range(nodes):
        assert [it for it in found if it["node"] == at] == [it for it in lines if it["node"] == at]
    places = {it["offset"]: place for place, it in enumerate(found) if it["event"] == RECORD}
    for place, it in enumerate(found):
        offset = int(it.get("cause", "record@-1")[7:])
        assert places.get(offset, -1) < place
    if len({*skews[:nodes]}) == 1:
        assert [it["ts"] for it in found] == sorted(it["ts"] for it in lines)


def test_one_of_many_records_of_an_operation_is_a_cause(tmp_path: Path) -> None:
    write(tmp_path / "b", effect(5, 70, 2))
    write(tmp_path / "c", {"ts": 5, "node": 1, "event": "controller.records_appended", "count": 40, "last_offset": 99})
    assert [it.event.node for it in merge(tmp_path / "b", tmp_path / "c")] == [1, 2]


def test_a_lost_record_of_the_same_offset_holds_nothing_back(tmp_path: Path) -> None:
    """A controller that was cut off writes at 9 what another one has written at 3."""
    write(tmp_path / "a", effect(4, 33, 2))
    write(tmp_path / "b", record(2, 32, 1), record(9, 33, 1))
    write(tmp_path / "c", record(3, 33, 3))
    assert told(merge(*(tmp_path / it for it in "abc"))) == [
        (1, RECORD, 32),
        (3, RECORD, 33),
        (2, "partition.leader_started", 33),
        (1, RECORD, 33),
    ]


def test_the_later_one_of_two_records_of_an_offset_is_a_cause_too(tmp_path: Path) -> None:
    """The first was lost with its controller; the second has the millisecond of its effect."""
    write(tmp_path / "a", effect(9, 33, 2))
    write(tmp_path / "b", record(3, 33, 1))
    write(tmp_path / "c", record(9, 33, 3))
    assert [it[0] for it in told(merge(*(tmp_path / it for it in "abc")))] == [1, 3, 2]


def test_what_comes_is_told_when_its_cause_can_be_known(tmp_path: Path) -> None:
    """A look may find the effect before the cause, which another file has since."""
    merged = Merged([Tail(tmp_path / "controller"), Tail(tmp_path / "broker")])
    merged.look()
    assert list(merged.settled()) == []
    write(tmp_path / "broker", effect(1, 8, 2))
    merged.look()
    assert list(merged.settled()) == []
    write(tmp_path / "controller", record(2, 8))
    merged.look()
    assert told(merged.settled()) == [(1, RECORD, 8), (2, "partition.leader_started", 8)]
    merged.look()
    assert list(merged.settled()) == []


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    """`TimelineFile` rotates; the reader looks now and then, and once after two rotations."""
    path = tmp_path / "trace.jsonl"
    event = node.NodeStarted(roles="broker")
    writer = TimelineFile(str(path), NodeId(2), max_bytes=1_000)
    tail = Tail(path)
    found: list[int] = []
    stamp = 0
    for lines in (3, 1, 9, 2, 16, 0, 0):
        for _ in range(lines):
            stamp += 1
            writer(stamp, event, event.facts())
        tail.look()
        while tail.head is not None:
            found.append(tail.take().event.ms)
    writer.close()
    assert path.with_name("trace.jsonl.1").exists() and found == list(range(1, stamp + 1))
    tail.close()


def test_lines_that_are_damaged_too_long_or_not_whole_cost_themselves_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write(path, record(1, 1))
    with path.open("ab") as file:
        file.write(b'{"ts": 2, "no\n\xff\xfe\n[]\n{"ts": "x", "node": 1, "event": "e"}\n')
        file.write(b'{"ts": 3, "node": 1, "event": "' + b"x" * MAX_LINE + b'"}\n' + b"[" * 100_000 + b"\n")
        file.write(b'{"ts": 4, "node": 1, "event": "controller.record_appended", "offset": "NaN"}\n{"ts": 5, "node":')
    tail = Tail(path)
    tail.look()
    assert [tail.take().event.ms, tail.take().event.ms] == [1, 4] and tail.head is None
    with path.open("ab") as file:
        file.write(b' 1, "event": "e"}\n')
    tail.look()
    assert tail.take().event.ms == 5 and tail.head is None
    tail.close()


def test_memory_is_bounded_and_a_cause_further_away_than_that_holds_nothing_back(tmp_path: Path) -> None:
    write(tmp_path / "a", effect(1, MAX_AHEAD - 1, 2), effect(1, 2 * MAX_AHEAD + 5, 2))
    write(tmp_path / "b", *(record(9, offset) for offset in range(3 * MAX_AHEAD)))
    found = told(merge(tmp_path / "a", tmp_path / "b"))
    assert len(found) == 3 * MAX_AHEAD + 2 and [it[0] for it in found].index(2) == MAX_AHEAD
    assert found[MAX_AHEAD + 1][0] == 2
    tail = Tail(tmp_path / "b")
    tail.look()
    assert tail.ahead(MAX_AHEAD - 1) is not None and tail.ahead(MAX_AHEAD) is None
    tail.close()


def test_an_event_of_the_vocabulary_is_a_record(tmp_path: Path) -> None:
    """A renamed event or fact breaks this test, and not the order of lines."""
    event = controller.RecordAppended(record="Topic", offset=8, detail="", first_offset=8, cause="operation:create_topics")
    writer = TimelineFile(str(tmp_path / "t"), NodeId(1))
    writer(5, event, event.facts())
    many = controller.RecordsAppended(operation="x", count=40, last_offset=99, cause="operation:x")
    writer(6, many, many.facts())
    writer.close()
    assert [it.writes for it in merge(tmp_path / "t")] == [(8, 8), (60, 99)]
