"""Lines of a trace whose time or name is damaged are no events, whatever stands there; the others are told in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlite.obs.timeline import merge_timelines


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
