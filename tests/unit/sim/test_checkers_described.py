"""The checkers of descriptions fail when they must, and hold where what is described changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.handlers.log_dirs import LogDirDescription
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.methods import DESCRIBE_QUORUM
from kraftlite.model.messages.raft import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.raft.states import Leader, ReplicaProgress
from kraftlite.raft.voters import ReplicaKey
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_described import DESCRIBED
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.groups_described import GroupsDescribed
from kraftlite.sim.checkers.log_dirs_described import LogDirsDescribed
from kraftlite.sim.checkers.quorum_described import QuorumDescribed
from kraftlite.sim.services.admin import DESCRIBE, DescribeAnswer, DescribeAsk
from kraftlite.simhost.host import SimHost
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster, watched

Make = Callable[..., WatchedCluster]
CASES: Cases[WatchedCluster] = Cases()
BROKER = 4
ORDERS = TopicPartition("orders", 0)
CLIENTS = Endpoint("n4", 9092)


@pytest.fixture
def make() -> Iterator[Make]:
    with watched() as start:
        yield start


def describe_quorum(cluster: WatchedCluster) -> DescribeQuorumResponse:
    answer: DescribeQuorumResponse = cluster.call(cluster.leader_id(), DESCRIBE_QUORUM, DescribeQuorumRequest())
    return answer


async def boot(node: SimHost) -> None:
    node.boot()


def office(cluster: WatchedCluster) -> Leader:
    """The state of the leader of the quorum, a while after its election."""
    cluster.go(2_000)
    state = cluster.core(cluster.leader_id()).state
    assert isinstance(state, Leader)
    return state


def answers_with(cluster: WatchedCluster, **changes: Any) -> None:
    """The leader answers that, whatever is so."""
    leadership = cluster.core(cluster.leader_id())._leadership
    answer = leadership.describe()
    leadership.describe = lambda: replace(answer, **changes)  # type: ignore[method-assign]
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, r"with \d at 7777; it has fetched from \[\d+")
def a_voter_that_is_ahead(cluster: WatchedCluster) -> None:
    office(cluster).voters[NodeId(cluster.follower_ids()[0])].end_offset = 7777
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, r"with \d at None; it has fetched from \[\d+")
def a_voter_of_which_nothing_is_known(cluster: WatchedCluster) -> None:
    office(cluster).voters[NodeId(cluster.follower_ids()[0])].end_offset = None
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, r"with \d caught up at None ms; a fetch from the end")
def a_voter_that_never_caught_up(cluster: WatchedCluster) -> None:
    office(cluster).voters[NodeId(cluster.follower_ids()[0])].last_caught_up_ms = None
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, r"with \d caught up at \d+ ms, and its last fetch at 3 ms")
def a_voter_that_caught_up_without_a_fetch(cluster: WatchedCluster) -> None:
    office(cluster).voters[NodeId(cluster.follower_ids()[0])].last_fetch_ms = 3
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, r"with a last fetch of \d at \d+ ms; that from \d+ came at \d+ ms")
def a_voter_that_fetched_of_old(cluster: WatchedCluster) -> None:
    progress = office(cluster).voters[NodeId(cluster.follower_ids()[0])]
    assert progress.last_fetch_ms is not None
    progress.last_fetch_ms = progress.last_caught_up_ms = progress.last_fetch_ms - 60_000
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, "with the observer 9, which has not fetched")
def an_observer_that_nobody_knows(cluster: WatchedCluster) -> None:
    office(cluster).observers[ReplicaKey(NodeId(9), UUID(int=9))] = ReplicaProgress()
    describe_quorum(cluster)


@CASES.breaks(QuorumDescribed, "without 4, which fetches")
def an_observer_that_is_left_out(cluster: WatchedCluster) -> None:
    office(cluster)
    answer = describe_quorum(cluster)
    answers_with(cluster, observers=tuple(it for it in answer.observers if it.replica_id != BROKER))


@CASES.breaks(QuorumDescribed, r"with the voters \(1, 2\)")
def a_voter_that_is_left_out(cluster: WatchedCluster) -> None:
    office(cluster)
    answers_with(cluster, voters=describe_quorum(cluster).voters[:2])


@CASES.breaks(QuorumDescribed, "with the end 1 of its own log")
def a_leader_that_is_behind_itself(cluster: WatchedCluster) -> None:
    office(cluster)
    leader_id = cluster.leader_id()
    lines = [replace(it, log_end_offset=1) if it.replica_id == leader_id else it for it in describe_quorum(cluster).voters]
    answers_with(cluster, voters=tuple(lines))


@CASES.breaks(QuorumDescribed, "with the high watermark 1; it was")
def a_leader_that_commits_nothing(cluster: WatchedCluster) -> None:
    office(cluster)
    answers_with(cluster, high_watermark=1)


@CASES.breaks(QuorumDescribed, "as led by 9 in")
def a_leader_that_names_another(cluster: WatchedCluster) -> None:
    office(cluster)
    answers_with(cluster, leader_id=NodeId(9))


# --- log directories


def describe_log_dirs(cluster: WatchedCluster) -> list[LogDirDescription]:
    answer: DescribeAnswer = cluster.do(cluster.client.call(CLIENTS, DESCRIBE, DescribeAsk("log dirs"), 5_000))
    found: list[LogDirDescription] = answer.found
    return found


def with_records(cluster: WatchedCluster) -> LogDirs:
    """A replica with a few bytes at the broker; return its directories."""
    cluster.create_topic()
    broker = cluster.node(BROKER).node
    assert broker is not None and broker.broker is not None
    dirs = broker.broker.log_dirs
    cluster.until(lambda: dirs.get(ORDERS) is not None, "a log")
    return dirs


@CASES.breaks(LogDirsDescribed, r"with 7 bytes of orders-0 in /data, which has 0 there")
def a_replica_of_another_size(cluster: WatchedCluster) -> None:
    log = with_records(cluster).get(ORDERS)
    assert log is not None
    log._ctx.segments.active.size = 7
    describe_log_dirs(cluster)


@CASES.breaks(LogDirsDescribed, "without orders-0, which is served from /data")
def a_replica_that_is_left_out(cluster: WatchedCluster) -> None:
    with_records(cluster).logs = lambda: ()  # type: ignore[method-assign]
    describe_log_dirs(cluster)


@CASES.breaks(LogDirsDescribed, r"with orders-0 twice in /data")
def a_replica_that_is_told_twice(cluster: WatchedCluster) -> None:
    dirs = with_records(cluster)
    log = dirs.get(ORDERS)
    assert log is not None
    dirs.logs = lambda: (log, log)  # type: ignore[method-assign]
    describe_log_dirs(cluster)


@CASES.breaks(LogDirsDescribed, r"as \[\]; they are \['/data'\]")
def a_directory_that_is_left_out(cluster: WatchedCluster) -> None:
    with_records(cluster).online_directories = lambda: ()  # type: ignore[method-assign]
    describe_log_dirs(cluster)


@CASES.breaks(LogDirsDescribed, "with orders-0 3 offsets behind its own high watermark")
def a_replica_that_lacks_what_is_committed(cluster: WatchedCluster) -> None:
    log = with_records(cluster).get(ORDERS)
    assert log is not None
    log._ctx.hw = 3
    describe_log_dirs(cluster)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(make: Make, checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    assert_found(make(checker), checker, violate, words)


def test_every_checker_can_fail() -> None:
    assert {case[0] for case in CASES} == {*DESCRIBED} - {MetadataWatch, GroupsDescribed}, (
        "groups: see test_checkers_groups_described"
    )


def test_what_is_so_may_be_told(make: Make) -> None:
    """While voters and observers come and go, and the leader changes."""
    cluster = make(*DESCRIBED)
    for node_id in (None, BROKER, cluster.follower_ids()[0], cluster.leader_id()):
        if node_id is not None:
            cluster.kill(node_id)
        cluster.until(cluster.leader_id, "a leader")
        for pause_ms in (0, 50, 2_000):
            cluster.go(pause_ms)
            cluster.create_topic(f"t-{node_id}-{pause_ms}", replication=1)
            describe_quorum(cluster)
            if node_id != BROKER:
                describe_log_dirs(cluster)
        if node_id is not None:
            cluster.do(boot(cluster.node(node_id)))
            cluster.go(5_000)
    (quorum,) = (it for it in cluster.checkers if isinstance(it, QuorumDescribed))
    (directories,) = (it for it in cluster.checkers if isinstance(it, LogDirsDescribed))
    assert (quorum.judged, directories.judged["directories"]) == (12, 9) and directories.judged["replicas"]
