"""EL-01, EL-04, CE-17: the sets of more partitions than fit in a batch are cleared as one, in a metadata transaction."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from kraftlite.metadata.records import (
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_RECORDS_PER_BATCH
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import World

BROKER, SET = 4, 0
MIN_ISR = "min.insync.replicas"
TOPICS, EACH = ("t", "u"), MAX_RECORDS_PER_BATCH // 2 + 1


@pytest.fixture
def world() -> World:
    """Topics of whose partitions nobody is in sync any more: of more than fit in a batch."""
    on = FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=1)
    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=30), on))
    world.start_brokers(1, 2, 3)
    for topic in TOPICS:
        assert world.create(topic, assignments=[[1, 2, 3]] * EACH, configs={MIN_ISR: "2"}).error is ErrorCode.NONE
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    return world


def who_may_lead(world: World) -> set[tuple[Any, ...]]:
    found = [world.partition(topic, index) for topic in TOPICS for index in range(EACH)]
    return {(it.leader, it.isr, it.elr, it.last_known_elr) for it in found}


def check_written(world: World, since: int) -> None:
    batches = world.quorum.batches[since:]
    written = [it for batch in batches for it in batch.records]
    assert isinstance(written[0], BeginTransactionRecord)
    assert isinstance(written[-1], EndTransactionRecord)
    assert sum(isinstance(it, ClearElrRecord) for it in written) == 1
    assert sum(isinstance(it, PartitionChangeRecord) for it in written) == len(TOPICS) * EACH
    assert max(len(batch.records) for batch in batches) <= MAX_RECORDS_PER_BATCH


def test_el_01_the_feature_is_turned_off_and_on(world: World) -> None:
    before = who_may_lead(world)
    assert before == {(None, (), (1, 2), (1,))}
    for level, kind in ((0, 2), (1, 1)):
        since = len(world.quorum.batches)
        update = m.FeatureUpdate(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=level, upgrade_type=kind)
        request = m.UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=1_000)
        answered = world.submit("update_features", partial(_update, world, request))
        assert answered.code is ErrorCode.NONE
        assert world.state.features.elr_enabled == bool(level)
        assert who_may_lead(world) == before
        check_written(world, since)


def _update(world: World, request: m.UpdateFeaturesRequest, _now: int) -> Any:
    return world.state.features.update(request)


def test_el_04_the_minimum_of_the_cluster_changes(world: World) -> None:
    before = who_may_lead(world)
    since = len(world.quorum.batches)
    answered = world.set_config(BROKER, "", (MIN_ISR, SET, "3"))
    assert answered.value.resources[0].error is ErrorCode.NONE
    assert world.state.configs.get((BROKER, ""))[MIN_ISR] == "3"
    assert who_may_lead(world) == before
    check_written(world, since)
