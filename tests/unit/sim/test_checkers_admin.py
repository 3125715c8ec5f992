"""Each checker of what administrators ask for finds a violation made on the real objects; the rules say what they should."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.handlers.configs import ConfigDescription, ConfigEntry, ConfigQuery
from kraftlite.metadata import records as r
from kraftlite.model.configdef import ConfigSource
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import security as s
from kraftlite.model.messages.introspection import NodeStatusRequest, ReplicaState, ReplicaStatesRequest, ReplicaStatesResponse
from kraftlite.model.messages.methods import ALTER_USER_SCRAM_CREDENTIALS, CREATE_TOPICS, NODE_STATUS, REPLICA_STATES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.controller import SettingNotApplied
from kraftlite.sim.checkers import admin_rules, admin_rules_configs, description_rules
from kraftlite.sim.checkers.base import CheckerFactory, Violation
from kraftlite.sim.checkers.callers import PushesInOrder, ToldByControllers
from kraftlite.sim.checkers.catalog_admin import ADMINISTRATION
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i50_admin_outcomes import AdminOutcomes
from kraftlite.sim.checkers.i51_configs_in_force import ConfigsInForce
from kraftlite.sim.checkers.i52_moves import Moves
from kraftlite.sim.checkers.i53_descriptions import Descriptions
from kraftlite.sim.checkers.i54_reborn_topics import RebornTopics
from kraftlite.sim.checkers.i60_self_reports import SelfReports
from kraftlite.sim.checkers.i93_no_secrets import NoSecrets
from kraftlite.sim.checkers.model import MetadataState, apply
from kraftlite.sim.cluster import CLIENT
from kraftlite.sim.history import Description, Operation, TenantRead, TenantWrite
from kraftlite.simhost.network import Exchange
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster, watched

Make = Callable[..., WatchedCluster]
CASES: Cases[WatchedCluster] = Cases()
BROKER = NodeId(4)
BROKER_CONFIGS = 4
"""The type of resource of a broker's dynamic configs."""


@pytest.fixture
def make() -> Iterator[Make]:
    with watched() as start:
        yield start


def topic_id(cluster: WatchedCluster, name: str) -> UUID:
    watch = cluster.checkers[0]
    assert isinstance(watch, MetadataWatch)
    found = watch.facts.history.latest.topic_named(name)
    assert found is not None
    return found[0]


def answered(cluster: WatchedCluster, kind: str, request: Any, response: Any = None, error: str | None = None) -> None:
    """An administrator says that it was answered like this just now."""
    now = cluster.loop.now_us()
    op = Operation(kind=kind, request=request, broker=BROKER, invoked_us=now - 1, returned_us=now, response=response, error=error)
    cluster.world.history.operations.append(op)
    cluster.at_end()


@CASES.breaks(AdminOutcomes, "is not what any request that reached this controller asks for")
def a_topic_that_nobody_asked_for(cluster: WatchedCluster) -> None:
    cluster.write(r.TopicRecord(name="z1", topic_id=UUID(int=7)))


@CASES.breaks(AdminOutcomes, "is not what any request that reached this controller asks for")
def a_validation_with_an_effect(cluster: WatchedCluster) -> None:
    topic = m.CreatableTopic(name="z1", num_partitions=1, replication_factor=1, assignments=(), configs=())
    request = m.CreateTopicsRequest(topics=(topic,), validate_only=True, timeout_ms=1_000)
    controller = cluster.controller().state.topics
    create = controller.create
    controller.create = lambda request, *rest: create(replace(request, validate_only=False), *rest)  # type: ignore[method-assign]
    cluster.call(cluster.leader_id(), CREATE_TOPICS, request)


@CASES.breaks(AdminOutcomes, r"was answered with \['NONE'\], which no state .* allows; .* \[\['UNKNOWN_TOPIC_OR_PARTITION'\]\]")
def a_success_without_its_effect(cluster: WatchedCluster) -> None:
    request = m.DeleteTopicsRequest(topics=(m.TopicSelector(name="z1", topic_id=None),), timeout_ms=1_000)
    result = m.DeleteTopicResult(name="z1", topic_id=None, error=ErrorCode.NONE, message=None)
    answered(cluster, "delete_topics", request, m.DeleteTopicsResponse(topics=(result,)))


@CASES.breaks(AdminOutcomes, "was answered with BROKER_ID_NOT_REGISTERED, which no state")
def a_refusal_without_a_reason(cluster: WatchedCluster) -> None:
    request = m.UnregisterBrokerRequest(broker_id=BROKER, timeout_ms=1_000)
    answered(cluster, "unregister_broker", request, error="BROKER_ID_NOT_REGISTERED")


@CASES.breaks(AdminOutcomes, "was answered by its broker with NONE, which it may not")
def a_broker_that_takes_the_configs_of_another(cluster: WatchedCluster) -> None:
    resource = m.ConfigResourceChange(resource_type=4, resource_name="5", changes=())
    result = m.AlterConfigsResult(resource_type=4, resource_name="5", error=ErrorCode.NONE, message=None)
    request = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=1_000)
    answered(cluster, "alter_configs", request, m.AlterConfigsResponse(resources=(result,)))


@CASES.breaks(ConfigsInForce, "retention.ms of orders is 604800000, its log has 5")
def a_log_with_other_configs(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    cluster.go(1_000)
    node = cluster.node(BROKER).node
    assert node is not None and node.broker is not None
    (replica,) = node.broker.replicas.partitions()
    replica.online_log().update_config(replace(replica.online_log().config, retention_ms=5))
    cluster.at_end()


@CASES.breaks(Moves, "a new partition 5 of orders, which has 0 to 0")
def a_hole_in_the_partitions(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    record = r.PartitionRecord(
        topic_id=topic_id(cluster, "orders"),
        partition=5,
        replicas=(BROKER,),
        isr=(BROKER,),
        leader=BROKER,
        leader_epoch=0,
        partition_epoch=0,
    )
    cluster.write(record)


@CASES.breaks(Moves, "a move to .* ends, though only .* are in sync")
def a_move_that_ends_early(cluster: WatchedCluster) -> None:
    cluster.create_topic(replication=1)
    orders = topic_id(cluster, "orders")
    here = cluster.checkers[0].facts.history.latest.topics[orders].partitions[0].replicas[0]  # type: ignore[attr-defined]
    there = NodeId(9 - here)
    cluster.write(
        r.PartitionChangeRecord(topic_id=orders, partition=0, replicas=(here, there), adding_replicas=(there,)),
        r.PartitionChangeRecord(topic_id=orders, partition=0, replicas=(here, there), adding_replicas=()),
    )


@CASES.breaks(Descriptions, "describes features None from metadata offset .* as metadata.version: 3; the log says 30")
def a_description_of_another_cluster(cluster: WatchedCluster) -> None:
    found = {"metadata.version": 3, "group.version": 1}
    offset = cluster.core(cluster.leader_id()).committed_offset or 0
    cluster.world.history.descriptions.append(
        Description(kind="features", request=None, broker=BROKER, invoked_us=0, returned_us=1, offset=offset - 1, found=found)
    )
    cluster.at_end()


@CASES.breaks(Descriptions, "describes configs .* as no.such.key: secret; the log says None")
def a_value_of_an_unknown_key_that_is_told(cluster: WatchedCluster) -> None:
    cluster.write(r.ConfigRecord(resource_type=BROKER_CONFIGS, resource_name="4", name="no.such.key", value="secret"))
    query = ConfigQuery(resource_type=BROKER_CONFIGS, resource_name="4", keys=None)
    entry = ConfigEntry(
        name="no.such.key", value="secret", source=ConfigSource.DYNAMIC_BROKER_CONFIG, read_only=False, sensitive=False, type=0
    )
    found = ConfigDescription(error=ErrorCode.NONE, message=None, resource_type=4, resource_name="4", entries=(entry,))
    offset = (cluster.core(cluster.leader_id()).committed_offset or 0) - 1
    cluster.world.history.descriptions.append(
        Description(kind="configs", request=query, broker=BROKER, invoked_us=0, returned_us=1, offset=offset, found=found)
    )
    cluster.at_end()


@CASES.breaks(RebornTopics, r"asked for by name at node 4 .* has \['tenant/1'\]: tenant/1 went to the name until 5 us")
def a_record_of_the_former_topic(cluster: WatchedCluster) -> None:
    cluster.create_topic("z1")
    tp, history = TopicPartition("z1", 0), cluster.world.history
    history.tenant_writes.append(TenantWrite(tp=tp, topic_id=None, value="tenant/1", invoked_us=1, returned_us=5, offset=0))
    history.tenant_reads.append(
        TenantRead(tp=tp, topic_id=None, broker=BROKER, invoked_us=1, returned_us=2, records=((0, "tenant/1"),))
    )
    cluster.at_end()


def tenant_write(cluster: WatchedCluster, *, keyed: bool) -> TopicPartition:
    """A record that is refused as none."""
    cluster.create_topic("z1")
    tp = TopicPartition("z1", 0)
    refused = TenantWrite(tp=tp, topic_id=None, value="tenant/1", invoked_us=1, error="INVALID_RECORD", keyed=keyed)
    cluster.world.history.tenant_writes.append(refused)
    return tp


@CASES.breaks(RebornTopics, "tenant/1 has a key, and z1-0 took it for no record")
def a_record_with_a_key_is_refused(cluster: WatchedCluster) -> None:
    tenant_write(cluster, keyed=True)
    cluster.at_end()


@CASES.breaks(RebornTopics, r"has \['tenant/1'\]: tenant/1 went to the name")
def a_record_that_was_refused_is_read(cluster: WatchedCluster) -> None:
    read = TenantRead(
        tp=tenant_write(cluster, keyed=False),
        topic_id=None,
        broker=BROKER,
        invoked_us=1,
        returned_us=2,
        records=((0, "tenant/1"),),
    )
    cluster.world.history.tenant_reads.append(read)
    cluster.at_end()


def reports(cluster: WatchedCluster) -> SelfReports:
    return next(it for it in cluster.checkers if isinstance(it, SelfReports))


@CASES.breaks(SelfReports, "the metrics of node .* have kafka_controller_kafkacontroller_activecontrollercount 0, where 1 is so")
def a_gauge_that_stays_at_zero(cluster: WatchedCluster) -> None:
    reports(cluster).look(cluster.node(cluster.leader_id()), defaultdict(float))


@CASES.breaks(SelfReports, "node 4 says of itself raft epoch 99")
def a_status_of_the_future(cluster: WatchedCluster) -> None:
    node = cluster.node(BROKER)
    assert node.node is not None
    exchange = Exchange(CLIENT, BROKER, NODE_STATUS, NodeStatusRequest(), cluster.loop.create_future())
    reports(cluster).on_served(exchange, replace(node.node.status(), raft_epoch=99))


@CASES.breaks(SelfReports, "node 4 says that it has orders-7 of")
def a_replica_that_is_not_there(cluster: WatchedCluster) -> None:
    exchange = Exchange(CLIENT, BROKER, REPLICA_STATES, ReplicaStatesRequest(topics=None), cluster.loop.create_future())
    it = ReplicaState(
        topic="orders", topic_id=UUID(int=3), partition=7, is_leader=False, leader_epoch=0, partition_epoch=0, isr=(BROKER,),
        log_start_offset=0, hw=0, leo=0, size_bytes=0,
    )  # fmt: skip
    reports(cluster).on_served(exchange, ReplicaStatesResponse(replicas=(it,)))


@CASES.breaks(SelfReports, "node 4 says of the followers of orders-7")
def a_follower_that_is_ahead_of_its_leader(cluster: WatchedCluster) -> None:
    tell_followers(cluster, told=5, leo=5)
    tell_followers(cluster, told=6, leo=5)


@CASES.breaks(SelfReports, "says of the followers of orders-7: ")
def a_follower_that_is_ahead_of_what_its_leader_heard(cluster: WatchedCluster) -> None:
    tell_followers(cluster, told=3, leo=5, heard=3)
    tell_followers(cluster, told=4, leo=5, heard=3)


def tell_followers(cluster: WatchedCluster, *, told: int, leo: int, heard: int | None = None) -> None:
    """A leader whose log ends at `leo` tells of one follower; None: meanwhile it leads no more."""
    leader = None if heard is None else SimpleNamespace(followers={NodeId(5): SimpleNamespace(leo=heard)}, epoch_start_offset=0)
    held = SimpleNamespace(tp=TopicPartition("orders", 7), log=object(), topic_id=UUID(int=3), leader=leader, leader_epoch=0)
    built: Any = SimpleNamespace(broker=SimpleNamespace(replicas=SimpleNamespace(partitions=lambda: (held,))))
    it = ReplicaState(
        topic="orders", topic_id=UUID(int=3), partition=7, is_leader=True, leader_epoch=0, partition_epoch=0, isr=(BROKER,),
        log_start_offset=0, hw=0, leo=leo, size_bytes=0, replicas=(BROKER, NodeId(5)), followers=(NodeId(5),),
        follower_leos=(told,), maximal_isr=(BROKER,), epoch_start_offset=0,
    )  # fmt: skip
    reports(cluster)._check_replicas(cluster.node(BROKER), built, ReplicaStatesResponse(replicas=(it,)))


def server_key(cluster: WatchedCluster) -> bytes:
    """The key of a credential that somebody has just asked for."""
    upsertion = s.ScramUpsertion(name="u1", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted")
    request = s.AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,), timeout_ms=5_000)
    cluster.call(cluster.leader_id(), ALTER_USER_SCRAM_CREDENTIALS, request)
    watch = cluster.checkers[0]
    assert isinstance(watch, MetadataWatch)
    return watch.facts.history.latest.credentials["u1", 1].server_key


@pytest.mark.parametrize("form", [str, bytes.hex, base64.b64encode, lambda key: (str(key),)])
def test_an_event_with_a_key_is_found(make: Make, form: Callable[[bytes], object]) -> None:
    cluster = make(MetadataWatch, NoSecrets)
    event = SettingNotApplied(resource="broker 4", setting=f"key={form(server_key(cluster))!s}", reason="none")
    with pytest.raises(Violation, match=r"controller\.setting_not_applied with a key of user 'u1'"):
        cluster.checkers[-1].on_event(0, cluster.node(4), event)


@CASES.breaks(NoSecrets, "describes strict scram with a key of user 'u1'")
def a_described_key(cluster: WatchedCluster) -> None:
    key = server_key(cluster)
    cluster.at_end()  # so far nobody has said it
    cluster.world.history.descriptions.append(
        Description(kind="strict scram", request=None, broker=BROKER, invoked_us=0, returned_us=0, offset=0, found=(key,))
    )
    cluster.at_end()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(make: Make, checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    assert_found(make(MetadataWatch, checker), checker, violate, words)


def test_every_checker_can_fail() -> None:
    elsewhere = {PushesInOrder, ToldByControllers}  # in test_checkers_callers
    assert {case[0] for case in CASES} == {*ADMINISTRATION[1:]} - elsewhere


# --- the rules


def state(*records: r.MetadataRecord) -> MetadataState:
    found = MetadataState(features={"metadata.version": 30})
    for offset, record in enumerate(records):
        found = apply(found, record, offset)
    return found


def config(value: str | None, *, op: int = 0, name: str = "retention.ms") -> m.IncrementalAlterConfigsRequest:
    change = m.ConfigChange(name=name, op=op, value=value)
    resource = m.ConfigResourceChange(resource_type=2, resource_name="z1", changes=(change,))
    return m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=1)


@pytest.mark.parametrize(
    ("request_", "faults", "written"),
    [
        (config("2000000000000"), set(), [("retention.ms", "2000000000000")]),
        (config("-2"), {ErrorCode.INVALID_CONFIG}, []),
        (config(None), {ErrorCode.INVALID_REQUEST}, []),
        (config(None, op=1, name="flush.ms"), set(), [("flush.ms", None)]),
        (config(None, op=1), set(), []),
        (config("compact", op=2, name="cleanup.policy"), set(), [("cleanup.policy", "delete,compact")]),
        (config("delete", op=2, name="cleanup.policy"), set(), [("cleanup.policy", "delete")]),
        (config("compact,delete", op=3, name="cleanup.policy"), set(), [("cleanup.policy", "")]),
        (config("shred", op=3, name="cleanup.policy"), set(), [("cleanup.policy", "delete")]),
        (config("shred", op=2, name="cleanup.policy"), {ErrorCode.INVALID_CONFIG}, []),
        (config("1000", op=2, name="flush.ms"), {ErrorCode.INVALID_CONFIG}, []),
    ],
)
def test_the_rules_of_configs(request_: Any, faults: set[ErrorCode], written: list[tuple[str, str | None]]) -> None:
    before = state(
        r.TopicRecord(name="z1", topic_id=UUID(int=7)),
        r.ConfigRecord(resource_type=2, resource_name="z1", name="flush.ms", value="500"),
    )
    outcome = admin_rules_configs.alter_configs(before, request_)
    (entry,) = outcome.entries
    assert entry.faults == faults
    records = [r.ConfigRecord(resource_type=2, resource_name="z1", name=name, value=value) for name, value in written]
    assert [want.fits(before, record) for want, record in zip(entry.wants, records, strict=True)] == [True] * len(records)


def test_a_topic_that_is_not_there_is_missed_by_name_and_by_id() -> None:
    selectors = (m.TopicSelector(name="z1", topic_id=None), m.TopicSelector(name=None, topic_id=UUID(int=9)))
    outcome = admin_rules.delete_topics(state(), m.DeleteTopicsRequest(topics=selectors, timeout_ms=1))
    assert [entry.faults for entry in outcome.entries] == [
        {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        {ErrorCode.UNKNOWN_TOPIC_ID},
    ]


def test_a_selector_with_both_name_and_id_is_refused_and_hinders_no_other() -> None:
    """As `ControllerApis` of Kafka, which looks for names that come twice among those without an id."""
    before = state(r.TopicRecord(name="z1", topic_id=UUID(int=7)))
    selectors = (m.TopicSelector(name="z1", topic_id=None), m.TopicSelector(name="z1", topic_id=UUID(int=7)))
    outcome = admin_rules.delete_topics(before, m.DeleteTopicsRequest(topics=selectors, timeout_ms=1))
    assert [entry.faults for entry in outcome.entries] == [set(), {ErrorCode.INVALID_REQUEST}]


def test_a_topic_that_a_deletion_names_twice_is_answered_once() -> None:
    before = state(r.TopicRecord(name="z1", topic_id=UUID(int=7)))
    name, known = m.TopicSelector(name="z1", topic_id=None), m.TopicSelector(name=None, topic_id=UUID(int=7))
    bad: set[ErrorCode] = {ErrorCode.INVALID_REQUEST}
    for selectors, faults in (
        ((name, name), [bad]),
        ((known, known), [bad]),
        ((known, name), [bad]),
        ((known, name, known), [bad, bad]),
        ((name, known, name), [bad, set()]),
    ):
        outcome = admin_rules.delete_topics(before, m.DeleteTopicsRequest(topics=selectors, timeout_ms=1))
        assert [entry.faults for entry in outcome.entries] == faults


def description(kind: str, request: Any, found: Any) -> Description:
    return Description(kind=kind, request=request, broker=BROKER, invoked_us=0, returned_us=1, offset=0, found=found)


def test_the_resources_with_configs_are_topics_live_brokers_and_what_was_configured() -> None:
    before = state(
        r.TopicRecord(name="z1", topic_id=UUID(int=7)),
        r.ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="45000"),
    )
    found, wanted = description_rules.resources(description("resources", (), [(2, "z1"), (32, "g"), (32, "g")]), before)
    assert wanted == {(2, "z1"): 1, (32, "g"): 1} and found != wanted
    found, wanted = description_rules.resources(description("resources", (16,), []), before)
    assert found == wanted == {}


def test_the_oldest_metadata_leaves_out_replicas_that_are_down_and_says_so() -> None:
    partition = r.PartitionRecord(
        partition=0,
        topic_id=UUID(int=7),
        replicas=(BROKER, NodeId(5)),
        isr=(BROKER,),
        leader=NodeId(5),
        leader_epoch=1,
        partition_epoch=1,
    )
    before = state(r.TopicRecord(name="z1", topic_id=UUID(int=7)), partition)
    _, newest = description_rules.metadata(description("metadata", False, []), before)
    _, oldest = description_rules.metadata(description("metadata", True, []), before)
    lacking, down = ErrorCode.LEADER_NOT_AVAILABLE, (BROKER, NodeId(5))
    assert newest["z1", 0] == (lacking, None, 1, down, (BROKER,), down)
    assert oldest["z1", 0] == (lacking, None, 1, (), (), down)


def test_a_credential_that_is_not_there_cannot_be_removed() -> None:
    request = s.AlterUserScramCredentialsRequest(deletions=(s.ScramDeletion(name="u", mechanism=1),), upsertions=(), timeout_ms=1)
    assert admin_rules_configs.alter_scram(state(), request).entries[0].faults == {ErrorCode.RESOURCE_NOT_FOUND}
