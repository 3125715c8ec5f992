"""Finds the failures of a run by what is known of it: detected, elected, written again, caught up; and what partitions went
through.

Times are wall milliseconds, spans are from the failure's beginning, which is what a history says (`injected`) or the ledger of
faults (`ledger: who`), else what the nodes noticed first (`trace`), else the record that fenced the broker (`record`), which is
late by the session's timeout. Broker sessions and fetch timeouts count from the last sign of life, so a span may be a little
shorter than the timeout. Orderly shutdowns are no failures, unless a history lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kraftlite.failover.inputs import Move, NodeChange, RunData
from kraftlite.local.history import FAILURES

FLAP_MS: Final = 300_000
"""A member that leaves an ISR and is back within this time has flapped."""
SETTLE_MS: Final = 15_000
"""A run that ends sooner after a failure says nothing about how it would have ended."""
MAX_WINDOW_MS: Final = 600_000


@dataclass(slots=True, kw_only=True)
class Failure:
    """One node's failure (`kind`: broker, controller, both). Spans in ms from `began_ms`; None: nothing tells.

    `written_ms`: until every partition that stalled was acknowledged again; `caught_up_ms`: until every ISR that lost the node
    was whole.
    """

    run: str
    number: int
    node: int
    kind: str
    event: str
    source: str
    began_ms: int
    led: int = 0
    affected: int = 0
    detected_ms: int | None = None
    elected_ms: int | None = None
    written_ms: int | None = None
    caught_up_ms: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Outage:
    """The time that one partition was not served in one failure. `unavailable_ms` by acknowledgements (`acks`) or by records
    (`records`).

    `moved_ms`: when the record was written that let it go on; `errors`: records refused meanwhile.
    """

    run: str
    failure: int
    topic: str
    partition: int
    role: str
    leader_before: int | None
    leader_after: int | None
    leader_epoch: int
    moved_ms: int | None
    last_ack_ms: int | None
    first_ack_ms: int | None
    unavailable_ms: int | None
    source: str
    errors: int


@dataclass(slots=True, kw_only=True)
class IsrHistory:
    """One partition's ISR over a whole run. `flaps`: members that left and were back within FLAP_MS."""

    run: str
    topic: str
    partition: int
    shrinks: int = 0
    expands: int = 0
    flaps: int = 0
    leader_changes: int = 0
    unclean: int = 0
    short_ms: int = 0
    """Time with fewer members than replicas."""
    leaderless_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a lane. `state`: whole, short, leaderless (a partition); up, fenced, leaving, down (a node)."""

    lane: str
    state: str
    from_ms: int
    until_ms: int
    label: str = ""


@dataclass(slots=True, kw_only=True)
class RunReport:
    """Everything that is told of one run."""

    run: str
    began_ms: int
    end_ms: int
    closed_ms: int = 0
    """The time at which the cluster began to be shut down for good; what ISRs did from then on does not count."""
    failures: list[Failure] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    isr: list[IsrHistory] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    acknowledged: int | None = None
    refused: int | None = None
    """Records, by the clients' histories; None when there is none, which says nothing about how many there were."""
    planned: int = 0
    """Orderly shutdowns, which are left out."""


def analyse(run: RunData) -> RunReport:
    """Pure."""
    times = [change.time_ms for change in run.nodes] + [move.time_ms for move in run.moves]
    report = RunReport(run=run.name, began_ms=min(times, default=0), end_ms=run.end_ms)
    if run.has_history:
        report.acknowledged = sum(int(acks.times.size) for acks in run.acks.values())
        report.refused = run.lost_errors + sum(int(acks.errors.size) for acks in run.acks.values())
    found = _failures(run, report)
    found.sort(key=lambda failure: (failure.began_ms, failure.node))
    for number, failure in enumerate(found, start=1):
        failure.number = number
        following = [other.began_ms for other in found if other.began_ms > failure.began_ms]
        _follow(run, report, failure, min(following, default=run.end_ms))
    report.failures = found
    report.closed_ms = _closed(run)
    report.isr = [_isr_history(run, *key, report.closed_ms) for key in run.partitions()]
    report.spans = list(_spans(run, found, report.closed_ms))
    return report


# which failures there were


def _failures(run: RunData, report: RunReport) -> list[Failure]:
    found = [
        _failure(run, event.node, event.event, f"ledger: {event.by}" if event.by else "injected", event.time_ms)
        for event in run.injected
        if event.event in FAILURES
    ]
    for change in run.nodes:
        previous = _quorum_leader(run, change.time_ms - 1)
        if change.what == "fenced":
            node = change.node
        elif change.what == "leads" and previous is not None and previous != change.node:
            node = previous
        else:
            continue
        if any(f.node == node and 0 <= change.time_ms - f.began_ms <= MAX_WINDOW_MS for f in found):
            continue
        if _was_planned(run, node, change.time_ms):
            report.planned += change.what == "fenced"
            continue
        if change.what == "fenced" and not _was_unfenced(run, node, change):
            continue
        signs = _first_sign(run, node, change)
        found.append(_failure(run, node, *run.cause(change, node, _quorum_leader(run, signs[0]), *signs)))
    return found


def _failure(run: RunData, node: int, event: str, source: str, began_ms: int) -> Failure:
    broker = any(change.node == node and change.what == "registered" for change in run.nodes)
    controller = _quorum_leader(run, began_ms) == node
    kind = "both" if broker and controller else "controller" if controller or not broker else "broker"
    return Failure(run=run.name, number=0, node=node, kind=kind, event=event, source=source, began_ms=began_ms)


def _quorum_leader(run: RunData, time_ms: int) -> int | None:
    leads = [change.node for change in run.nodes if change.what == "leads" and change.time_ms <= time_ms]
    return leads[-1] if leads else None


def _was_planned(run: RunData, node: int, time_ms: int) -> bool:
    """The node was told to stop, or was leaving, and did not start again before `time_ms`."""
    stops = [e["ts"] for e in run.events("node.stopping", 0, time_ms) if e["node"] == node]
    stops += [e["ts"] for e in run.events("raft.leader_resigned", 0, time_ms) if e["node"] == node]
    stops += [
        change.time_ms for change in run.nodes if change.node == node and change.what == "leaving" and change.time_ms <= time_ms
    ]
    starts = [e["ts"] for e in run.events("node.starting", 0, time_ms) if e["node"] == node]
    starts += [c.time_ms for c in run.nodes if c.node == node and c.what == "registered" and c.time_ms <= time_ms]
    return bool(stops) and max(stops) >= max(starts, default=0)


def _was_unfenced(run: RunData, node: int, change: NodeChange) -> bool:
    before = [
        c.what
        for c in run.nodes
        if c.node == node and c.offset < change.offset and c.what in ("unfenced", "fenced", "registered")
    ]
    return bool(before) and before[-1] == "unfenced"


def _first_sign(run: RunData, node: int, change: NodeChange) -> tuple[int, str]:
    """Find when a failure that nobody listed began, by what other nodes noticed of it."""
    at = change.time_ms
    if change.what == "fenced":
        for event in run.events("controller.broker_session_expired", at - 5_000, at + 5_000):
            if event.get("broker_id") == node:
                silent_since = int(event["ts"]) - int(event["silent_ms"])
                noticed = [e["ts"] for e in run.events("fetcher.request_failed", silent_since, at) if e.get("leader_id") == node]
                return min([*noticed, int(event["ts"])]) if noticed else silent_since, "trace"
        return at, "record"
    for event in run.events("raft.fetch_timed_out", at - 10_000, at):
        if event.get("leader_id") == node:
            return int(event["ts"]) - int(event["silent_ms"]), "trace"
    return at, "record"


# what followed


def _follow(run: RunData, report: RunReport, failure: Failure, next_ms: int) -> None:
    began, node = failure.began_ms, failure.node
    until = began + MAX_WINDOW_MS
    state = _state_at(run, began)
    led = [key for key, move in sorted(state.items()) if move.after.leader == node]
    held = [key for key, move in sorted(state.items()) if node in move.after.isr and len(move.after.replicas) > 1]
    failure.led = len(led)
    problems: list[str] = []
    outages = [] if failure.kind == "controller" else [_outage(run, failure, key, state[key], until) for key in held]
    # A partition that nothing happened to was not affected: its ISR did not change and its leader is another one.
    outages = [outage for outage in outages if outage.role == "leader" or outage.moved_ms is not None]
    _times_of_broker(run, failure, outages, problems, next_ms)
    _times_of_controller(run, failure, until)
    whole = _whole_again(
        run, node, [key for key in held if any((o.topic, o.partition) == key and o.moved_ms for o in outages)], began
    )
    failure.caught_up_ms = None if whole is None else whole - began
    if failure.caught_up_ms is None and outages and _came_back(run, node, began) and run.end_ms - began > SETTLE_MS:
        problems.append(f"node {node} came back, and not every ISR is whole")
    failure.affected = len(outages)
    failure.problems = tuple(problems)
    report.outages += outages


def _times_of_broker(run: RunData, failure: Failure, outages: Sequence[Outage], problems: list[str], next_ms: int) -> None:
    if failure.kind == "controller":
        return
    began, node = failure.began_ms, failure.node
    settled = run.end_ms - began > SETTLE_MS
    signs = [c.time_ms for c in run.nodes if c.node == node and c.what in ("fenced", "leaving") and began <= c.time_ms]
    signs += [e["ts"] for e in run.events("controller.broker_session_expired", began, run.end_ms) if e.get("broker_id") == node]
    back = _came_back(run, node, began)
    signs = [sign for sign in signs if back is None or sign <= back]
    failure.detected_ms = min(signs) - began if signs else None
    leaders = [outage for outage in outages if outage.role == "leader"]
    moved = [outage.moved_ms for outage in leaders if outage.moved_ms is not None]
    if leaders and len(moved) == len(leaders):
        failure.elected_ms = max(moved) - began
    elif leaders and settled and failure.detected_ms is not None:
        problems += [f"{o.topic}-{o.partition} had no other leader" for o in leaders if o.moved_ms is None]
    firsts = [outage.first_ack_ms for outage in outages if outage.first_ack_ms is not None]
    failure.written_ms = max(firsts) - began if firsts else None
    stream_end = max((int(acks.times[-1]) for acks in run.acks.values() if acks.times.size), default=0)
    for outage in outages:
        if (
            outage.source == "acks"
            and outage.first_ack_ms is None
            and outage.moved_ms is not None
            and stream_end > outage.moved_ms + SETTLE_MS
        ):
            problems.append(f"{outage.topic}-{outage.partition} was never written again")
    _find_unclean(run, failure, next_ms, problems)


def _times_of_controller(run: RunData, failure: Failure, until: int) -> None:
    if failure.kind == "broker":
        return
    began, node = failure.began_ms, failure.node
    if _quorum_leader(run, began) != node:
        return
    leads = [c for c in run.nodes if c.what == "leads" and began < c.time_ms <= until]
    noticed = [e["ts"] for e in run.events("raft.fetch_timed_out", began, until) if e.get("leader_id") == node]
    elected = leads[0].time_ms if leads else None
    if failure.kind == "controller":
        failure.detected_ms = min(noticed) - began if noticed else None
        failure.elected_ms = None if elected is None else elected - began
    elif elected is not None and (failure.elected_ms is None or failure.led == 0):
        failure.elected_ms = elected - began


def _find_unclean(run: RunData, failure: Failure, next_ms: int, problems: list[str]) -> None:
    until = max(next_ms, failure.began_ms)
    problems += [
        f"{move.topic}-{move.partition}: node {move.after.leader} was elected from outside of the ISR"
        for move in run.moves
        if failure.began_ms <= move.time_ms <= until and is_unclean(move)
    ]


def is_unclean(move: Move) -> bool:
    """A leader that was in neither the ISR nor the eligible replicas: what it did not have is lost."""
    before, leader = move.before, move.after.leader
    if before is None or leader is None or leader == before.leader:
        return False
    return leader not in before.isr and leader not in before.elr


def _state_at(run: RunData, time_ms: int) -> dict[tuple[str, int], Move]:
    """Just before: what is of the same millisecond is an answer to the failure."""
    state = {}
    for move in run.moves:
        if move.time_ms < time_ms:
            state[move.topic, move.partition] = move
    return state


def _outage(run: RunData, failure: Failure, key: tuple[str, int], state: Move, until: int) -> Outage:
    began, node = failure.began_ms, failure.node
    role = "leader" if state.after.leader == node else "follower"
    move = next(
        (m for m in run.moves if (m.topic, m.partition) == key and began <= m.time_ms <= until and _frees(m, node, role)), None
    )
    acks = run.acks.get(key)
    last = first = unavailable = None
    source = "records"
    errors = 0
    if acks is not None and acks.times.size:
        source = "acks"
        pivot = move.time_ms if move is not None else began
        place = int(np.searchsorted(acks.times, pivot, side="right"))
        last = int(acks.times[place - 1]) if place else None
        first = int(acks.times[place]) if place < acks.times.size else None
        end = first if first is not None else until
        errors = int(np.count_nonzero((acks.errors >= began) & (acks.errors <= end)))
        if first is not None:
            unavailable = max(0, first - max(began, last or 0))
    else:
        first = _first_write(run, key, move) if move is not None else None
        if move is not None:
            unavailable = (first or move.time_ms) - began
    return Outage(
        run=run.name,
        failure=failure.number,
        topic=key[0],
        partition=key[1],
        role=role,
        leader_before=state.after.leader,
        leader_after=move.after.leader if move is not None else None,
        leader_epoch=(move or state).after.leader_epoch,
        moved_ms=move.time_ms if move is not None else None,
        last_ack_ms=last,
        first_ack_ms=first,
        unavailable_ms=unavailable,
        source=source,
        errors=errors,
    )


def _frees(move: Move, node: int, role: str) -> bool:
    """Return whether this change lets the partition go on without the node."""
    if role == "leader":
        return move.after.leader not in (None, node)
    return node not in move.after.isr


def _first_write(run: RunData, key: tuple[str, int], move: Move) -> int | None:
    """Find the first write by the new leader's own word, where no client kept a history."""
    for event in run.events("partition.first_produce_acknowledged", move.time_ms, run.end_ms):
        if event.get("tp") == list(key) and event.get("leader_epoch") == move.after.leader_epoch:
            return int(event["ts"])
    return None


def _came_back(run: RunData, node: int, began: int) -> int | None:
    return next((c.time_ms for c in run.nodes if c.node == node and c.what == "unfenced" and c.time_ms > began), None)


def _whole_again(run: RunData, node: int, keys: Iterable[tuple[str, int]], began: int) -> int | None:
    """Find when the last of the partitions that lost the node from their ISR had it back."""
    times = []
    for key in keys:
        back = [
            m.time_ms
            for m in run.moves
            if (m.topic, m.partition) == key
            and m.time_ms > began
            and m.before is not None
            and node not in m.before.isr
            and node in m.after.isr
        ]
        if not back:
            return None
        times.append(back[0])
    return max(times) if times else None


# partitions over the whole run


def _isr_history(run: RunData, topic: str, partition: int, closed_ms: int) -> IsrHistory:
    found = IsrHistory(run=run.name, topic=topic, partition=partition)
    left: dict[int, int] = {}
    moves = [m for m in run.moves if (m.topic, m.partition) == (topic, partition) and m.time_ms < closed_ms]
    for move, until in zip(moves, [*(m.time_ms for m in moves[1:]), min(closed_ms, run.end_ms)], strict=True):
        span = max(0, until - move.time_ms)
        found.short_ms += span if len(move.after.isr) < len(move.after.replicas) else 0
        found.leaderless_ms += span if move.after.leader is None else 0
        before = move.before
        if before is None:
            continue
        gone = [member for member in before.isr if member not in move.after.isr]
        back = [member for member in move.after.isr if member not in before.isr]
        found.shrinks += bool(gone)
        found.expands += bool(back)
        left.update(dict.fromkeys(gone, move.time_ms))
        found.flaps += sum(move.time_ms - left[member] <= FLAP_MS for member in back if member in left)
        found.leader_changes += before.leader != move.after.leader
        found.unclean += is_unclean(move)
    return found


def _closed(run: RunData) -> int:
    """The first orderly stop after which no broker came up again; behind the run's end when there is none."""
    last_up = max((change.time_ms for change in run.nodes if change.what in ("registered", "unfenced")), default=0)
    stops = [change.time_ms for change in run.nodes if change.what == "leaving" and change.time_ms > last_up]
    stops += [event["ts"] for event in run.events("node.stopping", last_up, run.end_ms)]
    return min(stops, default=run.end_ms + 1)


def _spans(run: RunData, failures: Sequence[Failure], closed_ms: int) -> Iterable[Span]:
    """Lanes of the timeline: the quorum, each broker, each partition."""
    state: dict[str, tuple[str, int, str]] = {}

    def change(lane: str, to: str, at: int, label: str) -> Iterable[Span]:
        was = state.get(lane)
        if was is not None and at > was[1]:
            yield Span(lane=lane, state=was[0], from_ms=was[1], until_ms=at, label=was[2])
        state[lane] = (to, at, label)

    words = {"unfenced": "up", "fenced": "fenced", "registered": "fenced", "leaving": "leaving"}
    steps: list[tuple[int, str, str, str]] = []
    for node in run.nodes:
        if node.what == "leads":
            steps.append((node.time_ms, "controller", "up", str(node.node)))
        else:
            steps.append((node.time_ms, f"node {node.node}", words[node.what], ""))
    for move in run.moves:
        short = len(move.after.isr) < len(move.after.replicas)
        kind = "leaderless" if move.after.leader is None else "short" if short else "whole"
        label = "none" if move.after.leader is None else str(move.after.leader)
        steps.append((move.time_ms, f"{move.topic}-{move.partition}", kind, label))
    for failure in failures:
        if any(node.node == failure.node and node.what == "registered" for node in run.nodes):
            steps.append((failure.began_ms, f"node {failure.node}", "down", ""))
        if _quorum_leader(run, failure.began_ms) == failure.node:
            steps.append((failure.began_ms, "controller", "leaderless", ""))
    steps += [(event.time_ms, f"node {event.node}", "back", "") for event in run.injected if event.event in ("resume", "heal")]
    for at, lane, to, label in sorted(steps, key=lambda step: step[0]):
        if to == "back":
            if state.get(lane, ("",))[0] != "down":
                continue  # it was fenced meanwhile, and is up when it is unfenced
            to = "up"
        if at < closed_ms:
            yield from change(lane, to, at, label)
    for lane in sorted(state):
        yield from change(lane, "", closed_ms, "")


def percentile(values: Sequence[int], part: float) -> int | None:
    """Nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, int(np.ceil(part * len(ordered))) - 1))]


def summary(reports: Sequence[RunReport]) -> list[dict[str, Any]]:
    """Percentiles over all runs, a row per kind of failure and span; unavailability per partition."""
    rows: list[dict[str, Any]] = []
    for kind in ("broker", "controller", "both"):
        failures = [f for report in reports for f in report.failures if f.kind == kind]
        for metric in ("detected_ms", "elected_ms", "written_ms", "caught_up_ms"):
            rows += _row(kind, metric, [getattr(f, metric) for f in failures])
    for role in ("leader", "follower"):
        outages = [o for report in reports for o in report.outages if o.role == role]
        rows += _row(f"partition ({role})", "unavailable_ms", [o.unavailable_ms for o in outages])
    return rows


def _row(kind: str, metric: str, found: Sequence[int | None]) -> list[dict[str, Any]]:
    values = [value for value in found if value is not None]
    if not values:
        return []
    parts = {f"p{int(part * 100)}_ms": percentile(values, part) for part in (0.5, 0.9, 0.99)}
    return [{"kind": kind, "metric": metric, "count": len(values), "min_ms": min(values), **parts, "max_ms": max(values)}]
