"""The set of voters. One small type, so that a voter set that lives in the log can take its place.

Source: KIP-595 (static quorum), KIP-853 (replica keys); RF-18, RF-26, RF-58.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import MAX_INT32


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node, and the directory it keeps the log in when that is known."""

    id: NodeId
    directory_id: UUID | None = None

    def matches(self, other: ReplicaKey) -> bool:
        """Same node, and the same directory where both name one (RF-03)."""
        return self.id == other.id and (
            self.directory_id is None or other.directory_id is None or self.directory_id == other.directory_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """One voter; `directory_id` None (static quorum) accepts the node with any directory."""

    id: NodeId
    endpoint: Endpoint
    directory_id: UUID | None = None


class VoterSet:
    """An immutable set of voters in id order.

    Majorities are of this set alone: observers never count (RF-26). With directory ids, a node counts only with its
    own directory (RF-18).
    """

    __slots__ = ("_by_id", "ids", "voters")

    def __init__(self, voters: tuple[Voter, ...]) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.id))
        self.ids = tuple(voter.id for voter in self.voters)
        self._by_id = {voter.id: voter for voter in self.voters}
        if len(self._by_id) != len(self.voters):
            raise ValueError(f"voters {self.ids} name a node id more than once; each voter needs its own id")

    def __len__(self) -> int:
        return len(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet{self.ids}"

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def get(self, node_id: NodeId) -> Voter | None:
        return self._by_id.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        """Return whether `key` is a voter: by id, and by directory id where the set names one."""
        voter = self._by_id.get(key.id)
        return voter is not None and (voter.directory_id is None or voter.directory_id == key.directory_id)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.contains(key)

    def endpoint(self, node_id: NodeId) -> Endpoint | None:
        voter = self._by_id.get(node_id)
        return voter.endpoint if voter is not None else None

    def others(self, node_id: NodeId) -> tuple[NodeId, ...]:
        return tuple(voter_id for voter_id in self.ids if voter_id != node_id)

    def majority_offset(self, offsets: Mapping[NodeId, int]) -> int:
        """The largest offset that a majority of the voters has reached; a voter without an entry counts as -1."""
        descending = sorted((offsets.get(voter_id, -1) for voter_id in self.ids), reverse=True)
        return descending[len(descending) // 2]


_VOTER = re.compile(r"^(?P<id>\d+)@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^@:\s\[\]]+):(?P<port>\d+)$")


def parse_voters(text: str) -> tuple[Voter, ...]:
    """`controller.quorum.voters`: `id@host:port` separated by commas. Raises ValueError that names what is wrong (RF-58)."""
    voters: list[Voter] = []
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        match = _VOTER.match(part)
        if match is None:
            raise ValueError(
                f"controller.quorum.voters: {part!r} is malformed; expected id@host:port, for example 1@localhost:9093"
            )
        node_id, port = int(match["id"]), int(match["port"])
        if node_id > MAX_INT32:
            raise ValueError(f"controller.quorum.voters: id {node_id} in {part!r} is out of range; allowed is 0 to {MAX_INT32}")
        if not 0 < port < 65536:
            raise ValueError(f"controller.quorum.voters: port {port} in {part!r} is out of range; allowed is 1 to 65535")
        if any(voter.id == node_id for voter in voters):
            raise ValueError(f"controller.quorum.voters: id {node_id} appears more than once in {text!r}; ids must be unique")
        voters.append(Voter(id=NodeId(node_id), endpoint=Endpoint(match["host"].strip("[]"), port)))
    return tuple(voters)
