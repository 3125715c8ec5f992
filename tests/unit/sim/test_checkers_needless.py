"""The checkers of what is done without need, or not when it is needed, fail when they must."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.lifecycle_core import SendHeartbeat
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import RAFT_FETCH
from kraftlite.model.messages.raft import RaftFetchRequest
from kraftlite.raft.events import Tick
from kraftlite.raft.states import Follower, Leader
from kraftlite.runtime.trace.raft import SnapshotFetchStarted
from kraftlite.sim.checkers.answers_wait import AnswersWait
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.caught_up import CaughtUpFirst
from kraftlite.sim.checkers.check_quorum import CheckQuorum
from kraftlite.sim.checkers.i37_fencing_liveness import FencingLiveness
from kraftlite.sim.checkers.pre_votes import PreVotesDeserved
from kraftlite.sim.checkers.quorum_epochs import QuorumEpochs
from kraftlite.sim.checkers.snapshots_due import SnapshotsDue
from kraftlite.sim.checkers.snapshots_fetched import SnapshotsFetched
from kraftlite.sim.checkers.told_voters import VotersTold
from kraftlite.sim.checkers.wishes_told import WishesTold
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import SMALL, WatchedCluster, watched

Make = Callable[..., WatchedCluster]
CASES: Cases[WatchedCluster] = Cases()


@pytest.fixture
def make() -> Iterator[Make]:
    with watched() as start:
        yield start


@CASES.breaks(VotersTold, "does not fetch from it, and has not been told")
def a_leader_that_tells_nobody_who_is_silent(cluster: WatchedCluster) -> None:
    state, voter_id = cluster.core(cluster.leader_id()).state, cluster.follower_ids()[0]
    assert isinstance(state, Leader)
    state.begin_epoch_deadline_ms = 10**9
    cluster.kill(voter_id)
    cluster.go(10_000)


@CASES.breaks(SnapshotsFetched, "wants the snapshot that ends at 7 from node 1 and has not asked for it")
def a_snapshot_that_nobody_asks_for(cluster: WatchedCluster) -> None:
    tracer = cluster.core(cluster.follower_ids()[0])._ctx.tracer
    for leader_id in (NodeId(1), NodeId(2)):
        tracer.emit(SnapshotFetchStarted(leader_id=leader_id, end_offset=7, last_epoch=1, position=0))
    cluster.go(10)


@CASES.breaks(CheckQuorum, r"resigns in epoch \d+ for no fetches .* and has answered")
def a_leader_that_is_heard_and_resigns(cluster: WatchedCluster) -> None:
    cluster.go(3_000)
    state = cluster.core(cluster.leader_id()).state
    assert isinstance(state, Leader)
    state.check_quorum_deadline_ms = 0
    cluster.go(1_000)


@CASES.breaks(PreVotesDeserved, r"tells \d that it has its vote, and follows")
def a_follower_that_helps_another_one(cluster: WatchedCluster) -> None:
    cluster.go(1_000)
    one, other = cluster.follower_ids()
    node, state = cluster.node(one).node, cluster.core(other).state
    assert node is not None and isinstance(state, Follower)
    state.leader_is_live = False
    driver = node.raft

    async def stand() -> None:
        driver.core._elections.become_prospective("test")
        driver._step(Tick())

    cluster.do(stand())
    cluster.go(100)


@CASES.breaks(SnapshotsDue, r"node 4 writes a snapshot that ends at \d+, \d+ bytes behind the last one")
def a_node_that_writes_too_many(cluster: WatchedCluster) -> None:
    node = cluster.node(4).node
    assert node is not None
    node.snapshotter._max_bytes = 1
    cluster.create_topic()
    cluster.go(3_000)


@CASES.breaks(QuorumEpochs, r"in epoch \d+, answers a Fetch of node \d, which is in epoch")
def a_leader_that_answers_a_later_epoch(cluster: WatchedCluster) -> None:
    leader, asks = cluster.leader_id(), cluster.follower_ids()[0]
    core, epoch = cluster.core(leader), cluster.core(leader).epoch
    core._serving._leader_error = lambda *_: ErrorCode.NONE  # type: ignore[method-assign]
    request = RaftFetchRequest(
        cluster_id=core.config.cluster_id,
        replica_id=NodeId(asks),
        replica_directory_id=None,
        current_leader_epoch=epoch + 1,
        fetch_offset=core.leo,
        last_fetched_epoch=epoch,
        max_wait_ms=0,
        max_bytes=1_000,
    )
    cluster.call(leader, RAFT_FETCH, request)


@CASES.breaks(AnswersWait, r"answers a BrokerHeartbeat of node \d, and had written up to")
def a_controller_that_answers_at_once(cluster: WatchedCluster) -> None:
    core = cluster.controller()
    park = core._park
    core._park = lambda on_done, response, last: on_done(response) if last is None else park(on_done, response, last)  # type: ignore[method-assign]
    cluster.cut_off(*cluster.follower_ids())
    cluster.go(1_500)


@CASES.breaks(WishesTold, r"broker 4 has its answer to .*, which did not say that it has cordoned others")
def a_broker_that_lets_its_wish_wait(cluster: WatchedCluster) -> None:
    node = cluster.node(4).node
    assert node is not None and node.broker is not None
    lifecycle = node.broker.lifecycle
    send = lifecycle._heartbeat

    async def raise_a_wish(action: SendHeartbeat) -> None:
        lifecycle.cordoned((UUID(int=9),))
        await send(action)

    lifecycle._heartbeat = raise_a_wish  # type: ignore[method-assign]
    lifecycle._core._wish = lambda now_ms: None  # type: ignore[method-assign]
    cluster.go(3_000)


@CASES.breaks(CaughtUpFirst, r"node 4 counts as caught up with metadata up to \d+, and knows")
def a_node_that_begins_too_early(cluster: WatchedCluster) -> None:
    node = cluster.node(4).node
    assert node is not None
    node.loader._catching_up = True
    node.loader._raft.high_watermark = lambda: 1  # type: ignore[method-assign]
    node.loader.image = replace(node.loader.image, provenance=replace(node.loader.image.provenance, last_contained_offset=0))
    node.loader._still_catching_up()
    cluster.go(1)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(make: Make, checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    assert_found(make(checker), checker, violate, words)


def test_a_suspended_controller_that_ends_all_sessions_is_found(make: Make) -> None:
    def suspended(cluster: WatchedCluster) -> None:
        leader, tracker = cluster.node(cluster.leader_id()), cluster.controller().state.cluster.tracker
        assert tracker is not None
        tracker.excuse = lambda deaf_ms, now_ms: None  # type: ignore[method-assign]
        cluster.go(2_000)
        leader.pause()
        cluster.go(cluster.controller().config.session_timeout_ms + 1_000)
        leader.resume()
        cluster.go(1_000)

    cluster = make(FencingLiveness, shape=replace(SMALL, controllers=1))
    assert_found(cluster, FencingLiveness, suspended, "it stood still for .* of them, and a session lasts")


def grow(cluster: WatchedCluster, prefix: str) -> None:
    """Some kilobytes of records."""
    for number in range(12):
        cluster.create_topic(f"{prefix}-{number}")
    cluster.go(1_000)


def test_a_snapshot_that_is_never_written_is_missed(make: Make) -> None:
    often = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    cluster = make(SnapshotsDue, shape=replace(SMALL, config={**SMALL.config, **often}))
    checker = cluster.checkers[-1]
    grow(cluster, "a")
    cluster.until(lambda: checker.unsettled() is None, "all snapshots are written")
    node = cluster.node(4).node
    assert node is not None
    node.snapshotter._is_due = lambda: False  # type: ignore[method-assign]
    grow(cluster, "b")
    assert "node 4 has " in str(checker.unsettled())
