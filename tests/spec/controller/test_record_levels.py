"""Every record that a controller writes is one that a log of its metadata.version can hold, in the version of that level."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.metadata import records as r
from kraftlite.metadata.codec import as_json
from kraftlite.metadata.features import METADATA_VERSION, METADATA_VERSIONS
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import security
from tests.harness.controller_world import CLUSTER_ID, World
from tests.harness.record_samples import ID


def world_at(level: int) -> World:
    return World(bootstrap=(r.FeatureLevelRecord(name=METADATA_VERSION, level=level),))


def written(world: World) -> list[dict[str, Any]]:
    return [as_json(value) for value in world.active.raft.encoded]


@pytest.mark.parametrize("level", METADATA_VERSIONS)
def test_a_controller_writes_what_its_level_has(level: int) -> None:
    world = world_at(level)
    world.start_brokers(1, 2)
    world.create("t", 2, 2)
    world.fence(2)
    found = written(world)
    transactions = "BEGIN_TRANSACTION_RECORD" in {it["type"] for it in found}
    assert transactions == (level >= 13)
    broker = next(it for it in found if it["type"] == "REGISTER_BROKER_RECORD")
    assert broker["version"] == (4 if level >= 30 else 3 if level >= 17 else 2 if level >= 8 else 1)
    assert ("logDirs" in broker["data"]) == (level >= 17)
    versions = {it["version"] for it in found if it["type"] in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD")}
    assert versions == {2 if level >= 23 else 1 if level >= 17 else 0}


def test_an_upgrade_changes_the_versions_of_the_records_behind_it() -> None:
    world = world_at(16)
    world.start_brokers(1)
    world.create("before", 1, 1)
    kind = m.FeatureUpgradeType.UPGRADE
    update = m.FeatureUpdate(name=METADATA_VERSION, level=30, upgrade_type=kind)
    request = m.UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=1_000)
    world.submit("update_features", lambda _now: world.state.features.update(request))
    assert world.state.features.metadata_version == 30
    world.create("behind", 1, 1)
    assert [it["version"] for it in written(world) if it["type"] == "PARTITION_RECORD"] == [0, 2]


def test_cm_59_scram_credentials_need_their_level() -> None:
    change = security.ScramUpsertion(name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    request = security.AlterUserScramCredentialsRequest(deletions=(), upsertions=(change,), timeout_ms=1_000)
    for level, error in ((10, ErrorCode.UNSUPPORTED_VERSION), (11, ErrorCode.NONE)):
        world = world_at(level)
        answer = world.submit("test", lambda _now, world=world: world.state.scram.alter(request))
        (found,) = answer.value.results
        assert found.error is error
        assert len(world.state.scram.credentials) == (error is ErrorCode.NONE)


def test_a_quota_is_kept_as_the_shortest_text_of_its_double() -> None:
    world = world_at(30)
    part = security.QuotaEntityPart(type="user", name="u")
    ops = (security.QuotaOp(key="producer_byte_rate", value="1e3"),)
    entries = (security.QuotaAlteration(entity=(part,), ops=ops),)
    request = security.AlterClientQuotasRequest(entries=entries, validate_only=False, timeout_ms=1_000)
    world.submit("test", lambda _now: world.state.quotas.alter(request))
    assert dict(world.state.quotas.quotas[part,]) == {"producer_byte_rate": "1000.0"}


def test_what_no_record_can_say_is_refused_and_changes_nothing() -> None:
    world = world_at(30)
    wrong = m.ListenerInfo(name="A", host="h", port=1, security_protocol="TELEPATHY")
    request = m.ControllerRegistrationRequest(
        controller_id=NodeId(100),
        cluster_id=CLUSTER_ID,
        incarnation_id=ID,
        listeners=(wrong,),
        features=(),
    )
    answer = world.submit("test", lambda _now: world.state.cluster.register_controller(request))
    assert answer.code is ErrorCode.INVALID_REQUEST
    assert "security_protocol is TELEPATHY" in str(answer.error)
    assert world.active.core.active and not world.state.cluster.controllers


def test_a_controller_does_not_run_on_access_control_entries_that_it_would_not_enforce() -> None:
    entry = r.AccessControlEntryRecord(
        id=ID, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3
    )
    with pytest.raises(ValueError, match="no authorizer to enforce them"):
        world_at(30).state.replay(entry, 10)


def test_records_of_clusters_before_3_3_and_of_elr_are_replayed() -> None:
    world = world_at(30)
    world.start_brokers(1)
    world.create("t", 1, 1)
    state, epoch = world.state, world.epochs[1]
    state.replay(r.FenceBrokerRecord(broker_id=NodeId(1), broker_epoch=epoch), 100)
    assert state.cluster.brokers[NodeId(1)].fenced
    state.replay(r.UnfenceBrokerRecord(broker_id=NodeId(1), broker_epoch=epoch), 101)
    assert not state.cluster.brokers[NodeId(1)].fenced
    topic_id = state.replication.topic("t").topic_id
    state.replay(r.PartitionChangeRecord(topic_id=topic_id, partition=0, elr=(NodeId(1),)), 102)
    before = world.partition()
    for name in ("t", ""):
        state.replay(r.ClearElrRecord(topic_name=name), 103)
        after = world.partition()
        assert (after.elr, after.partition_epoch) == ((), before.partition_epoch + 1)
    with pytest.raises(ValueError, match="no such topic"):
        state.replay(r.ClearElrRecord(topic_name="other"), 104)
