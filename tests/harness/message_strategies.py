"""Hypothesis strategies for any message or record dataclass, made from its type hints."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from enum import IntEnum
from types import NoneType, UnionType
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from kraftlite.model.faults import FaultState, Injection
from kraftlite.model.ids import UNCHANGED, Endpoint, NodeId, Unchanged, VoterEndpoint
from kraftlite.model.messages import bounds

_INT = st.one_of(st.integers(-1, 3), st.integers(-(2**31), 2**31 - 1))


def values(hint: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        return st.one_of([values(part) for part in typing.get_args(hint)])
    if typing.get_origin(hint) is tuple:
        return st.lists(values(typing.get_args(hint)[0]), max_size=4).map(tuple)
    if hint is NoneType:
        return st.none()
    if hint is Unchanged:
        return st.just(UNCHANGED)
    if hint is NodeId:
        return st.integers(0, 2**31 - 1)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return _INT
    if hint is str:
        return st.text(max_size=8)
    if hint is bytes:
        return st.binary(max_size=300)
    if hint is UUID:
        return st.uuids()
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return st.sampled_from(list(hint))
    assert is_dataclass(hint), hint
    return instances(typing.cast("type[Any]", hint))


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Of a message between nodes: with integers within the bounds of their fields."""
    hints = typing.get_type_hints(cls)
    drawn = {field.name: _field(cls, field.name, hints[field.name]) for field in fields(cls)}
    return st.fixed_dictionaries(drawn).map(lambda found: cls(**found))


def _field(cls: type[Any], name: str, hint: Any) -> st.SearchStrategy[Any]:
    if not (cls.__module__.startswith("kraftlite.model.messages") or cls in (Endpoint, VoterEndpoint, Injection, FaultState)):
        return values(hint)
    inner, optional, many = bounds.split_hint(hint)
    if inner is not int:
        return values(hint)
    low, high = bounds.range_of(cls, name)
    found: st.SearchStrategy[Any] = st.one_of(st.integers(low, min(low + 4, high)), st.integers(low, high))
    if many:
        found = st.lists(found, max_size=4).map(tuple)
    return st.none() | found if optional else found
