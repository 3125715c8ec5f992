"""Requests as trees, made from kio's schemas: before they are bytes every value can be replaced, every length be a lie."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final
from uuid import UUID

import kraftlite.protocol.kio_import  # noqa: F401  # before kio
from tests.fuzz import values
from tests.fuzz.values import Known, pack, uvarint

from kio.index import load_request_schema  # isort: skip
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional  # isort: skip

INTEGERS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "error_code": "h",
}
MOST_BYTES: Final = 4 << 20
"""Of an array that repeats a large value."""
BLOBS: Final = ("bytes", "records")
Pick = Callable[[str, str, "Maker"], Any]


@dataclass(eq=False, slots=True)
class Value:
    """One value: a leaf, an array (`items`), or a struct (`items` are its fields, `tags` its tagged ones by number).

    `lie` replaces the length in front of it, `raw` all of its bytes.
    """

    name: str
    kind: str
    flexible: bool
    value: Any = None
    items: list[Value] | None = None
    tags: list[tuple[int, Value | bytes]] = field(default_factory=list)
    nullable_struct: bool = False
    lie: int | None = None
    raw: bytes | None = None

    def encode(self) -> bytes:
        if self.raw is not None:
            return self.raw
        if self.kind == "array":
            return self._array()
        if self.kind == "struct":
            return self._struct()
        if self.kind == "uuid":
            return bytes(16) if self.value is None else self.value.bytes
        if self.kind == "bool":
            return pack("b", int(self.value))
        if self.kind == "float64":
            return struct.pack(">d", self.value)
        if self.kind in INTEGERS:
            return pack(INTEGERS[self.kind], self.value)
        return self._sized()

    def _length(self, count: int | None, layout: str) -> bytes:
        """The length as it is written; a lie is written as it is."""
        if self.flexible:
            return uvarint(self.lie) if self.lie is not None else uvarint(0 if count is None else count + 1)
        return pack(layout, self.lie if self.lie is not None else -1 if count is None else count)

    def _sized(self) -> bytes:
        if self.value is None:
            return self._length(None, "h" if self.kind == "string" else "i")
        data = self.value.encode("utf-8", "surrogatepass") if isinstance(self.value, str) else bytes(self.value)
        return self._length(len(data), "h" if self.kind == "string" else "i") + data

    def _array(self) -> bytes:
        if self.items is None:
            return self._length(None, "i")
        known: dict[int, bytes] = {}
        out = bytearray(self._length(len(self.items), "i"))
        for it in self.items:
            data = known.get(id(it))
            if data is None:
                data = known[id(it)] = it.encode()
            out += data
            if len(out) > MOST_BYTES:
                break  # the rest is missing: that is hostile enough
        return bytes(out)

    def _struct(self) -> bytes:
        if self.items is None:
            return b"\xff"
        out = (b"\x01" if self.nullable_struct else b"") + b"".join(it.encode() for it in self.items)
        if not self.flexible:
            return out
        count = self.lie if self.lie is not None else len(self.tags)
        tags = [(tag, it if isinstance(it, bytes) else it.encode()) for tag, it in self.tags]
        return out + uvarint(count) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in tags)

    def walk(self) -> Iterator[Value]:
        yield self
        for it in self.items or ():
            yield from it.walk()
        for _tag, tagged in self.tags:
            if isinstance(tagged, Value):
                yield from tagged.walk()

    def find(self, *names: str) -> list[Value]:
        return [it for it in self.walk() if it.name in names]


class Maker:
    """Makes requests that a broker has to take seriously: names that exist, ids that it gave."""

    def __init__(self, rng: random.Random, known: Known, records: Callable[[random.Random], bytes]) -> None:
        self.rng = rng
        self.known = known
        self._records = records

    def request(self, key: int, version: int) -> Value:
        return self._entity(load_request_schema(key, version), "", False)

    def _entity(self, schema: Any, name: str, nullable: bool) -> Value:
        flexible = bool(schema.__flexible__)
        made = Value(name, "struct", flexible, items=[], nullable_struct=nullable)
        assert made.items is not None
        for it in fields(schema):
            tag = get_field_tag(it)
            value = self._field(it, flexible, tagged=tag is not None)
            if tag is None:
                made.items.append(value)
            elif self.rng.randrange(4) == 0:
                made.tags.append((int(tag), value))
        return made

    def _field(self, it: Any, flexible: bool, *, tagged: bool) -> Value:
        kind = classify_field(it)
        nullable = is_optional(it)
        nested = kind.type_ if isinstance(kind, EntityField | EntityTupleField) else None
        absent = nullable and self.rng.randrange(6) == 0
        if kind.is_array:
            array = Value(it.name, "array", flexible)
            if not absent:
                count = self.rng.choice((0, 1, 1, 1, 2))
                array.items = [self._item(it, nested, flexible, False) for _ in range(count)]
            return array
        if nested is not None:
            struct_nullable = nullable and not tagged
            if absent and struct_nullable:
                return Value(it.name, "struct", flexible, items=None)
            return self._entity(nested, it.name, struct_nullable)
        return self._item(it, None, flexible, absent)

    def _item(self, it: Any, nested: Any, flexible: bool, absent: bool) -> Value:
        if nested is not None:
            return self._entity(nested, it.name, False)
        kind = str(it.metadata["kafka_type"])
        default = it.default if it.default is not MISSING and not classify_field(it).is_array else None
        return Value(it.name, kind, flexible, value=None if absent else self._value(it.name, kind, default))

    def _value(self, name: str, kind: str, default: Any) -> Any:
        rng = self.rng
        if kind == "records":
            return self._records(rng)
        if kind == "bytes":
            return rng.choice((b"", b"\x00\x01\x00\x00\x00\x01\x00\x06fuzz-a\xff\xff\xff\xff", values.junk(rng)))
        if kind == "bool":
            return bool(rng.randrange(2))
        if kind == "uuid":
            ids = list(self.known.topic_ids.values())
            return rng.choice(ids) if ids and rng.randrange(4) else rng.choice((None, UUID(int=rng.getrandbits(128))))
        if kind == "string":
            return self._string(name)
        if kind == "float64":
            return rng.choice((0.0, 1.0, 1e9))
        return self._integer(name, kind, default)

    def _string(self, name: str) -> str:
        rng = self.rng
        told = self.known.pick(rng, name)
        if told is not None and isinstance(told, str) and rng.randrange(4):
            return told
        if name in _STRINGS:
            return rng.choice(_STRINGS[name])
        return rng.choice((*values.TOPICS, *values.GROUPS)) if rng.randrange(2) else rng.choice(("range", "x", "1", ""))

    def _integer(self, name: str, kind: str, default: Any) -> int:
        rng = self.rng
        told = self.known.pick(rng, name)
        if isinstance(told, int) and rng.randrange(3):
            return told
        if name in _INTEGERS:
            return rng.choice(_INTEGERS[name])
        if isinstance(default, int) and rng.randrange(2):
            return int(default)
        return rng.choice((-1, 0, 0, 1, 1, 2))


_STRINGS: Final[dict[str, tuple[str, ...]]] = {
    "name": (*values.TOPICS, *values.CONFIG_KEYS),
    "topic": values.TOPICS,
    "topic_name": values.TOPICS,
    "topics": values.TOPICS,
    "subscribed_topic_names": values.TOPICS,
    "subscribed_topic_regex": ("fuzz-.*", "(a+)+$", "[", "\\x{110000}", "(?P<n>a)" * 50, ".{1000}{1000}"),
    "group_id": values.GROUPS,
    "groups_names": values.GROUPS,
    "key": (*values.GROUPS, *values.TRANSACTIONS),
    "coordinator_keys": (*values.GROUPS, *values.TRANSACTIONS),
    "transactional_id": values.TRANSACTIONS,
    "transactional_ids": values.TRANSACTIONS,
    "v3_and_below_transactional_id": values.TRANSACTIONS,
    "transactional_id_pattern": ("fuzz-.*", "(a+)+$", "[", "(x{100}){100}", ""),
    "state_filters": ("Ongoing", "PrepareAbort", "Dead", "nope"),
    "protocol_type": ("consumer", "connect", ""),
    "resource_name": (*values.TOPICS, "", "1", "fuzz-modern"),
    "value": values.CONFIG_VALUES,
    "server_assignor": ("uniform", "range", "nope"),
    "client_software_name": ("fuzz", ""),
    "client_software_version": ("1", ""),
    "states_filter": ("Stable", "Empty", "nope"),
    "types_filter": ("classic", "consumer", "nope"),
    "entity_type": ("user", "client-id", "ip", "nope"),
    "configuration_keys": values.CONFIG_KEYS,
    "mechanism": ("SCRAM-SHA-256", "PLAIN"),
}
_INTEGERS: Final[dict[str, tuple[int, ...]]] = {
    "acks": (-1, -1, 1, 0),
    "timeout": (1000, 100),
    "timeout_ms": (1000, 100),
    "max_wait": (0, 1, 20),
    "min_bytes": (0, 1, 100),
    "max_bytes": (1, 1000, 1 << 20, 2**31 - 1),
    "partition_max_bytes": (0, 1, 1000, 1 << 20),
    "index": (0, 1),
    "partition": (0, 1),
    "partitions": (0, 1, 2),
    "partition_index": (0, 1),
    "partition_indexes": (0, 1),
    "num_partitions": (-1, 1, 2),
    "replication_factor": (-1, 1, 1, 3),
    "session_timeout": (6000, 10000),
    "rebalance_timeout": (100, 1000),
    "generation_id": (-1, 0, 1),
    "member_epoch": (-1, 0, 1, 2, -2),
    "session_id": (0, 0, 1),
    "session_epoch": (-1, 0, 1, 2),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_760_000_000_000),
    "fetch_offset": (0, 1, 5, 100),
    "replica_id": (-1, -1, 1, -2),
    "isolation_level": (0, 1),
    "resource_type": (2, 4, 8, 16, 32),
    "config_operation": (0, 1, 2, 3),
    "key_type": (0, 1, 2),
    "producer_id": (-1, 0, 1, 1000),
    "producer_epoch": (-1, 0, 1),
    "v3_and_below_producer_id": (-1, 0, 1, 1000),
    "v3_and_below_producer_epoch": (-1, 0, 1),
    "transaction_timeout": (1, 100, 1000, 60_000),
    "coordinator_epoch": (-1, 0, 1),
    "transaction_version": (0, 1, 2),
    "producer_id_filters": (-1, 0, 1),
    "duration_filter": (-1, 0, 1),
    "broker_id": (77, 78),
    "election_type": (0, 1),
    "endpoint_type": (1, 2),
    "count": (2, 3),
    "response_partition_limit": (1, 2000),
    "feature": (1, 2),
}
