"""Groups of the new protocol over the wire, in every version. Source: KIP-848; `GroupCoordinatorService` of Kafka 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.metadata.image import ConfigurationsImage, FeaturesImage
from kraftlite.metadata.pmap import PMap
from kraftlite.model.errors import ErrorCode
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import partition, topic_uuid

E = ErrorCode
BEAT, DESCRIBE = 68, 69
T_ID = topic_uuid(1)
PLAIN = {"include_authorized_operations": False}
ENABLED = {"metadata.version": 30, "group.version": 1}


class Enabled(GroupHarness):
    """With `group.version` finalized, as on a cluster that began with it. Assignments are made at once."""

    def __init__(self, *topics: Any, config: Mapping[str, str] | None = None) -> None:
        super().__init__(*topics, config={"group.consumer.assignment.interval.ms": "0", **(config or {})})

    features: Mapping[str, int] = ENABLED

    async def apply(self, topics: Any = None) -> None:
        await super().apply(topics)
        image = self.metadata.image
        self.metadata.set_image(replace(image, features=FeaturesImage(finalized=PMap(dict(self.features)))))


def beat(member_id: str = "m", epoch: int = 0, **more: Any) -> dict[str, Any]:
    joins = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []} if epoch == 0 else {}
    return {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **joins,
        **more,
    }


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code.value)


def assigned(answer: Any) -> list[tuple[Any, tuple[int, ...]]] | None:
    if answer.assignment is None:
        return None
    return [(one.topic_id, tuple(one.partitions)) for one in answer.assignment.topic_partitions]


@pytest.mark.parametrize("version", range(2))
async def test_join_beat_leave(version: int) -> None:
    """CP-42."""
    async with Enabled() as h:
        client = await h.client()
        joined = await client.call(BEAT, version, beat())
        assert (code(joined), joined.member_id, joined.member_epoch) == (E.NONE, "m", 2)
        assert joined.heartbeat_interval.total_seconds() == 5
        assert assigned(joined) == [(T_ID, (0, 1, 2))]
        owned = [{"topic_id": T_ID, "partitions": [0, 1, 2]}]
        again = await client.call(BEAT, version, beat(epoch=2, topic_partitions=owned))
        assert (code(again), again.member_epoch, assigned(again)) == (E.NONE, 2, None)
        left = await client.call(BEAT, version, beat(epoch=-1))
        assert (code(left), left.member_epoch) == (E.NONE, -1)
        unknown = await client.call(BEAT, version, beat(epoch=1))
        assert code(unknown) is E.UNKNOWN_MEMBER_ID
        assert unknown.error_message == "Member m is not a member of group g."


async def test_the_coordinator_makes_the_id_in_version_0_alone() -> None:
    async with Enabled() as h:
        client = await h.client()
        assert len((await client.call(BEAT, 0, beat(""))).member_id) == 36
        refused = await client.call(BEAT, 1, beat(""))
        assert (code(refused), refused.error_message) == (E.INVALID_REQUEST, "MemberId can't be empty.")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": [{"topic_id": T_ID, "partitions": [0]}]}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
        ({"member_id": "", "epoch": 1}, "MemberId can't be empty."),
    ],
)
async def test_requests_that_make_no_sense(said: dict[str, Any], message: str) -> None:
    """CP-42."""
    async with Enabled() as h:
        refused = await (await h.client()).call(BEAT, 1, beat(**said))
        assert (code(refused), refused.error_message) == (E.INVALID_REQUEST, message)
        assert (refused.member_id, refused.member_epoch, refused.assignment) == (None, 0, None)


async def test_assignors_and_expressions_that_are_not_there() -> None:
    """CP-42."""
    async with Enabled() as h:
        client = await h.client()
        refused = await client.call(BEAT, 1, beat(server_assignor="best"))
        assert code(refused) is E.UNSUPPORTED_ASSIGNOR
        assert refused.error_message == "ServerAssignor best is not supported. Supported assignors: uniform, range."
        assert code(await client.call(BEAT, 1, beat(server_assignor="range"))) is E.NONE
        refused = await client.call(BEAT, 1, beat("n", subscribed_topic_names=None, subscribed_topic_regex="(t"))
        assert code(refused) is E.INVALID_REGULAR_EXPRESSION
        assert refused.error_message == "SubscribedTopicRegex `(t` is not a valid regular expression: missing closing )."
        matched = await client.call(BEAT, 1, beat("n", subscribed_topic_names=None, subscribed_topic_regex="t"))
        assert (code(matched), matched.member_epoch) == (E.NONE, 3)


async def test_not_where_it_is_not_enabled() -> None:
    async with GroupHarness() as h:
        client = await h.client()
        assert code(await client.call(BEAT, 1, beat())) is E.UNSUPPORTED_VERSION, "group.version is not finalized"
        (described,) = (await client.call(DESCRIBE, 1, {"group_ids": ["g"], **PLAIN})).groups
        assert code(described) is E.UNSUPPORTED_VERSION
    async with Enabled(config={"group.coordinator.rebalance.protocols": "classic"}) as h:
        assert code(await (await h.client()).call(BEAT, 1, beat())) is E.UNSUPPORTED_VERSION
    async with Enabled({OFFSETS_TOPIC: [partition([2])]}) as h:
        assert code(await (await h.client()).call(BEAT, 1, beat())) is E.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(2))
async def test_describe(version: int) -> None:
    async with Enabled() as h:
        client = await h.client()
        await client.call(BEAT, 1, beat(instance_id="i", rack_id="r", subscribed_topic_regex="none"))
        found, unknown, nameless = (await client.call(DESCRIBE, version, {"group_ids": ["g", "x", ""], **PLAIN})).groups
        assert (code(found), found.group_state, found.group_epoch, found.assignment_epoch) == (E.NONE, "Stable", 2, 2)
        assert found.assignor_name == "uniform"
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 2)
        assert (tuple(member.subscribed_topic_names), member.subscribed_topic_regex) == (("t",), "none")
        for assignment in (member.assignment, member.target_assignment):
            (topic,) = assignment.topic_partitions
            assert (topic.topic_id, topic.topic_name, tuple(topic.partitions)) == (T_ID, "t", (0, 1, 2))
        assert getattr(member, "member_type", 1) == 1
        assert (code(unknown), unknown.error_message) == (E.GROUP_ID_NOT_FOUND, "Group x not found.")
        assert code(nameless) is E.INVALID_GROUP_ID
        (classic,) = (await client.call(15, 6, {"groups": ["g"], **PLAIN})).groups
        assert (code(classic), classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
        (line,) = (await client.call(16, 5, {"states_filter": ["stable"], "types_filter": ["Consumer"]})).groups
        assert (line.group_id, line.protocol_type, line.group_state, line.group_type) == ("g", "consumer", "Stable", "consumer")
        assert (await client.call(16, 5, {"states_filter": [], "types_filter": ["classic"]})).groups == ()


async def test_offsets_are_for_members_in_their_epoch() -> None:
    """CG-07."""
    async with Enabled() as h:
        client = await h.client()
        await client.call(BEAT, 1, beat())

        async def commit(version: int, member_id: str, epoch: int) -> ErrorCode:
            offset = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
            asked = {
                "group_id": "g",
                "generation_id_or_member_epoch": epoch,
                "member_id": member_id,
                "topics": [{"name": "t", "topic_id": T_ID, "partitions": [offset]}],
            }
            answer = await client.call(8, version, asked)
            return code(answer.topics[0].partitions[0])

        async def fetch(member_id: str | None, epoch: int) -> ErrorCode:
            asked = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": None}
            answer = await client.call(9, 9, {"groups": [asked], "require_stable": False})
            return code(answer.groups[0])

        assert await commit(9, "m", 2) is E.NONE
        assert await commit(9, "m", 0) is E.STALE_MEMBER_EPOCH
        assert await commit(8, "m", 2) is E.UNSUPPORTED_VERSION
        assert await commit(9, "n", 1) is E.UNKNOWN_MEMBER_ID
        assert await fetch(None, -1) is E.NONE
        assert await fetch("m", 2) is E.NONE
        assert await fetch("m", 3) is E.STALE_MEMBER_EPOCH
        assert await fetch("n", 1) is E.UNKNOWN_MEMBER_ID


async def test_groups_hear_of_topics_and_of_their_configs() -> None:
    async with Enabled() as h:
        client = await h.client()
        await client.call(BEAT, 1, beat())
        await h.apply({OFFSETS_TOPIC: [partition([1])], "t": [partition([1])] * 4})
        owned = [{"topic_id": T_ID, "partitions": [0, 1, 2]}]
        grown = await client.call(BEAT, 1, beat(epoch=2, topic_partitions=owned))
        assert (grown.member_epoch, assigned(grown)) == (3, [(T_ID, (0, 1, 2, 3))])
        configs = ConfigurationsImage(resources=PMap({(32, "g"): PMap({"consumer.heartbeat.interval.ms": "7000"})}))
        h.groups.configs_applied(replace(h.metadata.image, configs=configs))
        again = await client.call(BEAT, 1, beat(epoch=3))
        assert again.heartbeat_interval.total_seconds() == 7


async def test_they_are_advertised_where_there_is_a_coordinator() -> None:
    async with GroupHarness() as h:
        answer = await (await h.client()).call(18, 3, {"client_software_name": "x", "client_software_version": "1"})
        ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert (ranges[BEAT], ranges[DESCRIBE]) == ((0, 1), (0, 1))
