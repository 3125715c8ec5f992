"""EL-01 to EL-14: eligible leader replicas, at the controller."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from kraftlite.controller.partition_change import Election, ElrRules, PartitionChangeBuilder, PartitionTarget
from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from kraftlite.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import LEADERS_FIRST_MS
from kraftlite.model.messages import controller as m
from kraftlite.model.tuning import Tuning
from tests.harness.controller_world import World, check_invariants

ON = FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=1)
BOOTSTRAP: tuple[MetadataRecord, ...] = (FeatureLevelRecord(name=METADATA_VERSION, level=30), ON)
SET, DELETE = 0, 1
TOPIC, BROKER = 2, 4
MIN_ISR = "min.insync.replicas"
CLUSTER_DEFAULT = ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value="1")


def world_of(min_isr: str = "2", *, bootstrap: tuple[MetadataRecord, ...] = BOOTSTRAP, **config: Any) -> World:
    """Three brokers and topic t of one partition on 1, 2 and 3."""
    world = World(bootstrap=bootstrap, **config)
    world.start_brokers(1, 2, 3)
    assert world.create(assignments=[[1, 2, 3]], configs={MIN_ISR: min_isr}).error is ErrorCode.NONE
    return world


def sets(world: World, topic: str = "t") -> tuple[Any, ...]:
    """Leader, ISR, ELR and last known ELR."""
    found = world.partition(topic)
    check_invariants(world.active.core)
    return found.leader, found.isr, found.elr, found.last_known_elr


def update(world: World, *updates: tuple[str, int, int], validate_only: bool = False) -> ErrorCode:
    request = m.UpdateFeaturesRequest(
        updates=tuple(m.FeatureUpdate(name=name, level=level, upgrade_type=kind) for name, level, kind in updates),
        validate_only=validate_only,
        timeout_ms=1_000,
    )
    code = world.submit("update_features", lambda _now: world.state.features.update(request)).code
    assert code is not None
    return code


def records(world: World, *kinds: type) -> list[Any]:
    return [it for batch in world.quorum.batches for it in batch.records if isinstance(it, kinds)]


def restart(world: World, broker_id: int, *, clean: bool, incarnation: int = 2) -> None:
    """Register a new incarnation. After an unclean stop it does not know the broker epoch that it had."""
    epoch = world.epochs[broker_id] if clean else None
    end_session(world, broker_id)
    _ = world.register(broker_id, incarnation=incarnation, previous_epoch=epoch).value


def end_session(world: World, broker_id: int) -> None:
    world.state.cluster.live.tracker.remove(NodeId(broker_id), world.epochs[broker_id])


# --- the feature


def test_el_01_the_level_needs_a_metadata_version() -> None:
    """The levels are checked as they would be after the whole request, in both directions."""
    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=22),))
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1)) is ErrorCode.INVALID_UPDATE_VERSION
    both = ((ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1), (METADATA_VERSION, 29, 1))
    assert update(world, *both) is ErrorCode.NONE
    lower = (METADATA_VERSION, 24, 3)
    assert update(world, lower) is ErrorCode.NONE
    off = (ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 2)
    assert update(world, off) is ErrorCode.NONE
    assert not world.state.features.elr_enabled


def test_el_01_turned_off_the_sets_are_cleared() -> None:
    """But for a partition that nobody else could lead: it is led by who was eligible."""
    world = world_of()
    world.create("gone", assignments=[[1, 2, 3]], configs={MIN_ISR: "2"})
    world.fence(2)
    world.fence(3)
    assert sets(world) == (1, (1,), (3,), ())
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 2)) is ErrorCode.NONE
    assert sets(world) == (1, (1,), (), ())
    world.fence(1)
    assert sets(world) == (None, (1,), (), ()), "as before KIP-966, the last member stays"

    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    assert sets(world) == (None, (), (1, 2), (1,))
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 2)) is ErrorCode.NONE
    assert sets(world) == (None, (), (1, 2), (1,))
    _ = world.heartbeat(3).value
    assert sets(world) == (None, (), (1, 2), (1,)), "who is no candidate changes nothing"
    _ = world.heartbeat(2).value
    assert sets(world) == (2, (2,), (), ())


def test_el_01_turned_on_again_nobody_is_eligible_from_before() -> None:
    world = world_of()
    world.fence(2)
    world.fence(3)
    off, on = (ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 2), (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1)
    assert update(world, off) is ErrorCode.NONE
    assert update(world, on) is ErrorCode.NONE
    assert sets(world) == (1, (1,), (), ())


def test_el_03_the_cluster_gets_one_minimum() -> None:
    """At the beginning, and when the feature is turned on: in the same batch, with the controller's own value."""
    world = World(bootstrap=BOOTSTRAP, static_broker_configs={MIN_ISR: "2"})
    batch = next(batch for batch in world.quorum.batches if ON in batch.records)
    assert ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value="2") in batch.records

    world = World()
    world.start_brokers(1, 2)
    assert world.set_config(BROKER, "1", (MIN_ISR, SET, "3")).value.resources[0].error is ErrorCode.NONE
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1), validate_only=True) is ErrorCode.NONE
    assert not records(world, ConfigRecord)[1:]
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1)) is ErrorCode.NONE
    deleted = ConfigRecord(resource_type=BROKER, resource_name="1", name=MIN_ISR, value=None)
    assert list(world.quorum.batches[-1].records) == [CLUSTER_DEFAULT, deleted, ON]


def test_el_03_a_cluster_default_that_is_there_stays() -> None:
    world = World()
    world.set_config(BROKER, "", (MIN_ISR, SET, "3"))
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1)) is ErrorCode.NONE
    assert list(world.quorum.batches[-1].records) == [ON]
    assert world.state.configs.configured_min_isr("t") == 3


def test_el_03_brokers_may_not_disagree() -> None:
    world = world_of()
    found = world.set_config(BROKER, "1", (MIN_ISR, SET, "2")).value.resources[0]
    assert (found.error, found.message) == (
        ErrorCode.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    found = world.set_config(BROKER, "", (MIN_ISR, DELETE, None)).value.resources[0]
    assert (found.error, found.message) == (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    other = m.LegacyConfigResource(resource_type=BROKER, resource_name="", configs=())
    request = m.AlterConfigsRequest(resources=(other,), validate_only=False, timeout_ms=1_000)
    answer = world.submit("alter", lambda _now: world.state.configs.legacy_alter(request)).value
    assert answer.resources[0].error is ErrorCode.INVALID_CONFIG, "it would be removed, since it is not named"
    assert world.set_config(BROKER, "", (MIN_ISR, SET, "2")).value.resources[0].error is ErrorCode.NONE
    assert world.set_config(BROKER, "1", ("log.retention.ms", SET, "5")).value.resources[0].error is ErrorCode.NONE


# --- clearing


def test_el_04_a_new_minimum_clears_the_sets() -> None:
    world = world_of()
    world.create("u", assignments=[[1, 2, 3]], configs={MIN_ISR: "2"})
    world.create("v", assignments=[[1, 2, 3]], configs={MIN_ISR: "1"})
    world.fence(2)
    world.fence(3)
    before = {name: world.partition(name) for name in ("t", "u", "v")}
    _ = world.set_config(TOPIC, "t", (MIN_ISR, SET, "3")).value
    assert list(world.quorum.batches[-1].records) == [
        ConfigRecord(resource_type=TOPIC, resource_name="t", name=MIN_ISR, value="3"),
        ClearElrRecord(topic_name="t"),
    ]
    assert sets(world, "t") == (1, (1,), (), ())
    assert sets(world, "u") == (1, (1,), (3,), ())
    after = world.partition("t")
    assert after.partition_epoch == before["t"].partition_epoch + 1
    assert after.leader_epoch == before["t"].leader_epoch
    _ = world.set_config(BROKER, "", (MIN_ISR, SET, "2")).value
    assert ClearElrRecord(topic_name="") in world.quorum.batches[-1].records
    assert sets(world, "u") == (1, (1,), (), ())
    assert world.partition("v") == before["v"], "nothing was to be cleared"
    assert world.partition("t") == after


def test_el_04_deleting_an_override_clears_too() -> None:
    world = world_of()
    world.fence(2)
    world.fence(3)
    _ = world.set_config(TOPIC, "t", (MIN_ISR, DELETE, None)).value
    assert sets(world) == (1, (1,), (), ())
    _ = world.set_config(TOPIC, "t", ("retention.ms", SET, "5")).value
    assert not [it for it in world.quorum.batches[-1].records if isinstance(it, ClearElrRecord)]


def test_el_04_nobody_is_stranded() -> None:
    """Where nobody is in the ISR, who may lead is written again behind the record that clears."""
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    _ = world.set_config(TOPIC, "t", (MIN_ISR, SET, "1")).value
    assert sets(world) == (None, (), (1, 2), (1,))
    _ = world.heartbeat(2).value
    assert sets(world) == (2, (2,), (), ())


def test_el_04_off_nothing_is_written() -> None:
    world = world_of(bootstrap=BOOTSTRAP[:1])
    _ = world.set_config(TOPIC, "t", (MIN_ISR, SET, "1")).value
    assert not records(world, ClearElrRecord)


# --- populating and electing


def test_el_05_el_06_the_isr_empties_and_the_elr_grows() -> None:
    """EL-05, EL-06, EL-08."""
    world = world_of()
    world.fence(3)
    assert sets(world) == (1, (1, 2), (), ())
    world.fence(2)
    assert sets(world) == (1, (1,), (2,), ())
    world.fence(1)
    assert sets(world) == (None, (), (1, 2), (1,))


def test_el_05_a_minimum_above_the_replication_factor_is_the_replication_factor() -> None:
    world = world_of("7")
    world.fence(3)
    assert sets(world) == (1, (1, 2), (3,), ())


def test_el_07_elected_from_the_elr() -> None:
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    before = world.partition()
    _ = world.heartbeat(3).value
    assert sets(world) == (None, (), (1, 2), (1,)), "3 has left while the ISR was large enough"
    _ = world.heartbeat(2).value
    assert sets(world) == (2, (2,), (1,), ())
    after = world.partition()
    assert (after.leader_epoch, after.recovering) == (before.leader_epoch + 1, False)
    assert world.active.core.metrics.elections_from_elr_count == 1
    assert world.active.core.metrics.unclean_elections_count == 0


def test_el_07_not_while_somebody_is_in_the_isr() -> None:
    world = world_of()
    world.fence(3)
    world.fence(2)
    assert sets(world) == (1, (1,), (2,), ())
    _ = world.heartbeat(2).value
    assert world.elect(0, ("t", 0)).value.results[0].error is ErrorCode.ELECTION_NOT_NEEDED
    assert sets(world) == (1, (1,), (2,), ())
    world.fence(1)
    assert sets(world) == (2, (2,), (1,), ()), "2 was eligible and alive"


def test_el_08_only_the_last_known_leader_when_nobody_is_eligible() -> None:
    """All stopped uncleanly. Who led last is taken at its word; no other one is."""
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    for broker_id in (2, 3, 1):
        restart(world, broker_id, clean=False)
    assert sets(world) == (None, (), (), (1,))
    _ = world.heartbeat(2).value
    _ = world.heartbeat(3).value
    assert sets(world) == (None, (), (), (1,))
    _ = world.heartbeat(1).value
    assert sets(world) == (1, (1,), (), ())
    assert world.partition().recovering


def test_el_08_the_last_one_of_before_the_feature_is_known_too() -> None:
    world = world_of(bootstrap=BOOTSTRAP[:1])
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    assert sets(world) == (None, (1,), (), ())
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 1)) is ErrorCode.NONE
    restart(world, 1, clean=False)
    assert sets(world) == (None, (), (), (1,))


def test_el_08_who_led_last_is_known_though_one_that_is_gone_is_still_in_sync() -> None:
    """Broker 1 is gone and not fenced yet when 2, which leads, fails too: 2 has records that 1 never got. As in Kafka."""
    world = world_of(tuning=Tuning(leaders_first=1))
    world.create("u", assignments=[[2, 1, 3]], configs={MIN_ISR: "2"})
    world.alter_partition([2, 1], topic="u")
    world.now_ms += world.active.core.config.session_timeout_ms - 100
    for alive in (2, 3):
        world.heartbeat(alive)
    world.advance(200)
    assert NodeId(1) in world.state.cluster.live.leaving
    world.fence(2)
    assert sets(world, "u") == (None, (1,), (2,), (2,))
    world.advance(LEADERS_FIRST_MS + 100)
    assert sets(world, "u") == (None, (), (2, 1), (2,))
    for broker_id in (1, 2):
        restart(world, broker_id, clean=False)
    assert sets(world, "u") == (None, (), (), (2,))
    _ = world.heartbeat(1).value
    assert sets(world, "u") == (None, (), (), (2,))
    _ = world.heartbeat(2).value
    assert sets(world, "u") == (2, (2,), (), ())


def test_el_08_without_the_feature_the_last_known_leader_does_not_lead_unasked() -> None:
    """As in Kafka, whose PartitionChangeBuilder asks for the feature first. CM-38 lets somebody decide."""
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    for broker_id in (2, 3, 1):
        restart(world, broker_id, clean=False)
    assert update(world, (ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 2)) is ErrorCode.NONE
    for broker_id in (1, 2, 3):
        _ = world.heartbeat(broker_id).value
    assert sets(world) == (None, (), (), (1,))
    assert world.elect(1, ("t", 0)).value.results[0].error is ErrorCode.NONE
    assert sets(world) == (1, (1,), (), ())
    assert world.partition().recovering


@pytest.mark.parametrize("asked", [True, False])
def test_el_09_an_unclean_election_comes_last(asked: bool) -> None:
    """EL-09, EL-16."""
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    _ = world.heartbeat(3).value
    if asked:
        assert world.elect(1, ("t", 0)).value.results[0].error is ErrorCode.NONE
    else:
        _ = world.set_config(TOPIC, "t", ("unclean.leader.election.enable", SET, "true")).value
        assert sets(world) == (None, (), (1, 2), (1,)), "not at the change itself (EL-16)"
        for _ in range(40):  # at the sweep, every five minutes
            world.advance(8_000, step_ms=4_000)
            _ = world.heartbeat(3).value
    assert sets(world) == (3, (3,), (), ())
    assert world.partition().recovering


# --- registrations


def test_el_10_a_clean_stop_keeps_what_an_unclean_one_costs() -> None:
    for clean, elr in ((True, (1, 2)), (False, (1,))):
        world = world_of()
        for broker_id in (3, 2, 1):
            world.fence(broker_id)
        restart(world, 2, clean=clean)
        assert sets(world) == (None, (), elr, (1,))


def test_el_10_an_unclean_restart_of_a_member_of_the_isr() -> None:
    """Its session is over, and nobody has fenced it yet."""
    world = world_of("1")
    world.fence(2)
    world.fence(3)
    assert sets(world) == (1, (1,), (), ())
    restart(world, 1, clean=False)
    assert sets(world) == (None, (), (), (1,))
    batch = world.quorum.batches[-1].records
    assert isinstance(batch[-1], RegisterBrokerRecord) and isinstance(batch[0], PartitionChangeRecord), "in one batch"


@pytest.mark.parametrize("previous", [None, -1, 3])
def test_el_10_another_epoch_is_no_clean_stop(previous: int | None) -> None:
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    end_session(world, 2)
    _ = world.register(2, incarnation=2, previous_epoch=previous).value
    assert sets(world) == (None, (), (1,), (1,))


@pytest.mark.parametrize("previous", [None, -1])
def test_el_10_who_was_never_registered_was_not_stopped_cleanly(previous: int | None) -> None:
    world = world_of()
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    state = world.state
    answer = world.submit("unregister_broker", lambda _now: state.elections.unregister(NodeId(2)))
    _ = answer.value
    assert sets(world) == (None, (), (1,), (1,)), "EL-12: it will not come back"
    _ = world.register(2, incarnation=5, previous_epoch=previous).value
    assert sets(world) == (None, (), (1,), (1,))


def test_el_11_the_same_incarnation_again_changes_nothing() -> None:
    world = world_of()
    world.fence(2)
    world.fence(3)
    before = world.partition()
    _ = world.register(1, previous_epoch=None).value
    _ = world.register(2, previous_epoch=None).value
    assert world.partition() == before
    assert not world.state.cluster.brokers[NodeId(1)].fenced


def test_el_12_a_controlled_shutdown_leaves_the_isr_for_the_elr() -> None:
    """The last one, too: nobody leads then, and it may come back at once."""
    world = world_of()
    world.fence(3)
    world.fence(2)
    assert not world.heartbeat(1, want_shut_down=True).value.should_shut_down
    assert sets(world) == (None, (), (1, 2), (1,))
    assert world.heartbeat(1, want_shut_down=True).value.should_shut_down
    restart(world, 1, clean=True)
    assert sets(world) == (None, (), (1, 2), (1,))
    _ = world.heartbeat(1).value
    assert sets(world) == (1, (1,), (2,), ())


def test_el_14_a_growing_isr_empties_the_elr() -> None:
    world = world_of()
    world.fence(3)
    world.fence(2)
    _ = world.heartbeat(2).value
    assert sets(world) == (1, (1,), (2,), ())
    answer = world.alter_partition((1, 2)).value.partitions[0]
    assert answer.error is ErrorCode.NONE
    assert sets(world) == (1, (1, 2), (), ())
    assert world.alter_partition((1,)).value.partitions[0].error is ErrorCode.NONE
    assert sets(world) == (1, (1,), (2,), ())


# --- the builder, over everything


def _drawn(rng: random.Random) -> tuple[PartitionRegistration, PartitionTarget, ElrRules, frozenset[NodeId]]:
    nodes = [NodeId(it) for it in range(1, 6)]
    replicas = tuple(rng.sample(nodes, rng.randint(1, 4)))
    isr = tuple(it for it in replicas if rng.randrange(2))
    elr = tuple(it for it in replicas if it not in isr and rng.randrange(2))
    alive = frozenset(it for it in nodes if rng.randrange(3))
    leader = next((it for it in isr if it in alive), None)
    adding = tuple(it for it in replicas if rng.randrange(4) == 0)[: len(replicas) - 1]
    old = PartitionRegistration(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=3,
        partition_epoch=7,
        adding_replicas=adding,
        elr=elr,
        last_known_elr=() if leader is not None else (rng.choice(replicas),),
    )
    target = tuple(it for it in replicas if it in alive and (it in isr or rng.randrange(2)))
    if leader is None:
        target = tuple(it for it in target if it in isr)
    lost = rng.choice([None, None, rng.choice(replicas)])
    rules = ElrRules(enabled=True, min_isr=rng.randint(1, 4), lost=lost)
    return old, PartitionTarget(isr=tuple(it for it in target if it != lost)), rules, alive - {lost}


@pytest.mark.parametrize("seed", range(400))
def test_el_05_to_el_09_hold_for_every_change(seed: int) -> None:
    """EL-05, EL-07, EL-08, EL-09: the oracle is written from the rules, not from the builder."""
    rng = random.Random(seed)
    old, target, rules, alive = _drawn(rng)
    election = rng.choice(list(Election))
    builder = PartitionChangeBuilder(old, target, acceptable=lambda it: it in alive, election=election, elr=rules)
    record = builder.build(UUID(int=1), 0)
    new = old if record is None else old.merge(record)
    least = min(rules.min_isr, len(new.replicas))
    vouching = {it for it in (*old.isr, *old.elr) if it in new.replicas} - {rules.lost}
    assert not set(new.isr) & set(new.elr)
    assert set(new.elr) <= vouching
    assert {*new.isr, *new.elr} <= set(new.replicas)
    assert not new.elr or len(new.isr) < least
    assert (new.leader is None) == (new.isr == () or not set(new.isr) & alive)
    assert new.leader is None or (new.leader in new.isr and new.leader in alive and new.last_known_elr == ())
    assert new.leader is not None or old.last_known_elr == () or new.last_known_elr == old.last_known_elr
    assert target.isr is not None
    stays = set(target.isr) & set(new.replicas)
    if stays & alive:
        assert new.leader in stays, "from the ISR"
    elif not stays and vouching & alive and len(stays) < least:
        assert new.leader in vouching and not (new.recovering and not old.recovering), "from the ELR"
        assert new.isr == (new.leader,)
    elif new.leader is not None:
        assert new.recovering and new.isr == (new.leader,) and new.elr == (), "uncleanly"
        assert election is Election.UNCLEAN or (not vouching and not stays and old.last_known_elr == (new.leader,))
    if not stays and not (set(new.isr) - set(old.isr)) and new.leader is None:
        assert set(new.elr) == vouching, "nobody who is eligible is forgotten"
