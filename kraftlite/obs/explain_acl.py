"""The stories of authorization: who was refused what, from where, and by which rule. Source: SE-38."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import History
from kraftlite.obs.explain_story import Clock, Story, Telling

DENIED: Final = "security.access_denied"
_TOLD: Final = 5
"""Steps of a story: the first refusals; all of them are counted."""


def principals(history: History) -> list[str]:
    return sorted({str(event.get("principal")) for event in history.named(DENIED)})


def acl_stories(history: History, principal: str, clock: Clock) -> Iterator[Story]:
    """One story for each principal, operation, resource and rule; `principal` "": of everybody."""
    found: dict[tuple[str, ...], list[Recorded]] = {}
    for event in history.named(DENIED):
        if principal in ("", event.get("principal")):
            key = tuple(str(event.get(name)) for name in ("principal", "operation", "resource", "rule"))
            found.setdefault(key, []).append(event)
    for (who, operation, resource, rule), events in found.items():
        telling = Telling(clock)
        for event in events[:_TOLD]:
            client = "" if event.get("client_id") is None else f", client id {event.get('client_id')}"
            what = f"{event.get('api')} from {event.get('host')}{client}: {_why(rule)}"
            telling.note(event, what, brief=f"{operation} denied: {rule.partition('(')[0]}")
        title = f"{who} was refused {operation} on {resource}, {len(events)} times" if len(events) > 1 else None
        yield telling.story(
            "denied",
            title or f"{who} was refused {operation} on {resource}",
            events[0].ms,
            until_ms=events[-1].ms,
            principal=who,
            operation=operation,
            resource=resource,
            rule=rule,
            count=len(events),
        )


def _why(rule: str) -> str:
    return "no access control entry allows it" if rule == "DefaultDeny" else f"denied by {rule}"


def standing(history: History, principal: str, until_ms: int) -> str:
    events = [it for it in history.named(DENIED, until_ms=until_ms) if principal in ("", it.get("principal"))]
    left_out = sum(int(it.get("left_out", 0)) for it in events)
    more = f", and {left_out} more that were not told one by one" if left_out else ""
    return f"{len(events)} refusals are recorded{more}"
