"""Metadata records on disk: Kafka's encoding, at every version, and what is said of bytes that are none."""

from __future__ import annotations

import json
import random
import typing
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.metadata import records as r
from kraftlite.metadata.codec import RECORD_TYPES, MetadataSerde, as_json
from kraftlite.metadata.features import METADATA_VERSIONS
from kraftlite.metadata.kafka_records.layout import Layout
from kraftlite.metadata.kafka_records.table import LAYOUTS
from kraftlite.metadata.records import MetadataRecord, PartitionRecord, TopicRecord
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import LOST_DIR, MIGRATING_DIR, UNASSIGNED_DIR
from kraftlite.model.messages.controller import FeatureRange, ListenerInfo
from kraftlite.model.messages.security import QuotaEntityPart
from tests.harness.metadata_support import partition
from tests.harness.record_samples import ID, instances, type_and_versions

SERDE = MetadataSerde()
TYPES = list(LAYOUTS.values())
VERSIONS = list(type_and_versions())

GOLDEN: Final[list[tuple[int, MetadataRecord, str]]] = [
    # (metadata.version, record, what Apache Kafka 4.3.1 writes)
    (30, r.TopicRecord(name="t", topic_id=ID), "01020002740123456789abcdef0123456789abcdef00"),
    (
        7,
        r.PartitionRecord(
            topic_id=ID, partition=1, replicas=(1, 2), isr=(2,), leader=None, leader_epoch=3, partition_epoch=4, recovering=True
        ),
        "010300000000010123456789abcdef0123456789abcdef03000000010000000202000000020101ffffffff000000030000000401000101",
    ),
    (
        17,
        r.PartitionRecord(
            topic_id=ID,
            partition=1,
            replicas=(1, 2),
            isr=(2,),
            leader=2,
            leader_epoch=3,
            partition_epoch=4,
            directories=(ID, UNASSIGNED_DIR),
        ),
        "010301000000010123456789abcdef0123456789abcdef03000000010000000202000000020101000000020000000300000004030123456789abcdef0123456789abcdef0000000000000000000000000000000100",
    ),
    (
        23,
        r.PartitionRecord(
            topic_id=ID,
            partition=1,
            replicas=(1, 2),
            isr=(2,),
            leader=2,
            leader_epoch=3,
            partition_epoch=4,
            directories=(ID, UNASSIGNED_DIR),
            elr=(1,),
            last_known_elr=(3,),
        ),
        "010302000000010123456789abcdef0123456789abcdef03000000010000000202000000020101000000020000000300000004030123456789abcdef0123456789abcdef00000000000000000000000000000001020105020000000102050200000003",
    ),
    (
        7,
        r.PartitionChangeRecord(topic_id=ID, partition=1, isr=(), leader=None, recovering=False),
        "010500000000010123456789abcdef0123456789abcdef030001010104ffffffff050100",
    ),
    (
        30,
        r.PartitionChangeRecord(
            topic_id=ID,
            partition=1,
            leader=2,
            replicas=(2, 3),
            removing_replicas=(),
            adding_replicas=(3,),
            directories=(ID, LOST_DIR),
            elr=(),
            last_known_elr=(1,),
        ),
        "010502000000010123456789abcdef0123456789abcdef07010400000002020903000000020000000303010104050200000003060101070502000000010821030123456789abcdef0123456789abcdef00000000000000000000000000000002",
    ),
    (
        30,
        r.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=ID,
            broker_epoch=5,
            listeners=(ListenerInfo(name="A", host="h", port=65000, security_protocol="SASL_SSL"),),
            features=(FeatureRange(name="f", min_level=0, max_level=2),),
            rack=None,
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=(ID,),
            cordoned_log_dirs=(),
        ),
        "01000400000001000123456789abcdef0123456789abcdef00000000000000050202410268fde80003000202660000000200000100020011020123456789abcdef0123456789abcdef010101",
    ),
    (30, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=False), "011100000000010000000000000005010001ff"),
    (
        30,
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=True),
        "01110100000001000000000000000501010101",
    ),
    (
        30,
        r.ClientQuotaRecord(entity=(QuotaEntityPart(type="user", name=None),), key="k", value="1000.5"),
        "010e000205757365720000026b408f4400000000000000",
    ),
    (
        30,
        r.ClientQuotaRecord(entity=(QuotaEntityPart(type="user", name="a"),), key="k", value=None),
        "010e00020575736572026100026b00000000000000000100",
    ),
    (30, r.ConfigRecord(resource_type=2, resource_name="t", name="k", value=None), "010400020274026b0000"),
    (
        30,
        r.UserScramCredentialRecord(name="a", mechanism=2, salt=b"\x01", stored_key=b"\x02\x03", server_key=b"", iterations=4096),
        "010b000261020201030203010000100000",
    ),
    (30, r.FeatureLevelRecord(name="metadata.version", level=30), "010c00116d657461646174612e76657273696f6e001e00"),
    (30, r.BeginTransactionRecord(name="x"), "0117000100020278"),
    (30, r.EndTransactionRecord(), "01180000"),
]


def level_of(layout: Layout, version: int) -> int:
    """A metadata.version at which this version of the record is written."""
    return next(since for since, written in layout.versions if written <= version)


def test_every_record_class_has_a_layout_with_all_of_its_attributes() -> None:
    assert set(RECORD_TYPES.values()) == set(typing.get_args(MetadataRecord))
    for layout in TYPES:
        assert {it.attribute for it in layout.fields} == set(layout.made.__dataclass_fields__)
        assert [since for since, _ in layout.versions] == sorted((since for since, _ in layout.versions), reverse=True)


@pytest.mark.parametrize(("level", "record", "data"), GOLDEN, ids=[type(it[1]).__name__ for it in GOLDEN])
def test_records_are_the_bytes_of_apache_kafka(level: int, record: MetadataRecord, data: str) -> None:
    assert MetadataSerde(level).encode(record).hex() == data
    assert SERDE.decode(bytes.fromhex(data)) == record


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(VERSIONS).flatmap(lambda it: st.tuples(st.just(it), instances(*it))))
def test_every_record_of_every_version_reads_back_as_it_was_written(drawn: tuple[tuple[Layout, int], Any]) -> None:
    (layout, version), record = drawn
    data = MetadataSerde(level_of(layout, version)).encode(record)
    for given_data in (data, memoryview(data)):
        read = SERDE.decode(given_data)
        assert read == record and type(read) is type(record)
    shown = as_json(data)
    assert (shown["type"], shown["version"]) == (layout.shown, version) or layout.lowest
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


@pytest.mark.parametrize(("value", "shown"), [("inf", "Infinity"), ("-inf", "-Infinity"), ("nan", "NaN"), ("1e+22", 1e22)])
def test_a_quota_that_is_no_number_of_json_is_shown_as_kafka_shows_it(value: str, shown: object) -> None:
    data = SERDE.encode(r.ClientQuotaRecord(entity=(QuotaEntityPart(type="user", name="a"),), key="k", value=value))
    assert as_json(data)["data"]["value"] == shown


def test_the_parts_of_a_quota_s_entity_come_in_one_order_whoever_wrote_them() -> None:
    """Kafka takes them as a map. A cluster that came from ZooKeeper has the user before the client (ZkConfigMigrationClient)."""
    parts = (QuotaEntityPart(type="user", name="a"), QuotaEntityPart(type="client-id", name="b"))
    data = SERDE.encode(r.ClientQuotaRecord(entity=parts, key="producer_byte_rate", value="1.0"))
    read = SERDE.decode(data)
    assert isinstance(read, r.ClientQuotaRecord)
    assert read.entity == parts[::-1]
    assert [part["entityType"] for part in as_json(data)["data"]["entity"]] == ["user", "client-id"], "shown as it is"


@pytest.mark.parametrize("level", METADATA_VERSIONS)
def test_each_level_writes_the_versions_that_kafka_writes_at_it(level: int) -> None:
    """Kafka's MetadataVersion: registerBrokerRecordVersion, partitionRecordVersion, partitionChangeRecordVersion."""
    serde = MetadataSerde(level)
    broker = 4 if level >= 30 else 3 if level >= 17 else 2 if level >= 8 else 1
    topics = 2 if level >= 23 else 1 if level >= 17 else 0
    registration = r.RegisterBrokerRecord(
        broker_id=1, incarnation_id=ID, broker_epoch=1, listeners=(), features=(), rack=None, fenced=True,
        in_controlled_shutdown=False, log_dirs=(),
    )  # fmt: skip
    assert as_json(serde.encode(registration))["version"] == broker
    assert as_json(serde.encode(partition(ID, 0, directories=())))["version"] == topics
    assert as_json(serde.encode(r.PartitionChangeRecord(topic_id=ID, partition=0, leader=None)))["version"] == topics
    for changes, version, since in (
        ({}, 0, 0),
        ({"fenced": True}, 0, 0),
        ({"in_controlled_shutdown": True}, 1, 0),
        ({"log_dirs": (ID,)}, 2, 17),
        ({"cordoned_log_dirs": ()}, 3, 30),
    ):
        change = r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, **changes)
        if level >= since:
            assert as_json(serde.encode(change))["version"] == version
        else:
            with pytest.raises(ApiError, match=r"needs metadata\.version"):
                serde.encode(change)


@pytest.mark.parametrize(
    ("level", "record", "message"),
    [
        (16, partition(ID, 0), r"the directories of a PartitionRecord needs metadata.version 3.7-IV2 \(17\), .* 3.7-IV1 \(16\)"),
        (22, partition(ID, 0, elr=(1,)), r"the elr of a PartitionRecord needs metadata.version 4.0-IV1 \(23\)"),
        (
            22,
            r.PartitionChangeRecord(topic_id=ID, partition=0, last_known_elr=()),
            "the last_known_elr of a PartitionChangeRecord",
        ),
        (12, r.BeginTransactionRecord(), r"a BeginTransactionRecord needs metadata.version 3.6-IV1 \(13\)"),
        (10, r.RemoveUserScramCredentialRecord(name="a", mechanism=1), r"needs metadata.version 3.5-IV2 \(11\)"),
        (13, r.RemoveDelegationTokenRecord(token_id="a"), r"needs metadata.version 3.6-IV2 \(14\)"),
        (22, r.ClearElrRecord(topic_name=""), r"needs metadata.version 4.0-IV1 \(23\)"),
    ],
)
def test_el_02_what_a_level_cannot_hold_is_refused_and_not_left_out(level: int, record: MetadataRecord, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        MetadataSerde(level).encode(record)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_directories_that_are_still_to_be_found_are_left_out_below_their_level() -> None:
    """Nothing is lost: a reader of a partition without directories takes them for these."""
    record = partition(ID, 0, directories=(MIGRATING_DIR,) * 3)
    assert SERDE.decode(MetadataSerde(16).encode(record)) == partition(ID, 0, directories=())


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (r.ConfigRecord(resource_type=2, resource_name="t", name="k", value="é" * 20_000), "a string of 40000 bytes"),
        (r.ConfigRecord(resource_type=200, resource_name="t", name="k", value=""), "cannot be written"),
        (partition(ID, 0, leader_epoch=2**31), "cannot be written"),
        (
            r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=()),
            "a change to an empty list cannot be written",
        ),
        (
            r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=False),
            "in_controlled_shutdown is False",
        ),
    ],
)
def test_what_no_record_can_say_is_not_written(record: MetadataRecord, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        SERDE.encode(record)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


TOPIC_DATA = SERDE.encode(TopicRecord(name="t", topic_id=ID))
PARTITION_DATA = SERDE.encode(partition(ID, 0, elr=(1,)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes((2, 2, 0)), "frame version 2, type 2, version 0; this software reads frame version 1"),
        (bytes((1, 13, 0)), "frame version 1, type 13, version 0; this software reads types 0, 1, 2, "),
        (bytes((1, 2, 1)), "frame version 1, type 2, version 1; this software reads a TopicRecord up to version 0"),
        (bytes((1, 0x80, 2, 0)), "frame version 1, type 256, version 0"),
        (b"", "0 bytes is not a metadata record"),
        (bytes((1, 0xFF, 0xFF)), "3 bytes is not a metadata record"),
        (bytes((1, 2, 0)), r"a TopicRecord \(type 2\), version 0, field name, cannot be read: it ends too early"),
        (bytes((1, 2, 0, 0)), "field name, cannot be read: it is null"),
        (bytes((1, 2, 0, 2, 0xFF)) + bytes(17), "field name, cannot be read: .*invalid start byte"),
        (bytes((1, 2, 0, 0xFF, 0xFF, 0xFF, 0x7F)), "field name, cannot be read: a string of 268435454 bytes: allowed are 32767"),
        (TOPIC_DATA[:-1], "field tagged fields, cannot be read: it ends too early"),
        (TOPIC_DATA + b"x", "version 0, cannot be read: 1 bytes too many"),
        (PARTITION_DATA[:24] + bytes((0xFF, 0xFF, 0xFF, 0xFF, 0x0F)), "field replicas, cannot be read: it ends too early"),
        (PARTITION_DATA[:-6] + bytes((6,)) + PARTITION_DATA[-5:], "PartitionRecord"),
        (bytes((1, 17, 0)) + bytes(12) + bytes((1, 0, 1, 5)), "fenced is 5: allowed is one of 0, 1, -1"),
        (bytes((1, 27, 0)) + bytes(21) + bytes((2, 1, 1, 0, 0, 0, 9, 0, 1, 0)), "9 is not the number of a security protocol"),
    ],
)
def test_what_cannot_be_read_is_a_fault_that_names_record_and_field(data: bytes, message: str) -> None:
    with pytest.raises(Fault, match=message):
        SERDE.decode(data)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(VERSIONS).flatmap(lambda it: instances(*it)), st.integers(0, 2**32), st.binary(max_size=40))
def test_damaged_records_are_read_or_are_faults_and_nothing_else(record: Any, seed: int, more: bytes) -> None:
    rng, data = random.Random(seed), bytearray(SERDE.encode(record))
    for _ in range(rng.randrange(4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    cut = bytes(data[: rng.randrange(len(data) + 1)])
    for damaged in (bytes(data), cut, cut + more, bytes(data) + more, more, cut[:3] + more):
        try:
            read = SERDE.decode(damaged)
        except Fault as fault:
            assert "metadata record" in str(fault) or "Record" in str(fault)
        else:
            assert as_json(damaged)["type"] == LAYOUTS[damaged[1]].shown or damaged[1] > 0x7F
            assert type(read) in RECORD_TYPES.values()


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([it for it in VERSIONS if all(field.tag is None for field in it[0].fields_of(it[1]))]).flatmap(
        lambda it: st.tuples(st.just(it), instances(*it))
    )
)
def test_tagged_fields_of_newer_software_are_passed_over(drawn: tuple[tuple[Layout, int], Any]) -> None:
    (layout, version), record = drawn
    data = MetadataSerde(level_of(layout, version)).encode(record)
    assert data[-1] == 0
    more = data[:-1] + bytes((2, 99, 3)) + b"abc" + bytes((0xC8, 0x01, 0))
    assert SERDE.decode(more) == record
    assert as_json(more) == as_json(data)


def test_numbers_of_the_frame_may_take_more_bytes_than_they_need() -> None:
    assert SERDE.decode(bytes((0x81, 0x00, 0x82, 0x00, 0x80, 0x00)) + TOPIC_DATA[3:]) == SERDE.decode(TOPIC_DATA)


def test_decoding_shares_replica_tuples_and_ids() -> None:
    first, second = (SERDE.decode(SERDE.encode(partition(UUID(int=7), index))) for index in (0, 1))
    assert isinstance(first, PartitionRecord) and isinstance(second, PartitionRecord)
    for name in ("topic_id", "replicas", "isr", "directories"):
        assert getattr(first, name) is getattr(second, name)


def test_kafka_takes_a_listener_between_nodes_for_one_in_plain_text_and_we_do_not() -> None:
    listeners = tuple(
        ListenerInfo(name=name, host="h", port=1, security_protocol=protocol)
        for name, protocol in (("A", "GRPC"), ("B", "GRPC_TLS"), ("C", "PLAINTEXT"))
    )
    record = r.RegisterControllerRecord(controller_id=1, incarnation_id=ID, listeners=listeners, features=())
    data = SERDE.encode(record)
    assert SERDE.decode(data) == record
    assert [it["securityProtocol"] for it in as_json(data)["data"]["endPoints"]] == [0, 1, 0]
