"""The binary format, byte for byte, and back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.coordinator.records import (
    CommittedOffset,
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    UnknownKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
OFFSETS = st.builds(
    CommittedOffset,
    offset=INT64,
    leader_epoch=st.none() | INT32,
    metadata=TEXT,
    commit_ms=INT64,
    expire_ms=st.none(),
)
MEMBERS = st.builds(
    MemberValue,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=30),
    assignment=st.binary(max_size=30),
)
GROUPS = st.builds(
    GroupValue,
    protocol_type=TEXT,
    generation=INT32,
    protocol_name=st.none() | TEXT,
    leader_id=st.none() | TEXT,
    state_since_ms=st.none() | INT64,
    members=st.lists(MEMBERS, max_size=3).map(tuple),
)


def test_keys_as_kafka_writes_them() -> None:
    key = encode_offset_key("grp", TopicPartition("orders", 3))
    assert key == b"\x00\x01" + b"\x00\x03grp" + b"\x00\x06orders" + b"\x00\x00\x00\x03"
    assert decode_key(key) == OffsetKey("grp", TopicPartition("orders", 3))
    assert decode_key(b"\x00\x00" + key[2:]) == OffsetKey("grp", TopicPartition("orders", 3)), "version 0 is the same"
    assert encode_group_key("grp") == b"\x00\x02\x00\x03grp"
    assert decode_key(b"\x00\x02\x00\x03grp") == GroupKey("grp")
    assert decode_key(b"\x00\x07anything") == UnknownKey(7)


def test_offset_values_as_kafka_writes_them() -> None:
    v3 = encode_offset(CommittedOffset(258, 7, "md", 1000))
    assert v3 == struct.pack(">hqi", 3, 258, 7) + b"\x00\x02md" + struct.pack(">q", 1000)
    v1 = encode_offset(CommittedOffset(258, None, "md", 1000, 2000))
    assert v1 == struct.pack(">hq", 1, 258) + b"\x00\x02md" + struct.pack(">qq", 1000, 2000)
    assert decode_offset(v1) == CommittedOffset(258, None, "md", 1000, 2000)
    v0 = struct.pack(">hq", 0, 258) + b"\x00\x00" + struct.pack(">q", 1000)
    v2 = b"\x00\x02" + v0[2:]
    assert decode_offset(v0) == decode_offset(v2) == CommittedOffset(258, None, "", 1000)
    v4 = struct.pack(">hqi", 4, 258, 7) + b"\x03md" + struct.pack(">q", 1000) + b"\x00"
    assert decode_offset(v4) == CommittedOffset(258, 7, "md", 1000)


def member_bytes(*, instance: bytes, rebalance: bytes) -> bytes:
    head = b"\x00\x01m" + instance + b"\x00\x01c" + b"\x00\x0a/127.0.0.1" + rebalance
    return head + struct.pack(">i", 10_000) + b"\x00\x00\x00\x02su" + b"\x00\x00\x00\x01a"


def test_group_values_as_kafka_writes_them() -> None:
    member = MemberValue(
        member_id="m",
        instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=b"su",
        assignment=b"a",
    )
    value = GroupValue(
        protocol_type="consumer", generation=4, protocol_name="range", leader_id="m", state_since_ms=99, members=(member,)
    )
    head = b"\x00\x08consumer" + struct.pack(">i", 4) + b"\x00\x05range" + b"\x00\x01m"
    v3 = b"\x00\x03" + head + struct.pack(">qi", 99, 1)
    v3 += member_bytes(instance=b"\x00\x01i", rebalance=struct.pack(">i", 60_000))
    assert encode_group(value) == v3
    assert decode_group(v3) == value
    v0 = b"\x00\x00" + head + struct.pack(">i", 1) + member_bytes(instance=b"", rebalance=b"")
    old = decode_group(v0)
    assert (old.state_since_ms, old.members[0].instance_id, old.members[0].rebalance_timeout_ms) == (None, None, 10_000)
    empty = GroupValue(protocol_type="", generation=5, protocol_name=None, leader_id=None, state_since_ms=None, members=())
    assert encode_group(empty) == struct.pack(">hhihhqi", 3, 0, 5, -1, -1, -1, 0)


def test_group_value_version_4_is_flexible() -> None:
    data = b"\x00\x04" + b"\x09consumer" + struct.pack(">i", 4) + b"\x06range" + b"\x02m" + struct.pack(">q", 99) + b"\x02"
    data += b"\x02m" + b"\x00" + b"\x02c" + b"\x02h" + struct.pack(">ii", 60_000, 10_000) + b"\x03su" + b"\x02a" + b"\x00"
    found = decode_group(data + b"\x01\x00\x02zz")
    assert found.members[0].subscription == b"su" and found.members[0].instance_id is None
    assert (found.leader_id, found.protocol_name) == ("m", "range")


@given(OFFSETS)
def test_offsets_round_trip(value: CommittedOffset) -> None:
    assert decode_offset(encode_offset(value)) == value


@given(GROUPS)
def test_groups_round_trip(value: GroupValue) -> None:
    assert decode_group(encode_group(value)) == value


@given(GROUPS, st.data())
def test_cut_values_are_refused(value: GroupValue, data: st.DataObject) -> None:
    raw = encode_group(value)
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        decode_group(raw[: data.draw(st.integers(0, len(raw) - 1))])


def test_versions_to_come_are_refused() -> None:
    with pytest.raises(ApiError, match="value version 5"):
        decode_offset(b"\x00\x05" + b"\x00" * 40)


@pytest.mark.parametrize(
    "raw",
    [b"\x00\x02\x00\x01\xff", b"\x00\x02\x00\x03\xed\xa0\x80", b"\x00\x02\xff\xff", b"\x00\x02\x00\x09grp", b"\x00"],
    ids=["no UTF-8", "half a surrogate pair", "null", "cut off", "no kind"],
)
def test_keys_that_cannot_be_read_are_corrupt(raw: bytes) -> None:
    with pytest.raises(ApiError, match=r"CORRUPT_MESSAGE.*a record of __consumer_offsets"):
        decode_key(raw)
