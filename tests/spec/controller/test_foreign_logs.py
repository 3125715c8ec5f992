"""Logs that Apache Kafka wrote, also older releases of it: what is in them can be changed as there. CM-38, CM-47."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from tests.harness.controller_world import World

TOPIC, METRICS, GROUP = 2, 16, 32
SET, DELETE, APPEND = 0, 1, 2
LEVEL = FeatureLevelRecord(name=METADATA_VERSION, level=30)
TOPIC_ID = UUID(int=77_777)
BROKERS = (NodeId(1), NodeId(2), NodeId(3))


def topic(isr: tuple[int, ...] = BROKERS) -> tuple[MetadataRecord, ...]:
    members = tuple(NodeId(member) for member in isr)
    partition = PartitionRecord(
        topic_id=TOPIC_ID, partition=0, replicas=BROKERS, isr=members, leader=members[0], leader_epoch=4, partition_epoch=9
    )
    return TopicRecord(name="t", topic_id=TOPIC_ID), partition


def broker(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=NodeId(broker_id),
        incarnation_id=UUID(int=broker_id),
        broker_epoch=broker_id,
        listeners=(),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


@pytest.mark.parametrize(
    ("kind", "name", "left", "value", "key", "wanted"),
    [
        (TOPIC, "t", "message.format.version", "2.8-IV1", "retention.ms", "5000"),
        (TOPIC, "t", "message.downconversion.enable", "false", "retention.ms", "5000"),
        (GROUP, "g", "share.record.lock.duration.ms", "20000", "consumer.session.timeout.ms", "46000"),
        (METRICS, "m", "from.the.future", "x", "interval.ms", "5000"),
    ],
)
def test_cm_47_a_key_that_other_software_left_behind_stops_no_change(
    kind: int, name: str, left: str, value: str, key: str, wanted: str
) -> None:
    """Kafka 4.3.1 passes over such keys when it replays (DefaultSupportedConfigChecker), so none is judged with a change."""
    config = ConfigRecord(resource_type=kind, resource_name=name, name=left, value=value)
    world = World(log=[[LEVEL, *topic(), config]])
    assert world.set_config(kind, name, (key, SET, wanted)).value.resources[0].error is ErrorCode.NONE
    assert dict(world.state.configs.get((kind, name))) == {left: value, key: wanted}
    refused = world.set_config(kind, name, (left, SET, value)).value.resources[0].error
    assert refused in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST), "it cannot be set anew"
    assert world.set_config(kind, name, (left, DELETE, None)).value.resources[0].error is ErrorCode.NONE
    assert dict(world.state.configs.get((kind, name))) == {key: wanted}


def test_cm_38_an_election_without_a_candidate_is_none_where_the_isr_is_not_in_the_order_of_the_replicas() -> None:
    """Kafka keeps the order in which the members came (PartitionChangeBuilder.build compares lists)."""
    world = World(log=[[LEVEL, broker(2), broker(3), *topic(isr=(3, 2))]])
    before = world.partition()
    (result,) = world.elect(0, ("t", 0)).value.results
    assert result.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.partition() == before
