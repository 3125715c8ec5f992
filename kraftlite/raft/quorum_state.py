"""The file `quorum-state`: the epoch, its leader, and whom this node voted for. The memory that makes votes safe.

Source: KIP-595 "quorum-state", Kafka's QuorumStateData (JSON, data_version 0 and 1); RF-01, RF-11, RF-12.
Departs: always written as data_version 1, so that the directory of a vote is kept with a static quorum too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from kraftlite.log.checkpoints import MalformedCheckpoint, read_bounded
from kraftlite.model.errors import Fault
from kraftlite.model.ids import ZERO_UUID, NodeId, uuid_from_str, uuid_to_str
from kraftlite.model.limits import KIB, MAX_INT32, RAFT_MAX_EPOCH
from kraftlite.raft.voters import ReplicaKey
from kraftlite.runtime.ports import Disk

FILE_NAME = "quorum-state"
_MAX_BYTES: Final = 64 * KIB
"""The bound of the file; a real one has some hundred bytes."""

EPOCHS_USED_UP = (
    f"no election leads to an epoch near {2**31 - 1}, and candidates need room above the present one. With all controllers "
    "stopped, write the same smaller leaderEpoch into the quorum-state of each of them, larger than every epoch in their "
    "metadata logs (kraftlite log dump shows them), with leaderId -1 and votedId -1"
)
"""The remedy for an epoch that leaves no room."""
_UNKNOWN: Final = (
    "so earlier votes of this node are unknown: restore the file; where the node is only a broker, which does not vote, it may "
    "be removed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """The durable part of an election. At most one leader and one vote per epoch."""

    epoch: int
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None


NO_ELECTION = ElectionState(epoch=0)


class QuorumStateStore:
    """Reads and writes `quorum-state` in one directory. After `write` returns the state is durable (RF-01).

    Raises Fault when the file cannot be understood (RF-12), OSError when the disk fails.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{FILE_NAME}"
        self.written: ElectionState | None = None
        """The state on the disk, as far as this object has read or written it."""

    def read(self) -> ElectionState | None:
        """Read the state; None when there is no file yet."""
        if self._disk.stat(self.path) is None:
            return None
        try:
            data = read_bounded(self._disk, self.path, _MAX_BYTES)
        except MalformedCheckpoint as error:
            raise Fault(f"{error}, {_UNKNOWN}") from None
        self.written = parse(data, self.path)
        return self.written

    def write(self, state: ElectionState) -> None:
        """Durably replace the stored state; nothing to do when it is the same."""
        if state == self.written:
            return
        self._disk.write_file_atomically(self.path, render(state))
        self.written = state


def render(state: ElectionState) -> bytes:
    directory_id = state.voted.directory_id if state.voted is not None else None
    fields = {
        "leaderId": -1 if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": -1 if state.voted is None else state.voted.id,
        "votedDirectoryId": uuid_to_str(directory_id if directory_id is not None else ZERO_UUID),
        "data_version": 1,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse(data: bytes, path: str) -> ElectionState:
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise ValueError(f"data_version {version} is not known; allowed are 0 and 1")
        epoch, leader, voted = (int(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId"))
        directory_id = uuid_from_str(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise Fault(f"{path} cannot be parsed ({type(error).__name__}), {_UNKNOWN}") from None
    if epoch < 0 or leader < -1 or voted < -1:
        raise Fault(f"{path} holds epoch {epoch}, leader {leader}, vote {voted}; none of them may be negative")
    if max(leader, voted) > MAX_INT32:
        raise Fault(f"{path} holds leader {leader}, vote {voted}; node ids end at {MAX_INT32}")
    if epoch > RAFT_MAX_EPOCH:
        raise Fault(f"{path} holds epoch {epoch}: {EPOCHS_USED_UP}")
    return ElectionState(
        epoch=epoch,
        leader_id=NodeId(leader) if leader >= 0 else None,
        voted=ReplicaKey(NodeId(voted), None if directory_id == ZERO_UUID else directory_id) if voted >= 0 else None,
    )
