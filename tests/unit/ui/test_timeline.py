"""What the overview tells of what happened lately."""

from __future__ import annotations

from typing import Any

from kraftlite.obs.explain import History
from kraftlite.obs.explain_events import Recorded
from kraftlite.ui.timeline import recent_stories


def recorded(ms: int, node: int, event: str, **facts: Any) -> Recorded:
    return Recorded(ms=ms, node=node, event=event, facts=facts)


def voting(ms: int, node: int, offset: int, *voters: int) -> Recorded:
    return recorded(ms, node, "raft.voters_changed", offset=offset, voters=list(voters), kraft_version=1, leo=offset + 1)


def record(ms: int, offset: int, name: str, detail: str) -> Recorded:
    return recorded(ms, 1, "controller.record_appended", offset=offset, record=name, detail=detail)


def told(*events: Recorded, since_ms: int = 0) -> list[tuple[int, str, str]]:
    return [(it["at_ms"], it["kind"], it["subject"]) for it in recent_stories(History(events), [], since_ms)]


def test_who_votes_from_now_on_and_a_new_level_are_told_once() -> None:
    """By every node that says it, and under the quorum, whose stories they are."""
    events = [
        voting(20, 2, 0, 1, 2, 3),
        record(30, 3, "RegisterBroker", "broker_id=4 broker_epoch=3"),
        voting(500, 2, 40, 1, 2),
        voting(510, 1, 40, 1, 2),
        record(600, 41, "FeatureLevel", "name=share.version level=1"),
    ]
    assert told(*events) == [(600, "level", "controller"), (500, "voters", "controller")]
    assert told(*events, since_ms=550) == [(600, "level", "controller")]
