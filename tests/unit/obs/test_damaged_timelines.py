"""Lines of a trace whose time or name is damaged are no events, whatever stands there; the others are told in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.obs.timeline import TimelineFile, merge_timelines
from kraftlite.runtime.trace.node import NodeStopped


def line(**values: object) -> str:
    return json.dumps({"ts": 1_000, "node": 1, "event": "node.started", **values})


@pytest.mark.parametrize(
    "damaged",
    [
        line(ts=None),
        line(ts=[]),
        line(ts={}),
        line(ts="x"),
        line(ts=-1),
        line(ts=10**40),
        line(ts=float("inf")),
        line(ts=float("nan")),
        line(event=None),
        line(event=[]),
        "[" * 200_000,
        "[]",
        "9" * 5_000,
    ],
)
def test_a_damaged_line_is_left_out(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{line(ts=7_000)}\n{damaged}\n{line(ts=5_000)}\n")
    assert [event["ts"] for event in merge_timelines([path])] == [5_000, 7_000]
    assert [event["ts"] for event in merge_timelines([path], since_ms=6_000)] == [7_000]


def test_a_hole_of_terabytes_is_not_read(tmp_path: Path) -> None:
    """A crash of a file system may leave one. At a gigabyte a second it would take half an hour."""
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.write(f"{line(ts=5_000)}\n".encode())
        file.seek(2 << 40)
        file.write(f"\n{line(ts=7_000)}\n".encode())
        file.truncate(4 << 40)
    assert [event["ts"] for event in merge_timelines([path])] == [5_000, 7_000]


def test_the_first_word_of_a_process_is_not_lost_with_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """The disk was full, or lost power, when the process before wrote its last line."""
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{line(ts=5_000)}\n{line(ts=6_000)[:30]}")
    for _ in range(2):
        file = TimelineFile(str(path), NodeId(1))
        file(7_000, NodeStopped(), {})
        file.close()
    assert [(event["ts"], event["event"]) for event in merge_timelines([path])][1:] == [(7_000, "node.stopped")] * 2
    assert path.read_bytes().count(b"\n") == 4, "nothing is put in front of a line that follows a whole one"


def test_a_directory_in_the_place_of_a_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        merge_timelines([tmp_path / "trace.jsonl"])
    assert caught.value.filename == str(tmp_path / "trace.jsonl")
