"""The stories of the metadata quorum: who was elected when and why, who gave up, and what the new leader wrote first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlite.obs.explain_causes import tell_fault, why_silent
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import RECORD, History
from kraftlite.obs.explain_story import Clock, Step, Story, Telling, ids, seconds, who

_WHY: Final = {
    "timer:fetch": "did not hear from the leader within the fetch timeout",
    "timer:election": "knows of no leader and its election timeout is over",
    "timer:resigned": "had resigned, and nobody else stood for election",
    "request:end_quorum_epoch": "was told by the leader that it resigns",
}


def quorum_stories(history: History, clock: Clock) -> Iterator[Story]:
    """All that is recorded, in no particular order."""
    elections = history.by_name.get("raft.leader_elected", [])
    before: Recorded | None = None
    for position, elected in enumerate(elections):
        following = elections[position + 1] if position + 1 < len(elections) else None
        yield _election(history, before, elected, following, clock)
        before = elected
    for event in history.by_name.get("raft.leader_resigned", []):
        yield _resigned(history, event, elections, clock)
    for event in history.by_name.get("raft.log_truncated", []):
        telling = Telling(clock)
        old, new = event.get("old_leo"), event.get("new_leo")
        what = f"node {event.node} cuts its metadata log from {old} to {new}: what it had beyond that was never committed"
        telling.note(event, what, brief=f"node {event.node} truncated {old}→{new}")
        title = f"node {event.node} truncated its metadata log"
        yield telling.story("truncated", title, event.ms, node=event.node, old_leo=old, leo=new)


def standing(history: History, until_ms: int) -> str:
    elected = history.last("raft.leader_elected", until_ms=until_ms)
    if elected is None:
        return "no election is recorded before the end of this time"
    resigned = history.last("raft.leader_resigned", node=elected.node, since_ms=elected.ms, until_ms=until_ms)
    end = ", which it has resigned from" if resigned is not None else ""
    return f"node {elected.node} is the active controller, raft epoch {elected.get('raft_epoch')}{end}"


def _election(history: History, before: Recorded | None, elected: Recorded, following: Recorded | None, clock: Clock) -> Story:
    telling = Telling(clock)
    epoch = int(elected.get("raft_epoch"))
    since_ms = 0 if before is None else before.ms
    step = _tell_loss(telling, history, before, elected, since_ms)
    step = _tell_rounds(telling, history, elected, since_ms, step)
    granting = ids(elected.get("granting_voters", ()))
    what = f"node {elected.node} is elected in epoch {epoch} with the votes of {granting}"
    step = telling.note(
        elected, what, because=step, brief=f"node {elected.node} elected in epoch {epoch} {clock.short(elected.ms)}"
    )
    end_ms = None if following is None else following.ms
    _tell_office(telling, history, elected, step, end_ms)
    old = None if before is None else before.node
    title = f"raft epoch {epoch}: active controller {who(old)} → {elected.node}"
    if old == elected.node:
        title = f"raft epoch {epoch}: active controller {old} was elected again"
    begin_ms = telling.steps[0].ms
    return telling.story(
        "elected", title, elected.ms, from_ms=begin_ms, old_leader=old, leader=elected.node, raft_epoch=epoch, cause=elected.cause
    )


def _tell_loss(telling: Telling, history: History, before: Recorded | None, elected: Recorded, since_ms: int) -> Step | None:
    """Tell what became of the leader before, and who noticed."""
    if before is None:
        return telling.add(elected.ms, elected.node, "the first election that is recorded", brief="no leader was known")
    clock = telling.clock
    old = before.node
    resigned = history.last("raft.leader_resigned", node=old, since_ms=since_ms, until_ms=elected.ms)
    if resigned is not None:
        what = f"node {old} resigns from epoch {resigned.get('raft_epoch')}: {resigned.get('reason')}"
        brief = f"node {old} resigned {clock.short(resigned.ms)} ({resigned.get('reason')})"
        return telling.note(resigned, what, brief=brief)
    # Observers, too, lose their leader, but it is the voters who do something about it.
    answers = history.named("raft.vote_answered", since_ms=since_ms, until_ms=elected.ms)
    voters = {elected.node, *elected.get("granting_voters", ()), *(event.node for event in answers)}
    timeouts = [
        event
        for event in history.named("raft.fetch_timed_out", since_ms=since_ms, until_ms=elected.ms)
        if event.get("leader_id") == old and event.node in voters
    ]
    restart = history.start_after(old, since_ms)
    if not timeouts:
        if restart is not None and restart.ms <= elected.ms:
            return telling.note(restart, f"node {old} starts again, and leads no more", brief=f"node {old} restarted")
        return None
    # The round that led here: a timeout long ago may have been overcome.
    first = next((e for e in timeouts if elected.ms - e.ms < 60_000), timeouts[-1])
    silent_ms = int(first.get("silent_ms", 0))
    from_ms = first.ms - silent_ms
    why = why_silent(telling, history, old, from_ms, first.ms, history.controllers())
    brief = f"controller {old} answered nobody from {clock.short(from_ms)}"
    because = tell_fault(telling, history, old, from_ms, first.ms, history.controllers())
    step = telling.add(from_ms, old, f"the last answer of controller {old} to a fetch: {why}", because=because, brief=brief)
    noticed: dict[int, Recorded] = {}
    for event in timeouts:
        if event.ms >= first.ms:
            noticed.setdefault(event.node, event)
    last = step
    for node, event in noticed.items():
        what = f"node {node} has not heard from node {old} for {seconds(int(event.get('silent_ms', 0)))}"
        brief_of = f"node {node} timed out {clock.short(event.ms)}" if node == elected.node else None
        noted = telling.note(event, what, because=step, brief=brief_of)
        last = noted if node == elected.node else last
    return last


def _tell_rounds(telling: Telling, history: History, elected: Recorded, since_ms: int, because: Step | None) -> Step | None:
    """Tell which nodes stood for election, the lost rounds included."""
    step = because
    begin_ms = max(since_ms, elected.ms - 60_000)
    for event in history.named("raft.state_changed", "raft.election_lost", since_ms=begin_ms, until_ms=elected.ms):
        if event.ms <= since_ms and since_ms:
            continue
        epoch = event.get("raft_epoch")
        if event.event == "raft.election_lost":
            kind = "pre-vote" if event.get("pre_vote") else "vote"
            telling.note(event, f"node {event.node} loses the {kind} of epoch {epoch}: {event.get('reason')}", because=because)
            continue
        state = event.get("state")
        if state not in ("prospective", "candidate"):
            continue
        mine = event.node == elected.node
        why = _WHY.get(str(event.cause).partition(" ")[0], "")
        if state == "prospective":
            what = f"node {event.node} {why or 'stands for election'}, and asks whether it would win"
        else:
            what = f"node {event.node} stands for election in epoch {epoch}"
        noted = telling.note(event, what, because=because if not mine else step)
        step = noted if mine else step
    return step


def _tell_office(telling: Telling, history: History, elected: Recorded, because: Step, end_ms: int | None) -> None:
    """The new leader takes over: committed its epoch, became active, wrote its first record."""
    clock, node = telling.clock, elected.node
    step = because
    epoch = elected.get("raft_epoch")
    claimed = history.first("controller.claimed", node=node, since_ms=elected.ms, until_ms=end_ms, raft_epoch=epoch)
    if claimed is not None:
        what = f"its epoch is committed from offset {elected.get('epoch_start_offset')} on: it is the active controller"
        step = telling.note(claimed, what, because=step, brief=f"active {clock.short(claimed.ms)}")
    activated = history.first("controller.activated", node=node, since_ms=elected.ms, until_ms=end_ms, raft_epoch=epoch)
    if activated is not None:
        step = telling.note(activated, str(activated.get("reason")), because=step)
    first = history.first(RECORD, node=node, since_ms=elected.ms, until_ms=end_ms)
    if first is not None:
        words = f"{first.get('record')} {first.get('detail', '')}".strip()
        brief = f"first write @{first.get('offset')} {clock.short(first.ms)}"
        telling.note(first, f"its first record @{first.get('offset')}: {words}", because=step, brief=brief)


def _resigned(history: History, resigned: Recorded, elections: list[Recorded], clock: Clock) -> Story:
    telling = Telling(clock)
    node, epoch = resigned.node, resigned.get("raft_epoch")
    step = None
    stopping = history.last("node.stopping", node=node, since_ms=resigned.ms - 60_000, until_ms=resigned.ms)
    if stopping is not None:
        step = telling.note(stopping, f"node {node} is told to stop ({stopping.get('reason')})", brief=f"node {node} is stopping")
    what = f"node {node} resigns from epoch {epoch}: {resigned.get('reason')}"
    step = telling.note(resigned, what, because=step, brief=f"node {node} resigned from epoch {epoch}")
    renounced = history.first("controller.renounced", node=node, since_ms=resigned.ms - 1_000, until_ms=resigned.ms + 1_000)
    if renounced is not None:
        what = (
            f"its state goes back to offset {renounced.get('reverted_to')}; {renounced.get('failed_operations')} operations fail"
        )
        step = telling.note(renounced, what, because=step)
    following = next((e for e in elections if e.ms >= resigned.ms), None)
    if following is not None:
        brief = f"node {following.node} elected {clock.short(following.ms)}"
        what = f"node {following.node} is elected in epoch {following.get('raft_epoch')}"
        telling.note(following, what, because=step, brief=brief)
    title = f"controller {node} resigned: {resigned.get('reason')}"
    return telling.story("resigned", title, resigned.ms, node=node, raft_epoch=epoch)
