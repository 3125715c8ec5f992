"""What the ledger of faults adds to a story: who did it, instead of a guess."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.obs.explain import from_line
from kraftlite.runtime.trace import broker, node
from tests.unit.obs.test_explain import Trace


def fault(trace: Trace, at_s: float, where: int, kind: str, *, ended_s: float | None = None, how: str = "start") -> None:
    """Add a line of the ledger of faults, and that of its end."""
    lines: list[dict[str, Any]] = [{"ts": int(at_s * 1000), "event": "fault.asked", "kind": kind}]
    if ended_s is not None:
        lines.append({"ts": int(ended_s * 1000), "event": "fault.ended", "how": how})
    for line in lines:
        event = from_line({"node": where, "id": "f1", "who": "anna", "door": "cli", **line})
        assert event is not None
        trace.events.append(event)


def test_the_ledger_of_faults_names_the_cause() -> None:
    """Somebody killed the leader: nothing is guessed, also where the trace of the dead node says no more."""
    trace = Trace()
    trace.created()
    trace.fenced()
    fault(trace, 12.5, 2, "kill")
    story = trace.story("leader_changed")
    assert story.chain.startswith("node 2 killed by anna (cli) 12.5 s ▸ broker 2 missed heartbeats from 12.4 s ▸ FENCE @1842")
    silence = story.steps[1]
    assert silence.because == 1 and "it was killed by anna (cli) at 12.5 s" in silence.what
    assert not any("paused or cut" in step.what for step in story.steps)
    told = trace.story("fault", "node", "2")
    assert told.title == "kill of node 2 by anna (cli)" and told.until_ms is None


@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_nobody_could_write_from_the_fault_on_and_not_from_the_heartbeat_before_it(kind: str) -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    assert trace.story("not_writable").from_ms == 12_400, "without the ledger: since it was heard of last"
    fault(trace, 12.9, 2, kind)
    story = trace.story("not_writable")
    assert (
        story.from_ms == 12_900 and story.steps[0].what == f"broker 2 is {'killed' if kind == 'kill' else 'paused'} by anna (cli)"
    )


def test_a_pause_is_told_with_its_end_and_explains_nothing_after_it() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    fault(trace, 12.5, 2, "pause", ended_s=24.0, how="resume")
    silence = trace.story("leader_changed").steps[1]
    assert "it was paused by anna (cli) at 12.5 s, until the resume by anna (cli) at 24.0 s" in silence.what


@pytest.mark.parametrize("ended_s", [5.0, None])
def test_a_fault_that_is_over_is_no_cause(ended_s: float | None) -> None:
    """It ended in the ledger, or the node was heard of after it."""
    trace = Trace()
    trace.created()
    fault(trace, 4.0, 2, "pause", ended_s=ended_s, how="resume")
    trace.say(11.0, 2, broker.BrokerFenced(fenced=False))
    trace.fenced()
    assert trace.story("leader_changed").chain.startswith("broker 2 missed heartbeats from 12.4 s")


def test_an_orderly_stop_says_who_asked_for_it() -> None:
    trace = Trace()
    trace.created()
    fault(trace, 19.5, 2, "restart")
    trace.say(20.0, 2, node.NodeStopping(reason="signal", graceful=True), node.NodeStopped())
    stopped = trace.story("stopped", "node", "2")
    assert stopped.steps[0].what == "node 2 is told to stop (signal): the restart by anna (cli)"


def _cut(trace: Trace, where: int, other: int, *, kind: str = "cut", for_ms: int = 60_000) -> None:
    facts = {"kind": kind, "other": other, "for_ms": for_ms} if kind == "cut" else {"kind": kind, "for_ms": for_ms}
    event = from_line({"ts": 12_500, "node": where, "event": "fault.asked", "id": "f1", "who": "anna", "door": "cli", **facts})
    assert event is not None
    trace.events.append(event)


@pytest.mark.parametrize(("where", "other"), [(2, 1), (1, 2)])
def test_a_cut_from_the_controller_is_the_cause_of_a_silence_also_of_a_node_that_says_more(where: int, other: int) -> None:
    trace = Trace()
    trace.created()
    trace.say(12.0, 1, node.NodeStarting(roles="controller", cluster_id="c", version="1"))
    trace.say(13.0, 2, broker.BrokerFenced(fenced=False))
    trace.fenced()
    _cut(trace, where, other)
    story = trace.story("leader_changed")
    assert story.chain.startswith("node 2 cut off from node 1 by anna (cli) 12.5 s ▸ broker 2 missed heartbeats")
    assert "it was cut off from node 1 by anna (cli) at 12.5 s" in story.steps[1].what
    told = trace.story("fault", "node", str(other))
    assert told.title == f"cut of node {where} and node {other} by anna (cli)"


def test_a_cut_between_brokers_is_no_cause_of_missed_heartbeats_and_a_slow_disk_is() -> None:
    for kind, blamed in (("cut", False), ("disk-slow", True)):
        trace = Trace()
        trace.created()
        trace.say(12.0, 1, node.NodeStarting(roles="controller", cluster_id="c", version="1"))
        trace.fenced()
        _cut(trace, 2, 3, kind=kind)
        assert ("anna" in trace.story("leader_changed").chain) is blamed


def test_a_fault_whose_time_is_over_has_ended_also_when_its_node_could_not_say_so() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    _cut(trace, 2, 1, for_ms=1_000)
    trace.say(30.0, 1, broker.BrokerFenced(fenced=False))
    told = trace.story("fault", "node", "2")
    assert told.until_ms is not None
    assert told.steps[-1].what == "it ends: its time was over, by node 2 (node)"


@pytest.mark.parametrize("kind", ["disk-full", "disk-error"])
def test_a_node_whose_disk_was_made_to_fail_did_not_fail_by_itself(kind: str) -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    reason = "OSError: [Errno 28] No space left on device"
    trace.say(12.6, 2, node.NodeFaulted(where="raft", reason=reason))
    silence = trace.story("leader_changed").chain
    assert silence.startswith("node 2 failed ▸"), "nobody is named without the ledger"
    fault(trace, 12.5, 2, kind, ended_s=12.6, how="the node stopped")
    done = {"disk-full": "given a full disk", "disk-error": "given a failing disk"}[kind]
    assert trace.story("leader_changed").chain.startswith(f"node 2 {done} by anna (cli) 12.5 s ▸ node 2 failed ▸")
    failed = trace.story("faulted", "node", "2")
    assert failed.title == f"node 2 failed: {done} by anna (cli)" and failed.steps[1].because == 1
    trace.say(19.0, 2, broker.LogDirFailed(log_dir="/d", directory_id="x", reason=reason))
    assert trace.story("log_dir_failed", "node", "2").title == "node 2 lost a log directory", "the fault had ended long ago"
