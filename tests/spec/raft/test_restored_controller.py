"""RF-46: the only voter is restored from a copy that is older than what it has told its observers."""

from __future__ import annotations

import random

import pytest

from kraftlite.model.errors import Fault
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace.raft import PeerRefused
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode


def files_of(node: SimNode) -> dict[str, bytes]:
    return {name: bytes(node.disk.read_file(f"{DIRECTORY}/{name}")) for name in node.disk.listdir(DIRECTORY)}


def restore(node: SimNode, files: dict[str, bytes]) -> None:
    for name in node.disk.listdir(DIRECTORY):
        node.disk.unlink(f"{DIRECTORY}/{name}")
    for name, data in files.items():
        node.disk.write_file_atomically(f"{DIRECTORY}/{name}", data)


def after_a_copy(restarts: int) -> tuple[RaftCluster, dict[str, bytes]]:
    """A sole voter and its observer, which has records of all epochs since a copy of the voter's files was made."""
    cluster = RaftCluster((1,), observers=(2,))
    cluster[1].append("kept")
    cluster.run(500)
    cluster[1].kill()
    copy = files_of(cluster[1])
    cluster[1].start()
    for number in range(restarts):
        cluster.run(500)
        cluster[1].kill()
        cluster[1].start()
        cluster[1].append(f"lost {number}", "lost as well", "and this")
    cluster[1].append("the last")
    assert cluster.run(5_000, until=lambda: cluster[2].core.committed_offset == cluster[1].core.leo)
    return cluster, copy


@pytest.mark.parametrize(("restarts", "reason"), [(0, "led epoch 2 up to offset"), (3, "led epoch 5 and is in epoch 2 now")])
def test_rf_46_an_observer_refuses_to_start_behind_a_sole_voter_of_an_earlier_time(restarts: int, reason: str) -> None:
    """It would wait for ever, or take its own committed records for uncommitted ones, and say nothing."""
    cluster, copy = after_a_copy(restarts)
    cluster[2].kill()
    cluster[1].kill()
    restore(cluster[1], copy)
    cluster[1].start()
    cluster[2].start()
    assert isinstance(cluster[1].core.state, Leader)
    with pytest.raises(Fault, match=rf"controller 1 {reason}.*files are of an earlier time.*remove {DIRECTORY}"):
        cluster.run(5_000)


def test_rf_46_an_observer_begins_anew_behind_a_restored_voter_when_its_metadata_was_removed() -> None:
    cluster, copy = after_a_copy(3)
    cluster[2].kill()
    cluster[1].kill()
    restore(cluster[1], copy)
    cluster[2].wipe()
    cluster[1].start()
    cluster[2].start()
    assert cluster.run(5_000, until=lambda: cluster[2].core.committed_offset == cluster[1].core.leo)
    assert cluster[2].recorder.records[:1] == ["kept"]


@pytest.mark.parametrize("restarts", [0, 3])
def test_rf_46_an_observer_that_runs_goes_on_and_names_the_voter_of_an_earlier_time(restarts: int) -> None:
    cluster, copy = after_a_copy(restarts)
    later, known = None, list(cluster[2].recorder.records)
    cluster[1].kill()
    later = files_of(cluster[1])
    restore(cluster[1], copy)
    cluster[1].start()
    cluster.run(5_000)
    told = [event.reason for _, event in cluster.events if isinstance(event, PeerRefused)]
    assert told and all("its files are of an earlier time" in reason for reason in told)
    assert len(told) <= 3
    assert cluster[2].recorder.records == known
    cluster[1].kill()
    restore(cluster[1], later)
    cluster[1].start()
    assert cluster.run(15_000, until=lambda: cluster[2].core.leo == cluster[1].core.leo)


@pytest.mark.parametrize("seed", range(10))
def test_rf_46_a_power_cut_of_the_sole_voter_is_no_earlier_time(seed: int) -> None:
    """What it had not flushed it may have sent; its next epoch is another one, so that nothing looks forgotten."""
    cluster = RaftCluster((1,), observers=(2,))
    rng = random.Random(seed)
    for number in range(4):
        cluster.run(500)
        cluster.auto_flush = False
        cluster[1].append(f"r{number}")
        cluster.run(100)
        cluster[1].crash(rng)
        cluster.auto_flush = True
        cluster[1].start()
    assert cluster.run(5_000, until=lambda: cluster[2].core.committed_offset == cluster[1].core.leo)
    assert not [event for _, event in cluster.events if isinstance(event, PeerRefused)]
