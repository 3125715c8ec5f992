"""What a request names again is told once: else an answer of gigabytes could be had for a request of some kB."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.wire.apis.configs import describe
from kraftlite.wire.apis.group_offsets import OFFSET_FETCH
from kraftlite.wire.rights.groups import offset_fetch
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import RawClient, topic_uuid

COMMIT, FETCH, DESCRIBE, DESCRIBE_CONFIGS, CONSUMER_GROUP_DESCRIBE = 8, 9, 15, 32, 69
TOPIC, BROKER, GROUP = 2, 4, 32
MANY = 3_000
NOTE = "n" * 4_000


async def commit(client: RawClient, group_id: str) -> None:
    parts = [
        {
            "partition_index": index,
            "committed_offset": 10 + index,
            "committed_leader_epoch": -1,
            "committed_metadata": NOTE,
        }
        for index in range(3)
    ]
    answer = await client.call(
        COMMIT,
        8,
        {
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": "t", "partitions": parts}],
        },
    )
    assert [int(it.error_code) for it in answer.topics[0].partitions] == [0, 0, 0]


def asked(version: int, *partitions: int) -> dict[str, Any]:
    named = {"topic_id": topic_uuid(1)} if version >= 10 else {"name": "t"}
    return {**named, "partition_indexes": list(partitions)}


def offsets(topics: Any) -> dict[int, int]:
    found = [(int(it.partition_index), int(it.committed_offset)) for topic in topics for it in topic.partitions]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.parametrize("version", range(1, 8))
async def test_cp_38_partitions_named_again_are_fetched_once(version: int) -> None:
    async with GroupHarness() as h:
        client = await h.client()
        await commit(client, "g")
        topics = [asked(version, 1, 1, 0), asked(version, *[1] * MANY), asked(version, 2)]
        answer = await client.call(FETCH, version, {"group_id": "g", "topics": topics, "require_stable": False})
        assert [str(it.name) for it in answer.topics] == ["t"]
        assert offsets(answer.topics) == {1: 11, 0: 10, 2: 12}


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_cp_38_groups_named_again_are_one_question(version: int) -> None:
    def of(group_id: str, *topics: dict[str, Any] | None) -> dict[str, Any]:
        member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
        return {"group_id": group_id, **member, "topics": None if None in topics else list(topics)}

    async with GroupHarness() as h:
        client = await h.client()
        await commit(client, "g")
        await commit(client, "all")
        groups = [
            of("g", asked(version, 0)),
            of("all", asked(version, 1)),
            *[of("g", asked(version, 2, 0))] * MANY,
            of("other", asked(version, 0)),
            *[of("all", None)] * MANY,
        ]
        answer = await client.call(FETCH, version, {"groups": groups, "require_stable": False})
        assert [(str(it.group_id), offsets(it.topics)) for it in answer.groups] == [
            ("g", {0: 10, 2: 12}),
            ("all", {1: 11}),
            ("other", {0: -1}),
            ("all", {0: 10, 1: 11, 2: 12}),
        ]


@pytest.mark.parametrize(("key", "field"), [(DESCRIBE, "groups"), (CONSUMER_GROUP_DESCRIBE, "group_ids")])
async def test_groups_named_again_are_described_once(key: int, field: str) -> None:
    async with GroupHarness() as h:
        client = await h.client()
        await commit(client, "g")
        version = 5 if key == DESCRIBE else 0
        answer = await client.call(key, version, {field: ["g", "h"] * MANY, "include_authorized_operations": False})
        assert [str(it.group_id) for it in answer.groups] == ["g", "h"]


@pytest.mark.parametrize("version", range(1, 5))
async def test_resources_named_again_are_described_once(version: int) -> None:
    def resource(kind: int, name: str, keys: list[str] | None) -> dict[str, Any]:
        return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}

    async with GroupHarness() as h:
        client = await h.client()
        resources = [
            resource(TOPIC, "t", ["retention.ms"]),
            resource(GROUP, "t", ["consumer.session.timeout.ms"]),
            *[resource(TOPIC, "t", ["segment.bytes", "retention.ms"])] * MANY,
            *[resource(GROUP, "t", None)] * MANY,
        ]
        flags = {"include_synonyms": True, "include_documentation": True}
        answer = await client.call(DESCRIBE_CONFIGS, version, {"resources": resources, **flags})
        found = {(int(it.resource_type), str(it.resource_name)): [str(one.name) for one in it.configs] for it in answer.results}
        assert len(answer.results) == len(found) == 2
        assert sorted(found[TOPIC, "t"]) == ["retention.ms", "segment.bytes"]
        assert len(found[GROUP, "t"]) > 1


@pytest.mark.parametrize("most", [1, 600])
async def test_an_answer_has_a_bounded_number_of_configs(most: int) -> None:
    """One broker has many names: an id may begin with zeros, as in Kafka."""
    async with GroupHarness() as h:

        async def described(names: list[str]) -> list[Any]:
            asked = [SimpleNamespace(resource_type=BROKER, resource_name=name, configuration_keys=None) for name in names]
            call: Any = SimpleNamespace(ctx=h.context)
            found: Any = await describe(call, SimpleNamespace(resources=asked), most)
            return list(found["results"])

        each = len((await described(["1"]))[0]["configs"])
        told = -(-most // each)
        names = ["0" * zeros + "1" for zeros in range(told + 100)]
        results = await described(names)
        assert [it["error_code"] for it in results] == [ErrorCode.NONE] * told + [ErrorCode.INVALID_REQUEST] * 100
        assert "Ask for fewer resources" in results[-1]["error_message"]
        assert [it["resource_name"] for it in results] == names


class Topic(NamedTuple):
    name: str
    partition_indexes: tuple[int, ...]


class Group(NamedTuple):
    group_id: str
    topics: tuple[Topic, ...] | None


class OffsetFetch(NamedTuple):
    groups: tuple[Group, ...]


async def test_se_37_rights_are_asked_about_what_is_told_once() -> None:
    """The answers of the groups and the topics that are left out of each come together again."""
    rights: Any = SimpleNamespace(
        group=lambda _operation, name: name != "secret", topic=lambda _operation, name, audited=True: name != "hidden"
    )

    async def adapt(_call: Any, request: Any) -> dict[str, object]:
        return {
            "groups": [
                {"group_id": group.group_id, "error_code": ErrorCode.NONE, "topics": [topic.name for topic in group.topics]}
                for group in request.groups
            ]
        }

    async with GroupHarness() as h:
        call: Any = SimpleNamespace(ctx=h.context, version=8)
        once = Group("g", (Topic("t", (0,)), Topic("hidden", (0,))))
        request = OffsetFetch((once, Group("secret", ()), once, Group("h", (Topic("t", (1,)),)), Group("secret", ())))
        assert OFFSET_FETCH.prepare is not None
        found: Any = await offset_fetch(call, rights, await OFFSET_FETCH.prepare(call, request), adapt)
    told = {group["group_id"]: group for group in found["groups"]}
    assert [group["group_id"] for group in found["groups"]] == ["g", "h", "secret"]
    assert told["g"]["topics"][0] == "t" and told["g"]["topics"][1]["name"] == "hidden" and len(told["g"]["topics"]) == 2
    assert told["h"]["topics"] == ["t"] and told["secret"]["topics"] == []
