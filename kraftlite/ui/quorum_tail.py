"""Tells what the quorum recorded: which voter answered whom, and the tail of the metadata log. Pure.

A record stays in the list when it was lost with the controller that wrote it, and says since when.
"""

from __future__ import annotations

from typing import Any, Final

from kraftlite.obs.explain import History
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import RECORD

MAX_VOTES: Final = 300
MAX_RECORDS: Final = 1_000
_ELECTED: Final = "raft.leader_elected"
_ANSWERED: Final = "raft.vote_answered"
_STATE: Final = "raft.state_changed"


def votes(history: History, most: int = MAX_VOTES) -> list[dict[str, Any]]:
    """The answers to those who stood for election, and the votes that candidates gave to themselves: the newest, by time."""
    candidates = (event for event in history.by_name.get(_STATE, ()) if event.get("state") == "candidate")
    found = [*history.by_name.get(_ANSWERED, ()), *candidates]
    found.sort(key=lambda event: event.ms)
    return [_vote(event) for event in found[-most:]]


def _vote(event: Recorded) -> dict[str, Any]:
    own = event.event == _STATE
    return {
        "ts": event.ms,
        "node": event.node,
        "epoch": event.get("raft_epoch"),
        "candidate": event.node if own else event.get("candidate_id"),
        "pre_vote": False if own else bool(event.get("pre_vote")),
        "granted": True if own else bool(event.get("granted")),
    }


def records(history: History, first: int = -1, most: int = MAX_RECORDS) -> list[dict[str, Any]]:
    """The records of the metadata log by the time at which a controller appended them; those from offset `first` on, else the
    newest. `lost`: since when it is known that another leader's log does not have it, None while it is not."""
    epochs: dict[int, int] = {}
    newest, start = -1, 0
    found: list[dict[str, Any]] = []
    for event in history.events:
        if event.event == _ELECTED:
            epochs[event.node] = newest = int(event.get("raft_epoch", 0))
            start = int(event.get("epoch_start_offset", 0))
            for record in reversed(found):
                if record["offset"] >= start and record["lost"] is None:
                    record["lost"] = event.ms
        elif event.event == RECORD:
            epoch, offset = epochs.get(event.node), int(event.get("offset"))
            gone = epoch is not None and epoch < newest and offset >= start
            found.append(_record(event, epoch, event.ms if gone else None))
    if first < 0:
        return found[-most:]
    return [record for record in found if record["offset"] >= first][:most]


def _record(event: Recorded, epoch: int | None, lost_ms: int | None) -> dict[str, Any]:
    return {
        "ts": event.ms,
        "by": event.node,
        "epoch": epoch,
        "offset": int(event.get("offset")),
        "record": event.get("record"),
        "detail": event.get("detail", ""),
        "partition": event.partition,
        "cause": event.cause,
        "lost": lost_ms,
    }
