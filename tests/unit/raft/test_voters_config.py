from __future__ import annotations

from uuid import UUID

import pytest

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.raft.config import QuorumConfig, parse_voters
from kraftlite.raft.voters import ReplicaKey, Voter, VoterSet

DIR_A, DIR_B = UUID(int=500), UUID(int=501)


def voter(node_id: int, directory: UUID | None = None) -> Voter:
    return Voter(id=NodeId(node_id), endpoint=Endpoint("h", 9000 + node_id), directory_id=directory)


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(count: int, majority: int) -> None:
    assert VoterSet(tuple(voter(i) for i in range(count))).majority == majority


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [({1: 5}, -1), ({1: 5, 2: 3}, 3), ({1: 5, 2: 3, 3: 4}, 4), ({1: 9, 2: 9, 3: 0, 4: 100}, 9)],
)
def test_majority_offset_of_three_voters(offsets: dict[int, int], expected: int) -> None:
    voters = VoterSet((voter(1), voter(2), voter(3)))
    assert voters.majority_offset({NodeId(k): v for k, v in offsets.items()}) == expected


def test_directory_ids_count_only_where_the_set_names_one() -> None:
    voters = VoterSet((voter(1, DIR_A), voter(2)))
    assert voters.contains(ReplicaKey(NodeId(1), DIR_A))
    assert not voters.contains(ReplicaKey(NodeId(1), DIR_B))
    assert not voters.contains(ReplicaKey(NodeId(1), None))
    assert voters.contains(ReplicaKey(NodeId(2), DIR_B))


def test_parse_voters() -> None:
    parsed = parse_voters("2@host-b:9093, 1@[::1]:9094")
    assert [(v.id, v.endpoint) for v in parsed] == [(2, Endpoint("host-b", 9093)), (1, Endpoint("::1", 9094))]


def test_config_refuses_what_no_quorum_runs_with() -> None:
    good = {"node_id": NodeId(1), "cluster_id": "c", "voters": (voter(1),), "metadata_dir": "/m"}
    assert QuorumConfig(**good).is_voter  # type: ignore[arg-type]
    for bad in ({"voters": ()}, {"node_id": NodeId(-1)}, {"election_timeout_ms": 0}, {"append_linger_ms": -1}):
        with pytest.raises(ValueError, match=r"\w+"):
            QuorumConfig(**{**good, **bad})  # type: ignore[arg-type]
