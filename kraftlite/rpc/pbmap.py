"""Dataclasses to protobuf messages and back, by field name, compiled once per class.

A dataclass field and the protobuf field of the same name must agree, or compiling raises TypeError:

    int, bool, str, bytes      a scalar                             T | None        an `optional` scalar; an absent message
    an IntEnum                 int32                                T | Unchanged   an `optional` scalar; absent is UNCHANGED
    UUID                       bytes, 16 long                       NodeId | Unchanged | None   absent is UNCHANGED, -1 None
    a dataclass                a message                            tuple | None or Unchanged   a message that wraps
    tuple[T, ...]              repeated                                                         `repeated T values`

The compiled functions are straight-line Python, as `dataclasses` itself makes them: a loop over field descriptions would cost
three times as much, and replaying a metadata log is bound by it. Repeated tuples and uuids are interned while decoding, because
a large cluster repeats the same replica sets and topic ids all over.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kraftlite.model.ids import UNCHANGED, NodeId, Unchanged

INTERN_LIMIT: Final = 65_536
"""Entries after which an intern table starts again, so that it can not grow for ever."""

_INT_TYPES: Final = frozenset({FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64})


class MalformedMessage(ValueError):
    """Bytes that are not what the class requires: not protobuf, a uuid that is not 16 bytes long, an unknown enum value."""


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Mapper(Generic[M]):
    """`to_pb(value)` gives a protobuf message, `from_pb(message)` the value; both trust types, as mypy has checked them."""

    cls: type[M]
    pb: type[Message]
    to_pb: Callable[[M], Message]
    from_pb: Callable[..., M]
    """Takes the protobuf message, and by position what was left out of it."""

    def encode(self, value: M) -> bytes:
        return self.to_pb(value).SerializeToString()

    def decode(self, data: bytes) -> M:
        """Raises MalformedMessage."""
        message = self.pb()
        try:
            message.MergeFromString(data)
            return self.from_pb(message)
        except Exception as error:
            # protobuf has its own error type per implementation; UUID and enums raise ValueError
            raise MalformedMessage(f"{len(data)} bytes are not a {self.cls.__name__}: {error}") from error


class _Uuids(dict[bytes, UUID]):
    """16 bytes to the one UUID object for them."""

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= INTERN_LIMIT:
            self.clear()
        value = self[raw] = UUID(bytes=raw)
        return value


class _Tuples(dict[tuple[object, ...], tuple[object, ...]]):
    """A tuple to the one equal object that stands for it."""

    def __missing__(self, value: tuple[object, ...]) -> tuple[object, ...]:
        if len(self) >= INTERN_LIMIT:
            self.clear()
        self[value] = value
        return value


class _UuidTuples(dict[tuple[bytes, ...], tuple[UUID, ...]]):
    """Raw uuids to the one tuple of UUIDs for them: hashing bytes is cheap, hashing a UUID is not."""

    def __missing__(self, raws: tuple[bytes, ...]) -> tuple[UUID, ...]:
        if len(self) >= INTERN_LIMIT:
            self.clear()
        value = self[raws] = tuple(_UUIDS[raw] for raw in raws)
        return value


_UUIDS: Final = _Uuids()
_UUID_TUPLES: Final = _UuidTuples()
_TUPLES: Final = _Tuples()


_MAPPERS: Final[dict[tuple[type[object], type[Message], frozenset[str]], Mapper[Any]]] = {}


def mapper(cls: type[M], pb: type[Message], *, leave_out: frozenset[str] = frozenset()) -> Mapper[M]:
    """The mapper between a dataclass and a protobuf message class, compiled on first use. `leave_out`: dataclass fields that
    travel by other means; `from_pb` then takes them as keyword arguments. TypeError when the two do not agree."""
    key = (cls, pb, leave_out)
    found: Mapper[M] | None = _MAPPERS.get(key)
    if found is None:
        found = _MAPPERS[key] = _Compiler(cls, pb, leave_out).compile()
    return found


def message_class(descriptor: Descriptor) -> type[Message]:
    found: type[Message] = message_factory.GetMessageClass(descriptor)
    return found


class _Compiler(Generic[M]):
    def __init__(self, cls: type[M], pb: type[Message], leave_out: frozenset[str]) -> None:
        self._cls = cls
        self._pb = pb
        self._leave_out = leave_out
        self._names: dict[str, Any] = {
            "C": cls,
            "M": pb,
            "UNCHANGED": UNCHANGED,
            "UUIDS": _UUIDS,
            "UUID_TUPLES": _UUID_TUPLES,
            "TUPLES": _TUPLES,
            "tuple": tuple,
        }

    def compile(self) -> Mapper[M]:
        cls, descriptor = self._cls, typing.cast("Descriptor", self._pb.DESCRIPTOR)
        hints = typing.get_type_hints(cls)
        names = [field.name for field in fields(cls) if field.name not in self._leave_out]
        known = set(descriptor.fields_by_name)
        if known != set(names):
            raise TypeError(f"{cls.__name__} has fields {sorted(names)}, but {descriptor.full_name} has {sorted(known)}")
        encode: list[str] = []
        decode: list[tuple[str, str]] = []
        for name in names:
            try:
                to_pb, from_pb = self._field(name, hints[name], descriptor.fields_by_name[name])
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.{name}: {error}") from error
            encode.append(f"{name}={to_pb}")
            decode.append((name, from_pb))
        passed = [field.name for field in fields(cls) if field.name in self._leave_out]
        decode += [(name, name) for name in passed]
        source = f"def to_pb(x):\n    return M({', '.join(encode)})\n"
        source += f"def from_pb(m{''.join(f', {name}' for name in passed)}):\n{self._construct(decode)}"
        exec(compile(source, f"<pbmap {cls.__name__}>", "exec"), self._names)
        return Mapper(cls, self._pb, self._names["to_pb"], self._names["from_pb"])

    def _construct(self, decode: list[tuple[str, str]]) -> str:
        """The body that makes the value. Filling the slots directly costs a third of a frozen class's `__init__`, and does all
        that the latter would do, as long as there is no `__post_init__`."""
        cls = self._cls
        if hasattr(cls, "__post_init__") or any(name not in cls.__dict__.get("__slots__", ()) for name, _ in decode):
            return f"    return C({', '.join(f'{name}={expression}' for name, expression in decode)})\n"
        self._names["new"] = object.__new__
        self._names |= {f"set_{name}": cls.__dict__[name].__set__ for name, _ in decode}
        body = "".join(f"    set_{name}(o, {expression})\n" for name, expression in decode)
        return f"    o = new(C)\n{body}    return o\n"

    def _field(self, name: str, hint: object, field: FieldDescriptor) -> tuple[str, str]:
        """The two expressions of one field: from `x.name`, and from `m.name`."""
        inner, may_be_none, may_be_unchanged = _split(hint)
        if typing.get_origin(inner) is tuple:
            return self._tuple_field(name, inner, field, may_be_none, may_be_unchanged)
        if field.is_repeated:
            raise TypeError("is repeated in protobuf")
        to_pb, from_pb = self._single(inner, field)
        if may_be_none or may_be_unchanged:
            if not field.has_presence:
                raise TypeError("must be optional in protobuf")
            absent = "UNCHANGED" if may_be_unchanged else "None"
            given, taken = to_pb.format(f"x.{name}"), from_pb.format(f"m.{name}")
            if may_be_none and may_be_unchanged:
                if inner is not NodeId:
                    raise TypeError("only a node id can be both None and UNCHANGED")
                given, taken = f"(-1 if x.{name} is None else {given})", f"(None if m.{name} == -1 else {taken})"
            encoded = given if given == f"x.{name}" and absent == "None" else f"(None if x.{name} is {absent} else {given})"
            return encoded, f'({taken} if m.HasField("{name}") else {absent})'
        if field.has_presence and field.message_type is None:
            raise TypeError("is optional in protobuf")
        return to_pb.format(f"x.{name}"), from_pb.format(f"m.{name}")

    def _tuple_field(
        self, name: str, hint: object, field: FieldDescriptor, may_be_none: bool, may_be_unchanged: bool
    ) -> tuple[str, str]:
        element = typing.get_args(hint)[0]
        if not (may_be_none or may_be_unchanged):
            if not field.is_repeated:
                raise TypeError("must be repeated in protobuf")
            return self._elements(element, field, f"x.{name}", f"m.{name}")
        if may_be_none and may_be_unchanged:
            raise TypeError("a tuple can not be both None and UNCHANGED")
        wrapper = field.message_type
        if field.is_repeated or wrapper is None or [inner.name for inner in wrapper.fields] != ["values"]:
            raise TypeError("must be a message with one field `values` in protobuf")
        absent = "UNCHANGED" if may_be_unchanged else "None"
        self._names[f"W_{name}"] = message_class(wrapper)
        given, taken = self._elements(element, wrapper.fields_by_name["values"], f"x.{name}", f"m.{name}.values")
        encoded = f"(None if x.{name} is {absent} else W_{name}(values={given}))"
        return encoded, f'({taken} if m.HasField("{name}") else {absent})'

    def _elements(self, element: object, field: FieldDescriptor, given: str, taken: str) -> tuple[str, str]:
        to_pb, from_pb = self._single(element, field)
        encoded = given if to_pb == "{}" else f"[{to_pb.format('e')} for e in {given}]"
        if field.message_type is not None:
            some = f"tuple([{from_pb.format('e')} for e in v])"
        elif element is UUID:
            some = "UUID_TUPLES[tuple(v[:])]"
        else:
            some = "TUPLES[tuple(v[:])]" if from_pb == "{}" else f"TUPLES[tuple([{from_pb.format('e')} for e in v])]"
        return encoded, f"({some} if (v := {taken}) else ())"

    def _single(self, hint: object, field: FieldDescriptor) -> tuple[str, str]:
        """Expressions for one value, with `{}` for where it is."""
        kind = field.cpp_type
        if hint is int or hint is NodeId:
            _require(kind in _INT_TYPES, "an integer")
        elif hint is bool:
            _require(kind == FieldDescriptor.CPPTYPE_BOOL, "bool")
        elif hint is str:
            _require(kind == FieldDescriptor.CPPTYPE_STRING and field.type == FieldDescriptor.TYPE_STRING, "string")
        elif hint is bytes:
            _require(field.type == FieldDescriptor.TYPE_BYTES, "bytes")
        elif hint is UUID:
            _require(field.type == FieldDescriptor.TYPE_BYTES, "bytes")
            return "{}.bytes", "UUIDS[{}]"
        elif isinstance(hint, type) and issubclass(hint, IntEnum):
            _require(kind in _INT_TYPES, "an integer")
            members = {member.value: member for member in hint}
            self._names[f"E_{hint.__name__}"] = _Enum(hint.__name__, members)
            return "{}.value", f"E_{hint.__name__}[{{}}]"
        elif is_dataclass(hint):
            if field.message_type is None:
                raise TypeError("must be a message in protobuf")
            nested = mapper(typing.cast("type[Any]", hint), message_class(field.message_type))
            number = sum(1 for name in self._names if name.startswith("to_"))
            self._names[f"to_{number}"], self._names[f"from_{number}"] = nested.to_pb, nested.from_pb
            return f"to_{number}({{}})", f"from_{number}({{}})"
        else:
            raise TypeError(f"{hint} can not be mapped to protobuf")
        return "{}", "{}"


class _Enum(dict[int, IntEnum]):
    def __init__(self, name: str, members: dict[int, IntEnum]) -> None:
        super().__init__(members)
        self._name = name

    def __missing__(self, value: int) -> IntEnum:
        raise ValueError(f"{value} is not a {self._name}")


def _split(hint: object) -> tuple[object, bool, bool]:
    """A type hint without None and Unchanged, and whether it had them."""
    if typing.get_origin(hint) not in (UnionType, typing.Union):
        return hint, False, False
    parts = typing.get_args(hint)
    rest = [part for part in parts if part is not NoneType and part is not Unchanged]
    if len(rest) != 1:
        raise TypeError(f"{hint} can not be mapped to protobuf")
    return rest[0], NoneType in parts, Unchanged in parts


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(f"must be {what} in protobuf")
