"""The demonstration's end: the story with times, told from the metadata log, the nodes' traces and the producer's ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from kraftlite.local.chaos import Times
from kraftlite.local.story import History
from kraftlite.local.stream import Ledger

# What a reader of a failover wants to see of the nodes' own traces, between a kill and its end.
_TELLING = (
    "raft.fetch_timed_out",
    "raft.state_changed",
    "raft.leader_elected",
    "controller.claimed",
    "controller.activated",
    "controller.renounced",
)
_MAX_TRACE_LINES = 12


def tell(times: Times, history: History, trace: Sequence[dict[str, Any]], ledger: Ledger) -> Iterator[str]:
    """Line by line; times are relative to the failure that a paragraph begins with."""
    if times.broker_killed_ms:
        yield from _leader_killed(times, history, ledger)
    if times.controller_killed_ms:
        yield ""
        yield from _controller_killed(times, history, trace)
    if times.restarted_ms:
        yield ""
        yield from _restarted(times, history)


def _leader_killed(times: Times, history: History, ledger: Ledger) -> Iterator[str]:
    start, node = times.broker_killed_ms, times.broker
    led = ", ".join(map(str, times.led))
    yield f"{_clock(start)}  node {node} was killed with SIGKILL; it led partitions {led}"
    fenced = history.first("fenced", since_ms=start, node=node)
    if fenced is None:
        yield "            it was never fenced"
    else:
        yield f"{_after(start, fenced.time_ms)}  fenced by record @{fenced.offset} of the metadata log (BrokerRegistrationChange)"
    until = times.controller_killed_ms or 2**62
    for move in history.new_leaders(since_ms=start, until_ms=until, instead_of=node):
        yield (
            f"{_after(start, move.time_ms)}  partition {move.partition}: leader {node} -> {_who(move.after.leader)}, "
            f"leader epoch {move.before.leader_epoch} -> {move.after.leader_epoch}, "
            f"ISR {_ids(move.before.isr)} -> {_ids(move.after.isr)} (record @{move.offset})"
        )
    for index, gap in sorted(ledger.gaps.items(), key=lambda item: (item[1].ended_ms, item[0])):
        if not gap.began_ms <= until or gap.ended_ms < start:
            continue
        why = "its leader was dead" if index in times.led else f"its ISR had to lose node {node} first"
        lasted = f"after {gap.longest_ms / 1000:.2f} s ({why})"
        yield f"{_after(start, gap.ended_ms)}  partition {index} could be written again, {lasted}"


def _controller_killed(times: Times, history: History, trace: Sequence[dict[str, Any]]) -> Iterator[str]:
    start, node = times.controller_killed_ms, times.controller
    yield f"{_clock(start)}  node {node} was killed with SIGKILL; it was the active controller of epoch {times.controller_epoch}"
    leads = history.first("leads the quorum", since_ms=start)
    end = leads.time_ms if leads is not None else start + 10_000
    told = 0
    for event in trace:
        if start <= event["ts"] <= end + 200 and event["event"] in _TELLING and event["node"] != node and told < _MAX_TRACE_LINES:
            told += 1
            yield f"{_after(start, event['ts'])}  node {event['node']}: {event['event']}{_facts(event)}"
    if leads is None:
        yield "            no other controller took over"
        return
    yield f"{_after(start, leads.time_ms)}  node {leads.node} {leads.what} (LeaderChange record @{leads.offset})"
    if times.acknowledged_meanwhile:
        span_s = (times.controller_overcome_ms - start) / 1000
        yield f"            meanwhile, in {span_s:.1f} s, {times.acknowledged_meanwhile:,} records were acknowledged"


def _restarted(times: Times, history: History) -> Iterator[str]:
    start = times.restarted_ms
    yield f"{_clock(start)}  nodes {times.broker} and {times.controller} were started again"
    for what in ("registered", "unfenced"):
        found = history.first(what, since_ms=start, node=times.broker)
        if found is not None:
            yield f"{_after(start, found.time_ms)}  node {times.broker} {what} (record @{found.offset})"
    whole = history.whole_since(after_ms=start)
    if whole is None:
        yield "            not every ISR is whole"
    else:
        yield f"{_after(start, whole.time_ms)}  every ISR is whole again (record @{whole.offset})"


def _clock(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000).strftime("%H:%M:%S.") + f"{wall_ms % 1000 // 100}"


def _after(start_ms: int, then_ms: int) -> str:
    return f"{(then_ms - start_ms) / 1000:+9.2f} s"


def _who(leader: int | None) -> str:
    return "none" if leader is None else str(leader)


def _ids(nodes: Sequence[int]) -> str:
    return f"[{','.join(map(str, nodes))}]"


def _facts(event: dict[str, Any]) -> str:
    skipped = ("ts", "node", "event", "cause")
    text = " ".join(f"{name}={value}" for name, value in event.items() if name not in skipped and value is not None)
    return f" {text}" if text else ""
