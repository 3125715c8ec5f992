"""Reassignments, client quotas, config resources, loggers, and security without an authorizer, on the wire.

Source: CM-41 to CM-46, CM-56, CM-60, CM-61; KIP-455, KIP-546, KIP-714, KIP-860, KIP-1142.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.metadata.records import UserScramCredentialRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.group_configs import GROUP_CONFIGS
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from kraftlite.model.messages import security
from kraftlite.protocol.kio_codec import decode_response
from tests.harness.wire_fakes import Harness, broker, partition
from tests.spec.wire.test_admin import creatable

E = ErrorCode
N = NodeId
USER, CLIENT, IP = (security.QuotaEntityPart(type=kind, name=None) for kind in ("user", "client-id", "ip"))


def part(kind: str, name: str | None) -> security.QuotaEntityPart:
    return security.QuotaEntityPart(type=kind, name=name)


@pytest.mark.parametrize("version", range(2))
async def test_cm_41_alter_reassignments_is_forwarded_and_answered_by_topic(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.ALTER_PARTITION_REASSIGNMENTS] = lambda request: c.AlterPartitionReassignmentsResponse(
            results=tuple(
                c.ReassignmentResult(
                    topic=one.topic,
                    partition=one.partition,
                    error=E.NO_REASSIGNMENT_IN_PROGRESS if one.replicas is None else E.NONE,
                    message="none" if one.replicas is None else None,
                )
                for one in request.partitions
            )
        )
        topics = [
            {"name": "a", "partitions": [{"partition_index": at, "replicas": [3, 1] if at else None} for at in range(2)]},
            {"name": "b", "partitions": [{"partition_index": 7, "replicas": [2]}]},
        ]
        values = {"topics": topics, "timeout": 1234} | ({"allow_replication_factor_change": False} if version else {})
        answer = await (await h.client()).call(45, version, values)
        assert answer.error_code.value == 0
        assert [
            (topic.name, [(one.partition_index, one.error_code.value, one.error_message) for one in topic.partitions])
            for topic in answer.responses
        ] == [("a", [(0, E.NO_REASSIGNMENT_IN_PROGRESS, "none"), (1, 0, None)]), ("b", [(7, 0, None)])]
        ((_method, request, timeout_ms),) = h.controller.calls
        assert (timeout_ms, request.allow_replication_factor_change) == (1234, version == 0)
        assert [one.replicas for one in request.partitions] == [None, (N(3), N(1)), (N(2),)]


async def test_cm_46_list_reassignments() -> None:
    async with Harness() as h:
        moving = c.OngoingReassignment(topic="a", partition=2, replicas=(N(4), N(1)), adding=(N(4),), removing=(N(1),))
        h.controller.answers[m.LIST_PARTITION_REASSIGNMENTS] = lambda _request: c.ListPartitionReassignmentsResponse(
            reassignments=(moving,)
        )
        client = await h.client()
        (topic,) = (await client.call(46, 0, {"topics": None, "timeout": 5})).topics
        (one,) = topic.partitions
        assert (topic.name, one.partition_index) == ("a", 2)
        assert (one.replicas, one.adding_replicas, one.removing_replicas) == ((4, 1), (4,), (1,))
        await client.call(46, 0, {"topics": [{"name": "a", "partition_indexes": [0, 2]}], "timeout": 5})
        asked = [request.partitions for _method, request, _timeout in h.controller.calls]
        assert asked == [None, (c.PartitionName(topic="a", partition=0), c.PartitionName(topic="a", partition=2))]


@pytest.mark.parametrize("version", range(2))
async def test_cm_61_alter_quotas_keeps_doubles_exactly(version: int) -> None:
    async with Harness() as h:
        h.controller.answers[m.ALTER_CLIENT_QUOTAS] = lambda request: security.AlterClientQuotasResponse(
            entries=tuple(
                security.AlterClientQuotasResult(entity=one.entity, error=E.NONE, message=None) for one in request.entries
            )
        )
        ops = [
            {"key": "request_percentage", "value": 0.1, "remove": False},
            {"key": "producer_byte_rate", "value": 1048576.0, "remove": False},
            {"key": "consumer_byte_rate", "value": 0.0, "remove": True},
        ]
        entity = [{"entity_type": "user", "entity_name": None}, {"entity_type": "client-id", "entity_name": "c"}]
        values = {"entries": [{"entity": entity, "ops": ops}], "validate_only": True}
        answer = await (await h.client()).call(49, version, values)
        assert [one.error_code.value for one in answer.entries] == [0]
        assert [(one.entity_type, one.entity_name) for one in answer.entries[0].entity] == [("user", None), ("client-id", "c")]
        request = h.controller.calls[0][1]
        assert request.validate_only
        assert [(op.key, op.value) for op in request.entries[0].ops] == [
            ("request_percentage", "0.1"),
            ("producer_byte_rate", "1048576.0"),
            ("consumer_byte_rate", None),
        ]


async def test_cm_61_an_entity_that_is_named_again_is_answered_once() -> None:
    """As in Kafka: with the refusal of the second, so that no client takes its last word for done."""
    async with Harness() as h:
        h.controller.answers[m.ALTER_CLIENT_QUOTAS] = lambda request: security.AlterClientQuotasResponse(
            entries=tuple(
                security.AlterClientQuotasResult(entity=one.entity, error=error, message=None)
                for one, error in zip(request.entries, (E.NONE, E.NONE, E.INVALID_REQUEST), strict=True)
            )
        )
        user, client = ({"entity_type": kind, "entity_name": None} for kind in ("user", "client-id"))
        ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]
        entries = [{"entity": entity, "ops": ops} for entity in ([user, client], [user], [client, user])]
        answer = await (await h.client()).call(49, 1, {"entries": entries, "validate_only": False})
        assert [(len(one.entity), one.error_code.value) for one in answer.entries] == [(2, E.INVALID_REQUEST), (1, 0)]


QUOTAS: Any = {
    (USER,): {"producer_byte_rate": "1.0"},
    (part("user", "u"),): {"producer_byte_rate": "2.0", "request_percentage": "12.5"},
    (part("client-id", "c"), part("user", "u")): {"consumer_byte_rate": "3.0"},
    (part("ip", "10.0.0.1"),): {"connection_creation_rate": "4.0"},
}


@pytest.mark.parametrize(
    ("components", "strict", "rates"),
    [
        ([], False, [3.0, 4.0, 1.0, 2.0]),
        ([("user", 0, "u")], False, [3.0, 2.0]),
        ([("user", 0, "u")], True, [2.0]),
        ([("user", 1, None)], False, [1.0]),
        ([("user", 2, None)], True, [1.0, 2.0]),
        ([("user", 2, None), ("client-id", 0, "c")], True, [3.0]),
        ([("ip", 2, None)], True, [4.0]),
        ([("user", 0, "nobody")], False, []),
    ],
)
@pytest.mark.parametrize("version", range(2))
async def test_cm_61_describe_quotas_by_filter(
    version: int, components: list[tuple[str, int, str | None]], strict: bool, rates: list[float]
) -> None:
    async with Harness(quotas=QUOTAS) as h:
        asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
        answer = await (await h.client()).call(48, version, {"components": asked, "strict": strict})
        assert answer.error_code.value == 0
        assert [entry.values[0].value for entry in answer.entries] == rates


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", 0, None)], E.INVALID_REQUEST),
        ([("user", 1, "u")], E.INVALID_REQUEST),
        ([("user", 2, "u")], E.INVALID_REQUEST),
        ([("user", 3, None)], E.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], E.INVALID_REQUEST),
        ([("", 2, None)], E.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], E.INVALID_REQUEST),
        ([("planet", 2, None)], E.UNSUPPORTED_VERSION),
    ],
)
async def test_cm_61_filters_that_are_not_allowed(components: list[tuple[str, int, str | None]], error: ErrorCode) -> None:
    async with Harness(quotas=QUOTAS) as h:
        asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
        answer = await (await h.client()).call(48, 1, {"components": asked, "strict": False})
        assert (answer.error_code.value, answer.entries) == (error, None)
        assert answer.error_message


async def test_list_config_resources() -> None:
    configs = {
        (16, "metrics-1"): {"interval.ms": "1000"},
        (32, "g"): {"consumer.session.timeout.ms": "50000"},
        (4, ""): {"a": "b"},
    }
    async with Harness({"t": [partition([1])]}, brokers=[broker(1), broker(2)], configs=configs) as h:
        client = await h.client()
        old = await client.call(74, 0, {})
        assert [one.resource_name for one in old.config_resources] == ["metrics-1"]
        everything = await client.call(74, 1, {"resource_types": []})
        assert [(one.resource_type, one.resource_name) for one in everything.config_resources] == [
            (2, "t"),
            (4, "1"),
            (4, "2"),
            (8, "1"),
            (8, "2"),
            (16, "metrics-1"),
            (32, "g"),
        ]
        some = await client.call(74, 1, {"resource_types": [32, 2]})
        assert [(one.resource_type, one.resource_name) for one in some.config_resources] == [(32, "g"), (2, "t")]
        refused = await client.call(74, 1, {"resource_types": [99]})
        assert (refused.error_code.value, refused.config_resources) == (E.UNSUPPORTED_VERSION, ())


async def test_loggers_are_refused_by_name_and_the_rest_is_forwarded() -> None:
    async with Harness() as h:
        h.controller.answers[m.INCREMENTAL_ALTER_CONFIGS] = lambda request: c.AlterConfigsResponse(
            resources=tuple(
                c.AlterConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name, error=E.NONE, message=None)
                for one in request.resources
            )
        )
        change = {"name": "kafka.x", "config_operation": 0, "value": "DEBUG"}
        resources = [
            {"resource_type": 8, "resource_name": "1", "configs": [change]},
            {"resource_type": 2, "resource_name": "t", "configs": [change]},
            {"resource_type": 8, "resource_name": "2", "configs": [change]},
        ]
        answer = await (await h.client()).call(44, 1, {"resources": resources, "validate_only": False})
        assert [(one.resource_type, one.resource_name, one.error_code.value) for one in answer.responses] == [
            (8, "1", E.INVALID_CONFIG),
            (2, "t", 0),
            (8, "2", E.INVALID_REQUEST),
        ]
        assert answer.responses[0].error_message == "Logger kafka.x does not exist!"
        assert [one.resource_name for one in h.controller.calls[0][1].resources] == ["t"]


async def test_cp_13_groups_and_client_metrics_list_every_key_with_its_source() -> None:
    configs = {(32, "g"): {"consumer.session.timeout.ms": "50000"}, (16, "s"): {"match": "client_id=a.*"}}
    async with Harness(config={"group.consumer.heartbeat.interval.ms": "6000"}, configs=configs) as h:
        client = await h.client()

        async def found(kind: int, name: str) -> dict[str, tuple[str, int]]:
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            values = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
            (answer,) = (await client.call(32, 4, values)).results
            assert answer.error_code.value == (0 if name else E.INVALID_REQUEST)
            assert all(one.documentation and one.config_type for one in answer.configs)
            return {one.name: (one.value, one.config_source) for one in answer.configs}

        group = await found(32, "g")
        assert set(group) == set(GROUP_CONFIGS)
        assert group["consumer.session.timeout.ms"] == ("50000", 8)
        assert group["consumer.heartbeat.interval.ms"] == ("6000", 4)
        assert await found(16, "s") == {"match": ("client_id=a.*", 7), "metrics": ("", 5), "interval.ms": ("300000", 5)}
        assert await found(32, "") == {} and await found(16, "") == {}


async def test_cm_56_acls_without_an_authorizer() -> None:
    async with Harness() as h:
        client = await h.client()
        acl = {
            "resource_type": 2,
            "resource_name": "t",
            "resource_pattern_type": 3,
            "principal": "User:a",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        names = ("resource_type", "resource_name", "pattern_type", "principal", "host")
        wanted = {f"{name}_filter": None if name in ("resource_name", "principal", "host") else 1 for name in names}
        wanted |= {"operation": 1, "permission_type": 1}
        for version in (1, 2, 3):
            assert (await client.call(29, version, wanted)).error_code.value == E.SECURITY_DISABLED
            created = await client.call(30, version, {"creations": [acl, acl]})
            assert [one.error_code.value for one in created.results] == [E.SECURITY_DISABLED] * 2
            deleted = await client.call(31, version, {"filters": [wanted]})
            assert [one.error_code.value for one in deleted.filter_results] == [E.SECURITY_DISABLED]
            assert created.results[0].error_message == "No Authorizer is configured."


async def test_cm_60_delegation_tokens_are_for_authenticated_clients() -> None:
    async with Harness() as h:
        client = await h.client()
        nobody = {"owner_principal_type": None, "owner_principal_name": None}
        client.send(38, 3, nobody | {"renewers": [], "max_lifetime": -1})
        # Not by kio's reader: Kafka says -1 for times that there are not, which is none to it.
        created = decode_response(38, 3, memoryview(await client.read_frame()))
        answers = [
            created,
            await client.call(39, 2, {"hmac": b"x", "renew_period": -1}),
            await client.call(40, 2, {"hmac": b"x", "expiry_time_period": -1}),
            await client.call(41, 3, {"owners": None}),
        ]
        assert [one.error_code.value for one in answers] == [E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED] * 4


async def test_cm_59_describe_scram_credentials() -> None:
    def credential(name: str, mechanism: int) -> UserScramCredentialRecord:
        return UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096 + mechanism
        )

    async with Harness(scram=[credential("u", 1), credential("u", 2), credential("v", 1)]) as h:
        client = await h.client()

        async def found(*users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
            answer = await client.call(50, 0, {"users": [{"name": user} for user in users] or None})
            return [
                (one.user, one.error_code.value, [(info.mechanism, info.iterations) for info in one.credential_infos])
                for one in answer.results
            ]

        assert await found() == [("u", 0, [(1, 4097), (2, 4098)]), ("v", 0, [(1, 4097)])]
        assert await found("v", "nobody") == [("v", 0, [(1, 4097)]), ("nobody", E.RESOURCE_NOT_FOUND, [])]
        assert await found("u", "u") == [("u", E.DUPLICATE_RESOURCE, [])]


async def test_cm_59_alter_scram_credentials_is_forwarded() -> None:
    async with Harness() as h:
        h.controller.answers[m.ALTER_USER_SCRAM_CREDENTIALS] = lambda _request: security.AlterUserScramCredentialsResponse(
            results=(security.ScramResult(user="u", error=E.UNACCEPTABLE_CREDENTIAL, message="Too few iterations"),)
        )
        added = {"name": "u", "mechanism": 2, "iterations": 5, "salt": b"salt", "salted_password": b"pw"}
        values = {"deletions": [{"name": "v", "mechanism": 1}], "upsertions": [added]}
        (one,) = (await (await h.client()).call(51, 0, values)).results
        assert (one.user, one.error_code.value, one.error_message) == ("u", E.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        request = h.controller.calls[0][1]
        assert request.deletions == (security.ScramDeletion(name="v", mechanism=1),)
        assert request.upsertions == (
            security.ScramUpsertion(name="u", mechanism=2, iterations=5, salt=b"salt", salted_password=b"pw"),
        )


async def test_cm_25_a_topic_that_is_created_or_grows_twice_is_refused_once() -> None:
    async with Harness() as h:
        h.controller.answers[m.CREATE_TOPICS] = lambda request: c.CreateTopicsResponse(
            topics=tuple(c.CreatableTopicResult(name=topic.name, error=E.NONE) for topic in request.topics)
        )
        h.controller.answers[m.CREATE_PARTITIONS] = lambda request: c.CreatePartitionsResponse(
            topics=tuple(c.CreatePartitionsResult(name=topic.name, error=E.NONE, message=None) for topic in request.topics)
        )
        client, names = await h.client(), ["a", "b", "a", "a"]
        made = await client.call(19, 7, {"topics": [creatable(name) for name in names]})
        assert [(it.name, it.error_code.value) for it in made.topics] == [("b", 0), ("a", E.INVALID_REQUEST)]
        grown = [{"name": name, "count": 3, "assignments": None} for name in names]
        answer = await client.call(37, 3, {"topics": grown, "timeout": 77, "validate_only": False})
        assert [(it.name, it.error_code.value) for it in answer.results] == [("b", 0), ("a", E.INVALID_REQUEST)]
        assert [[topic.name for topic in request.topics] for _, request, *_ in h.controller.calls] == [["b"], ["b"]]
