"""RF-46: `partition.metadata` of the metadata log. Its topic id is the same in every cluster, so that damage to it is mended."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlite.log.checkpoints import read_partition_metadata
from kraftlite.model.ids import METADATA_TOPIC_ID, uuid_to_str
from tests.harness.raft_cluster import DIRECTORY, RaftCluster

PATH = f"{DIRECTORY}/partition.metadata"
DAMAGED = {
    "empty": b"",
    "no text": b"\xff\xfe\x00\x80",
    "cut": b"version: 0\ntopic_",
    "another version": b"version: 7\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
    "another topic": f"version: 0\ntopic_id: {uuid_to_str(UUID(int=0x1A0000000000000000001))}\n".encode(),
}


@pytest.mark.parametrize("observer", [False, True], ids=["voter", "observer"])
@pytest.mark.parametrize("how", [*DAMAGED, "gone"])
def test_rf_46_the_log_is_known_by_its_place(how: str, observer: bool) -> None:
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    leader.append("one", "two")
    cluster.run(1_000)
    node = cluster[4] if observer else next(it for it in cluster.nodes.values() if it.id != 4 and it is not leader)
    leo = node.core.leo
    assert leo == leader.core.leo
    node.kill()
    if how == "gone":
        node.disk.unlink(PATH)
    else:
        node.disk.write_file_atomically(PATH, DAMAGED[how])
    node.start()
    assert node.core.leo == leo, "nothing is fetched again"
    assert read_partition_metadata(node.disk, DIRECTORY) == METADATA_TOPIC_ID
    cluster.leader().append("three")
    cluster.run(1_000)
    assert node.core.leo == cluster.leader().core.leo > leo
