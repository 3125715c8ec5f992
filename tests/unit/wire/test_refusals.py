"""Answers that say an error and nothing else, for every API that clients may ask for."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.kio_codec import decode_response, encode_request, is_flexible, refused_response
from kraftlite.wire import apis
from kraftlite.wire.apis import refusals
from kraftlite.wire.apis.call import Api
from kraftlite.wire.apis.metadata import EncodedTopics, metadata_api

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
_VALUES: dict[str, Any] = {"string": "orders", "bytes": b"x", "records": b"x", "bool": True, "uuid": UUID(int=7), "float64": 1.0}


def _tables() -> dict[str, Api]:
    found = [it for it in vars(apis).values() if isinstance(it, Api)]
    for group in (apis.GROUP_APIS, apis.SASL_APIS, apis.VOTER_APIS, apis.TRANSACTION_APIS, apis.TRANSACTION_OFFSET_APIS):
        found += group
    return {it.name: it for it in (*found, metadata_api(EncodedTopics()))}


APIS = _tables()


def _sample(schema: Any) -> dict[str, Any]:
    """A request with one entry in each of its lists."""
    found: dict[str, Any] = {}
    for field in fields(schema):
        kind = classify_field(field)
        if isinstance(kind, EntityTupleField):
            found[field.name] = [_sample(kind.type_)]
        elif isinstance(kind, EntityField):
            found[field.name] = None if is_optional(field) else _sample(kind.type_)
        else:
            value = _VALUES.get(str(field.metadata.get("kafka_type", "")), 1)
            found[field.name] = [value] if kind.is_array else value
    return found


def _codes(answer: Any) -> list[int]:
    found = []
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.append(int(value))
        for item in value if isinstance(value, tuple) else ():
            found += _codes(item) if hasattr(item, "__dataclass_fields__") else []
    return found


@pytest.mark.parametrize("name", sorted(refusals.failing_apis() & set(APIS)))
def test_every_version_answers_with_the_code_and_can_be_read(name: str) -> None:
    api = APIS[name]
    for version in range(api.min_version, api.max_version + 1):
        schema: Any = load_request_schema(api.key, version)
        request = encode_request(api.key, version, _sample(schema))
        body = refusals.answer(name, api.key, version, memoryview(request), 0, CODE)
        if body is None:
            assert (name, version) in {("DescribeLogDirs", 1), ("DescribeLogDirs", 2), ("ElectLeaders", 0)}
            continue
        header = bytes(4) + (b"\0" if is_flexible(api.key, version) else b"")
        answer = decode_response(api.key, version, memoryview(header + body))
        assert CODE.value in _codes(answer), f"{name} v{version}: {answer}"


def test_apis_that_have_no_place_for_a_code_are_those_that_are_said_not_to() -> None:
    without = {
        name
        for name, api in APIS.items()
        if name not in refusals.MIRRORS and name not in refusals.NEVER and refused_response(api.key, api.max_version) is None
    }
    assert without | {"WriteTxnMarkers"} == set(refusals.NO_PLACE) | {"WriteTxnMarkers"}
    assert refusals.offered_apis() >= set(APIS) - refusals.NEVER


def test_a_mirror_names_what_the_request_named() -> None:
    request = encode_request(
        0,
        9,
        {
            "transactional_id": None,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [
                {"name": "orders", "partition_data": [{"index": 3, "records": b""}, {"index": 5, "records": b""}]},
                {"name": "events", "partition_data": [{"index": 0, "records": b""}]},
            ],
        },
    )
    body = refusals.answer("Produce", 0, 9, memoryview(request), 0, CODE)
    assert body is not None
    answer = decode_response(0, 9, memoryview(bytes(5) + body))
    told = {(topic.name, it.index): int(it.error_code) for topic in answer.responses for it in topic.partition_responses}
    assert told == {("orders", 3): 6, ("orders", 5): 6, ("events", 0): 6}
    assert {it.base_offset for topic in answer.responses for it in topic.partition_responses} == {-1}
