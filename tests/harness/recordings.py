"""Recordings for tests of the page."""

from __future__ import annotations

from functools import cache
from typing import Any

from kraftlite.obs.recording import Header, Recorder
from kraftlite.obs.recording_reader import read_bytes
from kraftlite.sim import fault_plan
from kraftlite.sim.recorded import run_recorded
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.ui.replay import tape_of
from tests.harness.ui import client_report, replica, status

SPLIT = RunPlan(
    seed=3, shape=NAMED["3+3"], faults=(fault_plan.parse("3000 isolate controller for 6000"),), duration_ms=8_000
)  # fmt: skip


@cache
def split() -> tuple[bytes, dict[str, Any]]:
    """Two active controllers at once, for a second: the recording, and its tape."""
    lines: list[bytes] = []
    result = run_recorded(SPLIT, lines.append)
    assert not result.story and result.trace == run(SPLIT).trace, "a recorder changes nothing of the run"
    data = b"".join(lines)
    return data, tape_of(lambda: read_bytes(data))


def hostile() -> dict[str, Any]:
    """A recording in which a topic and an error have what would be markup."""
    lines: list[bytes] = []
    header = Header(source="live", clock="wall", cluster_id="c", every_ms=200, title="</title></script><script>alert(1)</script>")
    recorder = Recorder(header, lines.append)
    for ts in (1_000, 2_000):
        recorder.node(ts, 1, ("controller",), "running")
        recorder.node(ts, 4, ("broker",), "running")
        recorder.status(ts, 1, ts, 3, status(1, active=True))
        recorder.status(ts, 4, ts, 3, status(4))
        recorder.replicas(ts, 4, ts, [replica(topic="<img src=x onerror=alert(1)>", leads=True)])
    words = {"client": "<img src=x onerror=alert(1)>", "topic": "</script><b>", "errors": {"<i>x</i>": 3}}
    recorder.client(2_000, client_report(at=2_000, **words))
    recorder.silent(2_500, 1, "</script><!--<script>")
    return tape_of(lambda: read_bytes(b"".join(lines)))


def outage() -> dict[str, Any]:
    """A leader falls silent while a client writes: its view of the outage, and that of the cluster."""
    lines: list[bytes] = []
    recorder = Recorder(Header(source="live", clock="wall", cluster_id="c", every_ms=200, title="outage"), lines.append)
    for ts in range(1_000, 9_000, 1_000):
        recorder.node(ts, 1, ("controller",), "running")
        recorder.status(ts, 1, ts, 3, status(1, active=True))
        for node in (4, 5):
            recorder.node(ts, node, ("broker",), "running")
            recorder.status(ts, node, ts, 3, status(node))
        leads = 4 if ts < 6_000 else 5
        for node in (4, 5):
            recorder.replicas(ts, node, ts, [replica(leads=node == leads, leader=leads, epoch=leads - 4)])
        waits = 3_000 if 3_000 < ts < 6_000 else None
        gaps = [[0, 3_000, 6_500]] if ts > 6_500 else []
        recorder.client(ts, client_report(at=ts, sent=ts, partitions=[[0, ts, 0, 0, 2, waits]], gaps=gaps))
    recorder.end(9_000, "stopped")
    return tape_of(lambda: read_bytes(b"".join(lines)))
