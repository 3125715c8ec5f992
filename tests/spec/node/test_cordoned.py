"""Cordoned log directories on whole nodes (JB-13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlite.broker.handlers.admin import alter_configs
from kraftlite.broker.handlers.at_controller import alter_configs_here
from kraftlite.broker.handlers.log_dirs import describe_log_dirs
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    CreatableTopic,
    CreateTopicsRequest,
    FeatureUpdate,
    FeatureUpgradeType,
    IncrementalAlterConfigsRequest,
    ReplicaAssignment,
    UpdateFeaturesRequest,
)
from kraftlite.model.messages.methods import CREATE_TOPICS, UPDATE_FEATURES
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.node_cluster import MemCluster, MemNode
from tests.spec.node.test_directories import broker_of, cluster_of, logs_of

KEY = "cordoned.log.dirs"


async def cordon(
    cluster: MemCluster,
    node: MemNode,
    value: str | None,
    op: AlterConfigOp = AlterConfigOp.SET,
    name: str | None = None,
    *,
    at_controller: bool = False,
) -> ErrorCode:
    """Ask the broker itself, or as at a controller, to change `cordoned.log.dirs` of itself or of `name`."""
    change = ConfigChange(name=KEY, op=int(op), value=value)
    name = str(node.node_id) if name is None else name
    resource = ConfigResourceChange(resource_type=ConfigResourceType.BROKER, resource_name=name, changes=(change,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=10_000)
    handler = alter_configs_here if at_controller else alter_configs
    answer = await cluster.call(handler(broker_of(node).context, request), "the change")
    code: ErrorCode = answer.resources[0].error
    return code


async def create(cluster: MemCluster, name: str, *replicas: int) -> ErrorCode:
    """Create a topic of one partition, placed by hand where `replicas` says so."""
    assignments = (ReplicaAssignment(partition=0, broker_ids=replicas),) if replicas else ()  # type: ignore[arg-type]
    count, factor = (-1, -1) if replicas else (1, 1)
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, assignments=assignments, configs=())
    request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=20_000)
    broker = cluster.a_broker().broker
    assert broker is not None
    response = await cluster.call(broker.channel.call(CREATE_TOPICS, request, 20_000), f"topic {name}")
    code: ErrorCode = response.topics[0].error
    return code


async def told(cluster: MemCluster, node: MemNode, *paths: str) -> None:
    """Wait until the controller knows exactly these directories of the node to be cordoned."""
    logs = logs_of(node)
    wanted = sorted(it.directory_id for it in logs._dirs if it.path in paths)
    own = broker_of(node)

    def known() -> bool:
        found = own.cache.image.cluster.brokers[node.node_id].cordoned_log_dirs  # type: ignore[index]
        return found is not None and sorted(found) == wanted

    await cluster.until(known, f"{paths} to be known as cordoned", 2_000)


async def test_jb_13_a_cordoned_directory_gets_no_new_logs_and_keeps_those_it_has(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path, brokers=1)
    node = cluster.nodes[2]
    await cluster.create_topic("a", partitions=2)
    await told(cluster, node)
    assert await cordon(cluster, node, "/d1") is ErrorCode.NONE
    await told(cluster, node, "/d1")
    await cluster.create_topic("b", partitions=4)
    await cluster.until(lambda: logs_of(node).get(TopicPartition("b", 3)) is not None, "the logs of b")
    assert {logs_of(node).directory_of(TopicPartition("b", index)) for index in range(4)} == {"/d2"}
    stays = next(tp for tp in (TopicPartition("a", 0), TopicPartition("a", 1)) if logs_of(node).directory_of(tp) == "/d1")
    assert await cluster.produce("a", "one") is ErrorCode.NONE
    with pytest.raises(ApiError) as refused:
        logs_of(node).moves.alter(TopicPartition("b", 0), "/d1")
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    logs_of(node).moves.alter(stays, "/d2")
    await cluster.until(lambda: logs_of(node).directory_of(stays) == "/d2", "the move out of it")
    described = await describe_log_dirs(broker_of(node).context, None)
    assert {one.path: one.is_cordoned for one in described} == {"/d1": True, "/d2": False}
    await node.stop()
    node.boot()
    await cluster.until(lambda: node.up, "the restart")
    assert logs_of(node).cordoned == {"/d1"}
    await told(cluster, node, "/d1")
    assert await cordon(cluster, node, None, AlterConfigOp.DELETE) is ErrorCode.NONE
    await told(cluster, node)


async def test_jb_13_a_broker_without_an_open_directory_gets_replicas_by_hand_only(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path, brokers=1)
    node = cluster.nodes[2]
    await told(cluster, node)
    assert await cordon(cluster, node, "*") is ErrorCode.NONE
    await told(cluster, node, "/d1", "/d2")
    assert await create(cluster, "a") is ErrorCode.INVALID_REPLICATION_FACTOR
    assert await create(cluster, "b", 2) is ErrorCode.NONE
    await cluster.until(lambda: logs_of(node).directory_of(TopicPartition("b", 0)) == "/d1", "a log in the first directory")
    assert await cordon(cluster, node, "/d1") is ErrorCode.NONE
    await told(cluster, node, "/d1")
    assert await create(cluster, "a") is ErrorCode.NONE


async def test_jb_13_what_is_refused(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path, brokers=2)
    node = cluster.nodes[2]
    for value in ("/elsewhere", "/d1,/elsewhere", "*,/d1"):
        assert await cordon(cluster, node, value) is ErrorCode.INVALID_REQUEST
    assert await cordon(cluster, node, "/elsewhere", AlterConfigOp.APPEND) is ErrorCode.INVALID_REQUEST
    assert await cordon(cluster, node, "/d1", name="") is ErrorCode.INVALID_REQUEST, "a default of all brokers"
    assert await cordon(cluster, node, "/d1", at_controller=True) is ErrorCode.INVALID_CONFIG, "it does not know the paths"
    assert await cordon(cluster, node, "/d1,/d2") is ErrorCode.NONE
    await told(cluster, node, "/d1", "/d2")
    assert await cordon(cluster, node, "/d1", AlterConfigOp.SUBTRACT, at_controller=True) is ErrorCode.NONE, "it takes away"
    await told(cluster, node, "/d2")
    assert await cordon(cluster, node, "/d1", AlterConfigOp.APPEND) is ErrorCode.NONE
    await told(cluster, node, "/d1", "/d2")


async def test_jb_13_below_version_30_nothing_is_cordoned_and_from_then_on_it_is(tmp_path: Path) -> None:
    """The file cordons one directory from the start."""
    cluster = MemCluster(
        tmp_path, controllers=1, brokers=1, log_dirs="/d1,/d2", metadata_log_dir="/meta", level=29, cordoned_log_dirs="/d1"
    )
    await cluster.up()
    node = cluster.nodes[2]
    assert await cordon(cluster, node, "/d2") is ErrorCode.INVALID_CONFIG
    await cluster.create_topic("a", partitions=2)
    await cluster.until(lambda: logs_of(node).get(TopicPartition("a", 1)) is not None, "the logs of a")
    assert {logs_of(node).directory_of(TopicPartition("a", index)) for index in range(2)} == {"/d1", "/d2"}
    update = FeatureUpdate(name="metadata.version", level=30, upgrade_type=FeatureUpgradeType.UPGRADE)
    request = UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=10_000)
    await cluster.call(broker_of(node).channel.call(UPDATE_FEATURES, request, 10_000), "the upgrade")
    await told(cluster, node, "/d1")
    assert logs_of(node).cordoned == {"/d1"}
