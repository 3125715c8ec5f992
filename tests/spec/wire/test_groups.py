"""Groups over the wire, in every version that is offered. CP-25 to CP-40."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from tests.harness.group_world import subscription
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import RawClient, broker, partition, request_bytes, topic_uuid

E = ErrorCode
FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 10, 11, 12, 13, 14
COMMIT, FETCH, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 8, 9, 15, 16, 42, 47
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
T_ID = topic_uuid(1)


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code.value)


def join(member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("t")}],
        "reason": "because",
    } | more


async def member(client: RawClient, version: int = 9) -> str:
    """Alone in the group, in generation 1, with an assignment."""
    answer = await client.call(JOIN, version, join())
    if code(answer) is E.MEMBER_ID_REQUIRED:
        answer = await client.call(JOIN, version, join(answer.member_id))
    assert code(answer) is E.NONE, answer
    assignments = [{"member_id": answer.member_id, "assignment": b"mine"}]
    synced = await client.call(
        SYNC, 0, {"group_id": "g", "generation_id": 1, "member_id": answer.member_id, "assignments": assignments}
    )
    assert synced.assignment == b"mine"
    return str(answer.member_id)


# --- FindCoordinator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_cp_25_find_coordinator(version: int) -> None:
    topics = {OFFSETS_TOPIC: [partition([1]), partition([2]), partition([3], leader=None)]}
    async with GroupHarness(topics) as h:
        client = await h.client()
        names = ["a", "b", "c", "grüße", "😀"]
        if version < 4:
            found = [await client.call(FIND, version, {"key": name, "key_type": 0}) for name in names]
        else:
            answer = await client.call(FIND, version, {"key_type": 0, "coordinator_keys": names})
            found = list(answer.coordinators)
            assert [one.key for one in found] == names
        # java: "a" 97 % 3 = 1, "b" 98 % 3 = 2, "c" 99 % 3 = 0, "grüße" 98768023 % 3 = 1, "😀" 1772899 % 3 = 1
        assert [code(one) for one in found] == [E.NONE, E.COORDINATOR_NOT_AVAILABLE, E.NONE, E.NONE, E.NONE]
        assert [(one.node_id, one.host, one.port) for one in found] == [
            (2, "127.0.0.1", 9002),
            (-1, "", -1),
            (1, "127.0.0.1", 9001),
            (2, "127.0.0.1", 9002),
            (2, "127.0.0.1", 9002),
        ]


async def test_cp_25_other_key_types() -> None:
    async with GroupHarness() as h:
        client = await h.client()
        assert code(await client.call(FIND, 1, {"key": "x", "key_type": 9})) is E.INVALID_REQUEST


async def test_cp_25_the_topic_is_created_on_first_use() -> None:
    config = {
        "offsets.topic.num.partitions": "7",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.segment.bytes": "4096",
    }
    async with GroupHarness({}, config=config) as h:
        h.controller.answers[m.CREATE_TOPICS] = lambda request: c.CreateTopicsResponse(
            topics=tuple(c.CreatableTopicResult(name=topic.name, error=E.NONE) for topic in request.topics)
        )
        client = await h.client()
        assert code(await client.call(FIND, 0, {"key": "g"})) is E.COORDINATOR_NOT_AVAILABLE
        ((method, request, _),) = h.controller.calls
        (topic,) = request.topics
        assert method == m.CREATE_TOPICS
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (OFFSETS_TOPIC, 7, 2)
        assert {config.name: config.value for config in topic.configs} == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "4096",
        }
        h.set_image(topics={OFFSETS_TOPIC: [partition([3])] * 7})
        assert (await client.call(FIND, 0, {"key": "g"})).node_id == 3


async def test_cp_25_a_fenced_coordinator_is_not_available() -> None:
    async with GroupHarness({OFFSETS_TOPIC: [partition([2])]}, brokers=[broker(1), broker(2, fenced=True)]) as h:
        assert code(await (await h.client()).call(FIND, 0, {"key": "g"})) is E.COORDINATOR_NOT_AVAILABLE


# --- members -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_cp_26_join_group(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        for refused, values in (
            (E.INVALID_GROUP_ID, join(group_id="")),
            (E.INVALID_SESSION_TIMEOUT, join(session_timeout=5_999)),
            (E.INVALID_SESSION_TIMEOUT, join(session_timeout=1_800_001)),
            (E.INCONSISTENT_GROUP_PROTOCOL, join(protocols=[])),
            (E.UNKNOWN_MEMBER_ID, join("somebody")),
        ):
            answer = await client.call(JOIN, version, values)
            assert code(answer) is refused
            assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
            assert answer.protocol_name == ("" if version < 7 else None)
        answer = await client.call(JOIN, version, join())
        if version >= 4:
            assert code(answer) is E.MEMBER_ID_REQUIRED
            answer = await client.call(JOIN, version, join(answer.member_id))
        assert code(answer) is E.NONE
        assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", answer.member_id)
        assert answer.member_id.startswith("raw-")
        assert [(one.member_id, one.metadata) for one in answer.members] == [(answer.member_id, subscription("t"))]
        if version >= 7:
            assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(5, 10))
async def test_cp_34_a_static_leader_comes_back(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        first = await client.call(JOIN, version, join(group_instance_id="i"))
        assert code(first) is E.NONE and first.members[0].group_instance_id == "i"
        assignments = [{"member_id": first.member_id, "assignment": b"mine"}]
        await client.call(
            SYNC, 3, {"group_id": "g", "generation_id": 1, "member_id": first.member_id, "assignments": assignments}
        )
        second = await client.call(JOIN, version, join(group_instance_id="i"))
        assert code(second) is E.NONE and second.generation_id == 1 and second.member_id != first.member_id
        assert second.leader == (second.member_id if version >= 9 else first.member_id)
        assert version < 9 or second.skip_assignment
        fenced = await client.call(
            HEARTBEAT,
            3,
            {"group_id": "g", "generation_id": 1, "member_id": first.member_id, "group_instance_id": "i"},
        )
        assert code(fenced) is E.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", range(6))
async def test_cp_30_sync_group(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        member_id = await member(client)
        values = {"group_id": "g", "generation_id": 1, "member_id": member_id, "group_instance_id": None, "assignments": []}
        values |= {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        answer = await client.call(SYNC, version, values)
        assert code(answer) is E.NONE and answer.assignment == b"mine"
        if version >= 5:
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
            refused = await client.call(SYNC, version, values | {"protocol_name": "rr"})
            assert code(refused) is E.INCONSISTENT_GROUP_PROTOCOL and refused.assignment == b""
        assert code(await client.call(SYNC, version, values | {"generation_id": 9})) is E.ILLEGAL_GENERATION
        assert code(await client.call(SYNC, version, values | {"group_id": ""})) is E.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(5))
async def test_cp_32_heartbeat(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        member_id = await member(client)
        values = {"group_id": "g", "generation_id": 1, "member_id": member_id, "group_instance_id": None}
        assert code(await client.call(HEARTBEAT, version, values)) is E.NONE
        assert code(await client.call(HEARTBEAT, version, values | {"generation_id": 0})) is E.ILLEGAL_GENERATION
        assert code(await client.call(HEARTBEAT, version, values | {"member_id": "x"})) is E.UNKNOWN_MEMBER_ID
        h.clock.advance(10_000)
        assert code(await client.call(HEARTBEAT, version, values)) is E.UNKNOWN_MEMBER_ID, "its session is over"


@pytest.mark.parametrize("version", range(6))
async def test_cp_33_leave_group(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        member_id = await member(client)
        if version < 3:
            assert code(await client.call(LEAVE, version, {"group_id": "g", "member_id": "x"})) is E.UNKNOWN_MEMBER_ID
            assert code(await client.call(LEAVE, version, {"group_id": "g", "member_id": member_id})) is E.NONE
        else:
            leaving = [{"member_id": who, "group_instance_id": None, "reason": "done"} for who in ("x", member_id)]
            answer = await client.call(LEAVE, version, {"group_id": "g", "members": leaving})
            assert code(answer) is E.NONE
            assert [code(one) for one in answer.members] == [E.UNKNOWN_MEMBER_ID, E.NONE]
        assert h.groups.describe("g").state == "Empty"  # type: ignore[union-attr]


# --- offsets -------------------------------------------------------------------------------------------------------------


def topic(name: str, version: int, partitions: list[dict[str, Any]], key: str = "partitions") -> dict[str, Any]:
    ids = {"t": T_ID, "nowhere": topic_uuid(77)}
    return {("topic_id" if version >= 10 else "name"): ids[name] if version >= 10 else name, key: partitions}


def commit(version: int, indexes: Iterable[int] = (0, 1, 9), **more: Any) -> dict[str, Any]:
    partitions = [
        {"partition_index": index, "committed_offset": 10 + index, "committed_leader_epoch": 4, "committed_metadata": "md"}
        for index in indexes
    ]
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [topic("t", version, partitions), topic("nowhere", version, partitions[:1])],
    } | more


@pytest.mark.parametrize("version", range(2, 11))
async def test_cp_36_offset_commit(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        answer = await client.call(COMMIT, version, commit(version))
        unknown = E.UNKNOWN_TOPIC_ID if version >= 10 else E.UNKNOWN_TOPIC_OR_PARTITION
        assert [[code(one) for one in found.partitions] for found in answer.topics] == [
            [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION],
            [unknown],
        ]
        refused = await client.call(
            COMMIT, version, commit(version, group_id="h", generation_id_or_member_epoch=1, member_id="m")
        )
        expected = E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION
        assert [code(one) for one in refused.topics[0].partitions] == [expected, expected, E.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_cp_39_a_commit_with_a_retention_of_its_own(version: int) -> None:
    async with GroupHarness(config={"offsets.retention.check.interval.ms": "1000"}) as h:
        client = await h.client()
        await client.call(COMMIT, version, commit(version, group_id="short", retention_time=5_000))
        raw = request_bytes(COMMIT, version, commit(version, group_id="long", retention_time=123_456_789), 7)
        for_ever = raw.replace(struct.pack(">q", 123_456_789), struct.pack(">q", 2**63 - 1))
        client.send_frame(for_ever)
        assert for_ever != raw and await client.read_frame()
        await h.clock.run_for(6_000)
        assert [group.group_id for group in h.groups.list_groups()] == ["long"]


@pytest.mark.parametrize("version", range(1, 11))
async def test_cp_38_offset_fetch(version: int) -> None:
    async with GroupHarness() as h:
        client = await h.client()
        await client.call(COMMIT, 8, commit(8))
        wanted = [topic("t", version, [0, 2], "partition_indexes")]  # type: ignore[list-item]
        if version < 8:
            answer = await client.call(FETCH, version, {"group_id": "g", "topics": wanted, "require_stable": True})
            topics, everything = answer.topics, None
            assert version < 2 or code(answer) is E.NONE
            if version >= 2:
                everything = (await client.call(FETCH, version, {"group_id": "g", "topics": None})).topics
        else:
            groups = [
                {"group_id": "g", "member_id": None, "topics": wanted},
                {"group_id": "g", "member_id": None, "topics": None},
                {"group_id": "nobody", "member_id": None, "topics": None},
            ]
            answer = await client.call(FETCH, version, {"groups": groups, "require_stable": True})
            assert [(group.group_id, code(group)) for group in answer.groups] == [
                ("g", E.NONE),
                ("g", E.NONE),
                ("nobody", E.NONE),
            ]
            topics, everything = answer.groups[0].topics, answer.groups[1].topics
            assert answer.groups[2].topics == ()
        assert [(p.partition_index, p.committed_offset, p.metadata, code(p)) for p in topics[0].partitions] == [
            (0, 10, "md", E.NONE),
            (2, -1, "", E.NONE),
        ]
        if version >= 5:
            assert topics[0].partitions[0].committed_leader_epoch == 4
        if version >= 10:
            assert topics[0].topic_id == T_ID
        if everything is not None:
            assert [[p.committed_offset for p in found.partitions] for found in everything] == [[10, 11]]


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
async def test_cp_38_offset_fetch_elsewhere(version: int) -> None:
    async with GroupHarness({OFFSETS_TOPIC: [partition([2])], "t": [partition([1])]}) as h:
        client = await h.client()
        wanted = [topic("t", version, [0], "partition_indexes")]  # type: ignore[list-item]
        if version >= 8:
            answer = await client.call(FETCH, version, {"groups": [{"group_id": "g", "topics": wanted}]})
            assert code(answer.groups[0]) is E.NOT_COORDINATOR and answer.groups[0].topics == ()
            return
        answer = await client.call(FETCH, version, {"group_id": "g", "topics": wanted})
        found = code(answer) if version >= 2 else code(answer.topics[0].partitions[0])
        assert found is E.NOT_COORDINATOR


async def test_cp_38_unknown_topic_id() -> None:
    async with GroupHarness() as h:
        wanted = [topic("nowhere", 10, [0], "partition_indexes")]  # type: ignore[list-item]
        answer = await (await h.client()).call(FETCH, 10, {"groups": [{"group_id": "g", "topics": wanted}]})
        (found,) = answer.groups[0].topics
        assert code(found.partitions[0]) is E.UNKNOWN_TOPIC_ID and found.topic_id not in (None, ZERO_UUID)


async def test_cp_40_many_offsets_are_deleted_in_parts_each_once() -> None:
    """Behind the error of the group as a whole, which the first part gets."""
    async with GroupHarness({"t": [partition([1]) for _ in range(1_200)], OFFSETS_TOPIC: [partition([1])]}) as h:
        client = await h.client()
        indexes = [*range(1_200), *range(1_200)]
        values = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": it} for it in indexes]}]}
        assert code(await client.call(OFFSET_DELETE, 0, values)) is E.GROUP_ID_NOT_FOUND
        await client.call(COMMIT, 8, commit(8, indexes=range(1_200)))
        answer = await client.call(OFFSET_DELETE, 0, values)
        assert [(it.partition_index, code(it)) for it in answer.topics[0].partitions] == [(index, E.NONE) for index in indexes]
        left = await client.call(FETCH, 7, {"group_id": "g", "topics": None})
        assert not left.topics


async def test_cp_40_offset_delete() -> None:
    async with GroupHarness() as h:
        client = await h.client()
        values = {
            "group_id": "g",
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
                {"name": "nowhere", "partitions": [{"partition_index": 0}]},
            ],
        }
        assert code(await client.call(OFFSET_DELETE, 0, values)) is E.GROUP_ID_NOT_FOUND
        await client.call(COMMIT, 8, commit(8))
        answer = await client.call(OFFSET_DELETE, 0, values)
        assert code(answer) is E.NONE
        assert [[code(one) for one in found.partitions] for found in answer.topics] == [
            [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION],
            [E.UNKNOWN_TOPIC_OR_PARTITION],
        ]
        left = await client.call(FETCH, 7, {"group_id": "g", "topics": None})
        assert [[p.partition_index for p in found.partitions] for found in left.topics] == [[1]]


# --- administration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_cp_40_describe_groups(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        member_id = await member(client)
        answer = await client.call(DESCRIBE, version, {"groups": ["g", "nobody"], "include_authorized_operations": False})
        found, missing = answer.groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        (one,) = found.members
        assert (one.member_id, one.client_id, one.client_host) == (member_id, "raw", "/127.0.0.1")
        assert (one.member_metadata, one.member_assignment) == (subscription("t"), b"mine")
        assert missing.group_state == "Dead"
        assert code(missing) is (E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE)


@pytest.mark.parametrize("version", range(6))
async def test_cp_40_list_groups(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        await member(client)
        await client.call(COMMIT, 8, commit(8, group_id="simple"))

        async def listed(**filters: list[str]) -> list[str]:
            answer = await client.call(LIST, version, filters)
            assert code(answer) is E.NONE
            return [group.group_id for group in answer.groups]

        assert await listed() == ["g", "simple"]
        if version >= 4:
            assert await listed(states_filter=["stable"]) == ["g"]
            assert await listed(states_filter=["Empty", "Dead"]) == ["simple"]
        if version >= 5:
            assert await listed(types_filter=["Classic"]) == ["g", "simple"]
            assert await listed(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(3))
async def test_cp_40_delete_groups(version: int) -> None:
    async with GroupHarness(config=NO_DELAY) as h:
        client = await h.client()
        await member(client)
        await client.call(COMMIT, 8, commit(8, group_id="simple"))
        answer = await client.call(DELETE, version, {"groups_names": ["simple", "g", "nobody"]})
        assert [(one.group_id, code(one)) for one in answer.results] == [
            ("simple", E.NONE),
            ("g", E.NON_EMPTY_GROUP),
            ("nobody", E.GROUP_ID_NOT_FOUND),
        ]


async def test_cp_04_groups_are_advertised_where_there_is_a_coordinator() -> None:
    async with GroupHarness() as h:
        answer = await (await h.client()).call(18, 3, {"client_software_name": "x", "client_software_version": "1"})
        ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert {key: ranges[key] for key in (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47)} == {
            8: (2, 10),
            9: (1, 10),
            10: (0, 6),
            11: (0, 9),
            12: (0, 4),
            13: (0, 5),
            14: (0, 5),
            15: (0, 6),
            16: (0, 5),
            42: (0, 2),
            47: (0, 0),
        }
