"""RF-46: the only voter remembers what it has flushed, and does not begin without it."""

from __future__ import annotations

import random

import pytest

from kraftlite.model.errors import Fault
from kraftlite.raft.flush_mark import FILE_NAME, read_flush_mark
from kraftlite.raft.states import Leader
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode

LOG = f"{DIRECTORY}/{0:020d}.log"


def alone(*, records: int = 3) -> SimNode:
    """A sole voter that has committed r0, r1, … in its first run: offset 0 is the leader change."""
    cluster = RaftCluster((1,))
    node = cluster[1]
    for number in range(records):
        node.append(f"r{number}")
        cluster.run(50)
    assert node.core.high_watermark == records + 1
    return node


def test_rf_46_nothing_is_promised_before_the_mark_knows_it() -> None:
    cluster = RaftCluster((1,))
    node = cluster[1]
    for number in range(5):
        node.append(f"r{number}")
        cluster.run(50)
        assert node.core.high_watermark == read_flush_mark(node.disk, DIRECTORY) == number + 2


def test_rf_38_who_resigns_alone_waits_for_an_election_timeout_and_begins_at_once_after_a_start() -> None:
    """A sole controller that cannot activate resigns; it must not be elected again thirty times a second."""
    node = alone()
    for _ in range(3):
        node.resign()
        epoch = node.core.epoch
        node.advance(node.core.config.election_timeout_ms - 1)
        assert (node.core.state_name, node.core.epoch) == ("resigned", epoch)
        node.advance(node.core.config.election_timeout_ms + 1)
        assert (node.core.state_name, node.core.epoch) == ("leader", epoch + 1)
    node.kill()
    node.start()
    node.advance(1)
    assert node.core.state_name == "leader"


@pytest.mark.parametrize("restarts", [0, 2])
def test_rf_46_a_young_log_that_became_zeros_is_refused(restarts: int) -> None:
    """All of it fits into one page of the disk: nothing intact is left that could tell."""
    node = alone()
    for _ in range(restarts):
        node.kill()
        node.start()
    node.kill()
    size = len(node.disk.read_file(LOG))
    assert size < 4096
    node.disk.overwrite(LOG, 0, bytes(size))
    with pytest.raises(Fault, match=r"0000\.log is damaged at byte 0: the records from offset 0 on are lost"):
        node.start()


def test_rf_46_a_log_cut_to_half_its_records_is_refused_and_can_be_given_up() -> None:
    node = alone()
    node.kill()
    whole = node.disk.read_file(LOG)
    node.disk.write_file_atomically(LOG, whole[: len(whole) // 2])
    with pytest.raises(Fault, match=rf"remove {FILE_NAME}"):
        node.start()
    node.alive = False
    node.disk.unlink(f"{DIRECTORY}/{FILE_NAME}")  # what the message says, for who has no copy to restore
    node.start()
    assert isinstance(node.core.state, Leader)
    assert 0 < node.core.high_watermark < 5


@pytest.mark.parametrize("seed", range(20))
def test_rf_46_a_power_cut_while_records_are_written_is_no_damage(seed: int) -> None:
    rng = random.Random(seed)
    node = alone()
    for round_number in range(4):
        promised = node.core.high_watermark
        node.cluster.auto_flush = False
        node.append(f"lost-{round_number}")
        node.cluster.run(50)
        node.crash(rng)
        node.cluster.auto_flush = True
        node.start()
        assert isinstance(node.core.state, Leader)
        assert node.core.high_watermark >= promised


def test_rf_46_a_voter_among_others_keeps_no_mark() -> None:
    """Its log may be truncated below what it has flushed, when another one leads."""
    cluster = RaftCluster((1, 2, 3))
    node = cluster.elect(1)
    node.append("r")
    cluster.run(100)
    node.disk.write_file_atomically(f"{DIRECTORY}/{FILE_NAME}", b"of a time when it was alone")
    node.crash()
    node.start()
    assert all(FILE_NAME not in found.disk.listdir(DIRECTORY) for found in cluster.nodes.values())
