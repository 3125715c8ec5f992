"""Metadata records on disk."""

from __future__ import annotations

import typing
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.metadata.codec import RECORD_TYPES, MetadataSerde
from kraftlite.metadata.pbmap import mapper
from kraftlite.metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from tests.harness.message_strategies import instances
from tests.harness.metadata_support import partition

SERDE = MetadataSerde()


def test_every_record_class_has_a_type_and_maps_to_its_message_field_by_field() -> None:
    assert set(RECORD_TYPES.values()) == set(typing.get_args(MetadataRecord))  # MetadataSerde() compiled each of them


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(list(RECORD_TYPES.values())).flatmap(instances))
def test_every_record_reads_back_as_it_was_written(record: Any) -> None:
    data = SERDE.encode(record)
    for given_data in (data, memoryview(data)):
        read = SERDE.decode(given_data)
        assert read == record and type(read) is type(record)


def test_a_value_starts_with_frame_version_type_and_version() -> None:
    assert SERDE.encode(TopicRecord(name="t", topic_id=UUID(int=5)))[:3] == bytes((1, 2, 0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes((2, 2, 0)), "frame version 2, type 2, version 0"),
        (bytes((1, 13, 0)), "frame version 1, type 13, version 0"),
        (bytes((1, 2, 1)), "frame version 1, type 2, version 1"),
        (bytes((1, 0x80, 2, 0)), "frame version 1, type 256, version 0"),
        (b"", "frame version 0"),
        (bytes((1, 2, 0, 0xFF)), "type 2 can not be read"),
        (bytes((1, 2, 0)), "type 2 can not be read"),  # a topic without its id
    ],
)
def test_what_can_not_be_read_is_a_fault_that_says_why(data: bytes, message: str) -> None:
    with pytest.raises(Fault, match=message):
        SERDE.decode(data)


def test_the_leader_of_a_change_is_absent_when_unchanged_and_minus_one_when_none() -> None:
    from kraftlite._pb import records_pb2

    to_pb = mapper(PartitionChangeRecord, records_pb2.PartitionChangeRecord).to_pb
    topic_id = UUID(int=1)
    assert not to_pb(PartitionChangeRecord(topic_id=topic_id, partition=0)).HasField("leader")
    assert to_pb(PartitionChangeRecord(topic_id=topic_id, partition=0, leader=None)).leader == -1
    assert to_pb(PartitionChangeRecord(topic_id=topic_id, partition=0, leader=NodeId(0))).HasField("leader")


def test_decoding_shares_replica_tuples_and_ids() -> None:
    first, second = (SERDE.decode(SERDE.encode(partition(UUID(int=7), index))) for index in (0, 1))
    assert isinstance(first, PartitionRecord) and isinstance(second, PartitionRecord)
    for name in ("topic_id", "replicas", "isr", "directories"):
        assert getattr(first, name) is getattr(second, name)


def test_a_dataclass_that_is_not_like_its_message_does_not_compile() -> None:
    from dataclasses import dataclass

    from kraftlite._pb import records_pb2

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Forgotten:
        name: str

    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongType:
        name: str
        topic_id: int

    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongPresence:
        name: str | None
        topic_id: bytes

    for cls, message in (
        (Forgotten, r"has fields \['name'\], but kraftlite.v1.TopicRecord has \['name', 'topic_id'\]"),
        (WrongType, "WrongType.topic_id: must be an integer in protobuf"),
        (WrongPresence, "WrongPresence.name: must be optional in protobuf"),
    ):
        with pytest.raises(TypeError, match=message):
            mapper(cls, records_pb2.TopicRecord)
