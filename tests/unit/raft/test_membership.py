"""The histories of voters and kraft.version that one log has."""

from __future__ import annotations

import random

import pytest

from kraftlite.log.control import ControlRecord, KRaftVoters, LeaderChange, VoterNode, control_batch
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.raft.membership import History, Membership, membership_records
from kraftlite.raft.states import Leader, ReplicaProgress
from kraftlite.raft.voters import ReplicaKey, Voter, VoterSet
from tests.harness.raft_voters import LISTENER, directory_of, entry, voter_set

CONFIGURED = VoterSet((Voter(id=NodeId(9), endpoint=Endpoint("nine", 9009)),))


def put(membership: Membership, *said: ControlRecord) -> int:
    """Append one control batch; returns the offset of its last record."""
    raw = control_batch(said, timestamp_ms=1, leader_epoch=1, base_offset=membership.next_offset)
    membership.read(raw, membership.next_offset + len(said))
    return membership.next_offset - 1


def put_data(membership: Membership, count: int) -> None:
    membership.next_offset += count


def test_dq_02_what_the_log_says_last_counts_and_the_configuration_before_it() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    assert membership.voters is CONFIGURED and membership.kraft_version == 0 and membership.is_static
    put(membership, LeaderChange(leader_id=NodeId(1), voters=(), granting_voters=()), *membership_records(1, voter_set(1, 2)))
    assert membership.voters == voter_set(1, 2) and membership.kraft_version == 1
    assert membership.voters_offset == 2
    put(membership, voter_set(1, 2, 3).to_record())
    assert membership.voters == voter_set(1, 2, 3) and membership.voters_offset == 3


def test_dq_09_the_configured_voters_are_ignored_from_the_first_record_on() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    assert membership.is_static and not membership.ignores_configured
    put(membership, *membership_records(1, voter_set(1, 2)))
    assert not membership.is_static and membership.ignores_configured
    membership.truncate_to(0)
    assert membership.is_static and not membership.ignores_configured


def test_dq_03_a_truncation_goes_back_to_the_set_before_and_at_last_to_the_configuration() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    first = put(membership, *membership_records(1, voter_set(1)))
    second = put(membership, voter_set(1, 2).to_record())
    membership.truncate_to(second + 1)
    assert membership.voters == voter_set(1, 2), "what is truncated is behind the record"
    membership.truncate_to(second)
    assert membership.voters == voter_set(1) and membership.next_offset == second
    membership.truncate_to(first)
    assert membership.voters is CONFIGURED and membership.kraft_version == 1 and not membership.ignores_configured
    membership.truncate_to(0)
    assert membership.kraft_version == 0


def test_dq_04_a_trimmed_log_keeps_the_newest_value_before_its_start() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    put(membership, *membership_records(1, voter_set(1)))
    second = put(membership, voter_set(1, 2).to_record())
    put_data(membership, 5)
    third = put(membership, voter_set(1, 2, 3).to_record())
    membership.trim_to(third - 1)
    assert membership.at(third - 1) == (1, voter_set(1, 2)) and membership.at(second - 1)[1] is None
    membership.trim_to(third)
    assert membership.at(third) == (1, voter_set(1, 2, 3))
    membership.truncate_to(third)
    assert membership.voters == voter_set(1, 2), "the log may be cut where it begins"


def test_dq_05_values_at_an_offset_are_those_of_then_and_never_guessed() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    put_data(membership, 3)
    first = put(membership, *membership_records(1, voter_set(1)))
    put_data(membership, 2)
    put(membership, voter_set(1, 2).to_record())
    assert membership.at(2) == (0, None)
    assert membership.at(first + 2) == (1, voter_set(1))
    assert membership.snapshot_controls(first + 3) == membership_records(1, voter_set(1))
    assert membership.snapshot_controls(3) == ()
    with pytest.raises(ValueError, match="are not known"):
        membership.at(membership.next_offset)


def test_dq_05_a_snapshot_replaces_both_histories() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    put(membership, *membership_records(1, voter_set(1, 2, 3)))
    membership.load(membership_records(1, voter_set(1, 2)), 40)
    assert membership.voters == voter_set(1, 2) and membership.voters_offset == 39 and membership.next_offset == 40
    membership.load((), 50)
    assert membership.voters is CONFIGURED and membership.kraft_version == 0


def test_dq_08_a_replica_is_its_id_and_its_directory() -> None:
    named = voter_set(1)
    assert named.contains(ReplicaKey(NodeId(1), directory_of(1)))
    assert not named.contains(ReplicaKey(NodeId(1), directory_of(1, disk=2)))
    assert not named.contains(ReplicaKey(NodeId(1))), "a missing directory is not the one of the entry"
    assert CONFIGURED.contains(ReplicaKey(NodeId(9), directory_of(9))) and CONFIGURED.contains(ReplicaKey(NodeId(9)))
    with pytest.raises(ValueError, match="more than once"):
        VoterSet((entry(1), entry(1, disk=2)))


def test_dq_35_a_leap_from_one_set_to_another_is_told_and_believed() -> None:
    membership = Membership(CONFIGURED, LISTENER)
    put(membership, *membership_records(1, voter_set(1, 2, 3)))
    put(membership, voter_set(1, 2, 4).to_record())
    assert membership.leaps == [], "one removed and one added"
    leapt = put(membership, voter_set(5, 6).to_record())
    assert membership.leaps == [leapt] and membership.voters == voter_set(5, 6)


def test_a_record_that_is_no_set_of_voters_is_refused() -> None:
    twice = KRaftVoters(voters=(*voter_set(1).to_record().voters, *voter_set(1).to_record().voters))
    deaf = KRaftVoters(voters=(VoterNode(voter_id=NodeId(1), directory_id=directory_of(1), endpoints=()),))
    for nonsense in (twice, deaf):
        with pytest.raises(ApiError, match="cannot be used"):
            put(Membership(CONFIGURED, LISTENER), nonsense)


@pytest.mark.parametrize("seed", range(50))
def test_any_sequence_of_changes_is_as_if_the_log_were_read_anew(seed: int) -> None:
    rng = random.Random(seed)
    entries: list[tuple[int, int]] = []
    history: History[int] = History()
    end = start = 0
    for step in range(60):
        draw = rng.random()
        if draw < 0.6:
            end += rng.randint(1, 3)
            entries.append((end - 1, step))
            history.add(end - 1, step)
        elif draw < 0.8:
            end = rng.randint(start, end) if end else 0
            entries = [it for it in entries if it[0] < end]
            history.truncate_to(end)
        else:
            start = rng.randint(start, end)
            history.trim_to(start)
        for offset in range(start, end):
            said = [value for at, value in entries if at <= offset]
            assert history.at(offset) == (said[-1] if said else None)


def leader_of(voters: VoterSet, leader: int = 1) -> Leader:
    return Leader(
        epoch=5,
        leader_id=NodeId(leader),
        leader_endpoint=None,
        voted=ReplicaKey(NodeId(leader)),
        epoch_start_offset=0,
        granting_voters=voters.ids,
        electorate=voters,
        voter_set=voters,
        check_quorum_deadline_ms=None,
        begin_epoch_deadline_ms=None,
        voters={voter.id: ReplicaProgress(end_offset=10 + voter.id, directory_id=voter.directory_id) for voter in voters.voters},
    )


def test_dq_13_progress_stays_with_the_replica_when_the_set_changes() -> None:
    state = leader_of(voter_set(1, 2, 3))
    state.observers[entry(4).key] = four = ReplicaProgress(end_offset=7)
    three = state.voters[NodeId(3)]
    state.fetched_voters = {NodeId(2), NodeId(3)}
    state.begin_epoch_pending = {NodeId(3)}
    state.follow(voter_set(1, 2, 4))
    assert state.voters[NodeId(4)] is four and state.observers == {entry(3).key: three}
    assert state.fetched_voters == {NodeId(2)} and state.begin_epoch_pending == set()
    state.follow(voter_set(1, 2, 3))
    assert state.voters[NodeId(3)] is three and state.observers == {entry(4).key: four}


def test_dq_13_a_leader_that_is_removed_counts_itself_among_the_observers() -> None:
    state = leader_of(voter_set(1, 2, 3))
    own = state.voters[NodeId(1)]
    state.follow(voter_set(2, 3))
    assert set(state.voters) == {2, 3} and state.observers == {entry(1).key: own}


def test_dq_11_progress_of_a_configured_voter_counts_for_the_directory_it_came_from() -> None:
    def configured(node_id: int) -> Voter:
        return Voter(id=NodeId(node_id), endpoint=Endpoint("h", 1))

    state = leader_of(VoterSet((configured(1), configured(2), configured(3))))
    state.voters[NodeId(2)].directory_id = directory_of(2)
    state.voters[NodeId(3)].directory_id = directory_of(3, disk=2)
    two = state.voters[NodeId(2)]
    state.follow(voter_set(1, 2, 3))
    assert state.voters[NodeId(2)] is two
    assert state.voters[NodeId(3)].end_offset is None, "what another disk had is not what this one has"
