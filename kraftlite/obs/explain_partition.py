"""The stories of one partition: who led it and why, who was in sync, when it could not be written, and what its logs lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlite.obs.explain_causes import leader_lost, loss_ms, process_fault, tell_cause, tell_start, why_silent
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import Change, History
from kraftlite.obs.explain_stalls import standstills
from kraftlite.obs.explain_story import Clock, Step, Story, Telling, ids, seconds, who

IDLE_MS: Final = 5_000
"""A first produce that came so much later than the leader says nothing of how long nobody could write: nobody tried."""
_SAME_MS: Final = 100
"""The events that one node records of one thing lie this close together."""
_DAMAGE: Final = (
    "log.recovered",
    "log.doubted",
    "log.segment_set_aside",
    "log.index_rebuilt",
    "partition.offline",
    "fetcher.partition_paused",
)
_BAD_FETCH: Final = ("CORRUPT_MESSAGE", "KAFKA_STORAGE_ERROR", "INVALID_RECORD")


def partition_stories(history: History, name: str, clock: Clock) -> Iterator[Story]:
    """All that is recorded, in no particular order."""
    changes = history.changes.get(name, [])
    for change in changes:
        if change.new:
            yield _created(history, change, clock)
        elif change.moves_leader:
            yield leader_story(history, change, clock)
        elif change.lost or change.joined:
            yield isr_story(history, change, clock)
    if not history.log_only:
        yield from _not_writable(history, name, changes, clock)
    yield from _below_min_isr(history, name, clock)
    yield from _stalls(history, name, changes, clock)
    yield from _truncations(history, name, clock)
    yield from _damages(history, name, clock)
    yield from _deleted(history, name, clock)


def standing(history: History, name: str, until_ms: int) -> str:
    """Tell which replica leads and which are in sync at that time."""
    known = [change for change in history.changes.get(name, []) if change.ms <= until_ms]
    topic = name.rpartition("-")[0]
    removed = [e for e in history.topic_records() if e.get("record") == "RemoveTopic" and e.get("detail") == topic]
    if known and any(known[-1].ms <= event.ms <= until_ms for event in removed):
        return "deleted"
    if not known:
        return "nothing of it is recorded before the end of this time"
    last = known[-1]
    leader = "nobody leads" if last.leader is None else f"led by {last.leader}"
    record = "" if last.offset is None else f" (record @{last.offset})"
    return f"{leader} in leader epoch {last.leader_epoch}, ISR {ids(last.isr)}{record}"


# --- leaders


def tell_change(telling: Telling, history: History, change: Change) -> Step:
    """The cause of a change and the change."""
    because = tell_cause(telling, history, change.record, change)
    words = []
    if change.moves_leader:
        words.append(f"leader {who(change.old_leader)}→{who(change.leader)}")
        old = "?" if change.old_leader_epoch is None else change.old_leader_epoch
        words.append(f"epoch {old}→{change.leader_epoch}")
    if change.old_isr is not None and change.isr != change.old_isr:
        words.append(f"ISR {ids(change.old_isr)}→{ids(change.isr)}")
    words += _election(change)
    at = "" if change.offset is None else f" @{change.offset}"
    brief = f"PARTITION_CHANGE{at} {' '.join(words)}"
    what = f"{change.partition}: {', '.join(words)} (partition epoch {change.partition_epoch})"
    if is_unclean(change):
        what += f"; {unclean_words(change)}"
    return telling.add(
        change.ms, change.node, what, because=because, brief=brief, record=change.offset, event=change.record.event
    )


def _election(change: Change) -> list[str]:
    """Tell where a leader that was not in the ISR comes from, or who could lead (KIP-966)."""
    if change.leader is None:
        return [f"nobody in sync, eligible to lead: {ids(change.elr)}"] if change.elr else []
    if change.leader in change.old_elr:
        return ["elected from the eligible leader replicas"]
    return []


def is_unclean(change: Change) -> bool:
    """Return whether the leader was elected from outside of the ISR."""
    outside = change.old_isr is not None and change.leader is not None and change.leader not in change.old_isr
    return outside and (change.unclean or change.record.detail.get("recovering") is True)


def unclean_words(change: Change) -> str:
    if change.old_isr:
        return f"{change.leader} was not in sync: what only {ids(change.old_isr)} had is lost"
    return f"nobody was in sync, and {change.leader} may not have all that was acknowledged"


def leader_story(history: History, change: Change, clock: Clock) -> Story:
    telling = Telling(clock)
    step = tell_change(telling, history, change)
    _tell_new_leader(telling, history, change, step)
    title = f"{change.partition}: leader {who(change.old_leader)} → {who(change.leader)}"
    if change.old_leader == change.leader:
        title = f"{change.partition}: leader {who(change.leader)} in a new epoch"
    if is_unclean(change):
        title += ", an unclean election"
    return telling.story(
        "leader_changed",
        title,
        change.ms,
        from_ms=loss_ms(change.record),
        partition=change.partition,
        old_leader=change.old_leader,
        leader=change.leader,
        old_leader_epoch=change.old_leader_epoch,
        leader_epoch=change.leader_epoch,
        isr=list(change.isr),
        unclean=is_unclean(change),
        record=change.offset,
    )


def _tell_new_leader(telling: Telling, history: History, change: Change, because: Step) -> Step | None:
    """The brokers take over: who leads from when, when the first produce was acknowledged, who follows."""
    clock = telling.clock
    started = _of_epoch(history, change, "partition.leader_started")
    if change.leader is None:
        return None
    leads = because
    if started is not None:
        what = f"broker {started.node} leads from offset {started.get('epoch_start_offset')}, HW {started.get('hw')}"
        brief = f"broker {started.node} led from {clock.short(started.ms)}"
        leads = telling.note(started, what, because=because, brief=brief)
    first = _of_epoch(history, change, "partition.first_produce_acknowledged")
    if first is not None:
        what = f"the first produce of the epoch is acknowledged, {seconds(int(first.get('waited_ms', 0)))} after it came"
        telling.note(first, what, because=leads, brief=f"first produce acknowledged {clock.short(first.ms)}")
    for event in history.by_cause.get(change.offset, ()) if change.offset is not None else ():
        follows = event.event == "partition.follower_started" and event.get("leader_epoch") == change.leader_epoch
        if follows and event.partition == change.partition and change.ms <= event.ms:
            what = f"broker {event.node} follows {who(event.get('leader_id'))}, LEO {event.get('leo')}, HW {event.get('hw')}"
            telling.note(event, what, because=because)
    return leads


def _of_epoch(history: History, change: Change, name: str) -> Recorded | None:
    """The new leader's event of this name in the leader epoch that the change began."""
    for event in history.of_partition(change.partition, change.ms):
        if event.event == name and event.node == change.leader and event.get("leader_epoch") == change.leader_epoch:
            return event
    return None


def _created(history: History, change: Change, clock: Clock) -> Story:
    telling = Telling(clock)
    step = tell_cause(telling, history, change.record, change)
    topic = history.sibling(change.record, "Topic", name=change.partition.rpartition("-")[0])
    if topic is not None:
        step = telling.note(
            topic, f"topic {topic.detail.get('name')} exists", because=step, brief=f"TOPIC @{topic.get('offset')}"
        )
    what = f"{change.partition} exists: leader {who(change.leader)}, ISR {ids(change.isr)}"
    at = "" if change.offset is None else f" @{change.offset}"
    step = telling.add(
        change.ms, change.node, what, because=step, brief=f"PARTITION{at} leader {who(change.leader)}", record=change.offset
    )
    _tell_new_leader(telling, history, change, step)
    title = f"{change.partition}: created, led by {who(change.leader)}"
    return telling.story("created", title, change.ms, partition=change.partition, leader=change.leader, record=change.offset)


def _deleted(history: History, name: str, clock: Clock) -> Iterator[Story]:
    topic = name.rpartition("-")[0]
    for record in history.topic_records():
        if record.get("record") != "RemoveTopic" or record.get("detail") != topic:
            continue
        telling = Telling(clock)
        step = tell_cause(telling, history, record)
        brief = f"REMOVE_TOPIC @{record.get('offset')}"
        step = telling.note(record, f"topic {topic} is deleted", because=step, brief=brief)
        for event in history.by_partition[name]:
            if event.event == "partition.removed" and 0 <= event.ms - record.ms < IDLE_MS:
                telling.note(event, f"broker {event.node} lets go of its replica", because=step)
        yield telling.story("deleted", f"{name}: deleted", record.ms, partition=name, record=record.get("offset"))


# --- in-sync replicas


def isr_story(history: History, change: Change, clock: Clock) -> Story:
    telling = Telling(clock)
    step = tell_change(telling, history, change)
    for event in history.of_partition(change.partition, change.ms):
        if event.event == "partition.isr_committed" and event.get("partition_epoch") == change.partition_epoch:
            what = f"broker {event.node}, which leads, goes on with ISR {ids(event.get('isr'))}"
            telling.note(event, what, because=step)
            break
    if change.lost:
        kind, title = "isr_shrunk", f"{change.partition}: {ids(change.lost)} left the ISR"
    else:
        kind, title = "isr_expanded", f"{change.partition}: {ids(change.joined)} joined the ISR"
    return telling.story(
        kind,
        title,
        change.ms,
        from_ms=loss_ms(change.record),
        partition=change.partition,
        out=list(change.lost),
        added=list(change.joined),
        isr=list(change.isr),
        record=change.offset,
    )


# --- writing


def _not_writable(history: History, name: str, changes: list[Change], clock: Clock) -> Iterator[Story]:
    """Tell of the time from the loss of a leader until the first acknowledged produce under a later one."""
    lost: Change | None = None
    for position, change in enumerate(changes):
        if change.new or not change.moves_leader:
            continue
        if change.old_leader is not None or lost is None:
            lost = lost or change
        first = _of_epoch(history, change, "partition.first_produce_acknowledged")
        started = _of_epoch(history, change, "partition.leader_started")
        following = next((c for c in changes[position + 1 :] if c.moves_leader), None)
        if first is None and following is not None:
            continue  # nobody could write before the leader changed again, as far as is known
        yield _gap(history, name, lost, change, started, first, clock)
        lost = None


def _gap(
    history: History,
    name: str,
    lost: Change,
    last: Change,
    started: Recorded | None,
    first: Recorded | None,
    clock: Clock,
) -> Story:
    telling = Telling(clock)
    begin_ms, silent = leader_lost(history, lost)
    where, gone = lost.node, f"broker {who(lost.old_leader)} no longer leads"
    if silent and lost.old_leader is not None:
        where, gone = lost.old_leader, f"broker {lost.old_leader} was heard of last"
        fault = process_fault(history, lost.old_leader, begin_ms, lost.ms)
        if fault is not None and fault.asked_ms == begin_ms:
            gone = f"broker {lost.old_leader} is {fault.done}"
    step = telling.add(begin_ms, where, gone, brief=f"leader {who(lost.old_leader)} lost {clock.short(begin_ms)}")
    if last is not lost:
        what = f"leader {who(lost.leader)} in epoch {lost.leader_epoch}"
        step = telling.add(lost.ms, lost.node, what, because=step, record=lost.offset)
    if started is not None:
        what = f"broker {started.node} leads in epoch {last.leader_epoch}"
        step = telling.note(started, what, because=step, brief=f"broker {started.node} led from {clock.short(started.ms)}")
    until_ms, how = None, "; nobody leads it since, as far as is recorded"
    if started is not None:
        until_ms, how = started.ms, "; no acknowledged produce is recorded since"
    if started is not None and first is not None:
        came_ms = first.ms - int(first.get("waited_ms", 0))
        idle = came_ms - started.ms > IDLE_MS
        until_ms, how = (started.ms, "; the first produce came long after") if idle else (first.ms, "")
        telling.note(
            first, "the first produce is acknowledged", because=step, brief=f"first produce acknowledged {clock.short(first.ms)}"
        )
    span = "" if until_ms is None else f" for {seconds(until_ms - begin_ms)}"
    title = f"{name}: not writable{span} from {clock.short(begin_ms)}{how}"
    return telling.story(
        "not_writable",
        title,
        begin_ms,
        from_ms=begin_ms,
        until_ms=until_ms,
        goes_on=until_ms is None,
        partition=name,
        reason="no leader",
        record=lost.offset,
    )


def _below_min_isr(history: History, name: str, clock: Clock) -> Iterator[Story]:
    """While the ISR is smaller than `min.insync.replicas`, produces with acks=all are refused."""
    below: Recorded | None = None
    for event in history.by_partition.get(name, ()):
        if event.event not in ("partition.isr_committed", "partition.leader_started") or event.get("min_isr") is None:
            continue
        enough = len(event.get("isr", ())) >= int(event.get("min_isr"))
        if not enough and below is None:
            below = event
        elif enough and below is not None:
            yield _too_few(history, name, below, event, clock)
            below = None
    if below is not None:
        yield _too_few(history, name, below, None, clock)


def _too_few(history: History, name: str, below: Recorded, enough: Recorded | None, clock: Clock) -> Story:
    telling = Telling(clock)
    step = None
    change = _change_of(history, name, below)
    if change is not None:
        step = tell_change(telling, history, change)
    why = f"ISR {ids(below.get('isr'))} is below min.insync.replicas={below.get('min_isr')}"
    step = telling.note(below, f"{why}: acks=all is refused", because=step, brief=f"{why} from {clock.short(below.ms)}")
    until_ms = None
    if enough is not None:
        until_ms = enough.ms
        telling.note(enough, f"ISR {ids(enough.get('isr'))} is enough", because=step, brief=f"enough at {clock.short(enough.ms)}")
    span = "" if until_ms is None else f" for {seconds(until_ms - below.ms)}"
    return telling.story(
        "not_writable",
        f"{name}: not writable with acks=all{span}: {why}",
        below.ms,
        from_ms=below.ms,
        until_ms=until_ms,
        goes_on=until_ms is None,
        partition=name,
        reason="min.insync.replicas",
        record=None if change is None else change.offset,
    )


def _change_of(history: History, name: str, event: Recorded) -> Change | None:
    """The change that a broker's event came of."""
    epoch = event.get("partition_epoch")
    found = [c for c in history.changes.get(name, []) if c.partition_epoch == epoch and c.ms <= event.ms]
    return found[-1] if found else None


def _stalls(history: History, name: str, changes: list[Change], clock: Clock) -> Iterator[Story]:
    """A high watermark that stood still, and what let it go on."""
    for stalled, ended in standstills(history.by_partition.get(name, ())):
        yield _stall(history, name, changes, stalled, ended, clock)


def _stall(
    history: History, name: str, changes: list[Change], stalled: Recorded | None, ended: Recorded | None, clock: Clock
) -> Story:
    """`ended`: the HW moved on, or another leader came; None: neither is recorded."""
    telling = Telling(clock)
    resumed = ended if ended is not None and ended.event == "partition.hw_resumed" else None
    last = resumed if resumed is not None else stalled
    assert last is not None
    begin_ms = last.ms - int(last.get("stalled_ms"))
    held_by = sorted({int(member) for event in (stalled, resumed) if event is not None for member in event.get("held_by", ())})
    hw = stalled.get("hw") if stalled is not None else last.get("old")
    step = None
    for member in held_by:
        why = why_silent(telling, history, member, begin_ms, last.ms)
        if "nothing more" not in why and "went on" not in why:
            step = telling.add(begin_ms, member, f"broker {member}: {why}", brief=f"broker {member} fetched nothing")
    brief = f"HW stood at {hw} from {clock.short(begin_ms)}"
    waits = f", waiting for {ids(held_by)}" if held_by else ""
    step = telling.add(begin_ms, last.node, f"the HW of {name} stands at {hw}{waits}", because=step, brief=brief)
    if stalled is not None and str(stalled.cause).startswith("min.insync"):
        step = telling.note(stalled, f"too few replicas are in sync: {stalled.cause}", because=step)
    if resumed is not None:
        change = next((c for c in reversed(changes) if begin_ms <= c.ms <= resumed.ms), None)
        if resumed.cause == "isr" and change is not None:
            step = tell_change(telling, history, change)
        what = f"the HW moves on to {resumed.get('new')}"
        telling.note(resumed, what, because=step, brief=f"HW {resumed.get('new')} at {clock.short(resumed.ms)}")
    elif ended is not None:
        brief = f"broker {ended.node} led from {clock.short(ended.ms)}"
        telling.note(ended, f"broker {ended.node} leads in epoch {ended.get('leader_epoch')}", because=step, brief=brief)
    span = seconds((last.ms if ended is None else ended.ms) - begin_ms)
    title = f"{name}: HW stood still for {span}" + ("" if ended is not None else " and does so still")
    return telling.story(
        "hw_stalled",
        title,
        begin_ms,
        from_ms=begin_ms,
        until_ms=None if ended is None else ended.ms,
        goes_on=ended is None,
        partition=name,
        hw=hw,
        held_by=held_by,
    )


# --- logs


def _truncations(history: History, name: str, clock: Clock) -> Iterator[Story]:
    events = history.by_partition.get(name, [])
    for event in events:
        if event.event not in ("log.truncated", "log.restarted"):
            continue
        old, new = int(event.get("old_leo", 0)), int(event.get("leo", event.get("offset", 0)))
        if old <= new:
            continue  # an empty log that starts elsewhere
        telling = Telling(clock)
        step = None
        follows = [e for e in events if e.event == "partition.follower_started" and e.node == event.node and e.ms <= event.ms]
        if follows:
            change = _change_of(history, name, follows[-1])
            if change is not None and change.moves_leader:
                step = tell_change(telling, history, change)
            what = f"broker {event.node} follows {who(follows[-1].get('leader_id'))}, LEO {follows[-1].get('leo')}"
            step = telling.note(
                follows[-1], what, because=step, brief=f"broker {event.node} follows {follows[-1].get('leader_id')}"
            )
        why = next((e for e in events if e.node == event.node and abs(e.ms - event.ms) < _SAME_MS and e.event in _PARTING), None)
        if why is not None:
            step = telling.note(why, _parting(why), because=step, brief="logs differ")
        lost = max(0, min(old, _committed_end(history, name, event, old)) - new) if event.event == "log.truncated" else 0
        what = f"broker {event.node} cuts its log from {old} to {new}: {old - new} records are gone from it"
        title = f"{name}: broker {event.node} truncated its log from {old} to {new}"
        if lost:
            which = f"offset {new} was" if lost == 1 else f"offsets {new} to {new + lost - 1} were"
            what += f"; {which} below its HW or it alone was in sync, so they had been committed"
            title += f", and {which} committed: {lost} {'record is' if lost == 1 else 'records are'} lost"
        telling.note(event, what, because=step, brief=f"broker {event.node} truncated {old}→{new}")
        yield telling.story(
            "truncated", title, event.ms, partition=name, broker=event.node, old_leo=old, leo=new, committed_lost=lost
        )


_PARTING: Final = ("partition.diverged", "partition.offset_reset")


def _parting(event: Recorded) -> str:
    if event.event == "partition.diverged":
        return f"the leader's log ends at {event.get('end_offset')} in epoch {event.get('epoch')}, where this one goes on"
    span = f"{event.get('leader_log_start_offset')} to {event.get('leader_leo')}"
    return f"the leader has offsets {span}, and this log ends at {event.get('old_leo')}"


def _committed_end(history: History, name: str, truncated: Recorded, old_leo: int) -> int:
    """The offset below which all that the broker had was committed, as far as it is recorded: the HW that it had when it began to
    follow, or its log's end where the leader that it follows was elected from outside of an ISR that was the broker alone."""
    events = [e for e in history.by_partition[name] if e.node == truncated.node and e.ms <= truncated.ms]
    follows = [e for e in events if e.event == "partition.follower_started"]
    known = int(follows[-1].get("hw", 0)) if follows else 0
    unclean = [c for c in history.changes.get(name, ()) if c.ms <= truncated.ms and c.moves_leader and is_unclean(c)]
    isr = [e for e in events if e.event == "partition.isr_committed" and unclean and e.ms <= unclean[-1].ms]
    before = [e for e in events if e.event == "log.truncated" and unclean and e.ms >= unclean[-1].ms]
    # Where a fencing has left nobody in sync, the last one of the ISR is the one that is eligible (KIP-966).
    had_all = (unclean[-1].old_isr or unclean[-1].old_elr) if unclean else ()
    if unclean and isr and before[:1] == [truncated] and had_all == (truncated.node,):
        alone = tuple(isr[-1].get("isr", ())) == (truncated.node,) and int(isr[-1].get("min_isr", 0)) == 1
        return old_leo if alone else known
    return known


def _damages(history: History, name: str, clock: Clock) -> Iterator[Story]:
    for event in history.by_partition.get(name, ()):
        if event.event not in _DAMAGE or not _is_damage(event):
            continue
        telling = Telling(clock)
        step = tell_start(telling, history, event.node, event.ms) if event.event.startswith("log.") else None
        what, brief = _damage(event)
        telling.note(event, f"broker {event.node}: {what}", because=step, brief=brief)
        yield telling.story("log_damaged", f"{name}: broker {event.node}: {brief}", event.ms, partition=name, broker=event.node)


def _is_damage(event: Recorded) -> bool:
    if event.event == "log.recovered":
        return bool(event.get("dropped_bytes") or event.get("dropped_segments") or event.get("reason"))
    return event.event != "fetcher.partition_paused" or any(error in str(event.get("error")) for error in _BAD_FETCH)


def _damage(event: Recorded) -> tuple[str, str]:
    reason = event.get("reason") or event.get("error") or ""
    match event.event:
        case "log.recovered":
            dropped = f"{event.get('dropped_bytes')} bytes and {event.get('dropped_segments')} segments"
            return f"the log ends at {event.get('leo')} after recovery; {dropped} are dropped: {reason}", "damaged log cut off"
        case "log.doubted":
            return f"the log is checked from {event.get('base_offset')} on: {reason}", "log doubted"
        case "log.segment_set_aside":
            return f"segment {event.get('base_offset')} is set aside as {event.get('file')}: {reason}", "segment set aside"
        case "log.index_rebuilt":
            return f"the index of segment {event.get('base_offset')} is rebuilt: {reason}", "index rebuilt"
        case "partition.offline":
            return f"the replica is offline: {reason}", "replica offline"
        case _:
            return f"what was fetched from {event.get('leader_id')} cannot be used: {reason}", "bad records fetched"
