"""The checkers of who votes fail when they must, and hold where voters change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.log.control import KRaftVoters
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId, VoterEndpoint
from kraftlite.model.messages.methods import ADD_VOTER, REMOVE_VOTER
from kraftlite.model.messages.raft import AddVoterRequest, AddVoterResponse, RemoveVoterRequest, RemoveVoterResponse
from kraftlite.raft.states import Candidate, Follower, Leader
from kraftlite.raft.voters import Voter, VoterSet
from kraftlite.sim.checkers.added_voters import AddedVoters
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_membership import MEMBERSHIP
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i06_durability import Durability
from kraftlite.sim.checkers.i10_role_consistency import RoleConsistency
from kraftlite.sim.checkers.i76_voter_steps import VoterSteps
from kraftlite.sim.checkers.i77_effective_voters import EffectiveVoters
from kraftlite.sim.checkers.i79_counted_votes import CountedVotes
from kraftlite.sim.checkers.i84_office import OfficeLeft
from kraftlite.sim.checkers.i87_voters_in_snapshots import VotersInSnapshots
from kraftlite.sim.checkers.i88_voter_changes import VoterChanges
from kraftlite.sim.checkers.i89_one_change import OneChange
from kraftlite.sim.quorum import INITIAL, STANDALONE, STATIC, Forming
from kraftlite.sim.shape import SHORT_LOG
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import SMALL, WatchedCluster

CASES: Cases[WatchedCluster] = Cases()
THREE = Forming(how=INITIAL, voters=(1, 2, 3))
SHAPE = replace(SMALL, controllers=4, brokers=1, config={**SMALL.config, **SHORT_LOG}, forming=THREE)
"""Voters 1 to 3, spare 4, broker 5."""
SPARE, BROKER = 4, 5


@pytest.fixture
def make() -> Iterator[Callable[..., WatchedCluster]]:
    made: list[WatchedCluster] = []

    def start(*factories: CheckerFactory, forming: Forming = THREE) -> WatchedCluster:
        made.append(WatchedCluster(MetadataWatch, *factories, shape=replace(SHAPE, forming=forming)))
        return made[-1].start()

    yield start
    for it in made:
        it.close()


def entry_of(cluster: WatchedCluster, node_id: int) -> Voter:
    directory = cluster.cluster.directory_id(NodeId(node_id))
    listener = VoterEndpoint(name="CONTROLLER", host=f"n{node_id}", port=9093)
    return Voter(
        id=NodeId(node_id), endpoint=Endpoint(f"n{node_id}", 9093), directory_id=directory, listeners=(listener,), versions=(0, 1)
    )


def add(cluster: WatchedCluster, node_id: int) -> ErrorCode:
    entry = entry_of(cluster, node_id)
    request = AddVoterRequest(
        cluster_id=None,
        voter_id=entry.id,
        voter_directory_id=entry.directory_id,
        listeners=entry.listeners,
        ack_when_committed=True,
    )
    answered: AddVoterResponse = cluster.call(cluster.leader_id(), ADD_VOTER, request)
    return answered.error


def remove(cluster: WatchedCluster, node_id: int) -> ErrorCode:
    directory = cluster.cluster.directory_id(NodeId(node_id))
    request = RemoveVoterRequest(cluster_id=None, voter_id=NodeId(node_id), voter_directory_id=directory)
    answered: RemoveVoterResponse = cluster.call(cluster.leader_id(), REMOVE_VOTER, request)
    return answered.error


def say(cluster: WatchedCluster, change: Callable[[VoterSet], VoterSet], times: int = 1) -> None:
    """The leader writes that these are the voters, whatever its rules say."""
    core = cluster.core(cluster.leader_id())
    core.check = lambda: None  # type: ignore[method-assign]
    for _ in range(times):
        assert isinstance(core.state, Leader)
        record: KRaftVoters = change(core.voters).to_record()
        core._leadership.append_controls(core.state, [record])
    cluster.go(3_000)


@CASES.breaks(VoterSteps, "are followed by")
def two_are_removed_at_once(cluster: WatchedCluster) -> None:
    one, other = cluster.follower_ids()[:2] if SPARE not in cluster.follower_ids()[:2] else cluster.follower_ids()[1:]
    say(cluster, lambda voters: voters.without(NodeId(one)).without(NodeId(other)))


@CASES.breaks(AddedVoters, "makes node 4 with directory .* a voter by offset .*, and no fetch of it has come")
def one_is_added_that_never_fetched(cluster: WatchedCluster) -> None:
    stranger = replace(entry_of(cluster, SPARE), directory_id=UUID(int=77))
    say(cluster, lambda voters: voters.with_voter(stranger))


@CASES.breaks(EffectiveVoters, "its log says {1/.*, 2/.*, 3/.*}")
def other_voters_than_the_log_says(cluster: WatchedCluster) -> None:
    membership = cluster.core(SPARE)._ctx.membership
    membership.voters = VoterSet(membership.voters.voters[:2])
    cluster.go(1_000)


@CASES.breaks(EffectiveVoters, "node 4 goes by kraft.version 0; its log says 1")
def another_level_than_the_log_says(cluster: WatchedCluster) -> None:
    cluster.core(SPARE)._ctx.membership.kraft_version = 0
    cluster.go(1_000)


@CASES.breaks(EffectiveVoters, "keeps count of")
def progress_of_a_stranger(cluster: WatchedCluster) -> None:
    core = cluster.core(cluster.leader_id())
    assert isinstance(core.state, Leader)
    core.check = lambda: None  # type: ignore[method-assign]
    core.state.voters[NodeId(SPARE)] = next(iter(core.state.voters.values()))
    cluster.go(1_000)


@CASES.breaks(CountedVotes, "with the votes of")
def a_leader_without_votes(cluster: WatchedCluster) -> None:
    node_id = next(it for it in cluster.follower_ids() if it != SPARE)
    cluster.cut_off(node_id)
    core = cluster.core(node_id)
    core._elections._has_won = lambda granted: True  # type: ignore[method-assign]
    core.check = lambda: None  # type: ignore[method-assign]  # it would notice itself
    cluster.go(20_000)


@CASES.breaks(CountedVotes, "count among the voters")
def a_vote_of_another_directory(cluster: WatchedCluster) -> None:
    for node_id in cluster.follower_ids():
        cluster.world.notes["metadata facts"].views[NodeId(node_id)].directory_id = UUID(int=77)
    cluster.kill(cluster.leader_id())
    cluster.go(20_000)


@CASES.breaks(Durability, "on disk for good it is only at")
def an_acknowledgement_of_another_directory(cluster: WatchedCluster) -> None:
    """Invariant 78."""
    for node_id in cluster.follower_ids():
        cluster.world.notes["metadata facts"].views[NodeId(node_id)].directory_id = UUID(int=77)
    cluster.go(1_000)


@CASES.breaks(RoleConsistency, "observer 4 is candidate")
def a_spare_that_stands(cluster: WatchedCluster) -> None:
    cluster.cut_off(SPARE)
    cluster.go(600)
    core = cluster.core(SPARE)
    core.check = lambda: None  # type: ignore[method-assign]
    ctx = core._ctx
    ctx.state = Candidate(epoch=ctx.epoch, voted=ctx.key, election_deadline_ms=10**9, retries=0, granted=set())
    cluster.go(1_000)


@CASES.breaks(OfficeLeft, "after its removal was committed")
def a_removed_leader_that_stays(cluster: WatchedCluster) -> None:
    leader = cluster.leader_id()
    core = cluster.core(leader)

    def go_on() -> None:
        assert isinstance(core.state, Leader)
        core._leadership._drain(core.state)
        core._leadership._begin_epoch(core.state)

    core._leadership.poll = go_on  # type: ignore[method-assign]
    remove(cluster, leader)
    cluster.go(10_000)


@CASES.breaks(VotersInSnapshots, "the log has 1 and {1/.*, 2/.*, 3/.*} there")
def a_snapshot_without_voters(cluster: WatchedCluster) -> None:
    cluster.core(cluster.leader_id())._ctx.membership.snapshot_controls = lambda end_offset: ()  # type: ignore[method-assign]
    for number in range(12):
        cluster.create_topic(f"t{number}", replication=1)
    cluster.go(5_000)


@CASES.breaks(VoterChanges, "the 1. time; that is committed 0 times")
def an_answer_before_the_commit(cluster: WatchedCluster) -> None:
    changes, leader = cluster.core(cluster.leader_id())._changes, cluster.leader_id()
    poll = changes.poll

    def hasty() -> None:
        if changes._pending is not None and changes._pending.offset is not None:
            changes._finish(ErrorCode.NONE, None)
        poll()

    changes.poll = hasty  # type: ignore[method-assign]
    for node_id in cluster.follower_ids():
        cluster.cluster.network.cut(NodeId(leader), NodeId(node_id))
    remove(cluster, next(it for it in cluster.follower_ids() if it != SPARE))
    cluster.go(1_000)


@CASES.breaks(VoterChanges, "'add node 4 .* asked for and not refused was that 0 times")
def a_change_that_nobody_asked_for(cluster: WatchedCluster) -> None:
    say(cluster, lambda voters: voters.with_voter(entry_of(cluster, SPARE)))


@CASES.breaks(VoterChanges, "raises the kraft.version, which nobody has asked for")
def an_upgrade_that_nobody_asked_for(cluster: WatchedCluster) -> None:
    """The same voters as before, which were only configured until then."""
    sets = cluster.world.notes["metadata facts"].voter_sets
    sets.before = lambda _: tuple((node_id, None) for node_id in cluster.core(1).voters.ids)
    say(cluster, lambda voters: voters)


@CASES.breaks(OneChange, "2 changes of the voters are not committed")
def two_changes_at_once(cluster: WatchedCluster) -> None:
    cluster.cut_off(cluster.leader_id())
    say(cluster, lambda voters: voters.without(voters.ids[-1]), times=2)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., WatchedCluster], checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


def test_every_checker_can_fail() -> None:
    assert {case[0] for case in CASES} == {*MEMBERSHIP, Durability, RoleConsistency}


def unsettled(cluster: WatchedCluster) -> str | None:
    (checker,) = (it for it in cluster.checkers if isinstance(it, OfficeLeft))
    return checker.unsettled()


def test_voters_that_are_added_and_removed_break_nothing(make: Callable[..., WatchedCluster]) -> None:
    cluster = make(*MEMBERSHIP, Durability, RoleConsistency)
    cluster.go(1_000)
    assert add(cluster, SPARE) is ErrorCode.NONE
    assert add(cluster, SPARE) is ErrorCode.DUPLICATE_VOTER
    leader = cluster.leader_id()
    assert remove(cluster, leader) is ErrorCode.NONE
    cluster.until(lambda: cluster.leader_id() not in (0, leader), "another leader")
    cluster.until(lambda: unsettled(cluster) is None, "everybody to follow it")
    assert leader not in cluster.core(cluster.leader_id()).voters.ids


def test_a_quorum_that_is_not_whole_is_not_settled(make: Callable[..., WatchedCluster]) -> None:
    """Invariant 84."""
    cluster = make(OfficeLeft, forming=Forming(how=STANDALONE, voters=(1,), joins=(SPARE,)))
    cluster.until(lambda: "controller 4 joins by itself" in str(unsettled(cluster)), "controller 4 to be missed")
    cluster.until(lambda: unsettled(cluster) is None, "controller 4 to join")
    ctx = cluster.core(2)._ctx
    before = ctx.state
    assert isinstance(before, Follower)
    ctx.state = replace(before, leader_id=NodeId(SPARE))
    assert "node 2 is observer in epoch 1 and follows nobody" in str(unsettled(cluster))
    ctx.state = before
    cluster.cluster.quorum.move(SPARE)
    cluster.until(lambda: "voter 4 listens on port 10093; its entry says n4:9093" in str(unsettled(cluster)))
    cluster.kill(cluster.leader_id())
    assert unsettled(cluster) == "nobody leads the quorum"


def test_configured_voters_are_those_of_the_beginning(make: Callable[..., WatchedCluster]) -> None:
    cluster = make(*MEMBERSHIP, forming=Forming(how=STATIC, voters=(1, 2, 3)))
    assert "does not know what voters" in str(unsettled(cluster))
    cluster.until(lambda: unsettled(cluster) is None, "everybody to follow the leader and to tell it what it supports")
    assert cluster.core(1).voters.ids == cluster.core(BROKER).voters.ids == (1, 2, 3)
    assert cluster.core(SPARE).voters.ids == ()
