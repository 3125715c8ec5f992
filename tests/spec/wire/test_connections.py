"""Frames, versions and connections over a real socket. CP-01 to CP-07."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from kraftlite.metadata.features import SUPPORTED_FEATURES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.wire import ConnectionClosed, ConnectionRefused, ListenerStarted, ListenerStopped
from kraftlite.wire.doors import ConnectionRules
from tests.harness.request_bodies import REQUEST_BODIES
from tests.harness.wire_fakes import Harness, RawClient, batch, decode_response, partition, request_bytes, until

METADATA_ALL: dict[str, Any] = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def produce_values(*records: bytes, topic: str = "events", acks: int = 1, index: int = 0) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": bytes(batch(*records))}]}],
    }


async def test_cp_01_header_v1_and_v2_and_the_correlation_id_comes_back() -> None:
    async with Harness() as h:
        client = await h.client()
        for version in (0, 8, 9, 13):  # v9 is the first with a flexible header
            correlation_id = client.send(3, version, METADATA_ALL | {"topics": [{"name": "events", "topic_id": None}]})
            answer = await client.receive(3, version, correlation_id)
            assert [topic.name for topic in answer.topics] == ["events"]


async def test_answers_do_not_wait_for_the_acknowledgement_of_earlier_ones() -> None:
    """Nagle's algorithm would hold the second of two answers for 40 ms; asyncio leaves it on for sockets that we make."""
    async with Harness() as h:
        await h.client()
        await until(lambda: h.listener.connection_count == 1)
        (connection,) = h.listener._connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_cp_01_pipelined_requests_are_answered_in_request_order() -> None:
    async with Harness() as h:
        client = await h.client()
        first = client.send(0, 9, produce_values(b"a", acks=-1))  # waits for its followers
        second = client.send(0, 9, produce_values(b"b", acks=1))
        third = client.send(18, 3, {"client_software_name": "x", "client_software_version": "1"})
        await until(lambda: h.replicas.leo.get(TopicPartition("events", 0)) == 2)
        assert h.apis.requests["ApiVersions"] == 1, "the later requests were taken while the first waits"
        with pytest.raises(asyncio.TimeoutError):
            await client.read_frame(timeout=0.05)
        h.replicas.release()
        one = await client.receive(0, 9, first)
        two = await client.receive(0, 9, second)
        await client.receive(18, 3, third)
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in (one, two)]
        assert offsets == [0, 1]


async def test_cp_01_frames_may_arrive_in_any_pieces() -> None:
    async with Harness() as h:
        client = await h.client()
        payloads = [request_bytes(3, 9, METADATA_ALL, at) for at in range(3)] + [
            request_bytes(0, 9, produce_values(b"v" * 200_000), 3)
        ]
        data = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
        for at in range(0, 400, 7):
            client.send_bytes(data[at : at + 7])
            await asyncio.sleep(0)
        client.send_bytes(data[len(range(0, 400, 7)) * 7 :])
        for at, key in enumerate((3, 3, 3, 0)):
            decode_response(key, 9, await client.read_frame(), at)
        assert h.replicas.logs[TopicPartition("events", 0)][0][61:].endswith(b"v" * 200_000 + b"\x00")


async def test_cp_01_frames_larger_than_the_buffer_and_many_in_one_read() -> None:
    async with Harness({"big": [partition([1])]}) as h:
        client = await h.client()
        sizes = [5_000_000, 10, 3_000_000, *([50] * 300), 70_000]
        for at, size in enumerate(sizes):
            client.send_frame(request_bytes(0, 9, produce_values(bytes([at % 251]) * size, topic="big"), at))
        for at in range(len(sizes)):
            answer = decode_response(0, 9, await client.read_frame(timeout=20), at)
            assert answer.responses[0].partition_responses[0].base_offset == at
        log = h.replicas.logs[TopicPartition("big", 0)]
        for at, size in enumerate(sizes):
            assert bytes([at % 251]) * size in log[at]


ACL_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
MINIMAL_TOPIC = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}

BAD_FRAMES = {
    "negative size": struct.pack(">i", -1),
    "oversized": struct.pack(">i", 1_000_001),
    "no header": struct.pack(">i", 3) + b"abc",
    "empty": struct.pack(">i", 0),
    "unknown api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "unimplemented api": struct.pack(">ihhih", 10, 10, 0, 1, -1),
    "version too high": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "version too low": struct.pack(">ihhih", 10, 0, 2, 1, -1),
    "client id beyond the frame": struct.pack(">ihhih", 10, 3, 0, 1, 500),
    "unreadable hot body": struct.pack(">ihhih", 16, 0, 9, 1, -1) + b"\x00\xff\xff\xff\xff\xff",
    "unreadable cold body": struct.pack(">ihhih", 16, 19, 7, 1, -1) + b"\x00\xff\xff\xff\xff\x7f",
    "body missing": struct.pack(">ihhih", 10, 32, 1, 1, -1),
}


@pytest.mark.parametrize("what", BAD_FRAMES)
async def test_cp_02_a_bad_frame_closes_only_its_connection(what: str) -> None:
    async with Harness(listener={"max_request_bytes": 1_000_000}) as h:
        good, bad = await h.client(), await h.client()
        bad.send_bytes(BAD_FRAMES[what])
        assert await bad.closed()
        await good.call(3, 9, METADATA_ALL)
        await until(lambda: any(isinstance(event, ConnectionClosed) for event in h.tracer.events))
        assert h.listener.connection_count == 1


async def test_cp_02_what_was_answered_before_the_bad_frame_still_arrives() -> None:
    async with Harness() as h:
        client = await h.client()
        correlation_id = client.send(3, 9, METADATA_ALL)
        client.send_bytes(struct.pack(">i", -5))
        await client.receive(3, 9, correlation_id)
        assert await client.closed()


async def test_cp_02_half_a_frame_and_then_nothing_harms_nobody() -> None:
    async with Harness() as h:
        half, other = await h.client(), await h.client()
        half.send_bytes(struct.pack(">i", 100) + b"\x00\x03")
        await other.call(3, 9, METADATA_ALL)
        half.close()
        await until(lambda: h.listener.connection_count == 1)
        await other.call(3, 9, METADATA_ALL)


async def test_cp_02_a_huge_announced_frame_costs_nothing_until_its_bytes_come() -> None:
    async with Harness() as h:
        client = await h.client()
        client.send_bytes(struct.pack(">i", 100 * 1024 * 1024) + b"\x00")
        await until(lambda: h.listener.connection_count == 1)
        connection = next(iter(h.listener._connections))
        await until(lambda: connection.received == 5)
        assert connection._in.capacity == 16 * 1024
        client.send_bytes(b"\x00" * 100_000)
        await until(lambda: connection.received == 100_005)
        assert connection._in.capacity <= 256 * 1024, "twice what has come"


@pytest.mark.parametrize("version", [5, 99, -1, 32767])
async def test_cp_03_api_versions_of_an_unknown_version_is_answered_in_v0(version: int) -> None:
    async with Harness() as h:
        client = await h.client()
        client.send_frame(struct.pack(">hhih", 18, version, 55, -1) + b"\x00\x02x\x02y\x00")
        answer = decode_response(18, 0, await client.read_frame(), 55)
        assert answer.error_code.value == 35
        assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(18, 0, 4)]
        assert (await client.call(18, 0, {})).error_code.value == 0, "the connection lives"


@pytest.mark.parametrize("name", ["", "no spaces", "-x", "x-", "ü"])
async def test_cp_03_software_names_are_checked(name: str) -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(18, 3, {"client_software_name": name, "client_software_version": "1.0"})
        assert answer.error_code.value == 42
        answer = await client.call(18, 3, {"client_software_name": "apache-kafka.java", "client_software_version": "4.1.0"})
        assert answer.error_code.value == 0


@pytest.mark.parametrize("version", range(5))
async def test_cp_03_api_versions_header_is_v0_in_every_version(version: int) -> None:
    async with Harness() as h:
        client = await h.client()
        correlation_id = client.send(18, version, {"client_software_name": "x", "client_software_version": "1"})
        frame = await client.read_frame()
        answer = decode_response(18, version, frame, correlation_id)
        assert [api.api_key for api in answer.api_keys] == [api.api_key for api in h.apis.ranges]


async def test_cp_04_produce_is_advertised_from_v0_and_taken_from_v3() -> None:
    """KAFKA-18659: older librdkafka looks for Produce v0 to v2 before it compresses, and never sends one."""
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(18, 0, {})
        told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        taken = {api.api_key: (api.min_version, api.max_version) for api in h.apis.ranges}
        assert told == {**taken, 0: (0, taken[0][1])}
        assert taken[0][0] == 3


async def test_cp_03_finalized_features_and_their_epoch() -> None:
    """CM-54 as a client sees it."""
    async with Harness(offset=77, features={"metadata.version": 29}) as h:
        client = await h.client()
        answer = await client.call(18, 4, {"client_software_name": "x", "client_software_version": "1"})
        assert answer.finalized_features_epoch == 77
        assert [(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features] == [
            ("metadata.version", 29, 29)
        ]
        assert {one.name for one in answer.supported_features} == {feature.name for feature in SUPPORTED_FEATURES}


async def test_cm_54_no_epoch_before_any_metadata() -> None:
    async with Harness(offset=-1, features={"metadata.version": 29}) as h:
        client = await h.client()
        answer = await client.call(18, 4, {"client_software_name": "x", "client_software_version": "1"})
        assert answer.finalized_features_epoch == -1
        assert answer.finalized_features == ()


MINIMAL: dict[int, dict[str, Any]] = {
    0: {"transactional_id": None, "acks": 1, "timeout": 0, "topic_data": []},
    1: {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [],
        "forgotten_topics_data": [],
    },
    2: {"replica_id": -1, "isolation_level": 0, "topics": [], "timeout": 0},
    3: {"topics": [], "include_cluster_authorized_operations": False, "include_topic_authorized_operations": False},
    18: {"client_software_name": "x", "client_software_version": "1"},
    19: {"topics": []},
    20: {"topics": [], "topic_names": [], "timeout": 0},
    21: {"topics": [], "timeout": 0},
    **REQUEST_BODIES,
    23: {"replica_id": -1, "topics": []},
    32: {"resources": []},
    33: {"resources": [], "validate_only": False},
    35: {"topics": []},
    37: {"topics": [], "timeout": 0, "validate_only": False},
    43: {"election_type": 0, "topic_partitions": []},
    44: {"resources": [], "validate_only": False},
    55: {"topics": []},
    57: {"feature_updates": []},
    60: {"include_cluster_authorized_operations": False, "include_fenced_brokers": False},
    64: {"broker_id": 9},
    75: {"topics": []},
    45: {"topics": []},
    46: {"topics": None},
    48: {"components": [], "strict": False},
    49: {"entries": [], "validate_only": False},
    50: {"users": None},
    51: {"deletions": [], "upsertions": []},
    74: {"resource_types": []},
    29: ACL_FILTER,
    30: {"creations": []},
    31: {"filters": []},
    38: {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": -1},
    39: {"hmac": b"x", "renew_period": -1},
    40: {"hmac": b"x", "expiry_time_period": -1},
    41: {"owners": None},
    71: {"client_instance_id": None},
    72: {"client_instance_id": None, "subscription_id": 0, "terminating": False, "compression_type": 0, "metrics": b""},
}


async def test_cp_04_every_advertised_version_decodes_and_answers() -> None:
    async with Harness() as h:
        client = await h.client()
        asked = 0
        for api in h.apis.ranges:
            for version in range(api.min_version, api.max_version + 1):
                await client.call(api.api_key, version, MINIMAL[api.api_key])
                asked += 1
        assert asked == sum(api.max_version - api.min_version + 1 for api in h.apis.ranges)


async def test_cp_04_flexible_versions_are_where_the_schemas_say() -> None:
    async with Harness() as h:
        for key, api in h.apis._table.items():
            for version in range(api.min_version, api.max_version + 1):
                assert load_request_schema(key, version).__flexible__ is (version >= api.flexible_from), (api.name, version)


async def test_cp_04_ranges_are_those_of_kafka_4() -> None:
    """All that the schemas know, which are Kafka 4's ranges; InitProducerId v6 (two-phase commit) is not final there."""
    async with Harness() as h:
        for api in h.apis.ranges:
            known = sorted(schema_name_map[api_key_map[api.api_key]])
            expected = (known[0], 5 if api.api_key == 22 else known[-1])
            assert (api.min_version, api.max_version) == expected, api


@pytest.mark.parametrize(
    ("key", "version"), [(0, 9), (1, 12), (2, 6), (3, 9), (18, 3), (19, 7), (32, 4), (57, 2), (60, 2), (75, 0)]
)
async def test_cp_05_unknown_tagged_fields_are_skipped(key: int, version: int) -> None:
    async with Harness() as h:
        client = await h.client()
        payload = request_bytes(key, version, MINIMAL[key], 5)
        assert payload.endswith(b"\x00")
        unknown = b"\x02" + b"\xc8\x01" + b"\x03abc" + b"\xc9\x01" + b"\x00"  # tags 200 and 201
        client.send_frame(payload[:-1] + unknown)
        decode_response(key, version, await client.read_frame(), 5)


async def test_cp_05_unknown_tags_in_the_header_and_in_nested_parts() -> None:
    async with Harness() as h:
        client = await h.client()
        head = struct.pack(">hhih", 19, 7, 8, -1) + b"\x01\x63\x02hi"
        topic = b"\x02t" + struct.pack(">ih", 1, 1) + b"\x01\x01" + b"\x01\x63\x01z"
        client.send_frame(head + b"\x02" + topic + struct.pack(">iB", 1000, 1) + b"\x00")
        answer = decode_response(19, 7, await client.read_frame(), 8)
        assert [(one.name, one.error_code.value) for one in answer.topics] == [("t", 7)]
        assert h.controller.calls[0][1].validate_only is True


async def test_cp_05_null_and_empty_are_told_apart() -> None:
    async with Harness() as h:
        client = await h.client()
        assert len((await client.call(3, 9, MINIMAL[3] | {"topics": None})).topics) == 1
        assert len((await client.call(3, 9, MINIMAL[3] | {"topics": []})).topics) == 0


async def test_cp_06_a_null_client_id_is_accepted() -> None:
    async with Harness() as h:
        client = await h.client()
        await client.call(3, 1, MINIMAL[3], client_id=None)
        await client.call(3, 12, MINIMAL[3], client_id=None)
        await client.call(3, 12, MINIMAL[3], client_id="")


async def test_cp_06_idle_connections_are_closed() -> None:
    async with Harness(listener={"max_idle_ms": 10_000}) as h:
        idle, busy = await h.client(), await h.client()
        await idle.call(3, 9, METADATA_ALL)
        await busy.call(3, 9, METADATA_ALL)
        h.clock.advance(9_000)
        await busy.call(3, 9, METADATA_ALL)
        assert h.listener.connection_count == 2
        h.clock.advance(5_000)
        assert await idle.closed()
        await busy.call(3, 9, METADATA_ALL)


async def test_cp_06_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    async with Harness(listener={"max_idle_ms": 10_000}) as h:
        client = await h.client()
        correlation_id = client.send(0, 9, produce_values(b"a", acks=-1))
        await until(lambda: bool(h.replicas.parked))
        h.clock.advance(60_000)
        h.replicas.release()
        await client.receive(0, 9, correlation_id)


async def test_cp_06_connection_limits() -> None:
    async with Harness(rules=ConnectionRules(most_per_ip=2, most=5)) as h:
        one, two, three = await h.client(), await h.client(), await h.client()
        assert await three.closed()
        await one.call(3, 9, METADATA_ALL)
        await two.call(3, 9, METADATA_ALL)
        assert any(isinstance(event, ConnectionRefused) for event in h.tracer.events)
        one.close()
        await until(lambda: h.listener.connection_count == 1)
        await (await h.client()).call(3, 9, METADATA_ALL)


async def test_cp_07_unimplemented_apis_are_not_advertised() -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(18, 3, MINIMAL[18])
        keys = {api.api_key for api in answer.api_keys}
        assert keys == set(MINIMAL)
        assert not keys & {10, 11, 12, 13, 14, 25, 28, 56, 58}, "no groups, their offsets, or RPCs between nodes"


async def test_back_pressure_stops_reading_and_goes_on_later() -> None:
    async with Harness(listener={"max_in_flight": 10}) as h:
        client = await h.client()
        sent = [client.send(0, 9, produce_values(b"x", acks=-1)) for _ in range(25)]
        await until(lambda: len(h.replicas.parked) == 10)
        await asyncio.sleep(0.02)
        assert len(h.replicas.parked) == 10
        while len(h.replicas.appended) < 25:
            h.replicas.release()
            await asyncio.sleep(0.001)
        h.replicas.release()
        for correlation_id in sent:
            await client.receive(0, 9, correlation_id)


async def test_a_slow_reader_stops_being_served_until_it_reads() -> None:
    async with Harness({"big": [partition([1])]}) as h:
        client = await h.client()
        await client.call(0, 9, produce_values(b"z" * 1_000_000, topic="big"))
        fetch = MINIMAL[1] | {
            "max_bytes": 10_000_000,
            "topics": [{"topic": "big", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2_000_000}]}],
        }
        sent = [client.send(1, 11, fetch | {"rack_id": ""}) for _ in range(60)]
        await until(lambda: len(h.replicas.fetches) > 0)
        served = -1
        while served != len(h.replicas.fetches):
            served = len(h.replicas.fetches)
            await asyncio.sleep(0.05)
        assert served < 60, "responses pile up in memory"
        for correlation_id in sent:
            answer = await client.receive(1, 11, correlation_id)
            assert len(answer.responses[0].partitions[0].records) > 1_000_000


async def test_answers_that_wait_for_an_earlier_one_stop_what_comes_behind_them() -> None:
    async with Harness({"events": [partition([1])], "big": [partition([1])]}) as h:
        client = await h.client()
        await client.call(0, 9, produce_values(b"z" * 1_000_000, topic="big"))

        def ask(topic: str, wait_ms: int) -> int:
            place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2_000_000}
            topics = [{"topic": topic, "partitions": [place]}]
            limits = {"max_bytes": 10_000_000, "max_wait": wait_ms, "min_bytes": 1}
            return client.send(1, 11, MINIMAL[1] | limits | {"topics": topics, "rack_id": ""})

        first = ask("events", 60_000)
        sent = [ask("big", 0) for _ in range(60)]
        await until(lambda: len(h.replicas.fetches) > 1)
        await asyncio.sleep(0.1)
        assert len(h.replicas.fetches) < 5, "1 MiB of them is enough"
        other = await h.client()
        await other.call(0, 9, produce_values(b"x"))
        await client.receive(1, 11, first)
        for correlation_id in sent:
            answer = await client.receive(1, 11, correlation_id)
            assert len(answer.responses[0].partitions[0].records) > 1_000_000


async def test_stop_answers_what_is_in_flight_within_the_grace() -> None:
    h = Harness()
    async with h:
        client = await h.client()
        correlation_id = client.send(0, 9, produce_values(b"a", acks=-1))
        await until(lambda: bool(h.replicas.parked))
        stopping = asyncio.get_running_loop().create_task(h.listener.stop(grace_ms=1_000))
        await asyncio.sleep(0)
        h.replicas.release()
        await until(lambda: (h.clock.advance(10), stopping.done())[1])
        await client.receive(0, 9, correlation_id)
        assert await client.closed()
        stopped = [event for event in h.tracer.events if isinstance(event, ListenerStopped)]
        assert [event.unanswered for event in stopped] == [0]
        assert any(isinstance(event, ListenerStarted) for event in h.tracer.events)
        with pytest.raises(OSError):
            await RawClient(*await asyncio.open_connection("127.0.0.1", stopped[0].port)).call(3, 9, METADATA_ALL)


async def test_a_lost_connection_cancels_its_long_polls() -> None:
    async with Harness() as h:
        client = await h.client()
        wait = MINIMAL[1] | {
            "max_wait": 60_000,
            "min_bytes": 1,
            "topics": [{"topic": "events", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10}]}],
        }
        client.send(1, 4, wait)
        await until(lambda: h.replicas.waiting == 1)
        client.close()
        await until(lambda: not h.tasks.running)


async def test_idle_connections_give_their_buffer_back() -> None:
    async with Harness({"big": [partition([1])]}) as h:
        client = await h.client()
        await client.call(0, 9, produce_values(b"z" * 1_000_000, topic="big"))
        connection = next(iter(h.listener._connections))
        assert connection._in.capacity > 1_000_000
        h.clock.advance(20_000)
        assert connection._in.capacity == 16 * 1024
        await client.call(0, 9, produce_values(b"z" * 1_000_000, topic="big"))
