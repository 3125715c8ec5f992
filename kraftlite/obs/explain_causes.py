"""Finds what led to a record of the metadata log: the beginning of the chains that end in a change.

Every function adds steps to a `Telling` and returns the last one, to which what follows is attached.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import Change, History
from kraftlite.obs.explain_story import Clock, Step, Telling, ids, seconds
from kraftlite.obs.faults import ASKED, Fault

RECENT_MS: Final = 300_000
"""The time to look back for the beginning of a controlled shutdown: as long as one may last."""

_DISK_FAILS: Final = ("disk-full", "disk-error")
_LATE_MS: Final = 1_000
"""A failure may be recorded so long after the end of the fault that it comes of."""

_ADMIN: Final = {
    "create_topics": "a client asked for the topic",
    "delete_topics": "a client deleted the topic",
    "create_partitions": "a client asked for more partitions",
    "elect_preferred": "auto.leader.rebalance.enable: the preferred leader is to lead again",
    "elect_preferred_or_asked": "the preferred leader is to lead again: leaders are balanced, or a client asked for it",
    "elect_unclean": "nobody in sync is left, and the topic allows unclean elections",
    "alter_partition_reassignments": "a client gave the partition other replicas",
    "incremental_alter_configs": "a client changed the configuration",
    "alter_configs": "a client changed the configuration",
    "update_features": "a client changed a feature's level",
    "activate": "the controller became active",
}
_BRIEF: Final = {
    "create_topics": "topic created",
    "delete_topics": "topic deleted",
    "create_partitions": "partitions added",
    "elect_preferred": "leaders balanced",
    "elect_preferred_or_asked": "preferred leader elected",
    "elect_unclean": "unclean election",
}


def tell_cause(telling: Telling, history: History, record: Recorded, change: Change | None = None) -> Step | None:
    """Tell why the operation that wrote `record` was carried out, up to the record that the operation is about (a fencing,
    say), but without `record` itself. `change`: the change of a partition that `record` is."""
    operation = record.operation
    if operation is None:
        return None
    teller = _TELLERS.get(operation)
    if teller is not None:
        return teller(telling, history, record, change)
    what = _ADMIN.get(operation, f"the controller's operation {operation}")
    return telling.add(record.ms, record.node, what, brief=_BRIEF.get(operation), event=None)


def loss_ms(record: Recorded) -> int:
    """Return when the cause of the operation began: a broker's last heartbeat, or the operation itself."""
    return record.ms - int(record.reasons.get("silent_ms", 0) or 0)


def leader_lost(history: History, change: Change) -> tuple[int, bool]:
    """Return when the leader that `change` replaced was lost, and whether that was before the change: its last sign of life,
    or the end of the process that a new one has replaced."""
    leader, record = change.old_leader, change.record
    if leader is None:
        return change.ms, False
    if loss_ms(record) < change.ms:
        return last_alive_ms(history, leader, loss_ms(record), change.ms), True
    start = history.start_before(leader, change.ms)
    if record.operation == "register_broker" and start is not None and start.ms >= change.ms - RECENT_MS:
        before = history.before(leader, start.ms)
        return change.ms if before is None else before.ms, before is not None
    return change.ms, False


def last_alive_ms(history: History, node: int, from_ms: int, until_ms: int) -> int:
    """Return when the broker whose last heartbeat came at `from_ms` is known to have served partitions last: what it recorded
    of them since then counts, too, and so does the time at which the ledger says that its process was to end or to stand still.
    Not for one that ran on, cut off from the controller."""
    own = history.own(node, from_ms, until_ms)
    if any(event.event == "broker.heartbeat_failed" for event in own):
        return from_ms
    served_ms = max((event.ms for event in own if event.event.startswith("partition.")), default=from_ms)
    fault = process_fault(history, node, from_ms, until_ms)
    return served_ms if fault is None else max(served_ms, fault.asked_ms)


def process_fault(history: History, node: int, from_ms: int, until_ms: int) -> Fault | None:
    """Return the kill or pause of the ledger that ended this node's work in this time, the first one if there were several."""
    if history.fault_on(node, from_ms, until_ms) is None:
        return None
    found = (it for it in history.faults if it.node == node and it.silences(from_ms, until_ms))
    return next((it for it in found if it.asked_ms >= from_ms), None)


# --- a broker that fell silent


def tell_silence(telling: Telling, history: History, node: int, from_ms: int, until_ms: int) -> Step:
    """`node` was not heard of in this time, and why, as far as the traces tell."""
    because = None
    if (fault := _fault(history, node, from_ms, until_ms)) is not None:
        done = tell_disk_fault(telling, history, fault)
        because = telling.note(fault, f"node {node} stopped: {fault.get('reason')}", because=done, brief=f"node {node} failed")
    else:
        because = tell_fault(telling, history, node, from_ms, until_ms, history.controllers())
    brief = f"broker {node} missed heartbeats from {telling.clock.short(from_ms)}"
    why = why_silent(telling, history, node, from_ms, until_ms, history.controllers())
    what = f"the last heartbeat of broker {node} for {seconds(until_ms - from_ms)}: {why}"
    return telling.add(from_ms, node, what, because=because, brief=brief)


def tell_fault(
    telling: Telling, history: History, node: int, from_ms: int, until_ms: int, others: Container[int] = ()
) -> Step | None:
    """Somebody did it on purpose: the ledger of faults says who, and when. `others`: see `History.fault_on`."""
    fault = history.fault_on(node, from_ms, until_ms, others)
    return None if fault is None else _told(telling, fault, node)


def tell_disk_fault(telling: Telling, history: History, failure: Recorded) -> Step | None:
    """Somebody let the disk fail of which the node recorded this failure."""
    fault = disk_fault(history, failure)
    return None if fault is None else _told(telling, fault, failure.node)


def disk_fault(history: History, failure: Recorded) -> Fault | None:
    """The fault of the ledger for which the node recorded that its disk, or one of its directories, fails."""
    for fault in reversed(history.faults):
        if fault.node == failure.node and fault.kind in _DISK_FAILS and fault.lasts(failure.ms - _LATE_MS, failure.ms):
            return fault
    return None


def _told(telling: Telling, fault: Fault, node: int) -> Step:
    clock = telling.clock
    seen = f", seen at {clock.short(fault.seen_ms)}" if fault.seen_ms is not None else ", and nobody saw it done"
    what = f"node {node} is {fault.done_for(node)}, asked for at {clock.short(fault.asked_ms)}{seen}"
    brief = f"node {node} {fault.done_for(node)} {clock.short(fault.asked_ms)}"
    return telling.add(fault.asked_ms, -1, what, brief=brief, event=ASKED)


def _in_words(fault: Fault, node: int, clock: Clock) -> str:
    words = f"it was {fault.done_for(node)} at {clock.short(fault.asked_ms)}"
    if fault.ended_ms is None:
        return words
    how = f"the {fault.ended_how}" if fault.family == "process" else "its end"
    return f"{words}, until {how} by {fault.ended_by} at {clock.short(fault.ended_ms)}"


def _fault(history: History, node: int, from_ms: int, until_ms: int) -> Recorded | None:
    """Find the failure that ended the run of a node which was silent, not an earlier one."""
    fault = history.last("node.faulted", node=node, since_ms=from_ms - RECENT_MS, until_ms=until_ms)
    ended = fault is not None and history.start_before(node, until_ms) == history.start_before(node, fault.ms)
    return fault if ended else None


def why_silent(telling: Telling, history: History, node: int, from_ms: int, until_ms: int, others: Container[int] = ()) -> str:
    """Explain the silence in words, from what the node itself recorded and from what it did not."""
    clock = telling.clock
    restart = history.start_after(node, from_ms)
    end_ms = restart.ms if restart is not None else None
    if (failure := _fault(history, node, from_ms, until_ms)) is not None:
        done = disk_fault(history, failure)
        return "it had failed" if done is None else f"it had failed: {_in_words(done, node, clock)}"
    if (done := history.fault_on(node, from_ms, until_ms, others)) is not None:
        return _in_words(done, node, clock)
    stalled = history.first("node.stalled", node=node, since_ms=from_ms, until_ms=end_ms)
    if stalled is not None and stalled.ms - int(stalled.get("stalled_ms")) <= until_ms:
        return f"it was paused or starved, at least {seconds(int(stalled.get('stalled_ms')))} until {clock.short(stalled.ms)}"
    failed = history.first("broker.heartbeat_failed", node=node, since_ms=from_ms, until_ms=until_ms)
    if failed is not None:
        return f"it ran, but could not reach the controller ({failed.get('reason')})"
    if restart is not None:
        if history.first("node.stopped", node=node, since_ms=from_ms + 1, until_ms=restart.ms - 1) is not None:
            return f"it was stopped, and started again at {clock.short(restart.ms)}"
        return f"it ended without a word, killed or crashed, and was started again at {clock.short(restart.ms)}"
    later = history.after(node, max(from_ms, until_ms))
    if later is not None:
        return f"it was paused or cut off, and went on at {clock.short(later.ms)}"
    return "nothing more is recorded of it: killed, crashed, paused or cut off"


def _fenced_for_silence(telling: Telling, history: History, record: Recorded, change: Change | None) -> Step:
    reasons = record.reasons
    broker, silent_ms = int(reasons.get("broker", -1)), int(reasons.get("silent_ms", 0) or 0)
    if history.log_only:
        what = f"no heartbeat of broker {broker} for broker.session.timeout.ms or longer"
        step = telling.add(record.ms, record.node, what, brief=f"broker {broker} missed heartbeats")
        return _tell_fencing(telling, history, record, broker, step)
    step = tell_silence(telling, history, broker, record.ms - silent_ms, record.ms)
    expired = history.last(
        "controller.broker_session_expired", node=record.node, since_ms=record.ms - 1_000, until_ms=record.ms, broker_id=broker
    )
    if expired is not None:
        what = f"the controller ends the session of broker {broker} after {seconds(silent_ms)} without a heartbeat"
        step = telling.note(expired, what, because=step)
    return _tell_fencing(telling, history, record, broker, step)


def _tell_fencing(telling: Telling, history: History, record: Recorded, broker: int, because: Step | None) -> Step:
    fence = history.sibling(record, "BrokerRegistrationChange", broker_id=broker, fenced=True)
    if fence is None or fence is record:
        assert because is not None, "a fencing follows from something"
        return because
    return telling.note(fence, f"broker {broker} is fenced", because=because, brief=f"FENCE @{fence.get('offset')}")


# --- what a broker's heartbeat asked for


def _for_heartbeat(telling: Telling, history: History, record: Recorded, change: Change | None) -> Step | None:
    reasons = record.reasons
    broker, wanted = int(reasons.get("broker", -1)), reasons.get("new")
    if wanted == "controlled_shutdown":
        return _controlled_shutdown(telling, history, record, broker)
    if wanted == "unfenced":
        return _unfenced(telling, history, record, broker)
    if wanted == "shutdown_now":
        step = tell_stopping(telling, history, broker, record.ms)
        step = telling.add(record.ms, record.node, f"the controller lets broker {broker} go", because=step)
        return _tell_fencing(telling, history, record, broker, step)
    if wanted == "fenced":
        step = telling.add(
            record.ms, record.node, f"broker {broker} asked to be fenced", brief=f"broker {broker} asked to be fenced"
        )
        return _tell_fencing(telling, history, record, broker, step)
    if "offline_log_dirs" in reasons:
        return _directory_failed(telling, history, record, broker)
    return telling.add(record.ms, record.node, f"a heartbeat of broker {broker}")


def tell_stopping(telling: Telling, history: History, node: int, ms: int) -> Step | None:
    """The node was told to stop, if it says so."""
    stopping = history.last("node.stopping", node=node, since_ms=ms - RECENT_MS, until_ms=ms)
    start = history.start_before(node, ms)
    if stopping is None or (start is not None and start.ms > stopping.ms):
        return None
    at = telling.clock.short(stopping.ms)
    broker = start is None or "broker" in str(start.get("roles"))
    brief = f"broker {node} began a controlled shutdown at {at}" if broker else f"node {node} was told to stop at {at}"
    order = history.order_on(node, stopping.ms)
    by = "" if order is None else f": the {order.kind} by {order.by}"
    return telling.note(stopping, f"node {node} is told to stop ({stopping.get('reason')}){by}", brief=brief)


def _controlled_shutdown(telling: Telling, history: History, record: Recorded, broker: int) -> Step:
    step = tell_stopping(telling, history, broker, record.ms)
    if step is None:
        brief = f"broker {broker} began a controlled shutdown at {telling.clock.short(record.ms)}"
        step = telling.add(record.ms, record.node, f"broker {broker} asks for a controlled shutdown", brief=brief)
    intent = history.sibling(record, "BrokerRegistrationChange", broker_id=broker, in_controlled_shutdown=True)
    if intent is None or intent is record:
        return step
    what = f"broker {broker} is in controlled shutdown: its leaderships move first"
    return telling.note(intent, what, because=step, brief=f"CONTROLLED_SHUTDOWN @{intent.get('offset')}")


def _unfenced(telling: Telling, history: History, record: Recorded, broker: int) -> Step | None:
    step = tell_return(telling, history, broker, record.ms)
    unfence = history.sibling(record, "BrokerRegistrationChange", broker_id=broker, fenced=False)
    if unfence is None or unfence is record:
        return step
    return telling.note(unfence, f"broker {broker} is unfenced", because=step, brief=f"UNFENCE @{unfence.get('offset')}")


def _directory_failed(telling: Telling, history: History, record: Recorded, broker: int) -> Step:
    failed = history.last("broker.log_dir_failed", node=broker, until_ms=record.ms, since_ms=record.ms - RECENT_MS)
    brief = f"broker {broker} lost a log directory"
    if failed is None:
        return telling.add(record.ms, record.node, f"broker {broker} reports a failed log directory", brief=brief)
    return telling.note(failed, f"log directory {failed.get('log_dir')} failed: {failed.get('reason')}", brief=brief)


def tell_start(telling: Telling, history: History, node: int, ms: int) -> Step | None:
    """The start of the process that runs on the node at `ms`, after how the one before it ended; None when it is not recorded, or
    lies so far back that it explains nothing."""
    start = history.start_before(node, ms)
    if start is None or start.ms < ms - RECENT_MS:
        return None
    ended = history.before(node, start.ms)
    step = None
    if ended is not None and ended.event != "node.stopped":
        done = history.fault_on(node, ended.ms, start.ms)
        how = "it was killed or crashed" if done is None else _in_words(done, node, telling.clock)
        step = telling.note(ended, f"the last that node {node} recorded before: {how} ({ended.event})")
    brief = f"node {node} started at {telling.clock.short(start.ms)}"
    return telling.note(start, f"node {node} starts" + ("" if ended is None else " again"), because=step, brief=brief)


def tell_return(telling: Telling, history: History, broker: int, ms: int) -> Step | None:
    """Tell why a broker was unfenced at `ms`: its process has started, or one that was fenced is heard of again."""
    start = history.start_before(broker, ms)
    last = history.fenced_before(broker, ms)
    if last is None or start is None or start.ms > last.ms:
        return tell_start(telling, history, broker, ms)
    step = telling.note(last, f"broker {broker} had been fenced")
    brief = f"broker {broker} was heard of again"
    return telling.add(ms, broker, f"broker {broker}, the same process, sends heartbeats again", because=step, brief=brief)


def _registered(telling: Telling, history: History, record: Recorded, change: Change | None) -> Step | None:
    reasons = record.reasons
    broker = int(reasons.get("broker", -1))
    step = tell_start(telling, history, broker, record.ms)
    registration = history.sibling(record, "RegisterBroker", broker_id=broker)
    if registration is None or registration is record:
        return step
    replaced = reasons.get("replaces")
    what = f"broker {broker} registers" + ("" if replaced is None else f", and replaces its incarnation of epoch {replaced}")
    if reasons.get("clean") is False:
        what += "; it did not stop cleanly, and may have lost records"
    return telling.note(registration, what, because=step, brief=f"REGISTER @{registration.get('offset')}")


# --- what a leader or a client asked for


def _for_leader(telling: Telling, history: History, record: Recorded, change: Change | None) -> Step:
    leader = int(record.reasons.get("broker", -1))
    if change is not None and change.lost and not change.joined:
        return tell_lag(telling, history, change, leader)
    if change is not None and change.joined:
        return _caught_up(telling, history, change, leader)
    return telling.add(record.ms, record.node, f"broker {leader}, which leads, proposed it")


def tell_lag(telling: Telling, history: History, change: Change, leader: int) -> Step:
    """The leader gave up on followers: who was how far behind, and what was with them."""
    proposed = _proposal(history, "partition.isr_shrink_proposed", change, leader)
    if proposed is None:
        return telling.add(change.ms, change.node, f"broker {leader}, which leads, proposed to go on without {ids(change.lost)}")
    reasons, step = [], None
    facts = ("out", "fetched_ago_ms", "caught_up_ago_ms", "behind")
    for member, fetched, caught_up, behind in zip(*(proposed.get(name, ()) for name in facts), strict=False):
        reasons.append(f"{member} " + _lag(fetched, caught_up, behind))
        silent_ms = proposed.ms - int(fetched if fetched is not None else caught_up or 0)
        why = why_silent(telling, history, int(member), silent_ms, proposed.ms, (leader,))
        if not why.startswith("nothing") or not _active(history, int(member), silent_ms, proposed.ms):
            what = f"the last fetch of broker {member}: {why}"
            step = telling.add(
                silent_ms, int(member), what, brief=f"broker {member} fetched nothing from {telling.clock.short(silent_ms)}"
            )
    what = f"broker {leader} proposes to go on without: {'; '.join(reasons) or ids(change.lost)}"
    return telling.note(proposed, what, because=step, brief=f"broker {leader} proposed to drop {ids(change.lost)}")


def _active(history: History, node: int, from_ms: int, until_ms: int) -> bool:
    return bool(history.own(node, from_ms + 1, until_ms))


def _lag(fetched: Any, caught_up: Any, behind: Any) -> str:
    text = "has not fetched in this leader epoch" if fetched is None else f"fetched last {seconds(int(fetched))} ago"
    if caught_up is not None:
        text += f", was caught up {seconds(int(caught_up))} ago"
    return text + ("" if behind is None else f", lacks {behind} records")


def _caught_up(telling: Telling, history: History, change: Change, leader: int) -> Step:
    step = None
    for member in change.joined:
        unfenced = _last_unfencing(history, member, change)
        step = tell_return(telling, history, member, change.ms if unfenced is None else unfenced.ms) or step
        if unfenced is not None:
            step = telling.note(
                unfenced, f"broker {member} is unfenced", because=step, brief=f"UNFENCE @{unfenced.get('offset')}"
            )
    proposed = _proposal(history, "partition.isr_expand_proposed", change, leader)
    what = f"{ids(change.joined)} caught up with broker {leader}, which leads"
    brief = f"{ids(change.joined)} caught up"
    if proposed is None:
        return telling.add(change.ms, change.node, what, because=step, brief=brief)
    return telling.note(proposed, what, because=step, brief=brief)


def _last_unfencing(history: History, broker: int, change: Change) -> Recorded | None:
    """Find the last unfencing of this broker, not long before the change."""
    for record in reversed(history.registrations(broker)):
        recent = change.ms - RECENT_MS <= record.ms <= change.ms
        if recent and record.get("record") == "BrokerRegistrationChange" and record.detail.get("fenced") is False:
            return record
    return None


def _proposal(history: History, name: str, change: Change, leader: int) -> Recorded | None:
    found = None
    for event in history.of_partition(change.partition, change.ms - RECENT_MS):
        if event.ms > change.ms:
            break
        if event.event == name and event.node == leader:
            found = event
    return found


def _elected_on_request(telling: Telling, history: History, record: Recorded, change: Change | None) -> Step:
    kind = record.reasons.get("type", "leader")
    what = f"a client asked for a {kind} election"
    return telling.add(record.ms, record.node, what, brief=f"{kind} election asked for")


def _unregistered(telling: Telling, history: History, record: Recorded, change: Change | None) -> Step:
    broker = record.reasons.get("broker")
    return telling.add(record.ms, record.node, f"a client unregistered broker {broker}", brief=f"broker {broker} unregistered")


_TELLERS: Final[dict[str, Callable[[Telling, History, Recorded, Change | None], Step | None]]] = {
    "maybe_fence_stale_broker": _fenced_for_silence,
    "broker_heartbeat": _for_heartbeat,
    "register_broker": _registered,
    "alter_partition": _for_leader,
    "elect_leaders": _elected_on_request,
    "unregister_broker": _unregistered,
}
