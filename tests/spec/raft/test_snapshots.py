"""RF-41 to RF-49 and RF-58: snapshots of the metadata log, and the checks of the configuration."""

from __future__ import annotations

import pytest

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.config import LogConfig
from kraftlite.log.control import SnapshotFooter, SnapshotHeader, decode_control
from kraftlite.model.errors import ErrorCode, Fault
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.config import QuorumConfig, Voter, parse_voters
from kraftlite.raft.snapshots import BOOTSTRAP_SNAPSHOT_ID, snapshot_name, write_snapshot_file
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode, TextSerde, run_now
from tests.harness.raft_requests import ask, fetch, fetch_snapshot

SMALL = LogConfig(segment_bytes=300, max_message_bytes=8 << 20)


def filled(count: int = 10, **overrides: object) -> tuple[RaftCluster, SimNode]:
    """A leader with `count` committed batches r0, r1, … of one record each at offsets 1, 2, …"""
    cluster = RaftCluster(**{"log_config": SMALL, **overrides})
    leader = cluster.elect(1)
    for i in range(count):
        leader.append(f"r{i}")
        leader.advance(25)
        cluster.settle()
    return cluster, leader


def snapshot_files(node: SimNode) -> list[str]:
    return [name for name in node.disk.listdir(DIRECTORY) if ".checkpoint" in name and name != "leader-epoch-checkpoint"]


def clean(node: SimNode) -> None:
    """Let the periodic cleaning run, whatever the node's role does meanwhile."""
    node.core.metalog.unlink(node.core.metalog.clean(node.wall_ms, None))


def test_rf_41_names_header_and_footer() -> None:
    _, leader = filled()
    epoch = leader.core.epoch
    writer = leader.core.create_snapshot(OffsetAndEpoch(epoch=epoch, offset=5), 777)
    assert writer is not None
    name = f"{5:020d}-{epoch:010d}.checkpoint"
    assert snapshot_files(leader) == [name + ".part"]
    writer.append(["a", "b"])
    run_now(writer.freeze())
    assert snapshot_files(leader) == [name]
    batches = [(header, list(iter_records(raw))) for header, raw in iter_batches(leader.disk.read_file(f"{DIRECTORY}/{name}"))]
    assert [header.is_control for header, _ in batches] == [True, False, True]
    assert decode_control(batches[0][1][0]) == SnapshotHeader(last_contained_log_timestamp_ms=777)
    assert decode_control(batches[-1][1][0]) == SnapshotFooter()
    assert [header.base_offset for header, _ in batches] == [0, 1, 3]
    assert leader.core.metalog.snapshots.latest == OffsetAndEpoch(epoch=epoch, offset=5)


def test_rf_41_an_abandoned_snapshot_leaves_nothing() -> None:
    _, leader = filled()
    writer = leader.core.create_snapshot(OffsetAndEpoch(epoch=leader.core.epoch, offset=5), 1)
    assert writer is not None
    writer.abandon()
    assert snapshot_files(leader) == [] and leader.core.metalog.snapshots.latest is None


def test_rf_42_which_snapshots_may_be_created() -> None:
    _, leader = filled(3)
    epoch = leader.core.epoch
    leader.append("x", "y", "z")
    leader.advance(25)
    leader.cluster.settle()
    assert leader.core.high_watermark == 7

    def create(offset: int, of_epoch: int) -> object:
        return leader.core.create_snapshot(OffsetAndEpoch(epoch=of_epoch, offset=offset), 1)

    for offset, of_epoch, what in (
        (8, epoch, "above the high watermark"),
        (4, epoch + 1, "not of epoch"),
        (4, epoch - 1, "not of epoch"),
        (5, epoch, "inside the batch"),
        (0, 0, "at 0"),
    ):
        with pytest.raises(ValueError, match=what):
            create(offset, of_epoch)
    assert leader.snapshot(4, ["s"]) is not None
    assert create(4, epoch) is None, "it exists"
    assert create(2, epoch) is None, "a newer one makes it superfluous"
    assert leader.snapshot(7, ["s"]) is not None


def test_rf_42_not_before_the_high_watermark_is_known() -> None:
    cluster = RaftCluster(start=False)
    cluster[1].start()
    with pytest.raises(ValueError, match="high watermark"):
        cluster[1].core.create_snapshot(OffsetAndEpoch(epoch=1, offset=1), 1)


def test_rf_43_when_a_fetch_is_answered_with_a_snapshot() -> None:
    _, leader = filled()
    epoch = leader.core.epoch
    assert ask(leader, fetch(epoch, 0, 0)).snapshot_id is None
    first = leader.snapshot(5, ["s"])
    assert ask(leader, fetch(epoch, 0, 0)).snapshot_id == first, "offset 0 while a real snapshot exists"
    second = leader.snapshot(9, ["s"])
    leader.core.metalog.log.increment_log_start(5, "test")
    assert leader.core.metalog.log_start_offset == 5
    assert ask(leader, fetch(epoch, 3, epoch)).snapshot_id == second, "below the log start"
    assert ask(leader, fetch(epoch, 5, epoch - 1)).snapshot_id == second, "at the log start with another epoch"
    answer = ask(leader, fetch(epoch, 5, epoch))
    assert answer.snapshot_id is None and answer.payload
    assert ask(leader, fetch(epoch, 7, epoch)).payload


def test_rf_43_a_wiped_voter_and_a_new_observer_load_the_snapshot_then_the_tail() -> None:
    cluster, leader = filled(observers=(4,))
    leader.snapshot(6, leader.recorder.records[:5])
    leader.snapshot(9, leader.recorder.records[:8])
    leader.core.metalog._config = QuorumConfig(  # cleaning is asked for by size
        node_id=leader.id, cluster_id="c", voters=leader.config.voters, metadata_dir=DIRECTORY, max_retention_bytes=1
    )
    clean(leader)
    assert leader.core.metalog.log_start_offset == 9
    for node_id in (3, 4):
        cluster[node_id].crash()
        cluster[node_id].wipe()
        cluster[node_id].start()
    cluster.run(5_000)
    for node_id in (3, 4):
        node = cluster[node_id]
        assert node.recorder.snapshots == [OffsetAndEpoch(epoch=leader.core.epoch, offset=9)]
        assert node.recorder.records == leader.recorder.records == [f"r{i}" for i in range(10)]
        assert node.core.metalog.log_start_offset == 9


def test_rf_44_chunks_by_position_and_errors() -> None:
    _, leader = filled()
    epoch = leader.core.epoch
    snapshot_id = leader.snapshot(5, [f"record number {i}" for i in range(100)])
    assert snapshot_id is not None
    whole = leader.disk.read_file(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")
    read = b""
    while len(read) < len(whole):
        chunk = ask(leader, fetch_snapshot(epoch, snapshot_id, len(read), max_bytes=1_000))
        assert (chunk.error, chunk.size, chunk.position) == (ErrorCode.NONE, len(whole), len(read))
        read += chunk.payload
    assert read == whole
    for position in (-1, len(whole)):
        assert ask(leader, fetch_snapshot(epoch, snapshot_id, position)).error is ErrorCode.POSITION_OUT_OF_RANGE
    other = OffsetAndEpoch(epoch=epoch, offset=6)
    assert ask(leader, fetch_snapshot(epoch, other)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(leader, fetch_snapshot(epoch - 1, snapshot_id)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(leader, fetch_snapshot(epoch + 1, snapshot_id)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    follower = ask(leader.cluster[2], fetch_snapshot(epoch, snapshot_id, replica=3))
    assert follower.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and follower.leader_id == 1


def downloading(cluster: RaftCluster, leader: SimNode) -> SimNode:
    """Node 3, empty, with the first megabyte of a snapshot of three."""
    node = cluster[3]
    node.crash()
    node.wipe()
    cluster.network.clear()
    leader.snapshot(9, [f"{i:03d}" + "x" * 100_000 for i in range(30)])
    node.start()
    leader.advance(1_000)
    for _ in range(200):
        if any(name.endswith(".part") for name in snapshot_files(node)) and node.core._following._download.position > 0:  # type: ignore[union-attr]
            return node
        messages = cluster.in_flight(3) + cluster.in_flight(None, 3)
        if messages:
            cluster.deliver(messages[0])
        else:
            leader.advance(10)
            node.advance(10)
    raise AssertionError("no download")


def test_rf_44_a_download_resumes_after_a_lost_answer_and_restarts_when_the_snapshot_is_gone() -> None:
    cluster, leader = filled()
    node = downloading(cluster, leader)
    assert node.core._following._download is not None
    position = node.core._following._download.position
    cluster.network.clear()
    node.advance(1_900)
    cluster.settle()
    node.advance(150)
    requests = [m.body for m in cluster.sent if m.source == 3 and m.method.name == "FetchSnapshot" and m.kind == "req"]
    assert position in [request.position for request in requests[-3:]]
    leader.snapshot(11, ["newer"])
    leader.core.metalog.snapshots.doom(OffsetAndEpoch(epoch=leader.core.epoch, offset=9))
    cluster.run(6_000)
    assert node.recorder.snapshots and node.recorder.snapshots[-1].offset == 11
    assert not any(name.endswith(".part") for name in snapshot_files(node))


def test_rf_45_a_finished_download_replaces_the_log_and_raises_the_high_watermark() -> None:
    cluster, leader = filled()
    node = downloading(cluster, leader)
    cluster.run(3_000)
    installed = cluster.events_of(trace.SnapshotInstalled, 3)
    assert [event.end_offset for event in installed] == [9]
    assert node.core.metalog.log_start_offset == 9 and node.core.committed_offset == leader.core.high_watermark
    assert node.recorder.snapshots == [OffsetAndEpoch(epoch=leader.core.epoch, offset=9)]


def test_rf_45_a_crash_during_the_download_leaves_no_snapshot() -> None:
    cluster, leader = filled()
    node = downloading(cluster, leader)
    node.disk.sync_dir(DIRECTORY)
    node.crash()
    assert any(name.endswith(".part") for name in snapshot_files(node))
    node.start()
    assert snapshot_files(node) == [] and node.core.metalog.snapshots.latest is None
    assert node.core.leo == 0


def test_rf_45_a_crash_between_rename_and_truncation_is_repaired() -> None:
    cluster, leader = filled(4)
    follower = cluster[2]
    follower.crash()
    write_snapshot_file(follower.disk, DIRECTORY, OffsetAndEpoch(epoch=3, offset=50), [["s"]], TextSerde(), 1)
    follower.start()
    assert (follower.core.metalog.log_start_offset, follower.core.leo, follower.core.epoch >= 1) == (50, 50, True)
    assert follower.core.metalog.last_epoch == 3
    assert leader


def test_rf_45_a_crash_that_keeps_the_epochs_of_the_replaced_log_is_repaired() -> None:
    cluster, leader = filled()
    node = downloading(cluster, leader)
    cluster.run(3_000)
    node.core.metalog.log.truncate_fully_and_start_at(9)  # as just after the download: nothing follows the snapshot yet
    node.disk.write_file_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    node.crash()
    node.start()
    assert node.core.metalog.end == OffsetAndEpoch(epoch=leader.core.epoch, offset=9)
    assert cluster.run(3_000, until=lambda: node.core.leo == leader.core.leo), "the leader need not ask it to truncate for ever"


def test_rf_46_leftovers_and_old_snapshots_are_removed_at_start() -> None:
    cluster, leader = filled()
    leader.snapshot(2, ["s"])
    leader.snapshot(6, ["s"])
    leader.core.metalog.log.increment_log_start(6, "test")
    leader.core.metalog.log.delete_segments_before(6)
    start = leader.core.metalog.log_start_offset
    leader.core.metalog.log.flush_sync()
    for junk in ("00000000000000000009-0000000001.checkpoint.part", "00000000000000000002-0000000001.checkpoint.deleted"):
        leader.disk.write_file_atomically(f"{DIRECTORY}/{junk}", b"junk")
    leader.crash()
    leader.start()
    assert 2 < leader.core.metalog.log_start_offset <= start
    assert snapshot_files(leader) == [snapshot_name(OffsetAndEpoch(epoch=1, offset=6))]
    assert cluster


def test_rf_46_a_log_without_its_beginning_and_without_a_snapshot_is_fatal() -> None:
    _, leader = filled()
    leader.snapshot(6, ["s"])
    leader.core.metalog.log.increment_log_start(6, "test")
    leader.core.metalog.log.delete_segments_before(6)
    leader.core.metalog.log.flush_sync()
    leader.disk.sync_dir(DIRECTORY)
    leader.crash()
    for name in snapshot_files(leader):
        leader.disk.unlink(f"{DIRECTORY}/{name}")
    leader.disk.sync_dir(DIRECTORY)
    with pytest.raises(Fault, match="no snapshot reaches that far"):
        leader.start()


def damage_snapshot(node: SimNode, offset: int, length: int | None = None) -> None:
    """A bit flips, or the first batch tells another `length`."""
    path = f"{DIRECTORY}/{snapshot_name(OffsetAndEpoch(epoch=1, offset=offset))}"
    data = bytearray(node.disk.read_file(path))
    if length is None:
        data[len(data) // 2] ^= 1
    else:
        data[8:12] = length.to_bytes(4, "big")
    node.disk.write_file_atomically(path, bytes(data))


@pytest.mark.parametrize("length", [None, 0, 5, 1 << 30])
def test_rf_46_a_damaged_snapshot_that_the_log_does_not_need_is_dropped(length: int | None) -> None:
    _, leader = filled()
    leader.snapshot(3, ["s"])
    leader.snapshot(6, ["s"])
    damage_snapshot(leader, 6, length)
    leader.crash()
    leader.start()
    assert [snapshot.offset for snapshot in leader.core.metalog.snapshots.ids] == [3]
    assert leader.core.metalog.log_start_offset == 0


def test_rf_46_a_damaged_snapshot_that_the_log_begins_with_is_fatal_and_named() -> None:
    _, leader = filled()
    leader.snapshot(6, ["s"])
    leader.core.metalog.log.increment_log_start(6, "test")
    leader.core.metalog.log.delete_segments_before(6)
    leader.core.metalog.log.roll()
    leader.core.metalog.log.flush_sync()
    damage_snapshot(leader, 6)
    leader.crash()
    if leader.disk.stat(f"{DIRECTORY}/00000000000000000000.log") is None:
        with pytest.raises(Fault, match=r"0006-0000000001\.checkpoint is damaged"):
            leader.start()


@pytest.mark.parametrize(
    ("limits", "survivors"),
    [
        ({"max_retention_bytes": 1}, [9]),
        ({"max_retention_bytes": 1 << 30}, [3, 6, 9]),
        ({"max_retention_ms": 50_000}, [9]),
        ({"max_retention_ms": 500_000}, [3, 6, 9]),
    ],
)
def test_rf_47_cleaning(limits: dict[str, int], survivors: list[int]) -> None:
    _, leader = filled(voters=(1,), **limits)
    for offset in (3, 6, 9):
        leader.snapshot(offset, ["s"])
    leader.advance(61_000)
    assert [snapshot.offset for snapshot in leader.core.metalog.snapshots.ids] == survivors
    assert leader.core.metalog.log_start_offset == (0 if len(survivors) == 3 else 9)
    doomed = [name for name in snapshot_files(leader) if name.endswith(".deleted")]
    assert len(doomed) == 3 - len(survivors)
    leader.advance(60_000)
    assert not [name for name in snapshot_files(leader) if name.endswith(".deleted")]
    if survivors == [9]:
        leader.advance(61_000)
        assert "00000000000000000000.log" not in leader.disk.listdir(DIRECTORY)


def test_rf_47_a_damaged_snapshot_is_the_first_to_go() -> None:
    """It would have ended the node at every cleaning, after each start."""
    _, leader = filled(voters=(1,))
    for offset in (3, 6, 9):
        leader.snapshot(offset, ["s"])
    damage_snapshot(leader, 3, 5)
    leader.advance(61_000)
    assert [snapshot.offset for snapshot in leader.core.metalog.snapshots.ids] == [6, 9]
    assert leader.core.metalog.log_start_offset == 6
    leader.kill()
    leader.start()
    leader.advance(61_000)
    assert [snapshot.offset for snapshot in leader.core.metalog.snapshots.ids] == [6, 9]


def test_rf_47_the_last_snapshot_stays() -> None:
    _, leader = filled(voters=(1,), max_retention_bytes=1, max_retention_ms=1)
    leader.snapshot(9, ["s"])
    leader.advance(200_000)
    assert [snapshot.offset for snapshot in leader.core.metalog.snapshots.ids] == [9]


def test_rf_48_the_bootstrap_snapshot_is_local() -> None:
    cluster = RaftCluster(start=False)
    for node in cluster.nodes.values():
        node.disk.makedirs(DIRECTORY)
        write_snapshot_file(node.disk, DIRECTORY, BOOTSTRAP_SNAPSHOT_ID, [["boot"]], TextSerde(), 1)
        node.start()
    leader = cluster.elect(1)
    assert ask(leader, fetch_snapshot(leader.core.epoch, BOOTSTRAP_SNAPSHOT_ID)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(leader, fetch(leader.core.epoch, 0, 0)).snapshot_id is None
    assert leader.core.metalog.snapshots.latest is None and leader.recorder.snapshots == []
    assert leader.disk.stat(f"{DIRECTORY}/{snapshot_name(BOOTSTRAP_SNAPSHOT_ID)}") is not None


def test_rf_49_cleaning_does_not_overtake_a_leaders_own_state_machine() -> None:
    cluster, leader = filled(voters=(1,), max_retention_bytes=1)
    leader.snapshot(4, ["s"])
    leader.snapshot(6, ["s"])
    cluster.auto_pump = False
    for i in range(3):
        leader.append(f"late{i}")
        leader.advance(25)
    behind = leader.recorder.next_offset
    assert leader.core.committed_offset is not None and leader.core.committed_offset > behind
    leader.snapshot(leader.core.committed_offset, ["s"])
    leader.advance(61_000)
    assert leader.core.metalog.log_start_offset <= behind
    cluster.auto_pump = True
    leader.pump()
    assert leader.recorder.snapshots == [] and leader.recorder.records[-1] == "late2"
    leader.advance(61_000)
    assert leader.core.metalog.log_start_offset > behind


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1@host", "malformed"),
        ("host:9093", "malformed"),
        ("-1@host:9093", "malformed"),
        ("1@host:0", "port"),
        ("1@host:70000", "port"),
        ("1@a:1,1@b:2", "more than once"),
        ("9999999999@h:1", "out of range"),
    ],
)
def test_rf_58_malformed_voters_are_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse_voters(text)


def test_rf_58_roles_and_voters_must_agree() -> None:
    voters = (Voter(id=NodeId(1), endpoint=Endpoint("h", 1)),)

    def config(node_id: int, controller: bool, of: tuple[Voter, ...] = voters) -> QuorumConfig:
        return QuorumConfig(node_id=NodeId(node_id), cluster_id="c", voters=of, metadata_dir="/m", must_be_voter=controller)

    assert config(1, True).is_voter and not config(2, False).is_voter
    with pytest.raises(ValueError, match=r"not in controller\.quorum\.voters"):
        config(2, True)
    with pytest.raises(ValueError, match="only the broker role"):
        config(1, False)
    with pytest.raises(ValueError, match="empty"):
        config(1, True, ())
