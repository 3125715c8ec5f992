"""Readers and writers of metadata records, compiled from their layouts on first use.

They are straight-line Python, as `dataclasses` makes its own methods: a loop over the descriptions of fields would cost several
times as much, and replaying a metadata log is bound by it.

A reader takes the bytes of a record's value and the position behind its version. What it raises, IndexError, struct.error or
ValueError, says only that the bytes make no sense; `walk` then finds out which field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Final

from kraftlite.metadata.features import METADATA_VERSIONS
from kraftlite.metadata.kafka_records import values
from kraftlite.metadata.kafka_records.layout import Field, Kind, Layout, Meaning, Numbers
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import UNCHANGED
from kraftlite.protocol.primitives import uvarint

Read = Callable[[bytes, int], Any]
Write = Callable[[Any], bytes]
FRAME_VERSION: Final = 1

_READING: Final[Mapping[str, object]] = {
    "UNCHANGED": UNCHANGED,
    "UUIDS": values.UUIDS,
    "INTS": values.INTS,
    "UUID_TUPLES": values.UUID_TUPLES,
    "LENGTH": values.length,
    "STRING_LENGTH": values.string_length,
    "TAG_HEAD": values.tag_head,
    "PROTOCOL_NAMES": values.PROTOCOL_NAMES,
    "new": object.__new__,
}
_WRITING: Final[Mapping[str, object]] = {
    "UNCHANGED": UNCHANGED,
    "STRING": values.string,
    "NULLABLE_STRING": values.nullable_string,
    "DATA": values.data_bytes,
    "PACKED_INTS": values.PACKED_INTS,
    "UUIDS": values.uuids,
    "ARRAY": values.array,
    "SIZE": values.size,
    "SOME": values.some,
    "PROTOCOL_NUMBERS": values.PROTOCOL_NUMBERS,
    "GRPC_NUMBERS": values.GRPC_NUMBERS,
    "JOIN": b"".join,
}
_SIZED: Final = {Kind.INT32S: ("INTS", 4), Kind.UUIDS: ("UUID_TUPLES", 16)}


def reader(layout: Layout, version: int) -> Read:
    """The reader of a whole record."""
    source = _Source(_READING, layout.name)
    _Reading(source, layout.fields_of(version)).write_lines()
    source.add("if p != len(d):", '    raise ValueError(f"{len(d) - p} bytes too many")')
    _construct(source, layout.made, layout.fields, version, layout.joined)
    return source.function("read", "d, p")


def writer(layout: Layout, level: int) -> Write:
    """The writer of a record as it must be at a level of `metadata.version`. It raises ApiError(UNSUPPORTED_VERSION) for what a
    log of that level cannot hold, and ValueError, struct.error or KeyError for what no log can."""
    version = layout.version_at(level)
    if version is None:
        return _refuse(layout, level)
    if layout.lowest:
        return _lowest([_writer(layout, it, level) for it in range(version + 1)], layout, version)
    return _writer(layout, version, level)


def domain_default(field: Field) -> Any:
    """The value of the attribute where a version does not have the field."""
    source = _Source(_READING, field.name)
    source.add(f"v = {field.default!r}", f"return {_read_meaning(source, field, 'v')}")
    return source.function("default", "")()


class _Source:
    """Lines of a function, and the names that they use."""

    def __init__(self, names: Mapping[str, object], what: str) -> None:
        self.names = dict(names)
        self.lines: list[str] = []
        self._what = what
        self._indent = 1

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self._indent + line for line in lines]

    def indented(self, by: int) -> None:
        self._indent += by

    def name(self, prefix: str, value: object) -> str:
        found = f"{prefix}_{len(self.names)}"
        self.names[found] = value
        return found

    def function(self, name: str, arguments: str) -> Callable[..., Any]:
        text = f"def {name}({arguments}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(text, f"<{name} {self._what}>", "exec"), self.names)
        found: Callable[..., Any] = self.names[name]  # type: ignore[assignment]
        return found


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads fields into variables `v_NAME`, and moves `p` behind them."""

    source: _Source
    fields: Sequence[Field]

    def write_lines(self) -> None:
        for fixed, run in _runs(self.fields):
            if fixed:
                self._fixed(run)
            else:
                for field in run:
                    self._sized(field)
        self._tags()

    def _fixed(self, run: Sequence[Field]) -> None:
        layout = struct.Struct(">" + "".join(_layout(field) for field in run))
        unpack = self.source.name("S", layout.unpack_from)
        self.source.add(f"{''.join(f'{_variable(field)}, ' for field in run)}= {unpack}(d, p)", f"p += {layout.size}")

    def _sized(self, field: Field) -> None:
        at, add = _variable(field), self.source.add
        read_length = "STRING_LENGTH" if field.kind is Kind.STRING else "LENGTH"
        add("n = d[p]", "p += 1", "if n > 127:", f"    n, p = {read_length}(d, p - 1)", "if n:")
        add(*(f"    {line}" for line in self._content(field, at)), "else:")
        null = f'raise ValueError("{field.name} is null")'
        add(f"    {f'{at} = None' if field.nullable else null}")

    def _content(self, field: Field, at: str) -> Iterator[str]:
        if field.kind in (Kind.STRING, Kind.BYTES):
            yield "e = p + n - 1"
            yield f"{at} = d[p:e]" + (".decode()" if field.kind is Kind.STRING else "")
            yield "p = e"
        elif field.kind in _SIZED:
            table, size = _SIZED[field.kind]
            yield f"e = p + {size} * n - {size}"
            yield f"{at} = {table}[d[p:e]] if n > 1 else ()"
            yield "p = e"
        else:
            item = self.source.name("ITEM", _item_reader(field))
            yield f"{at} = []"
            yield "for _ in range(n - 1):"
            yield f"    o, p = {item}(d, p)"
            yield f"    {at}.append(o)"
            yield f"{at} = tuple({at})"

    def _tags(self) -> None:
        add = self.source.add
        tagged = [field for field in self.fields if field.tag is not None]
        add(*(f"{_variable(field)} = {field.default!r}" for field in tagged))
        add("n = d[p]", "p += 1", "if n:")
        add("    if n > 127:", "        n, p = LENGTH(d, p - 1)", "    for _ in range(n):")
        add("        t = d[p]", "        n = d[p + 1]", "        p += 2")
        add("        if t > 127 or n > 127:", "            t, n, p = TAG_HEAD(d, p - 2)", "        s = p + n")
        for number, field in enumerate(tagged):
            add(f"        {'elif' if number else 'if'} t == {field.tag}:")
            self.source.indented(3)
            if field.kind.layout is None:
                self._sized(field)
            else:
                self._fixed([field])
            add("if p != s:", f'    raise ValueError("{field.name} has another size than its tag says")')
            self.source.indented(-3)
        add("        p = s")


def _item_reader(field: Field) -> Read:
    """The reader of one element of an array: the element, and the position behind it."""
    if field.kind is Kind.STRINGS:
        part = Field(name="item", kind=Kind.STRING, attribute="item")
        source = _Source(_READING, field.name)
        _Reading(source, ())._sized(part)
        source.add("return v_item, p")
        return source.function("read", "d, p")
    source = _Source(_READING, field.name)
    _Reading(source, field.parts).write_lines()
    assert field.made is not None
    _construct(source, field.made, field.parts, 0, field.joined, and_position=True)
    return source.function("read", "d, p")


def _construct(
    source: _Source,
    made: type[Any],
    described: Sequence[Field],
    version: int,
    joined: Mapping[str, str],
    *,
    and_position: bool = False,
) -> None:
    """The lines that make the dataclass. Filling the slots directly costs a third of a frozen class's `__init__`, and does all
    that the latter would do, as long as there is no `__post_init__`."""
    by_attribute = {field.attribute: field for field in described}
    source.names["C"] = made
    source.add("o = new(C)")
    variables = {field.name: _value(field) for field in described if field.since <= version}
    for attribute in fields(made):
        name = attribute.name
        field = by_attribute[name]
        if name in joined:
            value = joined[name].format(**variables)
        elif field.since <= version:
            value = _read_meaning(source, field, _value(field))
        else:
            value = source.name("D", domain_default(field))
        set_it = source.name("set", made.__dict__[name].__set__)
        source.add(f"{set_it}(o, {value})")
    source.add("return o, p" if and_position else "return o")


def _read_meaning(source: _Source, field: Field, variable: str) -> str:
    if isinstance(field.meaning, Numbers):
        table = source.name("N", values.Table(field.name, dict(field.meaning.values)))
        return f"{table}[{variable}]"
    return field.meaning.read.format(variable)


def _value(field: Field) -> str:
    """The value of a field's variable, as Python has it."""
    return f"UUIDS[{_variable(field)}]" if field.kind is Kind.UUID else _variable(field)


# --- writing ----------------------------------------------------------------------------------------------------------


def _writer(layout: Layout, version: int, level: int) -> Write:
    source = _Source(_WRITING, layout.name)
    for field in layout.fields:
        if field.since > version:
            _check_absent(source, layout, field, level)
    prefix = bytes((FRAME_VERSION,)) + uvarint(layout.api_key) + uvarint(version)
    _writing(source, layout.fields_of(version), prefix)
    return source.function("write", "x")


def _check_absent(source: _Source, layout: Layout, field: Field, level: int) -> None:
    needed = min((since for since, version in layout.versions if version >= field.since), default=0)
    at = f"x.{field.attribute}"
    default = source.name("D", domain_default(field))
    message = _needs(f"the {field.attribute} of a {layout.name}", needed, level)

    def refuse() -> None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)

    lossless = f" and not {field.lossless.format(at)}" if field.lossless else ""
    source.add(f"if {at} != {default}{lossless}:", f"    {source.name('REFUSE', refuse)}()")


def _refuse(layout: Layout, level: int) -> Write:
    message = _needs(f"a {layout.name}", layout.versions[-1][0], level)

    def write(_record: Any) -> bytes:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)

    return write


def _needs(what: str, needed: int, level: int) -> str:
    return f"{what} needs metadata.version {_shown(needed)}, but the level is {_shown(level)}"


def _shown(level: int) -> str:
    found = METADATA_VERSIONS.get(level)
    return str(level) if found is None else f"{found.name} ({level})"


def _lowest(writers: Sequence[Write], layout: Layout, highest: int) -> Write:
    newer = [(it.since, it.attribute, domain_default(it)) for it in layout.fields if it.since > 0]
    newer.sort(key=lambda it: -it[0])

    def write(record: Any) -> bytes:
        for since, attribute, default in newer:
            if getattr(record, attribute) != default:
                return writers[min(since, highest)](record)
        return writers[0](record)

    return write


def _item_writer(field: Field) -> Write:
    source = _Source(_WRITING, field.name)
    _writing(source, field.parts, b"")
    return source.function("write", "x")


def _writing(source: _Source, described: Sequence[Field], prefix: bytes) -> None:
    """The lines that write the attributes of `x`."""
    parts: list[str] = [source.name("PREFIX", prefix)] if prefix else []
    for fixed, run in _runs(described):
        if fixed:
            pack = source.name("P", struct.Struct(">" + "".join(_layout(field) for field in run)).pack)
            parts.append(f"{pack}({', '.join(_fixed(source, field, _written(source, field)) for field in run)})")
        else:
            parts += [_sized(source, field, _written(source, field)) for field in run]
    tagged = sorted((field for field in described if field.tag is not None), key=lambda it: it.tag or 0)
    if tagged:
        source.add("n = 0", 't = b""')
        for field in tagged:
            default = source.name("DEFAULT", field.default)
            source.add(f"v = {_written(source, field)}")
            source.add(f"if v is not None and v != {default}:" if field.nullable else f"if v != {default}:")
            head = source.name("TAG", uvarint(field.tag or 0))
            content = _fixed_alone(source, field) if field.kind.layout else _sized(source, field, "v")
            source.add(f"    w = {content}", f"    t += {head} + SIZE(len(w)) + w", "    n += 1")
        parts.append("SIZE(n)")
        parts.append("t")
    else:
        parts.append(source.name("NO_TAGS", values.NO_TAGS))
    source.add(f"return JOIN(({', '.join(parts)},))")


def _written(source: _Source, field: Field) -> str:
    """The value on disk, as an expression of `x`."""
    at = f"x.{field.attribute}"
    if isinstance(field.meaning, Numbers):
        backwards: dict[object, object] = {value: number for number, value in field.meaning.values.items()}
        return f"{source.name('N', values.Table(field.attribute, backwards))}[{at}]"
    assert isinstance(field.meaning, Meaning)
    return field.meaning.written.format(at)


def _fixed(source: _Source, field: Field, value: str) -> str:
    return f"{value}.bytes" if field.kind is Kind.UUID else value


def _fixed_alone(source: _Source, field: Field) -> str:
    return f"{source.name('P', struct.Struct('>' + _layout(field)).pack)}({_fixed(source, field, 'v')})"


def _sized(source: _Source, field: Field, value: str) -> str:
    kind = field.kind
    if kind is Kind.STRING:
        return f"{'NULLABLE_STRING' if field.nullable else 'STRING'}({value})"
    if kind is Kind.BYTES:
        return f"DATA({value})"
    if kind is Kind.INT32S:
        return f"PACKED_INTS[{value}]"
    if kind is Kind.UUIDS:
        return f"UUIDS({value})"
    if kind is Kind.STRINGS:
        return f"ARRAY([STRING(e) for e in {value}])"
    return f"ARRAY([{source.name('ITEM', _item_writer(field))}(e) for e in {value}])"


# --- both -------------------------------------------------------------------------------------------------------------


def _runs(described: Sequence[Field]) -> Iterator[tuple[bool, list[Field]]]:
    """The fields without a tag, in order; those of a fixed size that follow each other are together."""
    plain = [field for field in described if field.tag is None]
    for fixed, run in groupby(plain, key=lambda it: it.kind.layout is not None):
        yield fixed, list(run)


def _variable(field: Field) -> str:
    return f"v_{field.name}"


def _layout(field: Field) -> str:
    found = field.kind.layout
    assert found is not None
    return found
