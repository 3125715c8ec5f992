"""Records of consumer groups, byte by byte as Kafka writes them. Source: Kafka's ConsumerGroup*.json schemas."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.coordinator.api import Protocol
from kraftlite.coordinator.modern.member import ClassicMetadata, MemberState, Parts, epochs_of
from kraftlite.coordinator.modern.records import (
    ConsumerKey,
    ConsumerValue,
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    Ignored,
    MemberKey,
    MemberValue,
    PartitionMetadataKey,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_of,
)
from kraftlite.model.errors import ApiError

ID = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
OTHER = UUID(int=ID.int + 1)
PARTS = {ID: frozenset({2, 1})}
PARTS_BYTES = "02" + ID.hex + "03" + "00000001" + "00000002" + "00"
MEMBER = MemberValue("i", None, "c", "/h", ("t",), "", 300_000, "range", None)
MEMBER_BYTES = "0000" + "0269" + "00" + "0263" + "032f68" + "02" + "0274" + "01" + "000493e0" + "0672616e6765"
CLASSIC = ClassicMetadata(session_timeout_ms=10_000, protocols=(Protocol("p", b"\x01\x02"),))

CASES: list[tuple[ConsumerKey, str, ConsumerValue, str]] = [
    (EpochKey("g"), "0003000167", EpochValue(5), "0000" "00000005" "00"),
    (EpochKey("g"), "0003000167", EpochValue(5, 258), "0000" "00000005" "01" "00" "08" "0000000000000102"),
    (MemberKey("g", "m"), "000500016700016d", MEMBER, MEMBER_BYTES + "00"),
    (
        MemberKey("g", "m"),
        "000500016700016d",
        MemberValue("i", None, "c", "/h", ("t",), "", 300_000, "range", CLASSIC),
        MEMBER_BYTES + "01" "00" "0d" "01" "00002710" "02" "0270" "030102" "00" "00",
    ),
    (TargetEpochKey("g"), "0006000167", TargetEpochValue(4), "0000" "00000004" "00"),
    (TargetEpochKey("g"), "0006000167", TargetEpochValue(4, 1_000), "0000" "00000004" "01" "00" "08" "00000000000003e8"),
    (TargetKey("g", "m"), "000700016700016d", TargetValue(PARTS), "0000" + PARTS_BYTES + "00"),
    (
        CurrentKey("g", "m"),
        "000800016700016d",
        CurrentValue(4, 3, MemberState.UNREVOKED_PARTITIONS, PARTS, {OTHER: frozenset({0})}, {ID: {1: 4, 2: 3}, OTHER: {0: 2}}),
        "0000" "00000004" "00000003" "01" + PARTS_BYTES[:-2] + "01" "00" "09" "03" "00000004" "00000003"
        "02" + OTHER.hex + "02" "00000000" "01" "00" "05" "02" "00000002" "00",
    ),
    (
        RegexKey("g", "t.*"),
        "00100001670003742e2a",
        RegexValue(("ta", "tb"), 9, 1_000),
        "0000" "03" "037461" "037462" "0000000000000009" "00000000000003e8" "00",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "key_hex", "value", "value_hex"), CASES, ids=lambda one: type(one).__name__)
def test_the_bytes(key: ConsumerKey, key_hex: str, value: ConsumerValue, value_hex: str) -> None:
    assert encode_key(key).hex() == key_hex
    assert encode_value(value).hex() == value_hex
    assert decode_key(bytes.fromhex(key_hex)) == key
    assert decode_value(key, bytes.fromhex(value_hex)) == value


def test_tombstones_and_other_kinds() -> None:
    assert record_of(EpochKey("g"), None) == (b"\x00\x03\x00\x01g", None)
    assert decode_key(b"\x00\x02\x00\x01g") is None, "a classic group"
    assert decode_key(b"\x00\x04\x00\x01g") == PartitionMetadataKey("g")
    assert decode_value(PartitionMetadataKey("g"), b"\x00\x00whatever it was") == Ignored()


def test_fields_of_newer_software_are_passed_over() -> None:
    """`CreationTimeMs` of the group (tag 1)."""
    epoch = bytes.fromhex("0000000000050200080000000000000102010800000000000003e8")
    assert decode_value(EpochKey("g"), epoch) == EpochValue(5, 258)
    unknown = bytes.fromhex("0000000000040000000309010100")
    assert decode_value(CurrentKey("g", "m"), unknown) == CurrentValue(4, 3, MemberState.UNKNOWN, {}, {})


@pytest.mark.parametrize(
    ("tags", "epoch", "since"),
    [
        ("00", 4, 4),
        ("00", -2, 0),
        ("01" "00" "05" "02" "00000003", 4, 3),
        ("01" "00" "01" "00", 4, 4),
        ("01" "00" "01" "01", 4, 4),
        ("01" "00" "09" "03" "00000003" "00000002", 4, 4),
    ],
    ids=["older software", "away, of older software", "told", "null", "none", "more than partitions"],
)  # fmt: skip
def test_assignment_epochs_that_are_not_told_are_those_of_the_member(tags: str, epoch: int, since: int) -> None:
    """KIP-1251."""
    head = epoch.to_bytes(4, "big", signed=True).hex() + "00000003" + "00"
    current = bytes.fromhex("0000" + head + "02" + ID.hex + "02" + "00000001" + tags + "0100")
    value = CurrentValue(epoch, 3, MemberState.STABLE, {ID: frozenset({1})}, {}, {ID: {1: since}})
    assert decode_value(CurrentKey("g", "m"), current) == value


@pytest.mark.parametrize("data", ["", "00", "00010000000500", "00000000", "00000000000501"])
def test_what_does_not_add_up_is_refused(data: str) -> None:
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        decode_value(EpochKey("g"), bytes.fromhex(data))


texts = st.text(max_size=8)
some_parts = st.dictionaries(st.uuids(), st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=3)
states = st.sampled_from(list(MemberState))
classic = st.builds(
    ClassicMetadata,
    session_timeout_ms=st.integers(0, 2**31 - 1),
    protocols=st.lists(st.builds(Protocol, texts, st.binary(max_size=8)), max_size=3).map(tuple),
)
members = st.builds(
    MemberValue,
    st.none() | texts,
    st.none() | texts,
    texts,
    texts,
    st.sets(texts, max_size=4).map(sorted).map(tuple),
    texts,
    st.integers(-1, 2**31 - 1),
    st.none() | texts,
    st.none() | classic,
)
epochs = st.integers(-2, 2**31 - 1)


def current(epoch: int, previous: int, state: MemberState, assigned: Parts, revoking: Parts, since: int) -> CurrentValue:
    return CurrentValue(epoch, previous, state, assigned, revoking, epochs_of((assigned, revoking), since))


@given(
    st.one_of(
        st.tuples(st.builds(EpochKey, texts), st.builds(EpochValue, epochs, st.integers(-(2**63), 2**63 - 1))),
        st.tuples(st.builds(MemberKey, texts, texts), members),
        st.tuples(st.builds(TargetEpochKey, texts), st.builds(TargetEpochValue, epochs, st.integers(0, 2**62))),
        st.tuples(st.builds(TargetKey, texts, texts), st.builds(TargetValue, some_parts)),
        st.tuples(
            st.builds(CurrentKey, texts, texts), st.builds(current, epochs, epochs, states, some_parts, some_parts, epochs)
        ),
        st.tuples(
            st.builds(RegexKey, texts, texts),
            st.builds(
                RegexValue, st.lists(texts, max_size=3).map(sorted).map(tuple), st.integers(0, 2**63 - 1), st.integers(0, 2**62)
            ),
        ),
    )
)
def test_what_is_written_is_read(record: tuple[ConsumerKey, ConsumerValue]) -> None:
    key, value = record
    assert decode_key(encode_key(key)) == key
    assert decode_value(key, encode_value(value)) == value


@given(st.binary(max_size=60), st.sampled_from([key for key, _, _, _ in CASES]))
def test_foreign_bytes_are_refused_or_read_but_never_crash(data: bytes, key: ConsumerKey) -> None:
    try:
        decode_value(key, b"\x00\x00" + data)
    except (ApiError, UnicodeDecodeError):
        return
