"""Each invariant of a node of the metadata quorum: broken, and seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.raft.core import RaftCore
from kraftlite.raft.quorum_state import ElectionState
from kraftlite.raft.states import Candidate, Follower, Leader, Resigned
from kraftlite.raft.voters import ReplicaKey
from tests.harness.raft_cluster import RaftCluster

Break = Callable[[RaftCore], object]


def led() -> RaftCluster:
    """Node 1 of three leads, something of its epoch is committed, and one record is appended and not yet delivered."""
    cluster = RaftCluster()
    cluster.elect(1)
    cluster[1].append("a")
    cluster.run(200)
    cluster[1].core.check()
    cluster[2].core.check()
    return cluster


def put(name: str, value: object) -> Break:
    return lambda core: setattr(core.state, name, value)


def become(make: Callable[[RaftCore], object]) -> Break:
    """Takes a role behind the back of the rules; the disk agrees."""

    def change(core: RaftCore) -> None:
        state = core._ctx.state = make(core)  # type: ignore[assignment]
        core._ctx.store.written = state.election()

    return change


LEADER: dict[str, tuple[Break, str]] = {
    "led by another": (put("leader_id", NodeId(2)), r"is led by 2, voted for|the disk says"),
    "a minority": (put("granting_voters", (NodeId(1),)), r"was won with \{1\} of VoterSet"),
    "a voter unknown": (lambda core: core.state.voters.pop(NodeId(3)), r"the progress is of \(1, 2\), not of VoterSet"),  # type: ignore[union-attr]
    "a voter observes": (
        lambda core: core.state.observers.update({core._ctx.key: None}),  # type: ignore[union-attr]
        r"a voter among",
    ),
    "fetched from itself": (put("fetched_voters", {NodeId(1)}), r"\{1\} have fetched, the others are \(2, 3\)"),
    "tells itself": (put("begin_epoch_pending", {NodeId(1)}), r"\{1\} are to be told of it"),
    "starts behind the end": (put("epoch_start_offset", 99), r"starts at 99, behind the log's end 2"),
    "HW behind the end": (put("hw", 99), r"HW 99 outside \(0, LEO 2\]"),
    "another HW than the node": (lambda core: setattr(core._ctx, "hw", 1), r"the leader's HW is 2, the node's 1"),
    "disk behind": (
        lambda core: setattr(core._ctx.store, "written", ElectionState(epoch=0)),
        r"the disk says ElectionState\(epoch=0",
    ),
    "log ahead of the epoch": (
        lambda core: core.metalog.log.assign_epoch_start(9, 2),
        r"the log has epoch 9, the node is in 1",
    ),
    "nowhere to prepare": (lambda core: setattr(core._leadership, "_accumulator", None), r"nowhere to prepare"),
    "prepares in another epoch": (
        lambda core: setattr(core._leadership._accumulator, "epoch", 7),
        r"prepared in epoch 7, 1 is led",
    ),
    "prepares inside the log": (
        lambda core: setattr(core._leadership._accumulator, "next_offset", 1),
        r"prepared for offset 1, the log ends at 2",
    ),
    "own batches end elsewhere": (
        lambda core: core._leadership.own_batches.append(dataclasses.replace(_own(core), next_offset=9)),
        r"own batches end at 9, the log at 2",
    ),
    "keeps batches without the office": (
        lambda core: (core._leadership.own_batches.append(_own(core)), _resigned(core)),
        r"resigned in epoch 1 has kept a leader's records",
    ),
}


def _own(core: RaftCore):  # type: ignore[no-untyped-def]
    from kraftlite.raft.client import CommittedBatch
    from kraftlite.raft.leadership import OwnBatch

    batch = CommittedBatch(base_offset=1, last_offset=1, epoch=1, append_timestamp_ms=0, size_bytes=1, records=())
    return OwnBatch(batch=batch, next_offset=2)


def _resigned(core: RaftCore) -> None:
    become(
        lambda core: Resigned(
            epoch=1,
            former_leader_id=core._ctx.node_id,
            voted=core._ctx.key,
            election_deadline_ms=0,
            unacknowledged=set(),
            preferred_successors=(),
        )
    )(core)


@pytest.mark.parametrize("what", LEADER)
def test_a_broken_leader_is_seen(what: str) -> None:
    core = led()[1].core
    change, told = LEADER[what]
    change(core)
    with pytest.raises(AssertionError, match=told):
        core.check()


def _candidate(
    voted: ReplicaKey | None = None, granted: frozenset[int] = frozenset({2}), rejected: frozenset[int] = frozenset()
) -> Break:
    return become(
        lambda core: Candidate(
            epoch=1,
            voted=core._ctx.key if voted is None else voted,
            election_deadline_ms=0,
            retries=1,
            granted={NodeId(it) for it in granted},
            rejected={NodeId(it) for it in rejected},
        )
    )


FOLLOWER: dict[str, tuple[Break, str]] = {
    "votes for another": (_candidate(voted=ReplicaKey(NodeId(3))), r"voted for .*3"),
    "without its own vote": (_candidate(granted=frozenset({3})), r"candidate 2 has the votes of \{3\}, not its own"),
    "both answers": (_candidate(rejected=frozenset({2})), r"\{2\} have granted, \{2\} have rejected"),
    "votes of strangers": (_candidate(granted=frozenset({2, 9})), r"votes of \{9, 2\}|votes of \{2, 9\}"),
    "counts what it asked before": (
        become(lambda core: dataclasses.replace(core._ctx.state)),
        "Raft/Fetch .* was asked in an earlier role",
    ),
    "follows itself": (
        become(
            lambda core: Follower(
                epoch=1,
                leader_id=NodeId(2),
                leader_endpoint=core._ctx.voters.endpoint(NodeId(2)),
                voted=None,
                fetch_deadline_ms=0,  # type: ignore[arg-type]
            )
        ),
        r"node 2 follows itself in epoch 1",
    ),
    "resigned for another": (
        become(
            lambda core: Resigned(
                epoch=1,
                former_leader_id=NodeId(3),
                voted=None,
                election_deadline_ms=0,
                unacknowledged=set(),
                preferred_successors=(),
            )
        ),
        r"node 2 resigned for 3",
    ),
    "stands without being a voter": (
        lambda core: (_candidate()(core), setattr(core._ctx, "key", ReplicaKey(NodeId(9)))),
        r"is candidate, the voters are|candidate .*9.* voted for",
    ),
}


@pytest.mark.parametrize("what", FOLLOWER)
def test_a_broken_voter_is_seen(what: str) -> None:
    core = led()[2].core
    change, told = FOLLOWER[what]
    change(core)
    with pytest.raises(AssertionError, match=told):
        core.check()


def test_a_leader_that_loses_its_office_is_looked_at_by_its_own_step() -> None:
    cluster = led()
    node = cluster[1]
    assert isinstance(node.core.state, Leader)
    node.core._leadership.left_office = lambda: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="resigned in epoch 1 has kept a leader's records"):
        node.resign()


def test_a_leader_that_loses_its_office_keeps_no_change_of_the_voters() -> None:
    cluster = led()
    node = cluster[1]
    node.core._changes._last_offset = node.core.leo - 1
    node.core.check()
    node.core._changes.left_office = lambda: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="resigned in epoch 1 has kept a leader's change"):
        node.resign()


def test_a_change_of_the_voters_is_in_the_log_or_prepared() -> None:
    core = led()[1].core
    core._changes._last_offset = core.leo
    with pytest.raises(AssertionError, match="a change of the voters is at offset 2, the log ends at 2"):
        core.check()
