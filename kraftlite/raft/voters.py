"""The set of voters: configured, or said by a KRaftVoters record of the metadata log.

Source: KIP-595 (static quorum), KIP-853 (replica keys, voters in the log); RF-18, RF-26, RF-58, DQ-01, DQ-08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kraftlite.log.control import KRaftVoters, VoterNode
from kraftlite.model.ids import ZERO_UUID, Endpoint, NodeId, VoterEndpoint
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
    """One voter; `directory_id` None (static quorum) accepts the node with any directory.

    `endpoint` is where the quorum reaches it. `listeners` are all its controller listeners and `versions` the lowest and highest
    kraft.version of its software, as its entry in the log says; a configured voter has neither.
    """

    id: NodeId
    endpoint: Endpoint
    directory_id: UUID | None = None
    listeners: tuple[VoterEndpoint, ...] = ()
    versions: tuple[int, int] = (0, 0)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def supports(self, kraft_version: int) -> bool:
        low, high = self.versions
        return low <= kraft_version <= high


def listener_of(listeners: Sequence[VoterEndpoint], name: str | None) -> VoterEndpoint:
    """The listener of this name, in any case of its letters; the first one where none has it. There must be one."""
    wanted = (name or "").upper()
    return next((listener for listener in listeners if listener.name.upper() == wanted), listeners[0])


def listening_voter(
    node_id: NodeId,
    directory_id: UUID | None,
    listeners: Sequence[VoterEndpoint],
    versions: tuple[int, int],
    listener_name: str | None,
) -> Voter:
    """The voter that is reached at its listener `listener_name`, or at its first one. Raises ValueError when it has none."""
    if not listeners:
        raise ValueError(f"voter {node_id} has no listener")
    chosen = listener_of(listeners, listener_name)
    return Voter(
        id=node_id,
        endpoint=Endpoint(chosen.host, chosen.port),
        directory_id=None if directory_id == ZERO_UUID else directory_id,
        listeners=tuple(listeners),
        versions=versions,
    )


class VoterSet:
    """An immutable set of voters in id order.

    Majorities are of this set alone: observers never count (RF-26). With directory ids, a node counts only with its
    own directory (RF-18).
    """

    __slots__ = ("_by_id", "_others", "ids", "voters")

    def __init__(self, voters: tuple[Voter, ...]) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.id))
        self.ids = tuple(voter.id for voter in self.voters)
        self._by_id = {voter.id: voter for voter in self.voters}
        self._others: dict[NodeId, tuple[NodeId, ...]] = {}
        if len(self._by_id) != len(self.voters):
            raise ValueError(f"voters {self.ids} name a node id more than once; each voter needs its own id")

    def __len__(self) -> int:
        return len(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet{self.ids}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

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
        found = self._others.get(node_id)
        if found is None:  # asked for in every step of a leader, and of a node that looks for one
            found = self._others[node_id] = tuple(voter_id for voter_id in self.ids if voter_id != node_id)
        return found

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self.voters)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The same set with this voter, in the place of an entry of the same id if there is one."""
        return VoterSet((*(other for other in self.voters if other.id != voter.id), voter))

    def without(self, node_id: NodeId) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.id != node_id))

    def is_one_step_from(self, other: VoterSet) -> bool:
        """Return whether at most one replica was added and at most one removed, so that majorities of both overlap (DQ-35)."""
        ours, theirs = set(self.keys), set(other.keys)
        return len(ours - theirs) <= 1 and len(theirs - ours) <= 1

    def majority_offset(self, offsets: Mapping[NodeId, int]) -> int:
        """The largest offset that a majority of the voters has reached; a voter without an entry counts as -1."""
        descending = sorted((offsets.get(voter_id, -1) for voter_id in self.ids), reverse=True)
        return descending[len(descending) // 2]

    def to_record(self) -> KRaftVoters:
        nodes = []
        for voter in self.voters:
            assert voter.listeners, f"nothing but the configuration says where voter {voter.id} listens"
            low, high = voter.versions
            nodes.append(
                VoterNode(
                    voter_id=voter.id,
                    directory_id=ZERO_UUID if voter.directory_id is None else voter.directory_id,
                    endpoints=voter.listeners,
                    min_kraft_version=low,
                    max_kraft_version=high,
                )
            )
        return KRaftVoters(voters=tuple(nodes))


def voters_of_record(record: KRaftVoters, listener_name: str | None) -> VoterSet:
    """The set that a KRaftVoters record says. Raises ValueError when an id is there twice, or a voter has no listener."""
    return VoterSet(
        tuple(
            listening_voter(
                node.voter_id,
                node.directory_id,
                node.endpoints,
                (node.min_kraft_version, node.max_kraft_version),
                listener_name,
            )
            for node in record.voters
        )
    )


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
