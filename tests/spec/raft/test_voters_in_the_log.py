"""DQ-02 to DQ-16: a quorum whose voters are in the log, while they do not change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.log.control import KRaftVersion, KRaftVoters, LeaderChange
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId, VoterEndpoint
from kraftlite.raft.config import QuorumConfig
from kraftlite.raft.events import Output
from kraftlite.raft.flush_mark import FILE_NAME as FLUSH_MARK
from kraftlite.raft.states import Candidate, Follower, Leader, Prospective, Unattached
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import DIRECTORY, SimNode
from tests.harness.raft_requests import ask, begin, fetch, vote
from tests.harness.raft_voters import VoterCluster, controls, directory_of, entry, voter_set


def test_dq_06_the_first_leader_writes_version_and_voters_into_its_first_batch_and_no_later_one_does() -> None:
    cluster = VoterCluster()
    leader = cluster.elect(1)
    cluster.settle()
    (first, change), (_, version), (third, voters) = controls(leader)
    assert isinstance(change, LeaderChange) and change.voters == (1, 2, 3) and not change.voter_directories
    assert version == KRaftVersion(kraft_version=1) and voters == voter_set(1, 2, 3).to_record()
    assert (first, third) == (0, 2) and leader.core.committed_offset == 3
    leader.resign()
    second = cluster.elect(2)
    cluster.settle()
    assert [type(control) for _, control in controls(second, 3)] == [LeaderChange]


def test_dq_06_a_leader_whose_listener_is_not_that_of_its_entry_says_so() -> None:
    cluster = VoterCluster(start=False)
    for node_id in (1, 2, 3):
        old = (VoterEndpoint(name="OLD", host="elsewhere", port=9001), *entry(1).listeners)
        cluster.format(node_id, voter_set(2, 3).with_voter(replace(entry(1), listeners=old)))
        cluster[node_id].start()
    leader = cluster.elect(1)
    assert leader.core.voters == voter_set(1, 2, 3), "the bootstrap snapshot had one more listener of voter 1"


def say(leader: SimNode, *voters: int) -> int:
    """Let this leader append who votes from here on; returns the offset of the record."""
    state = leader.core.state
    assert isinstance(state, Leader)
    core = leader.core
    core._ctx.now_ms, core._ctx.wall_ms, core._ctx.out = leader.now_ms, leader.wall_ms, Output()
    offset = core._leadership.append_controls(state, [voter_set(*voters).to_record()])
    leader.perform(core._ctx.out)
    return offset


def test_dq_01_control_records_take_offsets_and_reach_no_state_machine() -> None:
    cluster = VoterCluster()
    leader = cluster.elect(1)
    leader.append("a")
    cluster.run(1_000)
    offsets = [(it.base_offset, it.last_offset, it.records) for it in cluster[2].recorder.batches]
    assert offsets == [(0, 2, ()), (3, 3, ("a",))]


def test_dq_03_a_follower_whose_log_is_cut_counts_by_the_set_before() -> None:
    cluster = VoterCluster(spares=(4,))
    old = cluster.elect(1)
    cluster.run(1_000)
    cluster.isolate(1)
    say(old, 1, 2, 3, 4)
    assert old.core.voters.ids == (1, 2, 3, 4)
    assert cluster.run(20_000, until=lambda: any(it.id != 1 for it in cluster.leaders))
    cluster.heal()
    assert cluster.run(20_000, until=lambda: old.core.state_name == "follower" and old.core.voters.ids == (1, 2, 3))


def test_dq_10_dq_34_a_removed_leader_does_not_count_itself_and_resigns_when_the_others_have_its_removal() -> None:
    cluster = VoterCluster()
    leader = cluster.elect(1)
    cluster.run(1_000)
    cluster.isolate(3)
    removal = say(leader, 2, 3)
    leader.append("behind it")
    assert not cluster.run(1_500, until=lambda: leader.core.state_name != "leader"), "it waits for the commit"
    assert leader.core.high_watermark == removal, "both of the others must have it"
    cluster.heal()
    assert cluster.run(5_000, until=lambda: leader.core.state_name == "observer")
    assert cluster.run(10_000, until=cluster.has_agreed) and cluster.leader().id in (2, 3)
    assert cluster.run(5_000, until=lambda: leader.recorder.records == ["behind it"]), "DQ-16: it goes on as an observer"
    assert not [event for event in cluster.events_of(trace.StateChanged, 1)[-3:] if event.state in ("prospective", "candidate")]


def test_dq_16_a_leader_answers_those_that_are_not_in_its_set_and_is_followed_by_them() -> None:
    cluster = VoterCluster()
    leader = cluster.elect(1)
    cluster.run(1_000)
    say(leader, 1, 2)
    leader.append("a")
    assert cluster.run(2_000, until=lambda: cluster[3].recorder.records == ["a"])
    assert cluster[3].core.voters.ids == (1, 2) and cluster[3].core.state_name == "observer"


def test_dq_10_a_quorum_with_voters_in_the_log_commits_counts_and_describes_by_directory() -> None:
    cluster = VoterCluster(brokers=(7,))
    leader = cluster.elect(1)
    leader.append("a")
    cluster.run(1_000)
    assert all(node.recorder.records == ["a"] for node in cluster.nodes.values())
    described = leader.core.describe(0)
    assert [(it.replica_id, it.directory_id) for it in described.voters] == [(i, directory_of(i)) for i in (1, 2, 3)]
    assert [(it.replica_id, it.directory_id) for it in described.observers] == [(7, directory_of(7))]


def test_dq_11_a_fetch_from_another_directory_is_that_of_an_observer() -> None:
    cluster = VoterCluster()
    leader = cluster.elect(1)
    cluster.network.clear()
    leader.append("a")
    leader.advance(25)
    leo, epoch, before = leader.core.leo, leader.core.epoch, leader.core.high_watermark
    assert ask(leader, fetch(epoch, leo, epoch)).error is ErrorCode.NONE, "with no directory at all"
    assert leader.core.high_watermark == before
    cluster.run(2_000)
    assert leader.core.high_watermark == leo


def test_dq_12_a_voter_grants_by_epoch_and_log_to_a_candidate_that_it_does_not_know() -> None:
    cluster = VoterCluster()
    cluster.elect(1)
    cluster.settle()
    voter = cluster[3]
    ahead = vote(voter.core.epoch + 1, candidate=8, to=3, last=(voter.core.epoch, 100), directory=directory_of(8))
    assert ask(voter, ahead, source=2).vote_granted


def test_dq_14_a_vote_that_is_asked_of_another_directory_is_refused_behind_its_epoch() -> None:
    cluster = VoterCluster()
    cluster.elect(1)
    cluster.settle()
    epoch = cluster[3].core.epoch + 1
    asked = vote(epoch, to=3, last=(epoch - 1, 100), directory=directory_of(2), voter_directory=directory_of(3, disk=2))
    answered = ask(cluster[3], asked)
    assert answered.error is ErrorCode.INVALID_VOTER_KEY and not answered.vote_granted and cluster[3].core.epoch == epoch


def test_dq_15_a_node_that_knows_no_voter_finds_the_leader_by_the_bootstrap_servers() -> None:
    cluster = VoterCluster(spares=(4,), brokers=(7,))
    leader = cluster.elect(1)
    leader.append("a")
    assert cluster[4].core.voters.ids == () and cluster[7].core.voters.ids == ()
    assert cluster.run(5_000, until=lambda: all(cluster[i].recorder.records == ["a"] for i in (4, 7)))
    assert cluster[4].core.voters == voter_set(1, 2, 3) and cluster[4].core.state_name == "observer"


def test_dq_15_the_address_that_the_quorum_tells_is_used_where_voters_are_in_the_log() -> None:
    cluster = VoterCluster()
    follower = cluster[3]
    ask(follower, begin(7, 8, to=3, endpoint=Endpoint("node8", 9008)), source=2)
    state = follower.core.state
    assert isinstance(state, Follower) and (state.leader_id, state.leader_endpoint) == (8, Endpoint("node8", 9008))


def test_dq_23_a_controller_that_nobody_has_added_never_stands_for_election() -> None:
    cluster = VoterCluster(initial=(1,), spares=(4,), start=False)
    alone = cluster[4]
    alone.start()
    cluster.run(60_000, step_ms=100)
    assert isinstance(alone.core.state, Unattached) and alone.core.epoch == 0
    assert not [m for m in cluster.sent if m.method.name in ("Vote", "BeginQuorumEpoch")]


def test_dq_25_a_voter_with_another_disk_is_an_observer() -> None:
    cluster = VoterCluster()
    leader = cluster.elect(1)
    leader.append("a")
    cluster.run(1_000)
    cluster[3].crash()
    cluster.replace_disk(3)
    cluster[3].start()
    assert cluster.run(5_000, until=lambda: cluster[3].recorder.records == ["a"])
    assert cluster[3].core.state_name == "observer" and cluster[3].core.voters == voter_set(1, 2, 3)
    leader.append("b")
    cluster[2].crash()
    leader.append("c")
    cluster.run(2_000)
    assert "c" not in cluster[3].recorder.records, "one of three voters with its disk is no majority"


def test_rf_29_what_may_count_as_a_voters_acknowledgement_is_durable_before() -> None:
    cluster = VoterCluster(spares=(4,), brokers=(7,))
    leader = cluster.elect(1)
    cluster.run(2_000)
    cluster.auto_flush = False
    leader.append("a")
    leader.advance(25)
    cluster.settle()
    assert cluster[4].core.leo == leader.core.leo and cluster[4].flush_wanted
    assert not cluster.in_flight(4), "the leader may count it already, by a record that it has not read"
    assert cluster[7].core.leo == leader.core.leo and not cluster[7].flush_wanted, "a broker never counts"


def test_dq_05_a_snapshot_begins_with_the_voters_and_a_node_that_loads_it_knows_them() -> None:
    cluster = VoterCluster(spares=(4,))
    leader = cluster.elect(1)
    cluster.isolate(4)
    leader.append("a")
    cluster.run(1_000)
    snapshot_id = leader.snapshot(leader.core.committed_offset or 0, ["a"])
    assert snapshot_id is not None
    with leader.core.metalog.open_reader(snapshot_id) as reader:
        assert reader.controls() == (KRaftVersion(kraft_version=1), voter_set(1, 2, 3).to_record())
    cluster.heal()
    assert cluster.run(10_000, until=lambda: bool(cluster[4].recorder.snapshots))
    assert cluster[4].core.voters == voter_set(1, 2, 3) and cluster[4].core.metalog.log_start_offset == snapshot_id.offset
    cluster[4].crash()
    cluster[4].start()
    assert cluster[4].core.voters == voter_set(1, 2, 3), "read again at the start"


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_dq_02_a_restarted_node_reads_who_votes_from_its_whole_log(how: str) -> None:
    cluster = VoterCluster()
    cluster.elect(1)
    cluster.run(1_000)
    for node in cluster.nodes.values():
        node.kill() if how == "kill" else node.crash()
        node.disk.unlink(f"{DIRECTORY}/00000000000000000000-0000000000.checkpoint")
        node.start()
    assert all(node.core.voters == voter_set(1, 2, 3) for node in cluster.nodes.values())
    assert cluster.run(10_000, until=cluster.has_agreed)


def test_the_only_voter_of_the_log_has_a_flush_mark_and_an_observer_has_none() -> None:
    cluster = VoterCluster(initial=(1,), spares=(4,))
    leader = cluster.leader()
    leader.append("a")
    cluster.run(2_000)
    assert cluster[1].disk.stat(f"{DIRECTORY}/{FLUSH_MARK}") is not None
    assert cluster[4].disk.stat(f"{DIRECTORY}/{FLUSH_MARK}") is None
    assert leader.core.high_watermark == leader.core.leo and isinstance(leader.core.state, Leader)
    assert leader.core.state.check_quorum_deadline_ms is None, "a set of one never expires"


def test_dq_24_a_quorum_needs_voters_or_somebody_to_ask() -> None:
    with pytest.raises(ValueError, match=r"controller\.quorum\.bootstrap\.servers"):
        QuorumConfig(node_id=NodeId(1), cluster_id="c", voters=(), metadata_dir="/m")


def test_a_lost_leader_is_replaced_by_votes_of_directories() -> None:
    cluster = VoterCluster(brokers=(7,))
    cluster.elect(1).append("a")
    cluster.run(1_000)
    cluster[1].crash()
    assert cluster.run(20_000, until=lambda: cluster.has_leader())
    assert not any(isinstance(cluster[7].core.state, Prospective | Candidate) for _ in (0,))
    cluster.leader().append("b")
    assert cluster.run(5_000, until=lambda: cluster[7].recorder.records == ["a", "b"])
    assert isinstance(controls(cluster[2])[2][1], KRaftVoters)


def test_dq_12_a_voter_that_has_not_read_of_its_addition_helps_to_elect_when_the_leader_is_gone() -> None:
    """The addition is committed by the leader and voter 2, and the leader dies before the new voter has fetched it: voter 2 needs
    the new one's pre-vote, and nobody else can tell that one that it votes."""
    cluster = VoterCluster((1, 2), spares=(4,))
    leader = cluster.elect(1)
    cluster.run(3_000)
    cluster.cut(1, 4)
    addition = say(leader, 1, 2, 4)
    assert cluster.run(300, until=lambda: (leader.core.high_watermark or 0) > addition)
    assert cluster[4].core.voters.ids == (1, 2) and cluster[4].core.state_name == "observer"
    leader.crash()
    cluster.heal()
    assert cluster.run(20_000, until=cluster.has_leader), "two of three voters are there"
    assert cluster[2].core.state_name == "leader" and cluster[4].core.voters.ids == (1, 2, 4)
