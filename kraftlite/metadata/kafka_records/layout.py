"""The words in which `table` describes Kafka's metadata records: kinds, fields, meanings, layouts.

A description says both what is on disk (Kafka's names, types, versions, tags and defaults) and which attribute of which dataclass
of `metadata/records` it is. `compiler` makes readers and writers of it, and `walk` what `log dump` prints.

Source: KIP-631 "Record Format Changes"; KIP-482 (the flexible encoding); the schemas of Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Kind(Enum):
    """The type of a field, as Kafka names it. Those with a `layout` have a fixed size, and fields of them that follow each other
    are read and written at once."""

    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    BOOL = "bool"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    INT32S = "[]int32"
    UUIDS = "[]uuid"
    STRINGS = "[]string"
    STRUCTS = "[]struct"

    @property
    def layout(self) -> str | None:
        """Its character in a format of `struct`; None for what has no fixed size."""
        return _LAYOUTS.get(self)


_LAYOUTS: Final[Mapping[Kind, str]] = {
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
    Kind.BOOL: "?",
    Kind.UUID: "16s",
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The way between a value on disk and a value of the dataclass: expressions with `{0}` for the other one."""

    written: str = "{}"
    read: str = "{}"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A meaning that is a table: number on disk to value of the dataclass. What is not in it is refused, both ways."""

    values: Mapping[int, object]


SAME: Final = Meaning()


class _Required(Enum):
    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field on disk.

    `default` counts where a version does not have the field, and a tagged field that equals it is not written. `parts`, `made`
    and `joined`: the fields of the elements of an array of structures, and, as in a `Layout`, what is made of them. `own`: a
    tagged field that Kafka does not know, and so skips. `lossless`: an expression of the attribute, `{0}`, true for a value that
    may be left out where a version lacks the field, beside the default.
    """

    name: str
    kind: Kind
    attribute: str
    since: int = 0
    tag: int | None = None
    default: object = REQUIRED
    nullable: bool = False
    meaning: Meaning | Numbers = SAME
    parts: tuple[Field, ...] = ()
    made: type[Any] | None = None
    joined: Mapping[str, str] = field(default_factory=dict)
    lossless: str = ""
    own: bool = False


def f(name: str, kind: Kind, attribute: str | None = None, **more: Any) -> Field:
    """A field whose attribute has the same name, in the house's spelling, unless it is given."""
    return Field(name=name, kind=kind, attribute=_HUMP.sub("_", name).lower() if attribute is None else attribute, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One type of record.

    `versions`: (metadata.version, version of the record) pairs, the newest first: what is written from this level on; below the
    last one the record must not be written at all. `lowest`: as low a version as holds the record is written, up to that one, and
    not just that one. `joined`: attributes that are made of several fields: expressions with the names of the fields in braces.
    """

    api_key: int
    made: type[Any]
    fields: tuple[Field, ...] = ()
    versions: tuple[tuple[int, int], ...] = ((0, 0),)
    lowest: bool = False
    joined: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.made.__name__

    @property
    def max_version(self) -> int:
        return self.versions[0][1]

    @property
    def shown(self) -> str:
        """The type as Kafka's tools print it."""
        return _HUMP.sub("_", self.name).upper()

    def version_at(self, level: int) -> int | None:
        """The version that is written at a level of `metadata.version`; None: such a record must not be written."""
        return next((version for since, version in self.versions if level >= since), None)

    def fields_of(self, version: int) -> tuple[Field, ...]:
        return tuple(it for it in self.fields if it.since <= version)
