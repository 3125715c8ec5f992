"""The hand-written codecs against kio and kafka-python, byte for byte, for every version that is advertised."""

from __future__ import annotations

import contextlib
import io
import random
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as PyFetchRequest
from kafka.protocol.consumer import FetchResponse as PyFetchResponse
from kafka.protocol.consumer import ListOffsetsRequest as PyListOffsetsRequest
from kafka.protocol.consumer import ListOffsetsResponse as PyListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse as PyApiVersionsResponse
from kafka.protocol.metadata import MetadataRequest as PyMetadataRequest
from kafka.protocol.metadata import MetadataResponse as PyMetadataResponse
from kafka.protocol.producer import ProduceRequest as PyProduceRequest
from kafka.protocol.producer import ProduceResponse as PyProduceResponse
from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from kraftlite.broker.metadata_cache import BrokerEndpoint, PartitionMetadata, TopicMetadata
from kraftlite.metadata.features import SUPPORTED_FEATURES
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId
from kraftlite.model.messages.controller import FeatureRange
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import milliseconds, string
from kraftlite.wire import api_versions_codec, fetch_codec, hot_codec, list_offsets_codec, metadata_codec
from kraftlite.wire.hot_codec import Node
from tests.harness.wire_fakes import encode_body

PRODUCE_VERSIONS = range(hot_codec.PRODUCE_MIN, hot_codec.PRODUCE_MAX + 1)
FETCH_VERSIONS = range(fetch_codec.FETCH_MIN, fetch_codec.FETCH_MAX + 1)
METADATA_VERSIONS = range(metadata_codec.METADATA_MIN, metadata_codec.METADATA_MAX + 1)
LIST_VERSIONS = range(list_offsets_codec.LIST_OFFSETS_MIN, list_offsets_codec.LIST_OFFSETS_MAX + 1)
API_VERSIONS = range(api_versions_codec.API_VERSIONS_MAX + 1)

SEEDS = range(6)
IDS = [UUID(int=77), UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")]


def view(body: bytes) -> memoryview:
    """As a connection holds it: writable, with other bytes around."""
    return memoryview(bytearray(b"????" + body))


def body_of(frame: bytes, correlation_id: int, flexible: bool) -> bytes:
    size, found = struct.unpack_from(">ii", frame)
    assert size == len(frame) - 4
    assert found == correlation_id
    if flexible:
        assert frame[8] == 0
        return frame[9:]
    return frame[8:]


def check_response(api_key: int, version: int, body: bytes, py_class: Any) -> Any:
    """Both libraries read it to the end, and write what they read as the same bytes. Returns kio's reading."""
    schema = load_response_schema(api_key, version)
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    again = io.BytesIO()
    entity_writer(schema)(again, entity)
    assert again.getvalue() == body
    assert bytes(py_class[version].decode(body).encode()) == body
    return entity


def check_request(py_class: Any, version: int, body: bytes) -> None:
    """kio and kafka-python agree on the bytes from which our parser is tested."""
    assert bytes(py_class[version].decode(body).encode()) == body


# --- Produce ---------------------------------------------------------------------------------------------------------------


def produce_values(rng: random.Random) -> dict[str, Any]:
    def records() -> bytes | None:
        return rng.choice([None, b"", rng.randbytes(rng.choice([1, 61, 127, 128, 20_000]))])

    return {
        "transactional_id": rng.choice([None, "", "txn-ü"]),
        "acks": rng.choice([-1, 0, 1, 7]),
        "timeout": rng.randrange(100_000),
        "topic_data": [
            {
                "name": rng.choice(["a", "events", "ünïcödé", "x" * 249]),
                "topic_id": rng.choice(IDS),
                "partition_data": [{"index": index, "records": records()} for index in range(rng.choice([0, 1, 3]))],
            }
            for _ in range(rng.choice([0, 1, 4]))
        ],
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_request(version: int, seed: int) -> None:
    values = produce_values(random.Random(seed))
    body = encode_body(0, version, values)
    check_request(PyProduceRequest, version, body)
    frame = view(body)
    parsed = hot_codec.parse_produce(frame, 4, version)
    assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (
        values["transactional_id"],
        values["acks"],
        values["timeout"],
    )
    assert [topic.topic_id if version >= 13 else topic.name for topic in parsed.topics] == [
        topic["topic_id" if version >= 13 else "name"] for topic in values["topic_data"]
    ]
    assert [
        (partition.partition, None if partition.records is None else bytes(partition.records))
        for topic in parsed.topics
        for partition in topic.partitions
    ] == [(one["index"], one["records"]) for topic in values["topic_data"] for one in topic["partition_data"]]
    for topic in parsed.topics:
        for partition in topic.partitions:
            assert partition.records is None or not partition.records.readonly
            assert partition.records is None or partition.records.obj is frame.obj, "a view, not a copy"


def produced_topics(rng: random.Random, version: int) -> list[hot_codec.ProducedTopic]:
    def result(index: int) -> hot_codec.ProducedPartition:
        error = rng.choice([0, 0, 3, 6])
        return hot_codec.ProducedPartition(
            index,
            error,
            rng.choice([-1, 0, 2**40]),
            rng.choice([-1, 1_700_000_000_000]),
            rng.choice([-1, 5]),
            rng.choice([None, "", "why: ü"]),
            rng.choice([None, (2, 9), (-1, -1), (-1, 4)]),
            rng.choice([(), ((3, "bad ü"), (7, ""))]),
        )

    return [
        hot_codec.ProducedTopic(
            rng.choice(["a", "ünï"]) if version < 13 else None,
            rng.choice(IDS) if version >= 13 else None,
            [result(index) for index in range(rng.choice([0, 1, 5]))],
        )
        for _ in range(rng.choice([0, 1, 3, 200]))
    ]


NODES = [Node(2, "host-2", 9092, None), Node(1, "::1", 65535, "räck")]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_response(version: int, seed: int) -> None:
    rng = random.Random(seed)
    topics = produced_topics(rng, version)
    nodes = rng.choice([[], NODES])
    frame = hot_codec.encode_produce(77, version, topics, nodes)
    entity = check_response(0, version, body_of(frame, 77, version >= 9), PyProduceResponse)
    for topic, found in zip(topics, entity.responses, strict=True):
        assert (found.topic_id if version >= 13 else found.name) == (topic.topic_id if version >= 13 else topic.name)
        for expected, got in zip(topic.partitions, found.partition_responses, strict=True):
            assert (got.index, got.error_code.value, got.base_offset) == (
                expected.partition,
                expected.error,
                expected.base_offset,
            )
            if version >= 5:
                assert got.log_start_offset == expected.log_start_offset
            if version >= 8:
                assert got.error_message == expected.message
                errors = [(one.batch_index, one.batch_index_error_message) for one in got.record_errors]
                assert errors == list(expected.record_errors)
            if version >= 10:
                leader = expected.leader or (-1, -1)
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == leader
    if version >= 10:
        assert [(node.node_id, node.host, node.port, node.rack) for node in entity.node_endpoints] == sorted(map(tuple, nodes))


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("name", ["a", "ünï", "x" * 249])
def test_the_short_way_says_the_same(version: int, name: str) -> None:
    done = hot_codec.ProducedPartition(3, 0, 2**40, 1_700_000_000_000, 5, None, None)
    topic = hot_codec.ProducedTopic(name if version < 13 else None, IDS[1] if version >= 13 else None, [done])
    key = IDS[1].bytes if version >= 13 else string(name, True)
    assert hot_codec.encode_produced(8, key, 3, 2**40, 1_700_000_000_000, 5) == hot_codec.encode_produce(8, version, [topic])


# --- Fetch -----------------------------------------------------------------------------------------------------------------


def fetch_values(rng: random.Random, version: int) -> dict[str, Any]:
    def topic() -> dict[str, Any]:
        return {"topic": rng.choice(["a", "ünï", "x" * 200]), "topic_id": rng.choice(IDS)}

    values: dict[str, Any] = {
        "replica_id": rng.choice([-1, -2, 5]),
        "max_wait": rng.randrange(1000),
        "min_bytes": rng.choice([0, 1, 2**31 - 1]),
        "max_bytes": rng.choice([1, 2**31 - 1]),
        "isolation_level": rng.choice([0, 1]),
        "session_id": rng.choice([0, 12345]),
        "session_epoch": rng.choice([-1, 0, 7]),
        "topics": [
            topic()
            | {
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": rng.choice([-1, 3]),
                        "fetch_offset": rng.randrange(2**40),
                        "last_fetched_epoch": rng.choice([-1, 2]),
                        "log_start_offset": -1,
                        "partition_max_bytes": rng.randrange(2**20),
                    }
                    | ({"replica_directory_id": IDS[1]} if rng.random() < 0.3 else {})
                    | ({"high_watermark": 12} if rng.random() < 0.3 else {})
                    for index in range(rng.choice([0, 1, 4]))
                ]
            }
            for _ in range(rng.choice([0, 1, 3]))
        ],
        "forgotten_topics_data": [
            topic() | {"partitions": list(range(rng.choice([0, 1, 300])))} for _ in range(rng.choice([0, 2]))
        ],
        "rack_id": rng.choice(["", "rack-ü"]),
    }
    if rng.random() < 0.5:
        values["cluster_id"] = "some-cluster"
    if version >= 15 and rng.random() < 0.5:
        values["replica_state"] = {"replica_id": 3, "replica_epoch": 8}
    return values


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_request(version: int, seed: int) -> None:
    values = fetch_values(random.Random(seed), version)
    body = encode_body(1, version, values)
    check_request(PyFetchRequest, version, body)
    parsed = fetch_codec.parse_fetch(view(body), 4, version)
    replica_id = values["replica_id"] if version < 15 else values.get("replica_state", {}).get("replica_id", -1)
    assert parsed[:5] == (
        replica_id,
        values["max_wait"],
        values["min_bytes"],
        values["max_bytes"],
        values["isolation_level"],
    )
    if version >= 7:
        assert (parsed.session_id, parsed.session_epoch) == (values["session_id"], values["session_epoch"])
        assert [(one.topic_id if version >= 13 else one.name, list(one.partitions)) for one in parsed.forgotten] == [
            (one["topic_id" if version >= 13 else "topic"], one["partitions"]) for one in values["forgotten_topics_data"]
        ]
    assert parsed.rack_id == (values["rack_id"] if version >= 11 else "")
    expected = [
        (
            topic["topic_id" if version >= 13 else "topic"],
            [
                (
                    one["partition"],
                    one["current_leader_epoch"] if version >= 9 else -1,
                    one["fetch_offset"],
                    one["last_fetched_epoch"] if version >= 12 else -1,
                    one["partition_max_bytes"],
                )
                for one in topic["partitions"]
            ],
        )
        for topic in values["topics"]
    ]
    assert [
        (one.topic_id if version >= 13 else one.name, [tuple(partition) for partition in one.partitions]) for one in parsed.topics
    ] == expected


def fetched_topics(rng: random.Random, version: int) -> list[fetch_codec.FetchedTopic]:
    def data(index: int) -> fetch_codec.FetchedPartition:
        return fetch_codec.FetchedPartition(
            index,
            rng.choice([0, 1, 6, 100]),
            rng.choice([-1, 2**40]),
            rng.choice([-1, 7]),
            rng.choice([-1, 0]),
            rng.choice([None, [], [(5, 6)], [(1, 2)] * 200]),
            rng.choice([-1, 3]),
            rng.randbytes(rng.choice([0, 1, 127, 4096, 4097, 50_000])),
            rng.choice([None, (4, 99)]) if version >= 12 else None,
            rng.choice([None, (2, 9), (-1, 4), (-1, -1)]) if version >= 12 else None,
        )

    return [
        fetch_codec.FetchedTopic(
            "ünï" if version < 13 else None,
            IDS[1] if version >= 13 else None,
            [data(index) for index in range(rng.choice([0, 1, 4]))],
        )
        for _ in range(rng.choice([0, 1, 3]))
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_response(version: int, seed: int) -> None:
    rng = random.Random(seed)
    topics = fetched_topics(rng, version)
    nodes = rng.choice([[], NODES])
    parts = fetch_codec.encode_fetch(9, version, topics, error=rng.choice([0, 70]), session_id=321, nodes=nodes)
    for topic in topics:
        for data in topic.partitions:
            if len(data.records) > fetch_codec.INLINE_RECORDS_BYTES:
                assert any(part is data.records for part in parts), "large records must not be copied"
    entity = check_response(1, version, body_of(b"".join(parts), 9, version >= 12), PyFetchResponse)
    if version >= 7:
        assert entity.session_id == 321
    for topic, found in zip(topics, entity.responses, strict=True):
        for expected, got in zip(topic.partitions, found.partitions, strict=True):
            assert (got.partition_index, got.error_code.value, got.high_watermark, got.records) == (
                expected.partition,
                expected.error,
                expected.hw,
                expected.records,
            )
            aborted = got.aborted_transactions
            assert (None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]) == expected.aborted
            if version >= 12:
                leader = expected.leader or (-1, -1)
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == leader
                assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (expected.diverging or (-1, -1))
    if version >= 16:
        assert [node.node_id for node in entity.node_endpoints] == sorted(node.node_id for node in nodes)


# --- Metadata --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", METADATA_VERSIONS)
@pytest.mark.parametrize("names", [None, [], ["a"], ["a", "ünï", "b"]])
def test_metadata_request(version: int, names: list[str] | None) -> None:
    if version == 0 and names is None:
        pytest.skip("v0 cannot say null")
    values = {
        "topics": None if names is None else [{"name": name, "topic_id": ZERO_UUID} for name in names],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    body = encode_body(3, version, values)
    check_request(PyMetadataRequest, version, body)
    parsed = metadata_codec.parse_metadata(view(body), 4, version)
    expected = None if names is None or (version == 0 and not names) else [(name, None) for name in names]
    assert parsed.topics == expected
    assert parsed.allow_auto_topic_creation is (version < 4)


def test_metadata_request_by_id() -> None:
    body = encode_body(3, 12, {"topics": [{"name": None, "topic_id": IDS[0]}], "include_topic_authorized_operations": False})
    assert metadata_codec.parse_metadata(view(body), 4, 12).topics == [(None, IDS[0])]


def metadata_partition(index: int, leader: int | None) -> PartitionMetadata:
    nodes = tuple(NodeId(node) for node in range(index % 4))
    return PartitionMetadata(
        error=ErrorCode.NONE if leader is not None else ErrorCode.LEADER_NOT_AVAILABLE,
        partition=index,
        leader=None if leader is None else NodeId(leader),
        leader_epoch=index * 3,
        replicas=nodes,
        isr=nodes[:1],
        offline_replicas=nodes[1:],
    )


@pytest.mark.parametrize("version", METADATA_VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 140])
def test_metadata_response(version: int, count: int) -> None:
    brokers = [
        BrokerEndpoint(broker_id=NodeId(node), host=f"hö{node}", port=9000 + node, rack=[None, "", "r"][node % 3], fenced=False)
        for node in range(count)
    ]
    topics = [
        TopicMetadata(
            error=ErrorCode.NONE,
            name=f"topic-{number}",
            topic_id=IDS[number % 2],
            is_internal=number % 2 == 1,
            partitions=tuple(metadata_partition(index, None if index == 2 else 1) for index in range(number % 7)),
        )
        for number in range(count)
    ]
    if version >= 12:
        topics.append(TopicMetadata(error=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=IDS[1]))
    frame = metadata_codec.encode_metadata(
        5,
        version,
        brokers=metadata_codec.encode_brokers(brokers, version),
        cluster_id="clüster",
        controller_id=2,
        topics=[metadata_codec.encode_topic(topic, version) for topic in topics],
    )
    entity = check_response(3, version, body_of(frame, 5, version >= 9), PyMetadataResponse)
    assert [broker.node_id for broker in entity.brokers] == list(range(count))
    assert [topic.name for topic in entity.topics] == [topic.name for topic in topics]
    for expected, got in zip(topics, entity.topics, strict=True):
        for one, two in zip(expected.partitions, got.partitions, strict=True):
            assert (two.leader_id, two.replica_nodes, two.isr_nodes) == (
                -1 if one.leader is None else one.leader,
                one.replicas,
                one.isr,
            )
            assert version < 7 or two.leader_epoch == one.leader_epoch
            assert version < 5 or two.offline_replicas == one.offline_replicas


# --- ApiVersions, ListOffsets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", API_VERSIONS)
@pytest.mark.parametrize("finalized", [None, {}, {"metadata.version": 30, "kraft.version": 0, "group.version": 1}])
def test_api_versions_response(version: int, finalized: dict[str, int] | None) -> None:
    supported = (
        FeatureRange(name="group.version", min_level=0, max_level=1),
        FeatureRange(name="kraft.version", min_level=0, max_level=0),
        FeatureRange(name="metadata.version", min_level=7, max_level=30),
    )
    frame = api_versions_codec.encode_api_versions(
        3,
        version,
        error=0,
        ranges=[api_versions_codec.ApiRange(key, 0, key % 9) for key in range(150)],
        supported=supported,
        finalized=finalized,
        finalized_epoch=41,
    )
    entity = check_response(18, version, body_of(frame, 3, False), PyApiVersionsResponse)
    assert len(entity.api_keys) == 150
    if version >= 3:
        told = [(one.name, one.min_version, one.max_version) for one in entity.supported_features]
        shown = supported if version >= 4 else supported[2:]
        assert told == [(it.name, it.min_level, it.max_level) for it in shown], "below v4 without a level of 0"
        assert entity.finalized_features_epoch == (-1 if finalized is None else 41)
        assert [(one.name, one.max_version_level) for one in entity.finalized_features] == sorted(
            (name, level) for name, level in (finalized or {}).items() if level
        )


@pytest.mark.parametrize("version", API_VERSIONS)
def test_api_versions_as_java_clients_of_3_3_to_3_8_take_them(version: int) -> None:
    """They speak v3 at most, and their network thread ends at a range that does not hold: 1 <= minimum <= maximum."""
    frame = api_versions_codec.encode_api_versions(
        3, version, error=0, ranges=(), supported=SUPPORTED_FEATURES, finalized={"kraft.version": 0}, finalized_epoch=1
    )
    entity = check_response(18, version, body_of(frame, 3, False), PyApiVersionsResponse)
    if version < 3:
        return
    ranges = [(one.min_version, one.max_version) for one in entity.supported_features]
    assert ranges, "metadata.version is told to everybody"
    assert all(version >= 4 or 1 <= low <= high for low, high in ranges)
    assert not entity.finalized_features, "level 0 is none"


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_list_offsets(version: int) -> None:
    values = {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": 3, "current_leader_epoch": 5, "timestamp": -1},
                    {"partition_index": 4, "current_leader_epoch": -1, "timestamp": 2**40},
                ][:count],
            }
            for name, count in (("a", 2), ("ünï", 0), ("b", 1))
        ],
        "timeout": 1234,
    }
    body = encode_body(2, version, values)
    check_request(PyListOffsetsRequest, version, body)
    parsed = list_offsets_codec.parse_list_offsets(view(body), 4, version)
    assert (parsed.replica_id, parsed.isolation_level) == (-1, 1 if version >= 2 else 0)
    epoch = 5 if version >= 4 else -1
    assert parsed.topics == [("a", [(3, epoch, -1), (4, -1, 2**40)]), ("ünï", []), ("b", [(3, epoch, -1)])]
    listed = [
        ("a", [list_offsets_codec.ListedOffset(1, 0, -1, 2**40, 7), list_offsets_codec.ListedOffset(2, 78, -1, -1, -1)]),
        ("ü", []),
    ]
    frame = list_offsets_codec.encode_list_offsets(8, version, listed)
    entity = check_response(2, version, body_of(frame, 8, version >= 6), PyListOffsetsResponse)
    assert [(one.partition_index, one.error_code.value, one.offset) for one in entity.topics[0].partitions] == [
        (1, 0, 2**40),
        (2, 78, -1),
    ]


# --- what does not add up --------------------------------------------------------------------------------------------------

PARSERS = [
    *((hot_codec.parse_produce, 0, version) for version in PRODUCE_VERSIONS),
    *((fetch_codec.parse_fetch, 1, version) for version in FETCH_VERSIONS),
    *((list_offsets_codec.parse_list_offsets, 2, version) for version in LIST_VERSIONS),
    *((metadata_codec.parse_metadata, 3, version) for version in METADATA_VERSIONS),
    *((api_versions_codec.parse_api_versions, 18, version) for version in API_VERSIONS if version >= 3),
]


@given(st.sampled_from(PARSERS), st.binary(max_size=200))
@settings(max_examples=400)
def test_garbage_is_a_violation_or_a_request(parser: Any, body: bytes) -> None:
    parse, _key, version = parser
    with contextlib.suppress(ProtocolViolation):
        parse(memoryview(bytearray(body)), 0, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_every_truncation_of_a_produce_is_a_violation(version: int) -> None:
    topic = {"name": "events", "topic_id": IDS[0], "partition_data": [{"index": 0, "records": b"r" * 70}]}
    body = encode_body(0, version, {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": [topic]})
    for size in range(len(body)):
        with pytest.raises(ProtocolViolation):
            hot_codec.parse_produce(memoryview(bytearray(body[:size])), 0, version)


def test_milliseconds() -> None:
    import datetime

    assert milliseconds(datetime.timedelta(milliseconds=-5)) == -5
    assert milliseconds(datetime.timedelta(days=20, milliseconds=3)) == 20 * 86_400_000 + 3
