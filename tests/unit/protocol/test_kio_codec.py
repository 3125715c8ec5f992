"""Reading requests by kio's schemas without kio's reader: the same result for what is well-formed, a violation for the rest."""

from __future__ import annotations

import contextlib
import datetime
import io
import random
import subprocess
import sys
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from kraftlite.protocol import kio_codec
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.kio_codec import decode_request

COLD = (19, 20, 22, 23, 32, 33, 35, 37, 43, 44, 55, 57, 60, 64, 75)
CASES = [(key, version) for key in COLD for version in sorted(schema_name_map[api_key_map[key]])]


def random_entity(schema: type[Any], rng: random.Random) -> Any:
    return schema(**{field.name: random_value(field, rng) for field in fields(schema)})


def random_value(field: Any, rng: random.Random) -> Any:
    kind = classify_field(field)
    if is_optional(field) and rng.random() < 0.2:
        return None
    if isinstance(kind, EntityTupleField):
        return tuple(random_entity(kind.type_, rng) for _ in range(rng.choice([0, 1, 3])))
    if isinstance(kind, EntityField):
        return random_entity(kind.type_, rng)
    one = {
        "string": lambda: rng.choice(["", "a", "ünï", "x" * 300]),
        "int8": lambda: rng.randrange(-128, 128),
        "int16": lambda: rng.randrange(-(2**15), 2**15),
        "int32": lambda: rng.randrange(-(2**31), 2**31),
        "int64": lambda: rng.randrange(-(2**63), 2**63),
        "bool": lambda: rng.random() < 0.5,
        "uuid": lambda: UUID(int=rng.randrange(1, 2**128)),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.randrange(2**31)),
    }[field.metadata["kafka_type"]]
    return tuple(one() for _ in range(rng.choice([0, 1, 200]))) if kind.is_array else one()


@pytest.mark.parametrize(("key", "version"), CASES)
def test_reads_what_kio_reads(key: int, version: int) -> None:
    rng = random.Random(key * 100 + version)
    schema = kio_codec._request_schema(key, version)  # it keeps them, and a pytest inside of a test lets modules be imported anew
    for _ in range(5):
        expected = random_entity(schema, rng)
        buffer = io.BytesIO()
        entity_writer(schema)(buffer, expected)
        body = buffer.getvalue()
        assert entity_reader(schema)(body, 0)[0] == expected
        assert decode_request(key, version, memoryview(bytearray(b"head" + body)), 4) == expected


@pytest.mark.parametrize(("key", "version"), CASES)
def test_garbage_is_a_violation_or_a_request(key: int, version: int) -> None:
    rng = random.Random(key * 100 + version)
    for _ in range(60):
        body = rng.randbytes(rng.randrange(60))
        if rng.random() < 0.3:
            body = b"\xff\xff\xff\xff\x07" + body  # an array as long as a varint can say
        with contextlib.suppress(ProtocolViolation):
            decode_request(key, version, memoryview(bytearray(body)), 0)


def test_kio_comes_without_its_hook_into_hypothesis() -> None:
    """It takes seconds of the node's loop where hypothesis is installed, and tens of megabytes."""
    script = (
        "import sys, kraftlite.protocol.kio_codec as c; c.load_request_schema(19, 7);"
        "print(sorted(n for n in sys.modules if n.split('.')[0] == 'hypothesis'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_schema_is_looked_up_once() -> None:
    """Every request and every answer of what is cold asks for one, and kio looks it up by name."""
    kio_codec._request_schema.cache_clear()
    assert [kio_codec.is_flexible(26, version) for version in (2, 3, 2, 3)] == [False, True, False, True]
    assert kio_codec._request_schema.cache_info().misses == 2


@pytest.mark.parametrize(
    ("key", "values", "told"),
    [
        (66, {"producer_id_filters": [1, 2**63]}, f"producer id filters {2**63}: allowed is a whole number from"),
        (66, {"duration_filter": -(2**63) - 1}, f"duration filter {-(2**63) - 1}: allowed is"),
        (57, {"feature_updates": [{"max_version_level": 32_768}]}, "max version level 32768: allowed is"),
        (61, {"topics": [{"name": "a", "partition_indexes": [2**31]}]}, f"partition indexes {2**31}: allowed is"),
        (43, {"timeout": 2**31}, f"timeout {2**31}: allowed is"),
        (66, {"producer_id_filters": [2**63 - 1, -(2**63)]}, None),
        (3, {"topics": None}, None),
    ],
)
def test_a_number_that_no_field_holds_is_named(key: int, values: dict[str, object], told: str | None) -> None:
    found = kio_codec.misfit(key, {66: 1, 57: 2, 61: 0, 43: 2, 3: 12}[key], values)
    assert (found is None) == (told is None), found
    assert found is None or found.startswith(str(told))
