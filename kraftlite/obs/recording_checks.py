"""The shapes of what may stand in a recording: each check returns the value, or raises ValueError with what is allowed.

The facts of an event are checked by the types of its class in the event vocabulary; an event that is not in it is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs import faults
from kraftlite.obs.levels import kinds, load_vocabulary
from kraftlite.runtime import trace

Check = Callable[[Any], Any]

MAX_TEXT: Final = 64 << 10
MAX_ITEMS: Final = 10_000
MAX_TIME: Final = 200_000_000_000_000
"""Milliseconds: wall time until the year 8307."""


def whole(low: int, high: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{_shown(value)}: allowed is a whole number from {low} to {high}")
        return value

    return check


def text(limit: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > limit or not (value.isascii() or _whole_letters(value)):
            raise ValueError(f"{_shown(value)}: allowed is a text of at most {limit} characters")
        return value

    return check


def _whole_letters(value: str) -> bool:
    return not any("\ud800" <= it <= "\udfff" for it in value)


def one_of(*allowed: str) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{_shown(value)}: allowed is one of {', '.join(allowed)}")
        return value

    return check


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)}: allowed is true or false")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{_shown(value)}: allowed is a number")
    return value


def maybe(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def many(check: Check, limit: int = MAX_ITEMS) -> Check:
    def check_all(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > limit:
            raise ValueError(f"{_shown(value)}: allowed is a list of at most {limit}")
        return [check(it) for it in value]

    return check_all


def obj(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)}: allowed is an object")
    return value


def _shown(value: Any) -> str:
    found = ascii(value) if not isinstance(value, dict | list) else f"a {'list' if isinstance(value, list) else 'object'}"
    return found if len(found) <= 60 else f"{found[:57]}…"


INT: Final = whole(-(1 << 63), (1 << 63) - 1)
OFFSET: Final = whole(-1, (1 << 63) - 1)
EPOCH: Final = whole(-1, (1 << 31) - 1)
NODE: Final = whole(-(1 << 31), (1 << 31) - 1)
TIME: Final = whole(0, MAX_TIME)
TOPIC: Final = text(249)
TEXT: Final = text(MAX_TEXT)


def partition(value: Any) -> tuple[str, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{_shown(value)}: allowed is a topic and a number")
    return TOPIC(value[0]), whole(0, (1 << 31) - 1)(value[1])


def each(table: Mapping[str, Check], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `given` that the table knows, checked. Raises ValueError naming the field."""
    found = {}
    for name, value in given.items():
        check = table.get(name)
        if check is None:
            continue
        try:
            found[name] = check(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return found


# --- the facts of events

_PLAIN: Final[Mapping[Any, Check]] = {
    int: INT,
    NodeId: NODE,
    str: TEXT,
    bool: flag,
    float: number,
    TopicPartition: partition,
    type(None): lambda value: value,
}


def _of_type(hint: Any) -> Check:
    if hint in _PLAIN:
        return _PLAIN[hint]
    inner = [it for it in get_args(hint) if it not in (Ellipsis, type(None))]
    if len(inner) == 1 and get_origin(hint) is tuple:
        return many(_of_type(inner[0]))
    if len(inner) == 1 and (get_origin(hint) is Union or "|" in str(hint)):
        return maybe(_of_type(inner[0]))
    raise TypeError(f"a fact of type {hint} has no check")


@cache
def _vocabulary() -> dict[str, tuple[dict[str, Check], frozenset[str]]]:
    """The checks of each event's facts, and the facts that must be there."""
    load_vocabulary()
    found: dict[str, tuple[dict[str, Check], frozenset[str]]] = {}
    for kind in kinds():
        if not kind.__module__.startswith(trace.__name__):
            continue
        hints = get_type_hints(kind)
        checks = {it.name: maybe(_of_type(hints[it.name])) for it in fields(kind)}
        needed = frozenset(
            it.name
            for it in fields(kind)
            if it.default is MISSING and it.default_factory is MISSING and type(None) not in get_args(hints[it.name])
        )
        others, common = found.get(kind.event, ({}, needed))  # two classes may have one name, with more facts or fewer
        found[kind.event] = {**others, **checks}, common & needed
    return found


_SCALAR: Final = (str, int, bool, type(None))


def _ledger(given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, _SCALAR):
            raise ValueError(f"{name} {_shown(value)}: allowed is a text or a whole number")
        if isinstance(value, str):
            each({name: TEXT}, {name: value})
    return dict(given)


def event_facts(name: str, given: Mapping[str, Any], needed: frozenset[str] | None = None) -> dict[str, Any] | None:
    """The facts of an event (without `ts`, `node` and `event`); None for an event that is not known. `needed`: those that must be
    there; None: all that its class has no default for. Raises ValueError."""
    if name in faults.EVENTS:
        return _ledger(given)
    known = _vocabulary().get(name)
    if known is None:
        return None
    checks, all_of_them = known
    found = {fact: value for fact, value in each(checks, given).items() if value is not None}
    missing = (all_of_them if needed is None else needed) - found.keys()
    if missing:
        raise ValueError(f"{name} has no {', '.join(sorted(missing))}")
    return found
