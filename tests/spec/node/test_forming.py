"""DQ-20 to DQ-25: quorums whose voters are in the log, from formatting to a cluster that works."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftlite.config.server import ServerConfig, load
from kraftlite.log.control import KRaftVersion, SnapshotHeader, decode_control
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import FeatureLevelRecord
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.model.tuning import Tuning
from kraftlite.node import storage
from kraftlite.node.configs import quorum_config
from kraftlite.node.forming import Formation, formation
from kraftlite.raft.metalog import MetadataLog
from kraftlite.raft.snapshots import read_snapshot_file
from kraftlite.runtime.trace import ListTracer
from tests.harness.disk import MemDisk
from tests.harness.node_cluster import CLUSTER, MemCluster

ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9192,CONTROLLER://localhost:9093",
    "inter.broker.listener.name": "REPLICATION",
    "log.dirs": "/data",
}
CHECKPOINT = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def server(tmp_path: Path, **changes: str) -> ServerConfig:
    path = tmp_path / "server.properties"
    values = ALONE | {key.replace("_", "."): value for key, value in changes.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return load(path)


def formed(disk: MemDisk, config: ServerConfig, forming: Formation | None) -> list[str]:
    return storage.format_directories(disk, config, CLUSTER, forming=forming, entropy=random.Random(3), wall_ms=7)


def test_dq_22_standalone_makes_a_voter_of_the_first_controller_listener_and_a_directory_id(tmp_path: Path) -> None:
    disk, config = MemDisk(), server(tmp_path)
    forming = formation(config, standalone=True, entropy=random.Random(5))
    assert forming is not None and forming.voters is not None
    assert formed(disk, config, forming) == ["Formatting dynamic metadata voter directory /data with metadata.version 4.3-IV0."]
    layout = storage.verify(disk, config)
    (voter,) = forming.voters.voters
    assert voter.listeners == (VoterEndpoint(name="CONTROLLER", host="localhost", port=9093),) and voter.versions == (0, 1)
    assert layout.directory_ids["/data"] == voter.directory_id and layout.is_formed
    with read_snapshot_file(disk, CHECKPOINT, MetadataSerde()) as reader:
        batches = [[decode_control(it) for it in records] for is_control, records in reader.raw_batches() if is_control]
        assert list(reader.batches()) == [], "the records of the new cluster are beside it"
    assert batches[0] == [
        SnapshotHeader(last_contained_log_timestamp_ms=7),
        KRaftVersion(kraft_version=1),
        forming.voters.to_record(),
    ]
    assert layout.bootstrap is not None and isinstance(layout.bootstrap[0], FeatureLevelRecord)


@pytest.mark.parametrize("alone", [True, False])
def test_rf_46_a_controller_whose_metadata_log_is_gone_does_not_start_anew(tmp_path: Path, alone: bool) -> None:
    """The first records of the cluster, which are beside it, do not say that there never was one."""
    disk, config = MemDisk(), server(tmp_path)
    entropy = random.Random(5)
    formed(disk, config, formation(config, standalone=alone, no_initial_controllers=not alone, entropy=entropy))
    storage.verify(disk, config)
    disk.rmtree("/data/__cluster_metadata-0")
    with pytest.raises(storage.StorageError, match=r"^/data is formatted, but its metadata log .* is gone"):
        storage.verify(disk, config)


def test_dq_23_without_initial_controllers_a_node_has_no_voters_even_if_it_names_only_itself(tmp_path: Path) -> None:
    disk, config = MemDisk(), server(tmp_path)
    forming = formation(config, no_initial_controllers=True, entropy=random.Random(5))
    assert formed(disk, config, forming) == ["Formatting metadata directory /data with metadata.version 4.3-IV0."]
    layout = storage.verify(disk, config)
    assert disk.stat(CHECKPOINT) is None and not layout.is_formed
    assert quorum_config(config, layout, Tuning()).voters == ()
    static = MemDisk()
    formed(static, config, formation(config, entropy=random.Random(5)))
    assert [it.id for it in quorum_config(config, storage.verify(static, config), Tuning()).voters] == [1], "as ever"


def test_dq_22_a_broker_gets_the_checkpoint_and_a_directory_id_of_its_own(tmp_path: Path) -> None:
    disk = MemDisk()
    config = server(
        tmp_path, process_roles="broker", node_id="4", listeners="PLAINTEXT://localhost:9092,REPLICATION://localhost:9192"
    )
    forming = formation(config, initial_controllers="1@c:9093:3Db5QLSqSZieL3rJBUUegA", entropy=random.Random(5))
    assert formed(disk, config, forming) == ["Formatting dynamic metadata directory /data with metadata.version 4.3-IV0."]
    layout = storage.verify(disk, config)
    assert layout.bootstrap is None and disk.stat(CHECKPOINT) is not None
    metalog = MetadataLog(
        disk=disk,
        config=quorum_config(config, layout, Tuning()),
        serde=MetadataSerde(),
        wall_ms=0,
        entropy=random.Random(1),
        tracer=ListTracer(),
    )
    assert metalog.membership.voters.ids == (1,) and metalog.membership.voters_offset == -1
    metalog.close()


@pytest.mark.parametrize("initial", [(1,), (1, 2, 3)])
async def test_dq_20_a_cluster_with_voters_in_the_log_works_and_its_restarted_nodes_know_them(
    tmp_path: Path, initial: tuple[int, ...]
) -> None:
    cluster = MemCluster(tmp_path, controllers=3, brokers=2, initial=initial)
    await cluster.up()
    await cluster.create_topic("orders", replicas=2)
    await cluster.produce("orders", "one")
    for node in cluster.nodes.values():
        assert node.node is not None
        assert node.node.raft.voter_ids() == initial
        waits = node.node_id <= 3 and node.node_id not in initial
        assert (node.node.raft.state_name == "observer") == (waits or node.node_id > 3)
    for node_id in (1, 4):
        await cluster.nodes[node_id].crash()
        cluster.nodes[node_id].boot()
    await cluster.until(lambda: all(node.up for node in cluster.nodes.values()), "all nodes to be up again")
    await cluster.until(lambda: cluster.leader("orders") is not None, "a leader")
    restarted = cluster.nodes[1].node
    assert restarted is not None and restarted.raft.voter_ids() == initial
    state = restarted.controller and restarted.controller.core.state
    assert state is not None and state.features.voters() == tuple(NodeId(it) for it in initial), "DQ-46"
