"""The sets of voters: of each node by its own log, and of the cluster by what is committed (DQ-02)."""

from __future__ import annotations

from kraftlite.sim.checkers.views import Entry, LogMemory, NodeView
from kraftlite.sim.quorum import Keys, SimQuorum


class VoterSets:
    """`committed`: every set below the committed end, with the offset of its record, in order."""

    def __init__(self, quorum: SimQuorum) -> None:
        self._quorum = quorum
        self.committed: list[tuple[int, Keys]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def newest(self) -> Keys:
        return self.committed[-1][1] if self.committed else self._quorum.first

    def before(self, index: int) -> Keys:
        """The set that counted before the committed set number `index`."""
        return self.committed[index - 1][1] if index else self._quorum.first

    def note(self, entry: Entry) -> None:
        """A batch is committed."""
        if entry.voters is not None:
            self.committed.append((entry.voters_offset, entry.voters))
        if entry.kraft_version is not None:
            self._versions.append((entry.base_offset, entry.kraft_version))

    def behind(self, offset: int) -> tuple[int, Keys | None]:
        """The kraft.version, and the voters as the log says them, behind the committed record at `offset`."""
        version = next((it for at, it in reversed(self._versions) if at <= offset), 0)
        return version, next((it for at, it in reversed(self.committed) if at <= offset), None)

    def of(self, view: NodeView) -> Keys:
        """The set that counts at a node: the newest in its log; else what was committed where its log begins; else what it began
        with."""
        for entry in reversed(view.log.controls):
            if entry.voters is not None:
                return entry.voters
        return self.at_start(view.node_id, view.log)

    def at_start(self, node_id: int, log: LogMemory) -> Keys:
        if log.start > 0:
            _, found = self.behind(log.start - 1)
            return found if found is not None else self._quorum.beginning(node_id)
        return self._quorum.beginning(node_id)

    def version_of(self, view: NodeView) -> int:
        """The kraft.version that counts at a node, found where its set is."""
        for entry in reversed(view.log.controls):
            if entry.kraft_version is not None:
                return entry.kraft_version
        if view.log.start > 0:
            return self.behind(view.log.start - 1)[0]
        return self._quorum.first_version(view.node_id)

    def newest_in(self, view: NodeView) -> Entry | None:
        """The batch of the node's log that says its set; None: it is not in the log."""
        return next((entry for entry in reversed(view.log.controls) if entry.voters is not None), None)


def is_in(keys: Keys, view: NodeView) -> bool:
    """Return whether the replica that this node is now is in the set: by its id and, where the set names one, its directory."""
    return any(node_id == view.node_id and directory in (None, view.directory_id) for node_id, directory in keys)


def majority(keys: Keys) -> int:
    return len(keys) // 2 + 1
