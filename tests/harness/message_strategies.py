"""Hypothesis strategies for any message or record dataclass, made from its type hints."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from enum import IntEnum
from types import NoneType, UnionType
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from kraftlite.model.ids import UNCHANGED, NodeId, Unchanged

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
    hints = typing.get_type_hints(cls)
    return st.fixed_dictionaries({field.name: values(hints[field.name]) for field in fields(cls)}).map(lambda found: cls(**found))
