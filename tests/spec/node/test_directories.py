"""Several log directories on whole nodes: where logs go, who is told, and what a directory that fails or is gone costs."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.server import BrokerServer
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import MIGRATING_DIR, NodeId
from kraftlite.model.messages.controller import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from kraftlite.model.messages.methods import UPDATE_FEATURES
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.node_cluster import MemCluster, MemNode

A0 = TopicPartition("a", 0)


async def cluster_of(tmp_path: Path, brokers: int = 2, **config: str) -> MemCluster:
    cluster = MemCluster(tmp_path, controllers=1, brokers=brokers, log_dirs="/d1,/d2", metadata_log_dir="/meta", **config)
    await cluster.up()
    return cluster


def broker_of(node: MemNode) -> BrokerServer:
    assert node.node is not None and node.node.broker is not None
    return node.node.broker


def logs_of(node: MemNode) -> LogDirs:
    return broker_of(node).log_dirs


def assigned(cluster: MemCluster, node: MemNode, tp: TopicPartition) -> UUID | None:
    """The directory of the node's replica, as the other nodes know it."""
    registration = broker_of(node).cache.partition(tp.topic, tp.partition)
    return None if registration is None else registration.directory_of(NodeId(node.node_id))


def is_told(cluster: MemCluster, node: MemNode) -> bool:
    """Metadata says of each of the node's logs where it is."""
    logs = logs_of(node)
    return all(
        assigned(cluster, node, log.tp) == logs.standing(log.tp, log.topic_id) for log in logs.logs() if log.topic_id is not None
    )


async def settled(cluster: MemCluster, topic: str, isr: tuple[int, ...]) -> None:
    await cluster.until(lambda: cluster.isr(topic) == isr, f"the ISR {isr} of {topic}")
    brokers = [node for node in cluster.nodes.values() if node.node is not None and node.node.broker is not None]
    await cluster.until(lambda: all(is_told(cluster, node) for node in brokers), "all directories to be known", 1_000)


async def test_jb_04_logs_are_spread_and_the_controller_knows_within_a_second(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path)
    await cluster.create_topic("a", partitions=5, replicas=2)
    await settled(cluster, "a", (2, 3))
    for node_id in (2, 3):
        logs = logs_of(cluster.nodes[node_id])
        placed = [logs.directory_of(TopicPartition("a", index)) for index in range(5)]
        assert sorted((placed.count("/d1"), placed.count("/d2"))) == [2, 3]


async def test_jb_03_the_only_directory_is_assigned_by_the_controller(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    await cluster.up()
    await cluster.create_topic("a")
    node = cluster.nodes[2]
    assert assigned(cluster, node, A0) == logs_of(node).online_ids()[0]
    assert not [event for event in cluster.recorded if event.event == "broker.directories_reported"], "nothing had to be said"


async def test_jb_07_a_replica_of_a_missing_directory_is_not_begun_anew(tmp_path: Path) -> None:
    """Restarted without the directory, the broker leaves its place empty; with it, it is whole again (KAFKA-16234)."""
    cluster = await cluster_of(tmp_path)
    await cluster.create_topic("a", replicas=2)
    await settled(cluster, "a", (2, 3))
    assert await cluster.produce("a", "kept") is ErrorCode.NONE
    node = next(node for node in cluster.nodes.values() if node is not cluster.leader("a") and node.node_id != 1)
    home = logs_of(node).directory_of(A0)
    assert home is not None
    await node.stop()
    node.disk.rename(home, "/elsewhere")
    node.boot()
    await cluster.until(lambda: node.up, "a start with one directory")
    assert broker_of(node).replicas.partition(A0) is not None
    assert logs_of(node).get(A0) is None and broker_of(node).replicas.counts.offline() == 1
    assert logs_of(node).offline_directories() == (home,)
    assert not any(name.startswith("a-0") for path in logs_of(node).online_directories() for name in node.disk.listdir(path))
    await cluster.clock.run_for(5_000)
    assert cluster.isr("a") == tuple({2, 3} - {node.node_id})
    await node.stop()
    node.disk.rename("/elsewhere", home)
    node.boot()
    await settled(cluster, "a", (2, 3))
    assert logs_of(node).directory_of(A0) == home


async def test_jb_07_the_only_copy_waits_for_its_directory(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path, brokers=1)
    await cluster.create_topic("a")
    await settled(cluster, "a", (2,))
    assert await cluster.produce("a", "kept") is ErrorCode.NONE
    node = cluster.nodes[2]
    home = logs_of(node).directory_of(A0)
    assert home is not None
    await node.stop()
    node.disk.rename(home, "/elsewhere")
    node.boot()
    await cluster.until(lambda: node.up, "a start with one directory")
    await cluster.clock.run_for(5_000)
    assert cluster.leader("a") is None, "nobody else has it, and an empty log must not lead"
    await node.stop()
    node.disk.rename("/elsewhere", home)
    node.boot()
    await cluster.until(lambda: cluster.leader("a") is node, "the leader to come back")
    assert cluster.readable("a") == 1


async def test_jb_07_a_topic_made_again_goes_into_a_directory_that_is_online(tmp_path: Path) -> None:
    """It is another topic, whatever lies in the directory that failed (KAFKA-16157)."""
    cluster = await cluster_of(tmp_path, brokers=1)
    await cluster.create_topic("a")
    await settled(cluster, "a", (2,))
    node = cluster.nodes[2]
    home = logs_of(node).directory_of(A0)
    assert home is not None
    node.disk.inject("pwritev", path=f"{home}/a-0", times=None)
    assert await cluster.produce("a", "lost") is ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.until(lambda: cluster.leader("a") is None, "no leader")
    await cluster.delete_topic("a")
    await cluster.create_topic("a")
    assert logs_of(node).directory_of(A0) not in (None, home)
    assert await cluster.produce("a", "kept") is ErrorCode.NONE


async def test_jb_06_a_directory_that_fails_before_its_first_report_loses_its_leaderships(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path)
    for node in (cluster.nodes[2], cluster.nodes[3]):
        broker_of(node).assignments.close()  # nothing is said for now
    await cluster.create_topic("a", replicas=2)
    await cluster.until(lambda: cluster.isr("a") == (2, 3), "a full ISR")
    leader = cluster.leader("a")
    assert leader is not None
    home = logs_of(leader).directory_of(A0)
    leader.disk.inject("pwritev", path=f"{home}/a-0", times=None)
    assert await cluster.produce("a", "lost") is ErrorCode.KAFKA_STORAGE_ERROR
    broker_of(leader).assignments.start()
    await cluster.until(lambda: cluster.leader("a") not in (None, leader), "another leader", 5_000)


async def test_jb_08_an_upgrade_registers_the_directories_and_says_who_is_in_them(tmp_path: Path) -> None:
    """KAFKA-16162: a broker that had registered before directories were known was never placed."""
    cluster = MemCluster(tmp_path, controllers=1, brokers=1, log_dirs="/d1,/d2", metadata_log_dir="/meta", level=16)
    await cluster.up()
    await cluster.create_topic("a")
    node = cluster.nodes[2]
    own = broker_of(node).cache.image.cluster.brokers[NodeId(2)]
    assert own.log_dirs == () and assigned(cluster, node, A0) == MIGRATING_DIR
    update = FeatureUpdate(name="metadata.version", level=30, upgrade_type=FeatureUpgradeType.UPGRADE)
    request = UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=10_000)
    await cluster.call(broker_of(node).channel.call(UPDATE_FEATURES, request, 10_000), "the upgrade")
    await cluster.until(lambda: is_told(cluster, node), "the directory of a-0 to be known")
    known = tuple(sorted(logs_of(node).online_ids()))
    await cluster.until(lambda: broker_of(node).cache.image.cluster.brokers[NodeId(2)].log_dirs == known, "the registration")
    registered = broker_of(node).cache.image.cluster.brokers[NodeId(2)]
    assert registered.broker_epoch == own.broker_epoch, "the same incarnation (KAFKA-16952)"
    assert cluster.leader("a") is node


def other_directory(node: MemNode, tp: TopicPartition = A0) -> str:
    home = logs_of(node).directory_of(tp)
    return next(path for path in ("/d1", "/d2") if path != home)


async def test_jb_10_jb_11_a_replica_moves_under_load_and_nothing_is_missing(tmp_path: Path) -> None:
    """Leader and follower at once: both go on, and the metadata says where they are."""
    cluster = await cluster_of(tmp_path)
    await cluster.create_topic("a", replicas=2)
    await settled(cluster, "a", (2, 3))
    for count in range(20):
        assert await cluster.produce("a", f"before {count}") is ErrorCode.NONE
    leader, targets = cluster.leader("a"), {}
    for node in (cluster.nodes[2], cluster.nodes[3]):
        targets[node.node_id] = other_directory(node)
        logs_of(node).moves.alter(A0, targets[node.node_id])
    for count in range(20):
        assert await cluster.produce("a", f"meanwhile {count}") is ErrorCode.NONE
    for node in (cluster.nodes[2], cluster.nodes[3]):
        home = targets[node.node_id]
        await cluster.until(lambda node=node, home=home: logs_of(node).directory_of(A0) == home, "the move")  # type: ignore[misc]
    assert cluster.leader("a") is leader, "nobody was disturbed"
    assert await cluster.produce("a", "after") is ErrorCode.NONE
    await settled(cluster, "a", (2, 3))
    assert cluster.readable("a") == 41
    await cluster.clock.run_for(70_000)  # file.delete.delay.ms
    for node in (cluster.nodes[2], cluster.nodes[3]):
        found = {path: [it for it in node.disk.listdir(path) if it.startswith("a-0")] for path in ("/d1", "/d2")}
        assert found[targets[node.node_id]] == ["a-0"] and found[other_directory(node)] == []
        await node.stop()
        node.boot()
        await settled(cluster, "a", (2, 3))
    assert cluster.readable("a") == 41


async def test_jb_06_the_hw_does_not_wait_for_a_follower_whose_directory_has_failed(tmp_path: Path) -> None:
    """It was caught up a moment ago, and its broker is well: it would be waited for until it lags."""
    cluster = await cluster_of(tmp_path)
    await cluster.create_topic("a", replicas=2)
    await settled(cluster, "a", (2, 3))
    assert await cluster.produce("a", "before") is ErrorCode.NONE
    leader = cluster.leader("a")
    follower = next(node for node in cluster.nodes.values() if node is not leader and node.node_id != 1)
    state = next(state for state in logs_of(follower)._dirs if A0 in state.logs)
    logs_of(follower)._fail(state, OSError(5, "gone"))
    await cluster.until(lambda: len(cluster.isr("a")) == 1, "the follower to leave the ISR")
    before_ms = cluster.clock.now_ms()
    assert await cluster.produce("a", "after") is ErrorCode.NONE
    assert cluster.clock.now_ms() - before_ms < 500
