"""RF-46: what no CRC covers. A bit that flips in a batch's offset or leader epoch must not keep a node from its quorum."""

from __future__ import annotations

import pytest

from kraftlite.log.batch import iter_batches
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode

LOG = f"{DIRECTORY}/{0:020d}.log"
OFFSET_BYTES, EPOCH_BYTES = range(8), range(12, 16)


def of_three_epochs(*, observer: bool) -> tuple[RaftCluster, SimNode]:
    """Records of several leaders, and a node that has all of them and is down."""
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    for epoch in range(3):
        leader.append(f"of leader {leader.id}")
        cluster.run(100)
        leader.append("more", "at once")
        cluster.run(1_000)
        if epoch < 2:
            leader.crash()
            cluster.leader()
            leader.start()
            cluster.run(1_000)
            leader = cluster.leader()
    node = cluster[4] if observer else next(it for it in cluster.nodes.values() if it.id != 4 and it is not leader)
    assert node.core.leo == leader.core.leo == node.core.committed_offset
    node.kill()
    return cluster, node


@pytest.mark.parametrize("remembers", [True, False], ids=["quorum-state", "quorum-state lost"])
@pytest.mark.parametrize("observer", [False, True], ids=["voter", "observer"])
def test_rf_46_a_flipped_bit_outside_the_crc_is_fetched_again(observer: bool, remembers: bool) -> None:
    """Wherever it is. Without `quorum-state` an epoch later than the quorum's would never hear from the leader again."""
    cluster, node = of_three_epochs(observer=observer)
    whole = bytes(cluster.leader().disk.read_file(LOG))
    if not remembers:
        node.disk.unlink(f"{DIRECTORY}/quorum-state")
    files = {name: bytes(node.disk.read_file(f"{DIRECTORY}/{name}")) for name in node.disk.listdir(DIRECTORY)}
    assert files[LOG.rpartition("/")[2]] == whole
    epochs = [header.partition_leader_epoch for header, _ in iter_batches(whole)]
    assert len(set(epochs)) == 3
    position = 0
    wrong = []
    for index, (header, _) in enumerate(iter_batches(whole)):
        for at in (*OFFSET_BYTES, *EPOCH_BYTES):
            for bit in (1, 2, 0x10):
                damaged = bytearray(whole)
                damaged[position + at] ^= bit
                for name in node.disk.listdir(DIRECTORY):
                    if name not in files:
                        node.disk.unlink(f"{DIRECTORY}/{name}")
                for name, data in files.items():
                    node.disk.write_file_atomically(f"{DIRECTORY}/{name}", bytes(damaged) if name in LOG else data)
                node.start()
                leader = cluster.leader()
                if not cluster.run(10_000, until=lambda: node.core.leo == cluster.leader().core.leo and same(node, cluster)):
                    wrong.append((index, at, bit, node.core.epoch, leader.core.epoch))
                node.kill()
                cluster.run(10)
                whole = bytes(cluster.leader().disk.read_file(LOG))[: len(whole)]
        position += header.size_bytes
    assert wrong == []


def same(node: SimNode, cluster: RaftCluster) -> bool:
    return bytes(node.disk.read_file(LOG)) == bytes(cluster.leader().disk.read_file(LOG))
