"""RF-01 to RF-24: elections and epochs."""

from __future__ import annotations

import dataclasses
import json
import random
from uuid import UUID

import pytest

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.control import LeaderChange, decode_control
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.raft.events import ResponseReceived
from kraftlite.raft.quorum_state import ElectionState, parse, render
from kraftlite.raft.states import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraftlite.raft.voters import ReplicaKey
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode
from tests.harness.raft_requests import ask, begin, end, fetch, vote

STATE_FILE = f"{DIRECTORY}/quorum-state"


def alone(**overrides: object) -> SimNode:
    """Node 1 of three; its peers are down."""
    cluster = RaftCluster(start=False, **overrides)
    cluster[1].start()
    return cluster[1]


def stored(node: SimNode) -> ElectionState:
    return parse(node.disk.read_file(STATE_FILE), STATE_FILE)


def with_log(node: SimNode, *epochs: int) -> None:
    """Give a stopped node a log with one batch per epoch."""
    node.start()
    cluster = node.cluster
    for epoch in epochs:
        leader = 3 if node.id != 3 else 2
        ask(node, begin(epoch, leader, to=node.id))
        serve_batch(node, epoch)
    cluster.network.clear()


def serve_batch(node: SimNode, epoch: int, *records: str) -> None:
    """Answer the fetch that the node has under way with one batch of this epoch; without records with that which begins it."""
    from kraftlite.log.batch import Record, build_batch
    from kraftlite.log.control import LeaderChange, control_batch
    from kraftlite.model.messages.raft import RaftFetchRequest, RaftFetchResponse

    asked = [m for m in node.cluster.network if m.source == node.id and isinstance(m.body, RaftFetchRequest)][-1]
    where = {"base_offset": asked.body.fetch_offset, "leader_epoch": epoch, "timestamp_ms": 1}
    if records:
        batch = build_batch([Record(None, value.encode()) for value in records], **where)
    else:
        batch = control_batch([LeaderChange(leader_id=asked.target, voters=(), granting_voters=())], **where)
    response = RaftFetchResponse(
        error=ErrorCode.NONE,
        leader_id=asked.target,
        leader_epoch=node.core.epoch,
        leader_endpoint=None,
        high_watermark=None,
        log_start_offset=0,
        diverging_epoch=None,
        snapshot_id=None,
        payload=batch,
    )
    node.cluster.network.remove(asked)
    node.step(ResponseReceived(correlation_id=asked.token, response=response))


def test_rf_01_a_granted_vote_survives_a_crash_and_binds() -> None:
    node = alone()
    assert ask(node, vote(5, candidate=2)).vote_granted
    node.crash()
    assert json.loads(node.disk.read_file(STATE_FILE))["votedId"] == 2
    node.start()
    assert not ask(node, vote(5, candidate=3), source=3).vote_granted
    assert ask(node, vote(5, candidate=2)).vote_granted


def test_rf_01_the_directory_of_a_vote_is_stored() -> None:
    state = ElectionState(epoch=4, voted=ReplicaKey(2, UUID(int=777)))  # type: ignore[arg-type]
    assert parse(render(state), "f") == state


@pytest.mark.parametrize(
    ("last", "granted"),
    [((2, 2), True), ((2, 9), True), ((3, 0), True), ((2, 1), False), ((1, 9), False), ((0, 0), False)],
)
def test_rf_02_the_candidates_log_must_reach_as_far(last: tuple[int, int], granted: bool) -> None:
    cluster = RaftCluster(start=False)
    with_log(cluster[1], 1, 2)
    assert cluster[1].core.metalog.end.offset == 2
    assert ask(cluster[1], vote(7, last=last)).vote_granted is granted


def test_rf_02_no_vote_when_the_leader_of_the_epoch_is_known() -> None:
    node = alone()
    ask(node, begin(3, leader=3))
    assert not ask(node, vote(3, candidate=2)).vote_granted


def test_rf_03_asking_again_gets_the_same_answer() -> None:
    node = alone()
    directory = UUID(int=900)
    assert ask(node, vote(5, directory=directory)).vote_granted
    again = ask(node, vote(5, directory=directory))
    other = ask(node, vote(5, directory=UUID(int=901)))
    another = ask(node, vote(5, candidate=3))
    assert again.vote_granted and not other.vote_granted and not another.vote_granted
    assert other.error is another.error is ErrorCode.NONE


def test_rf_04_a_larger_epoch_is_adopted_even_when_the_vote_is_refused() -> None:
    cluster = RaftCluster(start=False)
    with_log(cluster[1], 1, 2)
    response = ask(cluster[1], vote(7, last=(0, 0)))
    assert not response.vote_granted and response.leader_epoch == 7
    assert isinstance(cluster[1].core.state, Unattached)
    assert stored(cluster[1]) == ElectionState(epoch=7)


def test_rf_05_a_smaller_epoch_is_fenced_and_told_what_is_known() -> None:
    node = alone()
    ask(node, begin(5, leader=3))
    for request in (vote(4), begin(4, leader=2), end(4, leader=2), fetch(4, 0, 0)):
        response = ask(node, request)
        assert (response.error, response.leader_epoch, response.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 5, 3)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(3, last=(0, -1)), ErrorCode.INVALID_REQUEST),
        (vote(3, last=(-1, 0)), ErrorCode.INVALID_REQUEST),
        (vote(3, last=(3, 5)), ErrorCode.INVALID_REQUEST),
        (vote(3, candidate=-1), ErrorCode.INVALID_REQUEST),
        (vote(3, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote(3, cluster_id=""), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote(3, cluster_id=None), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote(3, candidate=9), ErrorCode.INCONSISTENT_VOTER_SET),
        (vote(3, candidate=1), ErrorCode.INVALID_REQUEST),
        (vote(2**30 + 2**16, last=(0, 0)), ErrorCode.NONE),
        (vote(2**30 + 2**16 + 1), ErrorCode.INVALID_REQUEST),
        (vote(2**31 - 1), ErrorCode.INVALID_REQUEST),
        (vote(2**31 - 1, pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote(3, last=(3, 5), pre_vote=True), ErrorCode.NONE),
    ],
)
def test_rf_06_malformed_votes(request_: object, error: ErrorCode) -> None:
    node = alone()
    assert ask(node, request_).error is error
    if error is not ErrorCode.NONE:
        assert (node.core.epoch, stored(node).epoch) == (0, 0)


def test_rf_06_a_vote_for_another_voter_still_bumps_the_epoch() -> None:
    node = alone(directory_id=UUID(int=300))
    assert ask(node, vote(9, to=2)).error is ErrorCode.INVALID_VOTER_KEY
    assert node.core.epoch == 9
    assert ask(node, vote(10, voter_directory=UUID(int=301))).error is ErrorCode.INVALID_VOTER_KEY
    assert ask(node, vote(10, voter_directory=UUID(int=300))).vote_granted


def test_rf_07_leader_candidate_resigned_and_follower_refuse_in_their_epoch() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    epoch, last = leader.core.epoch, (leader.core.epoch, 99)
    follower = cluster[2]
    assert isinstance(leader.core.state, Leader) and isinstance(follower.core.state, Follower)
    assert not ask(leader, vote(epoch, candidate=3, last=(0, 99))).vote_granted
    assert not ask(follower, vote(epoch, candidate=3, to=2, last=(0, 99))).vote_granted
    leader.resign()
    assert isinstance(leader.core.state, Resigned)
    assert not ask(leader, vote(epoch, candidate=3, last=(0, 99))).vote_granted
    node = alone()
    ask(node, vote(1))  # nobody else is there, so it has to be made a candidate by hand
    node.crash()
    node.disk.write_file_atomically(STATE_FILE, render(ElectionState(epoch=3, voted=ReplicaKey(node.id))))
    node.start()
    assert isinstance(node.core.state, Candidate)
    assert not ask(node, vote(3, candidate=2, last=(0, 99))).vote_granted
    assert last


def test_rf_08_election_timeouts_are_uniform_in_t_to_2t() -> None:
    timeouts = []
    for seed in range(1, 300):
        cluster = RaftCluster(start=False, seed=seed)
        cluster[1].start()
        state = cluster[1].core.state
        assert isinstance(state, Unattached) and state.election_deadline_ms is not None
        timeouts.append(state.election_deadline_ms)
    assert min(timeouts) in range(1_000, 1_040) and max(timeouts) in range(1_960, 2_000)


@pytest.mark.parametrize("size", [3, 5])
def test_rf_08_a_new_leader_within_five_seconds_of_the_old_ones_death(size: int) -> None:
    for seed in range(1, 6):
        cluster = RaftCluster(range(1, size + 1), seed=seed)
        cluster.leader().crash()
        assert cluster.run(6_000, until=cluster.has_leader), f"seed {seed}"


def test_rf_09_losing_candidates_back_off_at_random_and_then_raise_the_epoch() -> None:
    cluster = RaftCluster((1, 2, 3, 4), seed=3)
    cluster.cut(1, 2)
    cluster.cut(3, 4)
    for node in cluster.nodes.values():
        node.crash()
        node.disk.write_file_atomically(STATE_FILE, render(ElectionState(epoch=1, voted=ReplicaKey(node.id))))
    cluster.heal()
    for node in cluster.nodes.values():
        node.start()
    cluster.settle()
    lost = cluster.events_of(trace.ElectionLost)
    assert {who for who, event in cluster.events if isinstance(event, trace.ElectionLost)} == {1, 2, 3, 4}
    assert all(event.reason == "refused" for event in lost)
    backoffs = [event.backoff_ms for event in lost if not event.pre_vote]
    assert len(backoffs) >= 4 and all(0 <= backoff <= 1_000 for backoff in backoffs)
    assert cluster.run(20_000, until=cluster.has_leader)
    assert cluster.leader().core.epoch > 1


def test_rf_09_split_votes_do_not_go_on_for_ever() -> None:
    for seed in range(1, 40):
        cluster = RaftCluster((1, 2, 3, 4), seed=seed)
        for node in cluster.nodes.values():
            node.entropy.seed(seed)  # the worst case: all draw the same timeouts, at first
        assert cluster.run(30_000, step_ms=20, until=cluster.has_leader), f"seed {seed}"


@pytest.mark.parametrize("seed", range(20))
def test_rf_09_two_that_miss_the_leader_at_the_same_moment_do_not_split_the_votes(seed: int) -> None:
    cluster = RaftCluster(seed=seed)
    old = cluster.leader()
    cluster.run(500)
    first, second = (node for node in cluster.nodes.values() if node is not old)
    epoch = old.core.epoch
    old.crash()
    cluster.network.clear()
    rng = random.Random(seed)
    for node in (first, second):
        while node.core.state.name != "prospective":
            node.advance(50)
    for _ in range(1_000):  # whatever the order in which what they say arrives
        if second.core.state.name == "leader" or first.core.state.name == "leader":
            break
        cluster.deliver(rng.choice(cluster.network)) if cluster.network else first.advance(1)
    assert sorted(first.core.state.name + second.core.state.name) == sorted("leader" + "unattached")
    assert first.core.epoch == second.core.epoch == epoch + 1


def test_rf_09_who_defers_stands_when_the_other_does_not() -> None:
    cluster = RaftCluster(seed=4)
    node = cluster.elect(1)
    cluster.run(500)
    node.crash()
    cluster.network.clear()
    deferring = cluster[3]
    while deferring.core.state.name != "prospective":
        deferring.advance(50)
    assert ask(deferring, vote(deferring.core.epoch, candidate=2, to=3, last=(1, 1), pre_vote=True), source=2).vote_granted
    while cluster[2].core.state.name != "prospective":
        cluster[2].advance(50)
    cluster[2].crash()
    cluster[2].start()  # has forgotten that it wanted to stand
    deferring.advance(100)
    assert cluster.run(5_000, until=cluster.has_leader)


def test_rf_10_an_only_voter_leads_at_once_and_stays_leader() -> None:
    cluster = RaftCluster((1,))
    node = cluster[1]
    assert isinstance(node.core.state, Leader) and node.core.high_watermark == 1
    node.append("a")
    cluster.run(60_000, step_ms=500)
    assert node.core.epoch == 1 and node.recorder.records == ["a"] and not cluster.sent
    node.crash()
    node.start()
    assert isinstance(node.core.state, Leader) and node.core.epoch == 2


def test_rf_11_a_restarted_leader_is_resigned_in_its_old_epoch() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    epoch = leader.core.epoch
    leader.crash()
    cluster.network.clear()
    leader.start()
    assert isinstance(leader.core.state, Resigned) and leader.core.epoch == epoch
    with pytest.raises(ApiError) as refused:
        leader.append("x")
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert ask(leader, fetch(epoch, 1, epoch)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert {m.method.name for m in cluster.in_flight(1)} == {"EndQuorumEpoch"}
    assert cluster.leader().core.epoch > epoch


@pytest.mark.parametrize(
    ("election", "role"),
    [
        (ElectionState(epoch=4, voted=ReplicaKey(1)), Candidate),  # type: ignore[arg-type]
        (ElectionState(epoch=4, voted=ReplicaKey(2)), Unattached),  # type: ignore[arg-type]
        (ElectionState(epoch=4, leader_id=2), Follower),  # type: ignore[arg-type]
        (ElectionState(epoch=4, leader_id=9), Unattached),  # type: ignore[arg-type]
        (ElectionState(epoch=4), Unattached),
    ],
)
def test_rf_11_the_other_roles_resume_where_they_were(election: ElectionState, role: type) -> None:
    node = alone()
    node.crash()
    node.disk.write_file_atomically(STATE_FILE, render(election))
    node.start()
    assert isinstance(node.core.state, role) and node.core.epoch == 4
    assert not ask(node, vote(4, candidate=3)).vote_granted or election == ElectionState(epoch=4)


def test_rf_12_the_logs_epoch_wins_over_an_older_file() -> None:
    cluster = RaftCluster(start=False)
    node = cluster[1]
    with_log(node, 1, 6)
    node.crash()
    node.disk.write_file_atomically(STATE_FILE, render(ElectionState(epoch=5, leader_id=node.id)))
    node.start()
    assert isinstance(node.core.state, Unattached) and node.core.epoch == 6


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"data_version":7}', b'{"data_version":1,"leaderEpoch":-3}'])
def test_rf_12_an_unreadable_file_aborts_the_start(data: bytes) -> None:
    node = alone()
    node.crash()
    node.disk.write_file_atomically(STATE_FILE, data)
    with pytest.raises(Fault, match="quorum-state"):
        node.start()


def test_rf_12_kafkas_older_format_is_read() -> None:
    data = b'{"clusterId":"","leaderId":2,"leaderEpoch":8,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}'
    assert parse(data, "f") == ElectionState(epoch=8, leader_id=2)  # type: ignore[arg-type]


def test_rf_13_two_candidates_of_an_epoch_never_both_win() -> None:
    cluster = RaftCluster()
    for i in (1, 2):
        cluster[i].crash()
        cluster[i].disk.write_file_atomically(STATE_FILE, render(ElectionState(epoch=3, voted=ReplicaKey(cluster[i].id))))
        cluster[i].start()
    cluster.settle()
    leaders = [node for node in cluster.nodes.values() if isinstance(node.core.state, Leader)]
    assert len(leaders) == 1 and leaders[0].core.epoch == 3


def test_rf_14_the_first_record_of_an_epoch_is_the_leader_change() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(2)
    for node in cluster.nodes.values():
        ((header, raw),) = iter_batches(node.core.metalog.log.read(0, 1 << 20, up_to=1))
        assert header.is_control and header.partition_leader_epoch == leader.core.epoch
        said = decode_control(next(iter_records(raw)))
        assert isinstance(said, LeaderChange)
        assert (said.leader_id, said.voters) == (2, (1, 2, 3)) and 2 in said.granting_voters
        assert len(said.granting_voters) >= 2


def test_rf_15_no_high_watermark_before_something_of_the_own_epoch_is_on_a_majority() -> None:
    cluster = RaftCluster()
    first = cluster.elect(1)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    first.append("old")
    first.advance(30)
    first.crash()
    cluster.heal()
    first.start()
    for node in (cluster[2], cluster[3]):
        node.advance(50)
    second = cluster.elect(1)
    cluster.network.clear()
    for other in (2, 3):
        cluster[other].crash()
    third_epoch = second.core.epoch
    second.crash()
    for node in cluster.nodes.values():
        node.start()
    # Node 1 leads again, and node 2 has everything but the record of the new epoch: "old" is on a majority, but not committed.
    node = cluster.elect_without_replication(1)
    start = node.core.epoch_start_offset
    assert node.core.epoch > third_epoch and start is not None and start >= 2
    response = ask(node, fetch(node.core.epoch, start, node.core.metalog.log.epoch_at(start - 1) or 0))
    assert response.high_watermark is None and node.core.high_watermark is None
    assert node.core.describe(0).high_watermark is None
    response = ask(node, fetch(node.core.epoch, start + 1, node.core.epoch))
    assert response.high_watermark == start + 1


def test_rf_16_the_leader_advertises_itself_until_a_voter_fetches() -> None:
    cluster = RaftCluster()
    cluster[3].crash()
    leader = cluster.elect(1)
    cluster[3].start()
    cluster.sent.clear()
    cluster.cuts |= {(3, 1), (3, 2)}  # what it says is lost: it cannot find the leader itself
    cluster.run(1_100)
    begun = [m.target for m in cluster.sent if m.method.name == "BeginQuorumEpoch" and m.kind == "req"]
    assert begun == [3], "voter 2 fetches and need not be told again"
    state = cluster[3].core.state
    assert isinstance(state, Follower) and state.leader_id == leader.id
    assert leader.core.epoch == cluster[3].core.epoch


def test_rf_17_a_voter_stands_for_election_and_an_observer_looks_elsewhere() -> None:
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    cluster.run(500)
    leader.crash()
    cluster.network.clear()
    for node in cluster.nodes.values():
        if node.alive:
            node.advance(1_450)
            assert isinstance(node.core.state, Follower)
            node.advance(600)
    assert all(isinstance(n.core.state, Prospective) for n in cluster.nodes.values() if n.alive and n.id != 4)
    observer = cluster[4].core.state
    assert isinstance(observer, Follower) and observer.fetch_timed_out
    assert any(m.method.name == "Fetch" and m.target != leader.id for m in cluster.in_flight(4))
    new = cluster.leader()
    cluster.run(1_000)
    assert cluster[4].core.leader == new.core.leader


@pytest.mark.parametrize("remembers", [True, False])
def test_rf_17_a_restarted_voter_finds_the_leader_without_an_election(remembers: bool) -> None:
    cluster = RaftCluster(voters=(1, 2, 3, 4, 5))
    old = cluster.leader()
    cluster.run(500)
    away = next(node for node in cluster.nodes.values() if node is not old)
    away.crash()
    old.crash()  # remembered as the leader, it cannot be asked
    new = cluster.leader()
    cluster.run(500)
    if not remembers:
        away.disk.write_file_atomically(STATE_FILE, render(ElectionState(epoch=new.core.epoch - 1)))
    cluster.sent.clear()
    away.start()
    assert isinstance(away.core.state, Follower if remembers else Unattached)
    assert cluster.run(100, until=lambda: away.core.leader == new.core.leader)
    assert not [m for m in cluster.sent if m.method.name in ("Vote", "BeginQuorumEpoch")]


def test_rf_18_a_leader_without_a_majority_of_fetchers_resigns() -> None:
    cluster = RaftCluster(observers=(4,))
    leader = cluster.leader()
    cluster.run(200)
    for other in cluster.voter_ids:
        if other != leader.id:
            cluster.cut(leader.id, other)
    cluster.run(2_450)
    assert isinstance(leader.core.state, Leader)
    cluster.run(650)
    assert isinstance(leader.core.state, Resigned)
    with pytest.raises(ApiError):
        leader.core.describe(0)
    reasons = [event.reason for event in cluster.events_of(trace.LeaderResigned, leader.id)]
    assert reasons == ["no fetches from a majority of the voters"]


def test_rf_18_one_of_two_followers_is_majority_enough() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    cluster[3].crash()
    cluster.run(10_000)
    assert isinstance(leader.core.state, Leader) and leader.core.epoch == cluster[2].core.epoch


def test_rf_19_a_graceful_stop_names_successors_and_hands_over_at_once() -> None:
    cluster = RaftCluster()
    leader = cluster.elect(1)
    cluster[3].crash()
    leader.append("a")
    cluster.run(100)
    cluster[3].start()
    cluster.cut(1, 3)
    leader.shut_down()
    request = next(m.body for m in cluster.in_flight(1) if m.method.name == "EndQuorumEpoch")
    assert request.preferred_successors == (2, 3)
    assert not leader.core.shutdown_complete
    cluster.heal()
    began = leader.now_ms
    assert cluster.run(1_000, until=lambda: any(n.core.high_watermark for n in cluster.leaders))
    assert cluster.leaders[0].id == 2 and leader.now_ms - began < 500
    cluster.run(300)
    assert leader.core.shutdown_complete


@pytest.mark.parametrize(
    ("successors", "delay"), [((1, 2), 0), ((2, 1), 500), ((2, 3, 1), 500), ((2, 3, 4, 1), 500), ((2,), 1_000), ((), 1_000)]
)
def test_rf_19_delays_of_the_successors(successors: tuple[int, ...], delay: int) -> None:
    node = alone()
    ask(node, begin(2, leader=3))
    began = node.now_ms
    ask(node, end(2, leader=3, successors=successors))
    while isinstance(node.core.state, Follower):
        node.advance(10)
    assert delay <= node.now_ms - began <= delay + 10


def test_rf_20_an_observer_grants_votes_when_asked() -> None:
    cluster = RaftCluster(observers=(4,))
    assert ask(cluster[4], vote(5, to=4)).vote_granted


def test_rf_21_an_isolated_voter_does_not_raise_the_epoch() -> None:
    cluster = RaftCluster(seed=5)
    leader = cluster.leader()
    cluster.run(500)
    epoch = leader.core.epoch
    lonely = next(n for n in cluster.nodes.values() if n is not leader)
    cluster.isolate(lonely.id)
    cluster.run(60_000, step_ms=50)
    assert lonely.core.epoch == epoch
    cluster.heal()
    cluster.run(5_000)
    assert cluster.leaders == [leader] and leader.core.epoch == epoch
    assert lonely.core.leader == leader.core.leader


def test_rf_21_granting_a_pre_vote_changes_and_stores_nothing() -> None:
    node = alone()
    ask(node, vote(4))
    before = (node.core.state, node.disk.read_file(STATE_FILE))
    assert ask(node, vote(4, candidate=3, pre_vote=True)).vote_granted
    assert (node.core.state, node.disk.read_file(STATE_FILE)) == before


def test_rf_21_a_follower_grants_a_pre_vote_only_until_its_leader_has_answered_a_fetch() -> None:
    node = alone()
    ask(node, begin(3, leader=3))
    assert ask(node, vote(3, pre_vote=True)).vote_granted
    serve_batch(node, 3)
    assert not ask(node, vote(3, last=(3, 9), pre_vote=True)).vote_granted
    cluster = RaftCluster()
    leader = cluster.elect(1)
    assert not ask(leader, vote(leader.core.epoch, last=(1, 99), pre_vote=True)).vote_granted


def test_rf_21_a_short_log_gets_no_pre_vote() -> None:
    cluster = RaftCluster(start=False)
    with_log(cluster[1], 1, 2)
    ask(cluster[1], vote(5, last=(0, 0)))
    assert not ask(cluster[1], vote(5, last=(2, 1), pre_vote=True)).vote_granted
    assert ask(cluster[1], vote(5, last=(2, 2), pre_vote=True)).vote_granted


def test_rf_22_a_failed_pre_vote_falls_back_to_the_leader_or_to_nobody() -> None:
    node = alone()
    node.advance(3_000)
    assert isinstance(node.core.state, Prospective | Unattached) and node.core.epoch == 0
    roles = set()
    for _ in range(100):
        node.advance(100)
        roles.add(node.core.state.name)
    assert roles == {"prospective", "unattached"}
    ask(node, begin(3, leader=3))
    roles.clear()
    for _ in range(100):
        node.advance(100)
        roles.add(node.core.state.name)
    assert roles == {"prospective", "follower"} and node.core.epoch == 3


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (begin(3, leader=2), ErrorCode.INVALID_REQUEST),  # the epoch has another leader
        (begin(3, leader=1), ErrorCode.INVALID_REQUEST),  # this node would know
        (begin(4, leader=1), ErrorCode.INVALID_REQUEST),
        (begin(4, leader=9), ErrorCode.INCONSISTENT_VOTER_SET),
        (begin(2**31 - 1, leader=3), ErrorCode.INVALID_REQUEST),
        (end(3, leader=2), ErrorCode.INVALID_REQUEST),
        (end(3, leader=9), ErrorCode.INCONSISTENT_VOTER_SET),
        (end(4, leader=1), ErrorCode.INVALID_REQUEST),
        (end(2**31 - 1, leader=3), ErrorCode.INVALID_REQUEST),
    ],
)
def test_rf_23_what_contradicts_what_is_known_is_refused_loudly_and_has_no_effect(request_: object, error: ErrorCode) -> None:
    node = alone()
    ask(node, begin(3, leader=3))
    state, before = node.core.state, stored(node)
    assert ask(node, request_).error is error
    refused = [event for _, event in node.cluster.events if isinstance(event, trace.PeerRefused)]
    assert (node.core.state is state, stored(node), len(refused)) == (True, before, 1)


def test_epochs_beyond_the_trusted_ones_are_taken_a_step_at_a_time() -> None:
    """RF-61. So an old quorum goes on, a new node joins it, and no single message uses the epochs up."""
    node = alone()
    epoch = 2**30 + 2**16
    for _ in range(3):
        assert ask(node, vote(epoch, last=(0, 0))).error is ErrorCode.NONE
        assert ask(node, vote(epoch + 2**16 + 1)).error is ErrorCode.INVALID_REQUEST
        assert node.core.epoch == epoch
        epoch += 2**16


def test_a_voter_that_was_left_behind_the_trusted_epochs_asks_and_is_told() -> None:
    """RF-61. Requests would be believed no more; the simulation found it. Answers come from where a voter is configured."""
    cluster = RaftCluster(start=False)
    for node_id in (1, 2):
        node = cluster[node_id]
        node.disk.makedirs(DIRECTORY)
        state = ElectionState(epoch=2**30 + 2**16 + 50)
        node.disk.write_file_atomically(f"{DIRECTORY}/quorum-state", render(state))
        node.start()
    leader = cluster.leader()
    cluster[3].start()
    assert ask(cluster[3], vote(leader.core.epoch, candidate=2, to=3), source=2).error is ErrorCode.INVALID_REQUEST
    assert cluster.run(10_000, until=lambda: cluster[3].core.leader == leader.core.leader)


@pytest.mark.parametrize(
    "text",
    [
        b'{"leaderId":-1,"leaderEpoch":2147483647,"votedId":2,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":-1,"leaderEpoch":2147483647,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":-1,"leaderEpoch":4611686018427387904,"votedId":-1,"data_version":0}',
    ],
)
def test_an_epoch_on_disk_that_leaves_no_room_is_refused_with_a_remedy(text: bytes) -> None:
    cluster = RaftCluster(start=False)
    node = cluster[1]
    node.disk.makedirs(DIRECTORY)
    node.disk.write_file_atomically(f"{DIRECTORY}/quorum-state", text)
    with pytest.raises(Fault, match=r"quorum-state holds epoch \d+: .* write the same smaller leaderEpoch"):
        node.start()


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"leaderEpoch":1e999,"leaderId":1,"votedId":1,"data_version":0}', b"\xff", b"7"]
)
def test_rf_12_any_other_quorum_state_is_refused_too(text: bytes) -> None:
    with pytest.raises(Fault, match="quorum-state cannot be parsed"):
        parse(text, "quorum-state")


def test_rf_12_node_ids_on_disk_are_node_ids() -> None:
    text = b'{"leaderId":4611686018427387904,"leaderEpoch":1,"votedId":-1,"data_version":0}'
    with pytest.raises(Fault, match="node ids end at 2147483647"):
        parse(text, "quorum-state")


def test_rf_24_late_and_unknown_responses_change_nothing() -> None:
    cluster = RaftCluster()
    node = cluster[1]
    for _ in range(40):
        node.advance(50)
        if node.core.state.name == "prospective":
            break
    late = [message for message in cluster.in_flight(1) if message.method.name != "Fetch"]
    assert [m.method.name for m in late] == ["Vote", "Vote"]
    for message in late:
        cluster.deliver(message)
    answers = cluster.in_flight(None, 1)
    node.advance(2_500)
    state = node.core.state
    for message in answers:
        cluster.deliver(message)
    assert node.core.state is state or not isinstance(node.core.state, Candidate | Leader)
    assert node.core.epoch == 0
    response = answers[0].body
    node.step(ResponseReceived(correlation_id=123_456, response=response))
    assert node.core.epoch == 0


def test_a_leader_is_followed_where_its_voter_is_configured_whatever_is_told() -> None:
    node = alone()
    ask(node, begin(3, leader=3, endpoint=Endpoint("elsewhere", 9009)))
    state = node.core.state
    assert isinstance(state, Follower) and state.leader_endpoint == node.core.voters.endpoint(NodeId(3))


def test_rf_06_an_observer_of_another_cluster_says_so_instead_of_waiting() -> None:
    cluster = RaftCluster(observers=(4,), start=False)
    observer = cluster[4]
    observer.config = dataclasses.replace(observer.config, cluster_id="another")
    for node_id in (1, 2, 3, 4):
        cluster[node_id].start()
    with pytest.raises(Fault, match="belongs to another cluster than this node, whose directories were formatted for another"):
        cluster.run(5_000)
