"""The stories of what a cluster is: who votes in its metadata quorum, and the levels of its features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlite.metadata.features import METADATA_VERSION, METADATA_VERSIONS
from kraftlite.obs.explain_causes import tell_cause
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import History
from kraftlite.obs.explain_story import Clock, Step, Story, Telling, ids

_VOTERS: Final = "raft.voters_changed"


def voter_stories(history: History, clock: Clock) -> Iterator[Story]:
    """The changes of the voters that are in the log: each record once, by whoever had it first. One that was truncated again is
    told, too, as what was in force meanwhile."""
    before: tuple[int, ...] | None = None
    known: set[tuple[int, tuple[int, ...]]] = set()
    for event in history.by_name.get(_VOTERS, []):
        offset, voters = event.get("offset"), tuple(sorted(event.get("voters", ())))
        if not isinstance(offset, int) or (offset, voters) in known:
            continue
        known.add((offset, voters))
        if before is not None and offset >= 0:
            yield _voters(event, offset, before, voters, clock)
        before = voters


def _voters(event: Recorded, offset: int, before: tuple[int, ...], now: tuple[int, ...], clock: Clock) -> Story:
    added, removed = [it for it in now if it not in before], [it for it in before if it not in now]
    changes = [f"{ids(added)} added"] if added else []
    changes += [f"{ids(removed)} removed"] if removed else []
    what = ", ".join(changes) or "an address or a directory of one is another"
    telling = Telling(clock)
    telling.note(event, f"voters {ids(before)}→{ids(now)}: {what}", brief=f"VOTERS @{offset} {what}")
    title = f"the metadata quorum's voters are {ids(now)}: {what}"
    return telling.story("voters", title, event.ms, old_voters=list(before), voters=list(now), record=offset)


def feature_stories(history: History, clock: Clock) -> Iterator[Story]:
    """The levels that were changed; those with which the cluster began are not told."""
    levels: dict[str, int] = {}
    in_use = False
    for _, record in sorted(history.records.items()):
        in_use = in_use or record.get("record") == "RegisterBroker"
        name, level = record.detail.get("name"), record.detail.get("level")
        if record.get("record") != "FeatureLevel" or not isinstance(name, str) or not isinstance(level, int):
            continue
        old = record.get("old_level", levels.get(name, 0) if in_use else None)
        levels[name] = level
        if old is None or old == level:
            continue
        yield _level(history, record, name, old, level, clock)


def _level(history: History, record: Recorded, name: str, old: int, level: int, clock: Clock) -> Story:
    telling = Telling(clock)
    step: Step | None = tell_cause(telling, history, record)
    what = f"{name} {_named(name, old)} → {_named(name, level)}"
    telling.note(record, what, because=step, brief=f"FEATURE_LEVEL @{record.get('offset')} {name} {old}→{level}")
    return telling.story(
        "level",
        what,
        record.ms,
        feature=name,
        old_level=old,
        level=level,
        record=record.get("offset"),
        operation=record.operation,
    )


def _named(name: str, level: int) -> str:
    found = METADATA_VERSIONS.get(level) if name == METADATA_VERSION else None
    return str(level) if found is None else f"{level} ({found.name})"
