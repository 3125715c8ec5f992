"""The stories of a transactional id: who began under it and was fenced, what its transactions wrote to, how each ended, where its
markers waited, and which coordinators took over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import History
from kraftlite.obs.explain_story import Clock, Step, Story, Telling, ids, seconds, who

STARTED: Final = "transaction.producer_started"
REFUSED: Final = "transaction.producer_refused"
FENCED: Final = "transaction.fenced"
TAKEN_OVER: Final = "transaction.taken_over"
ENDED: Final = "transaction.ended"
WAITS: Final = "transaction.marker_waits"
WRITTEN: Final = "transaction.marker_written"
STOPPED: Final = "transaction.markers_stopped"
_OUTCOMES: Final = {"PrepareCommit": "committed", "PrepareAbort": "aborted"}


def transactional_ids(history: History) -> list[str]:
    """Those of which something is recorded, in order."""
    return sorted({str(e.get("transactional_id")) for e in history.events if e.get("transactional_id") is not None})


def transaction_stories(history: History, name: str, clock: Clock) -> Iterator[Story]:
    """All that is recorded, in no particular order."""
    events = _of(history, name)
    open_from = 0
    for position, event in enumerate(events):
        if event.event == STARTED:
            yield _started(event, clock)
        elif event.event == REFUSED:
            yield _refused(events[:position], event, clock)
        elif event.event == ENDED:
            yield _transaction(history, events[open_from:position], event, clock)
            open_from = position + 1
    rest = [e for e in events[open_from:] if e.event in (FENCED, TAKEN_OVER, WAITS, WRITTEN, STOPPED)]
    if rest:
        yield _open(history, rest, clock)


def standing(history: History, name: str, until_ms: int) -> str:
    events = [e for e in _of(history, name) if e.ms <= until_ms]
    if not events:
        return "nothing is recorded of it before the end of this time"
    last = next((e for e in reversed(events) if e.event in (STARTED, ENDED, TAKEN_OVER, FENCED)), events[-1])
    match last.event:
        case "transaction.producer_started":
            return f"{_producer(last)} may begin; the coordinator is node {last.node}"
        case "transaction.ended":
            outcome = f"the last recorded transaction was {last.get('outcome')} by {_producer(last)}"
            return f"{outcome}; the coordinator is node {last.node}"
        case "transaction.taken_over":
            return f"{last.get('state')} under {_producer(last)}; the coordinator is node {last.node}"
        case "transaction.fenced":
            return f"{last.get('reason')}, and being aborted in epoch {last.get('producer_epoch')}"
        case _:
            return f"a marker waits; the coordinator is node {last.node}"


def _of(history: History, name: str) -> list[Recorded]:
    return [e for e in history.events if e.get("transactional_id") == name]


def _producer(event: Recorded) -> str:
    return f"producer {event.get('producer_id')} in epoch {event.get('producer_epoch')}"


def _started(event: Recorded, clock: Clock) -> Story:
    telling = Telling(clock)
    before = event.get("previous_epoch")
    brief = f"{_producer(event)} {clock.short(event.ms)}"
    step = telling.note(event, f"{_producer(event)} begins under the id", brief=brief)
    if before is not None:
        old = f"producer {event.get('previous_producer_id')} in epoch {before}"
        telling.note(event, f"whoever still has {old} or earlier is fenced", because=step, brief=f"{old} fenced")
    return telling.story(
        "producer_started",
        f"{_producer(event)} began",
        event.ms,
        producer_id=event.get("producer_id"),
        producer_epoch=event.get("producer_epoch"),
        coordinator=event.node,
    )


def _refused(before: Sequence[Recorded], event: Recorded, clock: Clock) -> Story:
    telling = Telling(clock)
    step = None
    fence = next((e for e in reversed(before) if e.event in (FENCED, STARTED)), None)
    if fence is not None:
        step = (
            _tell_fence(telling, fence, None)
            if fence.event == FENCED
            else telling.note(
                fence, f"{_producer(fence)} begins under the id", brief=f"{_producer(fence)} {clock.short(fence.ms)}"
            )
        )
    what = f"{_producer(event)} asks for something, and is refused: the epoch is {event.get('current_epoch')}"
    telling.note(event, what, because=step, brief=f"{_producer(event)} refused {clock.short(event.ms)}")
    return telling.story(
        "producer_refused",
        f"{_producer(event)} was refused, because it is fenced",
        event.ms,
        producer_id=event.get("producer_id"),
        producer_epoch=event.get("producer_epoch"),
    )


def _transaction(history: History, events: Sequence[Recorded], ended: Recorded, clock: Clock) -> Story:
    """One that is complete: `events` are those of the id since the one before."""
    telling = Telling(clock)
    outcome, marking_ms, open_ms = ended.get("outcome"), int(ended.get("marking_ms")), int(ended.get("open_ms"))
    decided_ms = ended.ms - marking_ms
    begun_ms = decided_ms - open_ms
    told = [e for e in events if e.ms >= begun_ms and e.event in (FENCED, TAKEN_OVER, WAITS, WRITTEN, STOPPED)]
    first = next((e.node for e in told), ended.node)
    step: Step | None = None
    if int(ended.get("count")):
        what = f"{_producer(ended)} has a transaction open, with {_partitions(ended)}"
        step = telling.add(begun_ms, first, what, brief=f"began {clock.short(begun_ms)}")
    early = [e for e in told if e.ms <= decided_ms]
    step = _tell_events(telling, history, early, step)
    what = f"it is decided that it is {outcome}, after {seconds(open_ms)}"
    decided = telling.add(decided_ms, first, what, because=step, brief=f"decided {clock.short(decided_ms)}")
    last = _tell_events(telling, history, [e for e in told if e.ms > decided_ms], decided)
    words = f"every marker is written, {seconds(marking_ms)} after the decision"
    telling.note(ended, words, because=last, brief=f"{outcome} {clock.short(ended.ms)}")
    untold = int(ended.get("untold", 0))
    if untold:
        telling.note(ended, f"{untold} more of the id ended before it since the last that was recorded")
    return telling.story(
        str(outcome),
        f"a transaction of {_producer(ended)} was {outcome}",
        ended.ms,
        from_ms=begun_ms,
        producer_id=ended.get("producer_id"),
        producer_epoch=ended.get("producer_epoch"),
        partitions=list(ended.get("partitions", ())),
        partition_count=ended.get("count"),
        open_ms=open_ms,
        marking_ms=marking_ms,
        coordinator=ended.node,
        untold=untold,
    )


def _open(history: History, events: Sequence[Recorded], clock: Clock) -> Story:
    """One whose end is not recorded."""
    telling = Telling(clock)
    _tell_events(telling, history, events, None)
    last = next((e for e in reversed(events) if e.event == TAKEN_OVER), None)
    outcome = None if last is None else _OUTCOMES.get(str(last.get("state")))
    title = "a transaction is not complete" + ("" if outcome is None else f", and will be {outcome}")
    return telling.story("open", title, events[0].ms, goes_on=True, outcome=outcome)


def _tell_events(telling: Telling, history: History, events: Sequence[Recorded], because: Step | None) -> Step | None:
    """The last step of what was told, to follow from; `because` when nothing was."""
    step = because
    clock = telling.clock
    for event in events:
        match event.event:
            case "transaction.fenced":
                step = _tell_fence(telling, event, step)
            case "transaction.taken_over":
                step = _tell_failover(telling, history, event, step)
            case "transaction.marker_waits":
                tp, leader = event.partition, event.get("leader")
                where = "no leader is alive" if leader is None else f"node {leader} answers {event.get('error')}"
                step = telling.note(
                    event,
                    f"the marker for {tp} waits: {where}",
                    because=step,
                    brief=f"marker waits for {tp} {clock.short(event.ms)}",
                )
            case "transaction.marker_written":
                what = f"the marker is written to {event.partition} by node {event.get('leader')}"
                step = telling.note(event, what, because=step, brief=f"marker in {event.partition} {clock.short(event.ms)}")
            case _:
                what = f"{event.partition} refuses the marker ({event.get('error')}): a newer coordinator wrote there"
                step = telling.note(event, what, because=step, brief=f"node {event.node} is no coordinator any more")
    return step


def _tell_fence(telling: Telling, event: Recorded, because: Step | None) -> Step:
    reason, epoch = event.get("reason"), event.get("producer_epoch")
    who_did = {"taken over": "another producer begins under the id", "timed out": "it is open for longer than its timeout"}
    what = f"{who_did.get(str(reason), reason)}: it is aborted in epoch {epoch}, and its producer is fenced"
    return telling.note(event, what, because=because, brief=f"{reason} {telling.clock.short(event.ms)}")


def _tell_failover(telling: Telling, history: History, event: Recorded, because: Step | None) -> Step:
    """Tell why another broker coordinates it now: the change of leader of its partition of `__transaction_state`."""
    clock, tp = telling.clock, event.partition
    changes = [c for c in history.changes.get(str(tp), ()) if c.leader_epoch == event.get("leader_epoch") and c.moves_leader]
    step = because
    if changes:
        change = changes[-1]
        what = f"{tp} moves from broker {who(change.old_leader)} to {who(change.leader)}, ISR {ids(change.isr)}"
        brief = f"coordinator {who(change.old_leader)} → {who(change.leader)} {clock.short(change.ms)}"
        step = telling.note(change.record, what, because=because, brief=brief)
    marking_ms = event.get("marking_ms")
    if marking_ms is None:
        what = f"node {event.node} coordinates it, and finds it open with {_partitions(event)}"
    else:
        outcome = _OUTCOMES[str(event.get("state"))]
        what = (
            f"node {event.node} coordinates it, and finds that it is decided to be {outcome}: it sends the markers for "
            f"{_partitions(event)} again"
        )
    return telling.note(event, what, because=step, brief=f"node {event.node} goes on {clock.short(event.ms)}")


def _partitions(event: Recorded) -> str:
    named, count = list(event.get("partitions", ())), int(event.get("count"))
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{', '.join(named) or 'no partition'}{more}"
