"""The stories of one node: starts, stops, silence, pauses, fencing and unfencing, faults."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kraftlite.obs.explain_causes import disk_fault, loss_ms, tell_cause, tell_disk_fault, tell_fault, tell_start, tell_stopping
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import RECORD, History
from kraftlite.obs.explain_partition import is_unclean, unclean_words
from kraftlite.obs.explain_quorum import quorum_stories
from kraftlite.obs.explain_story import Clock, Step, Story, Telling, ids, seconds, who
from kraftlite.obs.faults import ASKED, ENDED, FAILED, SEEN

_NAMED: Final = 8
"""So many partitions of a fencing are named; the rest is counted."""
_START_STEPS: Final = {
    "broker.logs_loaded": "logs loaded",
    "broker.registered": "registered",
    "raft.leader_elected": "elected",
    "node.started": "serves",
}


def node_stories(history: History, node: int, clock: Clock) -> Iterator[Story]:
    """All that is recorded, in no particular order."""
    for event in history.by_node.get(node, ()):
        match event.event:
            case "node.starting":
                yield _started(history, event, clock)
            case "node.stopped":
                yield _stopped(history, event, clock)
            case "node.faulted":
                yield _faulted(history, event, clock)
            case "node.stalled":
                yield _stalled(history, event, clock)
            case "broker.log_dir_failed":
                yield _directory_failed(history, event, clock)
    yield from _deaths(history, node, clock)
    yield from fault_stories(history, clock, node)
    for record in history.registrations(node):
        if record.get("record") == "BrokerRegistrationChange" and "fenced" in record.detail:
            yield fencing_story(history, record, clock)
    for story in quorum_stories(history, clock):
        if node in (story.facts.get("node"), story.facts.get("leader"), story.facts.get("old_leader")):
            yield story


def standing(history: History, node: int, until_ms: int) -> str:
    """Tell what the node was doing then, as far as it is recorded."""
    own = [event for event in history.by_node.get(node, ()) if event.ms <= until_ms]
    words = []
    if own:
        words.append("stopped" if own[-1].event == "node.stopped" else f"the last it recorded is {own[-1].event}")
    fencing = [record for record in history.registrations(node) if record.ms <= until_ms and "fenced" in record.detail]
    if fencing:
        fenced = "fenced" if fencing[-1].detail["fenced"] else "unfenced"
        words.append(f"{fenced} since record @{fencing[-1].get('offset')}")
    return ", ".join(words) or "nothing of it is recorded before the end of this time"


def _started(history: History, start: Recorded, clock: Clock) -> Story:
    telling = Telling(clock)
    step = tell_start(telling, history, start.node, start.ms)
    assert step is not None
    next_start = history.start_after(start.node, start.ms)
    end_ms = None if next_start is None else next_start.ms - 1
    started = history.first("node.started", node=start.node, since_ms=start.ms, until_ms=end_ms)
    last_ms = end_ms if started is None else started.ms
    found = list(history.named(*_START_STEPS, "log.recovered", node=start.node, since_ms=start.ms, until_ms=last_ms))
    registered = next((event for event in found if event.event == "broker.registered"), None)
    if registered is not None:
        unfence = history.unfencing(start.node, registered.get("broker_epoch"), start.ms)
        found += [unfence] if unfence is not None and (last_ms is None or unfence.ms <= last_ms) else []
    for event in sorted(found, key=lambda event: event.ms):
        if event.event != "log.recovered" or event.get("dropped_bytes"):
            brief = f"UNFENCE @{event.get('offset')}" if event.event == RECORD else _START_STEPS.get(event.event)
            step = telling.note(event, _starting(event), because=step, brief=brief)
    title = f"node {start.node} started"
    if started is None:
        title += ", and did not get to serve" if next_start is not None else ", and does not serve yet"
    else:
        title += f" within {seconds(started.ms - start.ms)}"
    return telling.story("started", title, start.ms, node=start.node, roles=start.get("roles"))


def _starting(event: Recorded) -> str:
    match event.event:
        case "broker.logs_loaded":
            clean = "after a clean shutdown" if event.get("clean") else "without a clean shutdown before"
            return f"{event.get('logs')} logs are loaded, {clean}"
        case "log.recovered":
            return f"the log of {event.partition} is cut to {event.get('leo')}: {event.get('reason')}"
        case "broker.registered":
            return f"the controller knows it as broker {event.node}, epoch {event.get('broker_epoch')}"
        case "raft.leader_elected":
            return f"it is elected leader of the metadata quorum in epoch {event.get('raft_epoch')}"
        case "controller.record_appended":
            return "it is unfenced: it may lead and be in sync"
        case _:
            return f"it serves as {event.get('roles')}"


def _stopped(history: History, stopped: Recorded, clock: Clock) -> Story:
    node = stopped.node
    telling = Telling(clock)
    step = tell_stopping(telling, history, node, stopped.ms)
    begin_ms = stopped.ms if step is None else step.ms
    for record in history.registrations(node):
        if record.get("record") == "BrokerRegistrationChange" and begin_ms <= record.ms <= stopped.ms:
            leaving = "in_controlled_shutdown" in record.detail
            words = "its leaderships move" if leaving else "it may go"
            brief = f"{'CONTROLLED_SHUTDOWN' if leaving else 'FENCE'} @{record.get('offset')}"
            step = telling.note(record, words, because=step, brief=brief)
            if leaving:
                tell_partitions(telling, history, record, step)
    telling.note(stopped, f"node {node} has stopped", because=step, brief=f"stopped {clock.short(stopped.ms)}")
    faulted = any(event.event == "node.faulted" for event in history.by_node[node] if begin_ms - 10_000 <= event.ms <= stopped.ms)
    how = "after a fault" if faulted else "in good order"
    return telling.story("stopped", f"node {node} stopped {how}", stopped.ms, node=node)


def _deaths(history: History, node: int, clock: Clock) -> Iterator[Story]:
    """Ends without a word, known by the next start."""
    own = history.by_node.get(node, [])
    for before, event in pairwise(own):
        if event.event == "node.starting" and before.event not in ("node.stopped", "node.starting"):
            telling = Telling(clock)
            what = f"the last that node {node} recorded: {before.event}"
            step = telling.note(before, what, brief=f"node {node} last recorded something {clock.short(before.ms)}")
            telling.note(event, f"node {node} starts again", because=step, brief=f"started again {clock.short(event.ms)}")
            done = history.fault_on(node, before.ms, event.ms)
            how = f"was {done.done}" if done is not None else "ended without a word, killed or crashed,"
            title = f"node {node} {how} before {clock.short(event.ms)}"
            at_ms = before.ms if done is None else max(before.ms, done.asked_ms)
            yield telling.story("died", title, at_ms, node=node)


def fault_stories(history: History, clock: Clock, node: int | None = None) -> Iterator[Story]:
    """The faults that the ledger tells of this node, or of all."""
    for fault in history.faults:
        if node is not None and node not in (fault.node, fault.other):
            continue
        telling = Telling(clock)
        name = fault.about
        step = telling.add(fault.asked_ms, -1, f"{name} is asked for by {fault.by}", brief=f"{fault.kind} asked", event=ASKED)
        if fault.failed is not None:
            telling.add(fault.asked_ms, -1, f"it was not done: {fault.failed}", because=step, brief="refused", event=FAILED)
        if fault.seen_ms is not None:
            brief = f"seen {clock.short(fault.seen_ms)}"
            step = telling.add(fault.seen_ms, -1, "it is seen to have happened", because=step, brief=brief, event=SEEN)
        if fault.ended_ms is not None:
            brief = f"ended {clock.short(fault.ended_ms)}"
            what = f"it ends: {fault.ended_how}, by {fault.ended_by}"
            telling.add(fault.ended_ms, -1, what, because=step, brief=brief, event=ENDED)
        title = f"{name} by {fault.by}" + ("" if fault.failed is None else ", which was not done")
        yield telling.story("fault", title, fault.asked_ms, goes_on=fault.active, node=fault.node, fault=fault.to_dict())


def _faulted(history: History, event: Recorded, clock: Clock) -> Story:
    telling = Telling(clock)
    because = tell_disk_fault(telling, history, event)
    what = f"node {event.node} cannot go on: {event.get('reason')} (in {event.get('where')})"
    telling.note(event, what, because=because, brief=str(event.get("reason")))
    return telling.story("faulted", f"node {event.node} failed{_on_purpose(history, event)}", event.ms, node=event.node)


def _on_purpose(history: History, event: Recorded) -> str:
    done = disk_fault(history, event)
    return "" if done is None else f": {done.done}"


def _stalled(history: History, event: Recorded, clock: Clock) -> Story:
    telling = Telling(clock)
    stalled_ms = int(event.get("stalled_ms"))
    because = tell_fault(telling, history, event.node, event.ms - stalled_ms, event.ms)
    brief = f"paused for at least {seconds(stalled_ms)} until {clock.short(event.ms)}"
    telling.note(event, f"nothing ran on node {event.node} for at least {seconds(stalled_ms)}", because=because, brief=brief)
    done = history.fault_on(event.node, event.ms - stalled_ms, event.ms)
    title = f"node {event.node} stood still: {'paused, starved or suspended' if done is None else done.done}"
    return telling.story("paused", title, event.ms, from_ms=event.ms - stalled_ms, node=event.node, stalled_ms=stalled_ms)


def _directory_failed(history: History, event: Recorded, clock: Clock) -> Story:
    telling = Telling(clock)
    because = tell_disk_fault(telling, history, event)
    what = f"{event.get('log_dir')}: {event.get('reason')}"
    telling.note(event, what, because=because, brief=f"{event.get('log_dir')} failed")
    title = f"node {event.node} lost a log directory{_on_purpose(history, event)}"
    return telling.story("log_dir_failed", title, event.ms, node=event.node)


def fencing_story(history: History, record: Recorded, clock: Clock) -> Story:
    """A broker was fenced or unfenced: why, and what that moved."""
    detail = record.detail
    broker, fenced = int(detail["broker_id"]), bool(detail["fenced"])
    telling = Telling(clock)
    step = tell_cause(telling, history, record)
    word = "fenced" if fenced else "unfenced"
    brief = f"{'FENCE' if fenced else 'UNFENCE'} @{record.get('offset')}"
    step = telling.note(record, f"broker {broker} is {word}", because=step, brief=brief)
    tell_partitions(telling, history, record, step)
    kind = "fenced" if fenced else "unfenced"
    title = f"broker {broker} was {word}"
    return telling.story(kind, title, record.ms, from_ms=loss_ms(record), node=broker, record=record.get("offset"))


def tell_partitions(telling: Telling, history: History, record: Recorded, because: Step | None) -> None:
    """The partitions' changes of the same operation."""
    found = [history.change_at(int(sibling.get("offset"))) for sibling in history.siblings(record)]
    changes = [change for change in found if change is not None and not change.new]
    for change in changes[:_NAMED]:
        words = f"leader {who(change.old_leader)}→{who(change.leader)}, " if change.moves_leader else ""
        what = f"{change.partition}: {words}ISR {ids(change.old_isr or ())}→{ids(change.isr)}"
        what += f"; an unclean election: {unclean_words(change)}" if is_unclean(change) else ""
        telling.note(change.record, what, because=because)
    moved = sum(change.moves_leader and change.leader is not None for change in changes)
    lost = sum(change.moves_leader and change.leader is None for change in changes)
    count = len(changes)
    batch = history.batch_of(max((int(s.get("offset")) for s in history.siblings(record)), default=-1))
    if batch is not None:
        count = max(count, int(batch.get("count")) - 1)
    if not count or because is None:
        return
    told = _many(count, "partition") + " changed"
    if batch is None:
        told += f", {moved or 'none'} of them got a new leader" if moved or not lost else ""
        told += f", {lost} of them have no leader now" if lost else ""
    unnamed = count - min(len(changes), _NAMED)
    what = told + (f"; {unnamed} are not named here" if unnamed else "")
    brief = _many(moved, "leader") + " moved" if moved and batch is None else _many(count, "partition") + " changed"
    if lost and batch is None:
        brief = f"{_many(lost, 'partition')} without a leader" + (f", {brief}" if moved else "")
    telling.add(record.ms, record.node, what, because=because, brief=brief)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
