"""DQ-40, DQ-44, DQ-47: the voters of running nodes, made changeable, and a voter whose disk is replaced."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

from prometheus_client.parser import text_string_to_metric_families

from kraftlite.config.server import load
from kraftlite.metadata.features import KRAFT_VERSION
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId, VoterEndpoint, uuid_to_str
from kraftlite.model.messages.controller import FeatureUpdate, UpdateFeaturesRequest
from kraftlite.model.messages.methods import ADD_VOTER, DESCRIBE_QUORUM, REMOVE_VOTER, UPDATE_FEATURES
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumReplica,
    RemoveVoterRequest,
)
from kraftlite.node.forming import formation
from kraftlite.node.metrics import register_gauges
from kraftlite.node.storage import format_directories
from kraftlite.obs.metrics import Metrics
from kraftlite.runtime.trace.raft import VoterDirectoryReplaced
from tests.harness.disk import MemDisk
from tests.harness.node_cluster import CLUSTER, MemCluster, MemNode

SERVERS = "n1:9093,n2:9093,n3:9093"


async def upgraded(cluster: MemCluster) -> ErrorCode:
    broker = cluster.a_broker().broker
    assert broker is not None
    raised = FeatureUpdate(name=KRAFT_VERSION, level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(updates=(raised,), validate_only=False, timeout_ms=20_000)
    try:
        await cluster.call(broker.channel.call(UPDATE_FEATURES, request, 20_000), "kraft.version")
    except Exception as refused:  # noqa: BLE001 its code is the answer
        return getattr(refused, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
    return ErrorCode.NONE


async def described(cluster: MemCluster) -> DescribeQuorumResponse:
    broker = cluster.a_broker().broker
    assert broker is not None
    found: DescribeQuorumResponse = await cluster.call(
        broker.channel.call(DESCRIBE_QUORUM, DescribeQuorumRequest(), 20_000), "the quorum"
    )
    return found


async def changed(cluster: MemCluster, request: AddVoterRequest | RemoveVoterRequest) -> ErrorCode:
    broker = cluster.a_broker().broker
    assert broker is not None
    method = ADD_VOTER if isinstance(request, AddVoterRequest) else REMOVE_VOTER
    answered = await cluster.call(broker.channel.call(method, request, 20_000), "a change of the voters")
    return answered.error


def key(replica: QuorumReplica) -> tuple[int, UUID | None]:
    return replica.replica_id, replica.directory_id


def removal(voter: QuorumReplica) -> RemoveVoterRequest:
    return RemoveVoterRequest(cluster_id=None, voter_id=voter.replica_id, voter_directory_id=voter.directory_id)


def levels(cluster: MemCluster) -> set[int]:
    return {node.node.raft.kraft_version() for node in cluster.nodes.values() if node.node is not None}


def numbers(node: MemNode) -> tuple[int, ...]:
    """Voters, observers, changes that are not committed, and whether configured voters are ignored, as metrics tell them."""
    assert node.node is not None
    metrics = Metrics({})
    register_gauges(metrics, node.node, most_partitions=0)
    found = {it.name: it.samples[0].value for it in text_string_to_metric_families(metrics.render().decode()) if it.samples}
    kept = ("number_of_voters", "number_of_observers", "uncommitted_voter_change")
    ignored = int(found["kafka_controller_kafkacontroller_ignoredstaticvoters"])
    return (*(int(found[f"kafka_server_raftmetrics_{name}"]) for name in kept), ignored)


def without_configured_voters(node: MemNode, directory: Path) -> None:
    text = (directory / f"n{node.node_id}.properties").read_text()
    kept = [line for line in text.splitlines() if not line.startswith("controller.quorum.voters")]
    path = directory / f"n{node.node_id}-dynamic.properties"
    path.write_text("\n".join((*kept, f"controller.quorum.bootstrap.servers={SERVERS}", "")))
    node.config = load(path)


async def test_dq_40_dq_47_a_running_quorum_of_configured_voters_becomes_one_that_can_be_changed(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=3, brokers=1)
    await cluster.up()
    await cluster.create_topic("orders")
    assert levels(cluster) == {0}
    assert await upgraded(cluster) is ErrorCode.INVALID_UPDATE_VERSION, "the leader does not know its voters yet"
    for _ in range(20):
        await cluster.clock.run_for(500, settle=30)
        if await upgraded(cluster) is ErrorCode.NONE:
            break
    await cluster.until(lambda: levels(cluster) == {1}, "everybody to read it")
    assert await upgraded(cluster) is ErrorCode.NONE, "as it is"
    assert {it.replica_id for it in (await described(cluster)).observers} == {4}, "no voter observes beside itself"
    assert numbers(cluster.nodes[1]) == (3, numbers(cluster.nodes[1])[1], 0, 1), "DQ-47: what is configured has no effect"
    for node in cluster.nodes.values():
        await node.stop()
        without_configured_voters(node, tmp_path)
        node.boot()
        await cluster.until(lambda: all(it.up for it in cluster.nodes.values()), "the node to be up again")
    await cluster.until(lambda: cluster.leader("orders") is not None, "a leader")
    assert await cluster.produce("orders", "one") is ErrorCode.NONE
    found = await described(cluster)
    assert [it.replica_id for it in found.voters] == [1, 2, 3] and all(it.directory_id for it in found.voters)
    other = next(it for it in found.voters if it.replica_id != found.leader_id)
    assert await changed(cluster, removal(other)) is ErrorCode.NONE
    assert other.replica_id not in [it.replica_id for it in (await described(cluster)).voters]
    leader = cluster.nodes[found.leader_id]
    assert numbers(leader) == (2, 2, 0, 0), "DQ-47: a removed voter and a broker observe"


async def test_dq_44_a_voter_with_a_new_disk_votes_again_only_when_it_is_removed_and_added(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=3, brokers=1, initial=(1, 2, 3))
    await cluster.up()
    await cluster.create_topic("orders")
    found = await described(cluster)
    lost = next(it for it in found.voters if it.replica_id != found.leader_id)
    node = cluster.nodes[lost.replica_id]
    await node.crash()
    node.disk = MemDisk()
    forming = formation(node.config, no_initial_controllers=True, entropy=random.Random(77))
    format_directories(node.disk, node.config, CLUSTER, wall_ms=0, forming=forming)
    node.boot()
    await cluster.until(lambda: node.up, "the node to be up again")

    async def seen() -> QuorumReplica:
        for _ in range(40):
            replicas = (await described(cluster)).observers
            new = [it for it in replicas if it.replica_id == lost.replica_id and it.log_end_offset == found.high_watermark]
            if new or any(it.replica_id == lost.replica_id for it in replicas):
                return next(it for it in replicas if it.replica_id == lost.replica_id)
            await cluster.clock.run_for(500, settle=30)
        raise AssertionError(f"{lost} is nowhere among the observers")

    new = await seen()
    assert new.directory_id not in (None, lost.directory_id)
    running = node.node
    assert running is not None and running.raft.state_name == "observer"
    assert key(lost) in [key(it) for it in (await described(cluster)).voters], "its entry stays"
    told = [it for it in node.bed.tracer.events if isinstance(it, VoterDirectoryReplaced)]
    assert {(it.voter_directory_id, it.directory_id) for it in told} == {
        (uuid_to_str(lost.directory_id or ZERO_UUID), uuid_to_str(new.directory_id or ZERO_UUID))
    }
    (third,) = {1, 2, 3} - {lost.replica_id, found.leader_id}
    await cluster.nodes[third].crash()
    await cluster.clock.run_for(10_000, settle=30)
    assert running.raft.state_name == "observer", "it does not vote under its old name"
    leader = cluster.nodes[found.leader_id].node
    assert leader is not None and leader.raft.state_name != "leader", "one of three is no majority"
    cluster.nodes[third].boot()
    await cluster.until(lambda: cluster.nodes[third].up, "the third voter")
    await cluster.until(lambda: running.raft.leader_and_epoch().leader_id is not None, "a leader")
    await cluster.create_topic("more")

    assert await changed(cluster, removal(lost)) is ErrorCode.NONE
    addition = AddVoterRequest(
        cluster_id=None,
        voter_id=NodeId(lost.replica_id),
        voter_directory_id=new.directory_id,
        listeners=(VoterEndpoint(name="CONTROLLER", host=f"n{lost.replica_id}", port=9093),),
        ack_when_committed=True,
    )
    assert await changed(cluster, addition) is ErrorCode.NONE
    assert key(new) in [key(it) for it in (await described(cluster)).voters]
    await cluster.until(lambda: running.raft.state_name in ("follower", "leader"), "its vote")
