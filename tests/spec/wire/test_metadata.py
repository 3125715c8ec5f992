"""Metadata, DescribeCluster and DescribeTopicPartitions over a real socket. CP-08 to CP-12, ML-24."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import CreatableTopicResult, CreateTopicsResponse
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.runtime.trace.wire import AutoTopicCreationFailed, AutoTopicCreationRequested
from tests.harness.wire_fakes import CLUSTER_ID, LISTENER, Harness, broker, partition, topic_uuid, until

VERSIONS = range(14)
E = ErrorCode


def ask(*names: str, auto: bool = False, everything: bool = False) -> dict[str, Any]:
    return {
        "topics": None if everything else [{"name": name, "topic_id": None} for name in names],
        "allow_auto_topic_creation": auto,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def by_id(*ids: Any) -> dict[str, Any]:
    return ask() | {"topics": [{"name": None, "topic_id": one} for one in ids]}


@pytest.mark.parametrize("version", VERSIONS)
async def test_cp_08_null_is_all_and_empty_is_none(version: int) -> None:
    topics = {"b": [partition([1, 2])], "a": [partition([2]), partition([3])]}
    async with Harness(topics) as h:
        client = await h.client()
        if version >= 1:
            answer = await client.call(3, version, ask(everything=True))
            assert [topic.name for topic in answer.topics] == ["a", "b"]
        answer = await client.call(3, version, ask())
        assert [topic.name for topic in answer.topics] == (["a", "b"] if version == 0 else [])
        assert [node.node_id for node in answer.brokers] == [1, 2, 3]
        if version >= 2:
            assert answer.cluster_id == CLUSTER_ID
        if version >= 1:
            assert answer.controller_id in (1, 2, 3)


async def test_cp_08_brokers_are_unfenced_and_have_the_listener() -> None:
    brokers = [
        broker(1, rack="r1"),
        broker(2, fenced=True),
        broker(3, listeners={"OTHER": 1}),
        broker(4, listeners={"OTHER": 1, LISTENER: 99}),
    ]
    async with Harness(brokers=brokers) as h:
        answer = await (await h.client()).call(3, 12, ask())
        assert [(node.node_id, node.port, node.rack) for node in answer.brokers] == [(1, 9001, "r1"), (4, 99, None)]


async def test_cp_08_the_controller_id_is_some_live_broker() -> None:
    async with Harness(brokers=[broker(1), broker(2, fenced=True), broker(3)]) as h:
        client = await h.client()
        seen = {(await client.call(3, 12, ask())).controller_id for _ in range(40)}
        assert seen == {1, 3}
        h.set_image([broker(1, fenced=True)])
        assert (await client.call(3, 12, ask())).controller_id == -1


async def test_ml_24_a_fenced_broker_disappears_at_once() -> None:
    topics = {"t": [partition([1, 2], leader=1), partition([2, 1], leader=2)]}
    async with Harness(topics) as h:
        client = await h.client()
        before = await client.call(3, 12, ask("t"))
        assert [one.leader_id for one in before.topics[0].partitions] == [1, 2]
        h.set_image([broker(1), broker(2, fenced=True), broker(3)])
        after = await client.call(3, 12, ask("t"))
        assert [node.node_id for node in after.brokers] == [1, 3]
        first, second = after.topics[0].partitions
        assert (first.leader_id, first.offline_replicas) == (1, (2,))
        assert (second.leader_id, second.error_code.value, second.offline_replicas) == (-1, E.LEADER_NOT_AVAILABLE, (2,))


async def test_cp_09_unknown_and_invalid_names() -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(3, 8, ask("nope", "bad name", "..", "x" * 250, ""))
        found = {topic.name: topic.error_code.value for topic in answer.topics}
        assert found == {
            "nope": E.UNKNOWN_TOPIC_OR_PARTITION,
            "bad name": E.INVALID_TOPIC_EXCEPTION,
            "..": E.INVALID_TOPIC_EXCEPTION,
            "x" * 250: E.INVALID_TOPIC_EXCEPTION,
            "": E.INVALID_TOPIC_EXCEPTION,
        }


@pytest.mark.parametrize("version", [12, 13])
async def test_cp_09_topics_by_id(version: int) -> None:
    async with Harness({"a": [partition([1])], "b": [partition([2])]}) as h:
        client = await h.client()
        answer = await client.call(3, version, by_id(topic_uuid(1), topic_uuid(7)))
        found = sorted((topic.name or "", topic.error_code.value, topic.topic_id) for topic in answer.topics)
        assert found == [("", E.UNKNOWN_TOPIC_ID, topic_uuid(7)), ("b", E.NONE, topic_uuid(1))]


@pytest.mark.parametrize("version", [10, 11])
async def test_cp_09_ids_are_not_for_versions_10_and_11(version: int) -> None:
    async with Harness() as h:
        client = await h.client()
        values = ask() | {"topics": [{"name": "events", "topic_id": topic_uuid(0)}]}
        answer = await client.call(3, version, values)
        assert [topic.error_code.value for topic in answer.topics] == [E.INVALID_REQUEST]


async def test_cp_09_auto_creation_answers_an_error_first() -> None:
    async with Harness(config={"num.partitions": "3", "default.replication.factor": "2"}) as h:

        def create(request: Any) -> CreateTopicsResponse:
            h.set_image(topics=h.topics | {"fresh": [partition([1])]})
            return CreateTopicsResponse(topics=(CreatableTopicResult(name="fresh", error=E.NONE),))

        h.controller.answers[CREATE_TOPICS] = create
        client = await h.client()
        answer = await client.call(3, 12, ask("fresh", auto=True))
        assert [topic.error_code.value for topic in answer.topics] == [E.UNKNOWN_TOPIC_OR_PARTITION]
        await until(lambda: not h.tasks.running)
        answer = await client.call(3, 12, ask("fresh", auto=True))
        assert [topic.error_code.value for topic in answer.topics] == [E.NONE]
        (call,) = h.controller.calls
        (topic,) = call[1].topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("fresh", 3, 2)
        assert any(isinstance(event, AutoTopicCreationRequested) for event in h.tracer.events)


@pytest.mark.parametrize(
    ("config", "version", "values"),
    [
        ({}, 12, ask("fresh", auto=False)),
        ({"auto.create.topics.enable": "false"}, 12, ask("fresh", auto=True)),
        ({}, 12, ask("in valid", auto=True)),
        ({}, 12, ask(everything=True, auto=True)),
        ({}, 12, by_id(topic_uuid(9)) | {"allow_auto_topic_creation": True}),
    ],
)
async def test_cp_09_no_auto_creation_unless_both_allow_it(config: dict[str, str], version: int, values: dict[str, Any]) -> None:
    async with Harness(config=config) as h:
        client = await h.client()
        await client.call(3, version, values)
        await client.call(3, version, ask())
        assert not h.controller.calls
        assert not h.tasks.spawned


async def test_cp_09_versions_before_4_always_allow_creation() -> None:
    async with Harness() as h:
        client = await h.client()
        await client.call(3, 3, ask("fresh"))
        await until(lambda: bool(h.controller.calls))
        await until(lambda: any(isinstance(event, AutoTopicCreationFailed) for event in h.tracer.events))


async def test_cp_09_one_creation_at_a_time_per_topic() -> None:
    async with Harness() as h:
        asked = []

        async def never(request: Any) -> Any:
            asked.append(request)
            await h.clock.sleep(10_000)
            return CreateTopicsResponse(topics=())

        h.controller.answers[CREATE_TOPICS] = never
        client = await h.client()
        for _ in range(5):
            await client.call(3, 12, ask("fresh", "fresh", auto=True))
        await until(lambda: bool(asked))
        assert len(h.controller.calls) == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_cp_10_leaderless_partitions(version: int) -> None:
    brokers = [broker(1), broker(2, listeners={"OTHER": 7})]
    topics = {"t": [partition([1], leader=None, leader_epoch=5), partition([2, 1], leader=2)]}
    async with Harness(topics, brokers=brokers) as h:
        answer = await (await h.client()).call(3, version, ask("t"))
        none, elsewhere = answer.topics[0].partitions
        assert (none.leader_id, none.error_code.value) == (-1, E.LEADER_NOT_AVAILABLE)
        expected = E.LISTENER_NOT_FOUND if version >= 6 else E.LEADER_NOT_AVAILABLE
        assert (elsewhere.leader_id, elsewhere.error_code.value) == (-1, expected)
        if version >= 5:
            assert elsewhere.offline_replicas == (2,)
        assert elsewhere.replica_nodes == ((1,) if version == 0 else (2, 1))


async def test_cp_10_version_0_says_that_a_replica_is_not_available() -> None:
    async with Harness({"t": [partition([1, 2])]}, brokers=[broker(1), broker(2, fenced=True)]) as h:
        client = await h.client()
        (old,) = (await client.call(3, 0, ask("t"))).topics[0].partitions
        assert (old.error_code.value, old.leader_id, old.replica_nodes, old.isr_nodes) == (E.REPLICA_NOT_AVAILABLE, 1, (1,), (1,))
        (new,) = (await client.call(3, 1, ask("t"))).topics[0].partitions
        assert (new.error_code.value, new.leader_id, new.replica_nodes, new.isr_nodes) == (E.NONE, 1, (1, 2), (1, 2))


async def test_cp_11_the_leader_epoch_follows_the_image() -> None:
    async with Harness({"t": [partition([1, 2], leader_epoch=4)]}) as h:
        client = await h.client()
        for epoch in (4, 5, 9):
            h.set_image(topics={"t": [partition([1, 2], leader_epoch=epoch)]}, offset=100 + epoch)
            for version in (7, 13):
                answer = await client.call(3, version, ask("t"))
                assert [one.leader_epoch for one in answer.topics[0].partitions] == [epoch]


async def test_cp_11_encoded_topics_are_thrown_away_with_their_image() -> None:
    """The cache of encoded topics must not outlive a change of the cluster alone."""
    async with Harness({"t": [partition([1, 2])]}) as h:
        client = await h.client()
        assert (await client.call(3, 12, ask("t"))).topics[0].partitions[0].leader_id == 1
        old = h.metadata.image
        h.set_image([broker(1, fenced=True), broker(2)])
        h.metadata.set_image(
            type(old)(
                provenance=old.provenance,
                features=old.features,
                cluster=h.metadata.image.cluster,
                topics=old.topics,
                configs=old.configs,
                client_quotas=old.client_quotas,
                scram=old.scram,
                producer_ids=old.producer_ids,
            )
        )
        assert (await client.call(3, 12, ask("t"))).topics[0].partitions[0].leader_id == -1


@pytest.mark.parametrize("version", range(3))
async def test_cp_12_describe_cluster_lists_brokers(version: int) -> None:
    async with Harness(brokers=[broker(1), broker(2, fenced=True)]) as h:
        client = await h.client()
        values = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": version == 2}
        answer = await client.call(60, version, values)
        assert answer.error_code.value == 0
        assert answer.cluster_id == CLUSTER_ID
        assert answer.controller_id == 1
        expected = [(1, False), (2, True)] if version == 2 else [(1, False)]
        assert [(one.broker_id, getattr(one, "is_fenced", False)) for one in answer.brokers] == expected


@pytest.mark.parametrize(("kind", "error"), [(2, E.MISMATCHED_ENDPOINT_TYPE), (3, E.UNSUPPORTED_ENDPOINT_TYPE)])
async def test_cp_12_a_broker_does_not_list_controllers(kind: int, error: ErrorCode) -> None:
    async with Harness() as h:
        client = await h.client()
        for version in (1, 2):
            values = {"include_cluster_authorized_operations": False, "endpoint_type": kind, "include_fenced_brokers": False}
            answer = await client.call(60, version, values)
            assert (answer.error_code.value, answer.brokers) == (error, ())


async def test_cp_12_describe_topic_partitions_pages_with_a_cursor() -> None:
    topics = {name: [partition([1, 2, 3])] * 4 for name in ("a", "b", "c")}
    async with Harness(topics) as h:
        client = await h.client()
        seen: list[tuple[str, int]] = []
        cursor = None
        pages = 0
        while True:
            values = {"topics": [], "response_partition_limit": 5, "cursor": cursor}
            answer = await client.call(75, 0, values)
            page = [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
            assert len(page) <= 5
            seen += page
            pages += 1
            if answer.next_cursor is None:
                break
            cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
        assert seen == [(name, index) for name in "abc" for index in range(4)]
        assert pages == 3


async def test_cp_12_describe_topic_partitions_caps_a_page_at_2000() -> None:
    async with Harness({"big": [partition([1])] * 2100, "more": [partition([1])]}) as h:
        client = await h.client()
        answer = await client.call(75, 0, {"topics": [], "response_partition_limit": 5000, "cursor": None})
        assert [len(topic.partitions) for topic in answer.topics] == [2000]
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("big", 2000)


async def test_cp_12_describe_topic_partitions_by_name() -> None:
    async with Harness({"a": [partition([1, 2])], "b": [partition([2])]}) as h:
        client = await h.client()
        values = {"topics": [{"name": "b"}, {"name": "zz"}, {"name": "a"}], "response_partition_limit": 10, "cursor": None}
        answer = await client.call(75, 0, values)
        assert [(topic.name, topic.error_code.value) for topic in answer.topics] == [("a", 0), ("b", 0), ("zz", 3)]
        values["cursor"] = {"topic_name": "missing", "partition_index": 0}
        refused = await client.call(75, 0, values)
        assert {topic.error_code.value for topic in refused.topics} == {E.INVALID_REQUEST}


async def test_el_15_who_is_eligible_and_who_led_last() -> None:
    down = replace(partition([1, 2, 3]), isr=(), leader=None, elr=(NodeId(2), NodeId(3)), last_known_elr=(NodeId(1),))
    async with Harness({"a": [down, partition([1])]}) as h:
        client = await h.client()
        answer = await client.call(75, 0, {"topics": [], "response_partition_limit": 10, "cursor": None})
        found = [(it.isr_nodes, it.eligible_leader_replicas, it.last_known_elr) for it in answer.topics[0].partitions]
        assert found == [((), (2, 3), (1,)), ((1,), (), ())]


@pytest.mark.parametrize("version", [8, 9, 10, 12, 13])
async def test_kip_430_operations_are_told_to_those_who_ask(version: int) -> None:
    """Without an authorizer everybody may do everything that a topic or the cluster has: the bits of a Kafka broker."""
    async with Harness() as h:
        client = await h.client()
        for asked in (False, True, False):
            flags = {"include_cluster_authorized_operations": asked, "include_topic_authorized_operations": asked}
            topic = {"name": "events", "topic_id": None}
            answer = await client.call(3, version, {"topics": [topic], "allow_auto_topic_creation": False, **flags})
            assert [one.topic_authorized_operations for one in answer.topics] == [3576 if asked else -(2**31)]
            if version <= 10:
                assert answer.cluster_authorized_operations == (8096 if asked else -(2**31))
            values = {"include_cluster_authorized_operations": asked, "endpoint_type": 1, "include_fenced_brokers": False}
            described = await client.call(60, 2, values)
            assert described.cluster_authorized_operations == (8096 if asked else -(2**31))
