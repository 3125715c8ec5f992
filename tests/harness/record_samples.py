"""Samples of every metadata record at every version, as the JSON of Kafka's tools and as the dataclass: fields at their default,
fields with a value, and hypothesis strategies."""

from __future__ import annotations

import base64
import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from kraftlite.metadata import records as r
from kraftlite.metadata.kafka_records.compiler import domain_default
from kraftlite.metadata.kafka_records.layout import Field, Kind, Layout
from kraftlite.metadata.kafka_records.table import IN_ORDER, LAYOUTS
from kraftlite.metadata.kafka_records.values import PROTOCOL_NAMES
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.messages.controller import ListenerInfo

ID: Final = UUID("0123456789abcdef0123456789abcdef")

_FULL: Final[dict[Kind, Any]] = {
    Kind.INT8: 1,
    Kind.INT16: 259,
    Kind.UINT16: 65_432,
    Kind.INT32: 70_000,
    Kind.INT64: 1 << 40,
    Kind.FLOAT64: 1048576.5,
    Kind.BOOL: True,
    Kind.UUID: uuid_to_str(ID),
    Kind.STRING: "grüße-" + "x" * 130,
    Kind.BYTES: base64.b64encode(bytes(range(200))).decode(),
    Kind.INT32S: [3, 1, 2],
    Kind.UUIDS: [uuid_to_str(ID), uuid_to_str(UUID(int=7))],
    Kind.STRINGS: ["User:a", ""],
}
_PLAIN: Final[dict[Kind, Any]] = {
    Kind.BOOL: False,
    Kind.FLOAT64: 0.0,
    Kind.UUID: uuid_to_str(UUID(int=0)),
    Kind.STRING: "",
    Kind.BYTES: "",
    Kind.INT32S: [],
    Kind.UUIDS: [],
    Kind.STRINGS: [],
    Kind.STRUCTS: [],
}


def type_and_versions() -> Iterator[tuple[Layout, int]]:
    for layout in LAYOUTS.values():
        for version in range(layout.max_version + 1):
            yield layout, version


def full(layout: Layout, version: int) -> dict[str, Any]:
    """Every field has a value, and none its default."""
    return {"type": layout.shown, "version": version, "data": _data(layout.fields_of(version))}


def plain(layout: Layout, version: int) -> dict[str, Any]:
    """Null where that is allowed, empty or zero elsewhere; tagged fields are left out."""
    data = {
        field.name: None if field.nullable else _PLAIN.get(field.kind, 0)
        for field in layout.fields_of(version)
        if field.tag is None
    }
    return {"type": layout.shown, "version": version, "data": data}


def _data(described: tuple[Field, ...]) -> dict[str, Any]:
    return {field.name: _value(field) for field in described if not field.own}


def _value(field: Field) -> Any:
    if field.kind is Kind.STRUCTS:
        return (
            [_data(field.parts), {**_data(field.parts), "securityProtocol": 0}] if _has_protocol(field) else [_data(field.parts)]
        )
    if field.name == "securityProtocol":
        return 3
    if field.name == "remove":
        return False  # a quota that is removed has no value
    return _FULL[field.kind]


def _has_protocol(field: Field) -> bool:
    return any(part.name == "securityProtocol" for part in field.parts)


# --- dataclasses ------------------------------------------------------------------------------------------------------

_BITS: Final = {Kind.INT8: 7, Kind.INT16: 15, Kind.INT32: 31, Kind.INT64: 63}
_LISTENERS: Final = st.builds(
    ListenerInfo,
    name=st.text(max_size=4),
    host=st.text(max_size=4),
    port=st.integers(0, 65_535),
    security_protocol=st.sampled_from(sorted(PROTOCOL_NAMES.values())),
)


def instances(layout: Layout, version: int | None = None) -> st.SearchStrategy[Any]:
    """Records of a type that this version of it, or the newest, can hold."""
    described = {field.attribute: field for field in layout.fields}
    hints = typing.get_type_hints(layout.made)
    drawn = {}
    for attribute in fields(layout.made):
        field = described[attribute.name]
        if version is not None and field.since > version:
            drawn[attribute.name] = st.just(domain_default(field))
        else:
            drawn[attribute.name] = _drawn(layout, field, hints[attribute.name])
    return st.fixed_dictionaries(drawn).map(lambda found: layout.made(**found))


def _drawn(layout: Layout, field: Field, hint: Any) -> st.SearchStrategy[Any]:
    from tests.harness.message_strategies import values

    if layout.made is r.ClientQuotaRecord and field.attribute == "value":
        return st.none() | st.floats(allow_nan=False).map(repr)
    if layout.made is r.BrokerRegistrationChangeRecord and field.attribute in ("in_controlled_shutdown", "log_dirs"):
        return values(hint).filter(lambda it: it not in (False, ()))
    if _has_protocol(field):
        return st.lists(_LISTENERS, max_size=3).map(tuple)
    if field.kind is Kind.STRUCTS:
        found = values(hint)
        if field.meaning is IN_ORDER:
            return found.map(lambda items: tuple(sorted(items)))
        return (
            found.map(lambda items: tuple(replace(it, min_level=1, max_level=2) for it in items))
            if field.name == "features"
            else found
        )
    if hint is int and field.kind in _BITS:
        bits = _BITS[field.kind]
        return st.integers(-(2**bits), 2**bits - 1)
    return values(hint)
