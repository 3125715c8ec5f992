"""Admin requests through a broker to the controller, in every version.

CE-31, CM-15 to CM-25, CM-47 to CM-55, CP-12 to CP-15, CP-56 to CP-59.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.log.log import ActiveProducer
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from kraftlite.model.messages.raft import DescribeQuorumResponse, QuorumReplica
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import DiskSpace
from tests.harness.authorized import for_nobody
from tests.harness.log_dirs_fakes import FakeLog
from tests.harness.wire_fakes import Harness, partition, topic_uuid

E = ErrorCode
ALL_FAILED = "The update failed for all features since the following feature had an error"
N = NodeId


def creatable(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []} | more


@pytest.mark.parametrize("version", range(2, 8))
async def test_cp_56_create_topics_is_forwarded_whole(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.CREATE_TOPICS] = lambda request: c.CreateTopicsResponse(
            topics=tuple(c.CreatableTopicResult(name=topic.name, error=E.NONE) for topic in request.topics)
        )
        values = {
            "topics": [
                creatable("a", num_partitions=3, replication_factor=2, configs=[{"name": "retention.ms", "value": "5"}]),
                creatable(
                    "b",
                    assignments=[{"partition_index": 1, "broker_ids": [2, 3]}],
                    configs=[{"name": "cleanup.policy", "value": None}],
                ),
            ],
            "timeout": 4321,
            "validate_only": True,
        }
        answer = await (await h.client()).call(19, version, values)
        assert [(topic.name, topic.error_code.value) for topic in answer.topics] == [("a", 0), ("b", 0)]
        ((method, request, timeout_ms),) = h.controller.calls
        assert (method, timeout_ms) == (m.CREATE_TOPICS, 4321)
        assert replace(for_nobody(request), quota=None) == c.CreateTopicsRequest(
            topics=(
                c.CreatableTopic(
                    name="a",
                    num_partitions=3,
                    replication_factor=2,
                    assignments=(),
                    configs=(c.ConfigPair(name="retention.ms", value="5"),),
                ),
                c.CreatableTopic(
                    name="b",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=(c.ReplicaAssignment(partition=1, broker_ids=(N(2), N(3))),),
                    configs=(c.ConfigPair(name="cleanup.policy", value=None),),
                ),
            ),
            validate_only=True,
            timeout_ms=4321,
        )


@pytest.mark.parametrize("version", range(2, 8))
async def test_cp_59_create_topics_reports_what_was_created(version: int) -> None:
    async with Harness() as h:
        result = c.CreatableTopicResult(
            name="a",
            error=E.NONE,
            topic_id=topic_uuid(5),
            num_partitions=4,
            replication_factor=3,
            configs=(
                c.TopicConfigValue(name="retention.ms", value="9", read_only=False, source=1, is_sensitive=False),
                c.TopicConfigValue(name="secret", value="x", read_only=False, source=1, is_sensitive=True),
            ),
        )
        h.controller.answers[m.CREATE_TOPICS] = lambda _request: c.CreateTopicsResponse(topics=(result,))
        (topic,) = (await (await h.client()).call(19, version, {"topics": [creatable("a")]})).topics
        if version >= 5:
            assert (topic.num_partitions, topic.replication_factor) == (4, 3)
            assert [(one.name, one.value, one.config_source) for one in topic.configs] == [
                ("retention.ms", "9", 1),
                ("secret", None, 1),
            ]
        if version >= 7:
            assert topic.topic_id == topic_uuid(5)


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("CM-15", E.INVALID_TOPIC_EXCEPTION),
        ("CM-15", E.TOPIC_ALREADY_EXISTS),
        ("CM-16", E.INVALID_PARTITIONS),
        ("CM-17", E.INVALID_REPLICATION_FACTOR),
        ("CM-18", E.INVALID_REPLICA_ASSIGNMENT),
        ("CM-22", E.INVALID_CONFIG),
        ("CM-22", E.POLICY_VIOLATION),
        ("CM-25", E.INVALID_REQUEST),
    ],
)
async def test_cm_15_refusals_reach_the_client_per_topic(behaviour: str, error: ErrorCode) -> None:
    """So are those of CM-16, CM-17, CM-18 and CM-22."""
    async with Harness() as h:
        h.controller.answers[m.CREATE_TOPICS] = lambda _request: c.CreateTopicsResponse(
            topics=(
                c.CreatableTopicResult(name="a", error=error, message="because"),
                c.CreatableTopicResult(name="b", error=E.NONE),
            )
        )
        for version in range(2, 8):
            answer = await (await h.client()).call(19, version, {"topics": [creatable("a"), creatable("b")]})
            first, second = answer.topics
            assert (first.error_code.value, first.error_message, second.error_code.value) == (error, "because", 0), behaviour


@pytest.mark.parametrize("version", range(1, 7))
async def test_cm_23_delete_topics_by_name_and_id(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.DELETE_TOPICS] = lambda request: c.DeleteTopicsResponse(
            topics=tuple(
                c.DeleteTopicResult(name=one.name, topic_id=one.topic_id, error=E.UNKNOWN_TOPIC_ID, message="gone")
                if one.topic_id
                else c.DeleteTopicResult(name=one.name, topic_id=topic_uuid(1), error=E.NONE, message=None)
                for one in request.topics
            )
        )
        values: dict[str, Any] = {"topic_names": ["a", "b"], "timeout": 77}
        values["topics"] = [{"name": "a", "topic_id": None}, {"name": None, "topic_id": topic_uuid(9)}]
        answer = await (await h.client()).call(20, version, values)
        request = h.controller.calls[0][1]
        assert request.timeout_ms == 77
        if version >= 6:
            assert request.topics == (
                c.TopicSelector(name="a", topic_id=None),
                c.TopicSelector(name=None, topic_id=topic_uuid(9)),
            )
            assert [(one.name, one.topic_id, one.error_code.value) for one in answer.responses] == [
                ("a", topic_uuid(1), 0),
                (None, topic_uuid(9), E.UNKNOWN_TOPIC_ID),
            ]
            assert answer.responses[1].error_message == "gone"
        else:
            assert [(one.name, one.error_code.value) for one in answer.responses] == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("version", range(1, 7))
async def test_cm_23_deletion_disabled_by_version(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.DELETE_TOPICS] = lambda _request: c.DeleteTopicsResponse(
            topics=(c.DeleteTopicResult(name="a", topic_id=None, error=E.TOPIC_DELETION_DISABLED, message=None),)
        )
        values = {"topic_names": ["a"], "topics": [{"name": "a", "topic_id": None}], "timeout": 1}
        answer = await (await h.client()).call(20, version, values)
        assert answer.responses[0].error_code.value == (E.TOPIC_DELETION_DISABLED if version >= 3 else E.INVALID_REQUEST)


@pytest.mark.parametrize("version", range(4))
async def test_cm_24_create_partitions(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.CREATE_PARTITIONS] = lambda _request: c.CreatePartitionsResponse(
            topics=(
                c.CreatePartitionsResult(name="a", error=E.NONE, message=None),
                c.CreatePartitionsResult(name="b", error=E.INVALID_PARTITIONS, message="fewer"),
            )
        )
        values = {
            "topics": [
                {"name": "a", "count": 6, "assignments": None},
                {"name": "b", "count": 2, "assignments": [{"broker_ids": [1, 2]}]},
            ],
            "timeout": 55,
            "validate_only": True,
        }
        answer = await (await h.client()).call(37, version, values)
        assert [(one.name, one.error_code.value, one.error_message) for one in answer.results] == [
            ("a", 0, None),
            ("b", E.INVALID_PARTITIONS, "fewer"),
        ]
        assert replace(for_nobody(h.controller.calls[0][1]), quota=None) == c.CreatePartitionsRequest(
            topics=(
                c.CreatePartitionsTopic(name="a", count=6, assignments=None),
                c.CreatePartitionsTopic(
                    name="b", count=2, assignments=(c.ReplicaAssignment(partition=0, broker_ids=(N(1), N(2))),)
                ),
            ),
            validate_only=True,
            timeout_ms=55,
        )


@pytest.mark.parametrize("version", range(3))
async def test_cm_38_elect_leaders(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.ELECT_LEADERS] = lambda _request: c.ElectLeadersResponse(
            results=(
                c.ElectLeadersResult(topic="a", partition=0, error=E.NONE, message=None),
                c.ElectLeadersResult(topic="b", partition=1, error=E.ELECTION_NOT_NEEDED, message="fine"),
                c.ElectLeadersResult(topic="a", partition=2, error=E.PREFERRED_LEADER_NOT_AVAILABLE, message=None),
            )
        )
        client = await h.client()
        values = {"election_type": 1, "topic_partitions": [{"topic": "a", "partitions": [0, 2]}], "timeout": 9}
        answer = await client.call(43, version, values)
        request = h.controller.calls[0][1]
        assert for_nobody(request) == c.ElectLeadersRequest(
            election_type=1 if version >= 1 else 0,
            partitions=(c.PartitionName(topic="a", partition=0), c.PartitionName(topic="a", partition=2)),
            timeout_ms=9,
        )
        assert {
            (one.topic, part.partition_id, part.error_code.value)
            for one in answer.replica_election_results
            for part in one.partition_result
        } == {("a", 0, 0), ("a", 2, E.PREFERRED_LEADER_NOT_AVAILABLE), ("b", 1, E.ELECTION_NOT_NEEDED)}
        await client.call(43, version, values | {"topic_partitions": None})
        assert h.controller.calls[1][1].partitions is None


@pytest.mark.parametrize("version", range(2))
async def test_cm_47_incremental_alter_configs(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.INCREMENTAL_ALTER_CONFIGS] = lambda _request: c.AlterConfigsResponse(
            resources=(
                c.AlterConfigsResult(resource_type=2, resource_name="a", error=E.NONE, message=None),
                c.AlterConfigsResult(resource_type=4, resource_name="1", error=E.INVALID_REQUEST, message="no"),
            )
        )
        changes = [
            {"name": "retention.ms", "config_operation": 0, "value": "1"},
            {"name": "cleanup.policy", "config_operation": 1, "value": None},
            {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
            {"name": "cleanup.policy", "config_operation": 9, "value": "delete"},
        ]
        values = {
            "resources": [
                {"resource_type": 2, "resource_name": "a", "configs": changes},
                {"resource_type": 4, "resource_name": "1", "configs": []},
            ],
            "validate_only": True,
        }
        answer = await (await h.client()).call(44, version, values)
        assert [(one.resource_type, one.resource_name, one.error_code.value, one.error_message) for one in answer.responses] == [
            (2, "a", 0, None),
            (4, "1", E.INVALID_REQUEST, "no"),
        ]
        request = h.controller.calls[0][1]
        assert request.validate_only is True
        assert request.resources[0].changes == tuple(
            c.ConfigChange(name=one["name"], op=one["config_operation"], value=one["value"]) for one in changes
        )


async def test_cm_47_a_broker_takes_its_own_configs_only() -> None:
    """As Kafka's ConfigAdminManager: clients send a broker's configs to that broker."""
    async with Harness() as h:
        h.controller.answers[m.INCREMENTAL_ALTER_CONFIGS] = lambda request: c.AlterConfigsResponse(
            resources=tuple(
                c.AlterConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name, error=E.NONE, message=None)
                for one in request.resources
            )
        )
        change = {"name": "log.cleaner.threads", "config_operation": 0, "value": "2"}
        names = ("2", "", "x", "1")
        resources = [{"resource_type": 4, "resource_name": name, "configs": [change]} for name in names]
        answer = await (await h.client()).call(44, 1, {"resources": resources, "validate_only": False})
        assert [(one.resource_name, one.error_code.value, one.error_message) for one in answer.responses] == [
            ("2", E.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
            ("", E.NONE, None),
            ("x", E.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
            ("1", E.NONE, None),
        ]
        assert [one.resource_name for one in h.controller.calls[0][1].resources] == ["", "1"]


@pytest.mark.parametrize("version", range(3))
async def test_cm_50_legacy_alter_configs(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.ALTER_CONFIGS] = lambda _request: c.AlterConfigsResponse(
            resources=(c.AlterConfigsResult(resource_type=2, resource_name="a", error=E.NONE, message=None),)
        )
        values = {
            "resources": [{"resource_type": 2, "resource_name": "a", "configs": [{"name": "k", "value": None}]}],
            "validate_only": False,
        }
        answer = await (await h.client()).call(33, version, values)
        assert [one.error_code.value for one in answer.responses] == [0]
        assert h.controller.calls[0][1].resources == (
            c.LegacyConfigResource(resource_type=2, resource_name="a", configs=(c.ConfigPair(name="k", value=None),)),
        )


@pytest.mark.parametrize("version", range(3))
async def test_cm_53_update_features(version: int) -> None:
    async with Harness() as h:
        client = await h.client()
        results = (
            c.UpdateFeatureResult(name="a", error=E.NONE, message=None),
            c.UpdateFeatureResult(name="b", error=E.INVALID_UPDATE_VERSION, message="too high"),
        )
        h.controller.answers[m.UPDATE_FEATURES] = lambda _request: c.UpdateFeaturesResponse(results=results)
        values = {
            "timeout": 5,
            "feature_updates": [
                {"feature": "a", "max_version_level": 3, "allow_downgrade": False, "upgrade_type": 1},
                {"feature": "b", "max_version_level": 9, "allow_downgrade": True, "upgrade_type": 3},
            ],
            "validate_only": True,
        }
        answer = await client.call(57, version, values)
        request = h.controller.calls[0][1]
        assert [(one.name, one.level) for one in request.updates] == [("a", 3), ("b", 9)]
        assert request.timeout_ms > 5, "Kafka does not look at the request's own"
        assert [one.upgrade_type for one in request.updates] == ([1, 3] if version >= 1 else [1, 2])
        assert request.validate_only is (version >= 1)
        if version >= 2:
            assert (answer.error_code.value, answer.error_message) == (E.INVALID_UPDATE_VERSION, f"{ALL_FAILED}: too high")
        else:
            assert [(one.feature, one.error_code.value) for one in answer.results] == [("a", 0), ("b", E.INVALID_UPDATE_VERSION)]

        def refuse(_request: Any) -> Any:
            raise ApiError(E.INVALID_REQUEST, "no")

        h.controller.answers[m.UPDATE_FEATURES] = refuse
        answer = await client.call(57, version, values)
        assert (answer.error_code.value, answer.error_message) == (E.INVALID_REQUEST, f"{ALL_FAILED}: no")

        def lost(_request: Any) -> Any:
            raise ApiError(E.NOT_CONTROLLER, "elsewhere")

        h.controller.answers[m.UPDATE_FEATURES] = lost
        answer = await client.call(57, version, values)
        assert (answer.error_code.value, answer.error_message) == (E.NOT_CONTROLLER, "elsewhere")


async def test_cm_12_unregister_broker() -> None:
    async with Harness() as h:
        client = await h.client()
        h.controller.answers[m.UNREGISTER_BROKER] = lambda _request: c.Empty()
        assert (await client.call(64, 0, {"broker_id": 7})).error_code.value == 0
        assert h.controller.calls[0][1].broker_id == 7

        def refuse(_request: Any) -> Any:
            raise ApiError(E.BROKER_ID_NOT_REGISTERED, "who?")

        h.controller.answers[m.UNREGISTER_BROKER] = refuse
        answer = await client.call(64, 0, {"broker_id": 7})
        assert (answer.error_code.value, answer.error_message) == (E.BROKER_ID_NOT_REGISTERED, "who?")


EMPTY_REQUESTS: dict[int, dict[str, Any]] = {
    19: {"topics": []},
    20: {"topics": [], "topic_names": [], "timeout": 1},
    37: {"topics": [], "timeout": 1, "validate_only": False},
    33: {"resources": [], "validate_only": False},
    44: {"resources": [], "validate_only": False},
    43: {"election_type": 0, "topic_partitions": []},
    57: {"feature_updates": []},
    45: {"topics": []},
    49: {"entries": [], "validate_only": False},
}


@pytest.mark.parametrize("key", EMPTY_REQUESTS)
async def test_ce_31_empty_requests_succeed_without_the_controller(key: int) -> None:
    async with Harness() as h:
        client = await h.client()
        for api in h.apis.ranges:
            if api.api_key == key:
                answer = await client.call(key, api.max_version, EMPTY_REQUESTS[key])
        error = getattr(answer, "error_code", None)
        assert error is None or error.value == 0
        assert not h.controller.calls


NO_CONTROLLER: dict[int, dict[str, Any]] = {
    19: {"topics": [creatable("a")], "timeout": 100},
    20: {"topics": [{"name": "a", "topic_id": None}], "timeout": 100},
    37: {"topics": [{"name": "a", "count": 5, "assignments": None}], "timeout": 100, "validate_only": False},
    33: {"resources": [{"resource_type": 2, "resource_name": "a", "configs": []}], "validate_only": False},
    44: {"resources": [{"resource_type": 2, "resource_name": "a", "configs": []}], "validate_only": False},
    43: {"election_type": 0, "topic_partitions": [{"topic": "a", "partitions": [0]}]},
    57: {"feature_updates": [{"feature": "a", "max_version_level": 3, "upgrade_type": 1}]},
    64: {"broker_id": 3},
    45: {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "replicas": [1]}]}], "timeout": 100},
    46: {"topics": None, "timeout": 100},
    49: {
        "entries": [
            {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [{"key": "k", "value": 1.0, "remove": False}]}
        ],
        "validate_only": False,
    },
    55: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
}


def error_codes(answer: Any) -> list[int]:
    """Every error code anywhere in a response."""
    found = []
    for name in answer.__dataclass_fields__:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value.value)
        elif isinstance(value, tuple):
            found += [code for item in value if hasattr(item, "__dataclass_fields__") for code in error_codes(item)]
    return found


@pytest.mark.parametrize("key", NO_CONTROLLER)
async def test_cp_57_without_a_controller_the_request_times_out(key: int) -> None:
    async with Harness() as h:
        client = await h.client()
        version = next(api.max_version for api in h.apis.ranges if api.api_key == key)
        answer = await client.call(key, version, NO_CONTROLLER[key])
        assert E.REQUEST_TIMED_OUT in error_codes(answer)
        assert len(h.controller.calls) == 1
        assert h.controller.calls[0][2] > 0


@pytest.mark.parametrize("version", range(3))
async def test_cp_56_describe_quorum_is_answered_by_the_leader(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.DESCRIBE_QUORUM] = lambda _request: DescribeQuorumResponse(
            leader_id=N(11),
            leader_epoch=4,
            high_watermark=None,
            voters=(
                QuorumReplica(
                    replica_id=N(11),
                    directory_id=UUID(int=5),
                    log_end_offset=99,
                    last_fetch_timestamp_ms=None,
                    last_caught_up_timestamp_ms=123,
                    endpoint=Endpoint("c", 9093),
                ),
            ),
            observers=(
                QuorumReplica(
                    replica_id=N(1),
                    directory_id=None,
                    log_end_offset=None,
                    last_fetch_timestamp_ms=1,
                    last_caught_up_timestamp_ms=None,
                    endpoint=None,
                ),
            ),
        )
        client = await h.client()
        answer = await client.call(55, version, NO_CONTROLLER[55])
        one = answer.topics[0].partitions[0]
        assert (one.leader_id, one.leader_epoch, one.high_watermark) == (11, 4, -1)
        assert [(replica.replica_id, replica.log_end_offset) for replica in one.current_voters] == [(11, 99)]
        assert [(replica.replica_id, replica.log_end_offset) for replica in one.observers] == [(1, -1)]
        if version >= 1:
            assert (one.current_voters[0].last_fetch_timestamp, one.current_voters[0].last_caught_up_timestamp) == (-1, 123)
        if version >= 2:
            assert one.current_voters[0].replica_directory_id == UUID(int=5)
        other = {"topics": [{"topic_name": "events", "partitions": [{"partition_index": 0}]}]}
        assert error_codes(await client.call(55, version, other))[1:] == [E.UNKNOWN_TOPIC_OR_PARTITION]


# --- DescribeConfigs -------------------------------------------------------------------------------------------------------


async def describe(h: Harness, kind: int, name: str, version: int = 4, **more: Any) -> Any:
    values = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": more.pop("keys", None)}],
        "include_synonyms": True,
        "include_documentation": True,
    } | more
    return (await (await h.client()).call(32, version, values)).results[0]


@pytest.mark.parametrize("name", ["9" * 5_000, "0" * 5_000, "x", "2147483648", "2"])
async def test_a_broker_that_does_not_exist_is_refused_however_long_its_name_is(name: str) -> None:
    """Python refuses to read more than 4,300 digits."""
    async with Harness() as h:
        assert (await describe(h, 4, name)).error_code.value == E.INVALID_REQUEST
        assert (await describe(h, 4, "0" * 5_000 + "1")).error_code.value == E.NONE


def by_name(result: Any) -> dict[str, Any]:
    return {entry.name: entry for entry in result.configs}


async def test_cm_49_precedence_and_the_synonym_chain() -> None:
    configs = {
        (2, "events"): {"retention.bytes": "1"},
        (4, "1"): {"log.retention.bytes": "2", "log.segment.bytes": "20"},
        (4, ""): {"log.retention.bytes": "3", "log.index.interval.bytes": "30"},
    }
    static = {"log.retention.bytes": "4", "log.flush.interval.messages": "40", "log.retention.hours": "24"}
    async with Harness(configs=configs, config=static) as h:
        found = by_name(await describe(h, 2, "events"))
        entry = found["retention.bytes"]
        assert (entry.value, entry.config_source) == ("1", 1)
        assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
            ("retention.bytes", "1", 1),
            ("log.retention.bytes", "2", 2),
            ("log.retention.bytes", "3", 3),
            ("log.retention.bytes", "4", 4),
            ("log.retention.bytes", "-1", 5),
        ]
        assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == ("20", 2)
        assert (found["index.interval.bytes"].value, found["index.interval.bytes"].config_source) == ("30", 3)
        assert (found["flush.messages"].value, found["flush.messages"].config_source) == ("40", 4)
        # What Kafka shows of a key that is set in another unit: the value, but not where it is from.
        hours = found["retention.ms"]
        assert (hours.value, hours.config_source, hours.synonyms) == (str(24 * 3_600_000), 5, ())
        assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("delete", 5)


async def test_cm_49_synonyms_begin_with_the_key_itself() -> None:
    """As Kafka's ConfigHelper: weaker names follow the key that is described, and are not told without it."""
    static = {"log.roll.hours": "9", "log.retention.minutes": "7", "log.retention.hours": "8"}
    async with Harness(configs={(2, "events"): {"retention.ms": "5"}}, config=static) as h:
        topic = by_name(await describe(h, 2, "events"))
        assert [(one.name, one.source) for one in topic["retention.ms"].synonyms] == [("retention.ms", 1)]
        for name in ("flush.ms", "segment.ms", "remote.storage.enable", "leader.replication.throttled.replicas"):
            assert (topic[name].config_source, topic[name].synonyms) == (5, ()), name
        broker = by_name(await describe(h, 4, "1"))
        assert [(one.name, one.value, one.source) for one in broker["log.retention.minutes"].synonyms] == [
            ("log.retention.minutes", "7", 4),
            ("log.retention.hours", "8", 4),
            ("log.retention.hours", "168", 5),
        ]
        assert broker["log.retention.ms"].synonyms == ()


@pytest.mark.parametrize("version", range(1, 5))
async def test_cp_13_describe_a_topic(version: int) -> None:
    async with Harness() as h:
        result = await describe(h, 2, "events", version)
        assert (result.error_code.value, result.resource_type, result.resource_name) == (0, 2, "events")
        entry = by_name(result)["min.insync.replicas"]
        assert (entry.value, entry.read_only, entry.is_sensitive, entry.config_source) == ("1", False, False, 5)
        if version >= 3:
            assert entry.config_type == 3
            assert entry.documentation
        unknown = await describe(h, 2, "nope", version)
        assert (unknown.error_code.value, unknown.configs) == (E.UNKNOWN_TOPIC_OR_PARTITION, ())


async def test_cp_13_only_what_is_asked_for() -> None:
    async with Harness() as h:
        result = await describe(
            h, 2, "events", keys=["retention.ms", "nope"], include_synonyms=False, include_documentation=False
        )
        (entry,) = result.configs
        assert (entry.name, entry.synonyms, entry.documentation) == ("retention.ms", (), None)


async def test_cp_13_a_broker_answers_for_itself_alone() -> None:
    async with Harness(config={"num.partitions": "7"}, configs={(4, ""): {"log.retention.ms": "5"}}) as h:
        own = by_name(await describe(h, 4, "1"))
        assert (own["num.partitions"].value, own["num.partitions"].config_source, own["num.partitions"].read_only) == (
            "7",
            4,
            True,
        )
        assert (own["log.retention.ms"].value, own["log.retention.ms"].config_source) == ("5", 3)
        assert own["log.retention.ms"].read_only is False
        for name, error in (("2", E.INVALID_REQUEST), ("x", E.INVALID_REQUEST)):
            assert (await describe(h, 4, name)).error_code.value == error
        everyone = by_name(await describe(h, 4, ""))
        assert list(everyone) == ["log.retention.ms"]


async def test_cp_13_broker_loggers_groups_and_unknown_kinds() -> None:
    async with Harness(configs={(32, "g"): {"consumer.session.timeout.ms": "50000"}}) as h:
        assert (await describe(h, 8, "1")).error_code.value == 0
        assert (await describe(h, 8, "2")).error_code.value == E.INVALID_REQUEST
        group = by_name(await describe(h, 32, "g"))
        entry = group["consumer.session.timeout.ms"]
        assert (entry.value, entry.config_source) == ("50000", 8)
        assert (await describe(h, 99, "g")).error_code.value == E.INVALID_REQUEST


async def test_cm_51_sensitive_values_are_null() -> None:
    static = {"ssl.keystore.password": "hunter2"}
    async with Harness(config=static, configs={(4, ""): {"someones.own.password": "x", "ssl.key.password": "y"}}) as h:
        own = by_name(await describe(h, 4, "1"))
        entry = own["ssl.keystore.password"]
        assert (entry.is_sensitive, entry.value) == (True, None)
        assert all(one.value is None for one in entry.synonyms)
        shared = by_name(await describe(h, 4, ""))
        assert {name: one.value for name, one in shared.items()} == {"someones.own.password": None, "ssl.key.password": None}


async def test_cp_58_a_created_topic_is_seen_with_the_next_image() -> None:
    async with Harness({}) as h:
        client = await h.client()
        assert (await describe(h, 2, "new")).error_code.value == E.UNKNOWN_TOPIC_OR_PARTITION
        h.set_image(topics={"new": [partition([1])]})
        assert (await describe(h, 2, "new")).error_code.value == 0
        answer = await client.call(75, 0, {"topics": [], "response_partition_limit": 10, "cursor": None})
        assert [topic.name for topic in answer.topics] == ["new"]


@pytest.mark.parametrize("version", range(1, 6))
async def test_cp_14_describe_log_dirs(version: int) -> None:
    async with Harness() as h:
        h.log_dirs.online = {
            "/data/2": [FakeLog(tp=TopicPartition("b", 0), size_bytes=7, hw=5, leo=3)],
            "/data/1": [FakeLog(tp=TopicPartition("a", at), size_bytes=100 + at, hw=1, leo=9) for at in (1, 0)],
        }
        h.log_dirs.offline = ["/data/0"]
        h.log_dirs.space = {"/data/1": DiskSpace(total=1000, usable=400)}
        client = await h.client()
        answer = await client.call(35, version, {"topics": None})
        assert [
            (
                one.log_dir,
                one.error_code.value,
                [
                    (topic.name, part.partition_index, part.partition_size, part.offset_lag, part.is_future_key)
                    for topic in one.topics
                    for part in topic.partitions
                ],
            )
            for one in answer.results
        ] == [
            ("/data/1", 0, [("a", 0, 100, 0, False), ("a", 1, 101, 0, False)]),
            ("/data/2", 0, [("b", 0, 7, 2, False)]),
            ("/data/0", E.KAFKA_STORAGE_ERROR, []),
        ]
        if version >= 4:
            assert [(one.total_bytes, one.usable_bytes) for one in answer.results] == [(1000, 400), (-1, -1), (-1, -1)]
        answer = await client.call(35, version, {"topics": [{"topic": "a", "partitions": [1, 7]}]})
        assert [[topic.name for topic in one.topics] for one in answer.results] == [["a"], [], []]


async def test_cp_15_describe_producers() -> None:
    async with Harness({}) as h:
        h.set_image(topics={"led": [partition([1])], "elsewhere": [partition([2, 1])]})
        h.replicas.producers[TopicPartition("led", 0)] = (
            ActiveProducer(1000, 3, 41, 1_700_000_000_000, -1, None),
            ActiveProducer(1001, 0, 7, 1_700_000_000_005, 2, 12),
        )
        client = await h.client()
        asked = [{"name": "led", "partition_indexes": [0, 5, *[0] * 500]}, {"name": "elsewhere", "partition_indexes": [0]}]
        answer = await client.call(61, 0, {"topics": asked})
        (led, missing), (elsewhere,) = (topic.partitions for topic in answer.topics)
        assert led.error_code.value == 0
        assert [
            (
                it.producer_id,
                it.producer_epoch,
                it.last_sequence,
                it.last_timestamp,
                it.coordinator_epoch,
                it.current_txn_start_offset,
            )
            for it in led.active_producers
        ] == [(1000, 3, 41, 1_700_000_000_000, -1, -1), (1001, 0, 7, 1_700_000_000_005, 2, 12)]
        assert missing.error_code.value == E.UNKNOWN_TOPIC_OR_PARTITION
        assert elsewhere.error_code.value == E.NOT_LEADER_OR_FOLLOWER
        assert (missing.active_producers, elsewhere.active_producers) == ((), ())
