"""The checkers' memory of each node: its metadata log as it is on its disk, over all incarnations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kraftlite.controller.core import ControllerCore
from kraftlite.log.batch import BatchHeader, iter_batches, iter_records
from kraftlite.log.control import KRaftVersion, KRaftVoters, decode_control
from kraftlite.model.ids import ZERO_UUID, NodeId
from kraftlite.raft.core import RaftCore
from kraftlite.raft.quorum_state import FILE_NAME, ElectionState, parse
from kraftlite.raft.states import RoleState
from kraftlite.sim.quorum import Keys
from kraftlite.simhost.host import Incarnation, SimHost

_READ_BYTES = 1 << 20


def keys_of(control: KRaftVoters) -> Keys:
    return tuple(sorted((it.voter_id, None if it.directory_id == ZERO_UUID else it.directory_id) for it in control.voters))


def is_ahead(core: ControllerCore) -> bool:
    """Return whether a controller is active and has written what is not committed."""
    return core.active and core.offsets.write_offset != core.offsets.committed_offset + 1


class Entry:
    """One batch of the metadata log. Batches of equal bytes are one object: compare with `is`."""

    __slots__ = ("base_offset", "epoch", "is_control", "kraft_version", "next_offset", "raw", "voters", "voters_offset")

    def __init__(self, header: BatchHeader, raw: bytes) -> None:
        self.base_offset = header.base_offset
        self.next_offset = header.next_offset
        self.epoch = header.partition_leader_epoch
        self.is_control = header.is_control
        self.raw = raw
        self.voters: Keys | None = None
        """The set of voters that a control batch says, and the offset of its record."""
        self.voters_offset = -1
        self.kraft_version: int | None = None
        if self.is_control:
            self._read_controls()

    def _read_controls(self) -> None:
        for record in iter_records(self.raw):
            control = decode_control(record)
            if isinstance(control, KRaftVersion):
                self.kraft_version = control.kraft_version
            elif isinstance(control, KRaftVoters):
                self.voters, self.voters_offset = keys_of(control), self.base_offset + record.offset_delta

    def __repr__(self) -> str:
        return f"[{self.base_offset},{self.next_offset})@{self.epoch}"


class EntryPool:
    """Makes equal batches one object."""

    def __init__(self) -> None:
        self._known: dict[bytes, Entry] = {}

    def entries(self, data: bytes) -> Iterator[Entry]:
        for header, view in iter_batches(data):
            raw = bytes(view)
            found = self._known.get(raw)
            if found is None:
                found = self._known[raw] = Entry(header, raw)
            yield found


class LogMemory:
    """The batches of one node's metadata log, as they were seen to be written and cut off."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.entries: list[Entry] = []
        self.controls: list[Entry] = []
        """Those of the entries that say who votes, or the kraft.version."""
        self._by_end: dict[int, Entry] = {}
        self._by_base: dict[int, Entry] = {}

    @property
    def leo(self) -> int:
        return self.entries[-1].next_offset if self.entries else self.start

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._by_end[entry.next_offset] = entry
        self._by_base[entry.base_offset] = entry
        if entry.voters is not None or entry.kraft_version is not None:
            self.controls.append(entry)

    def cut(self, leo: int) -> list[Entry]:
        """Drop what reaches beyond `leo`; the dropped batches, newest first."""
        dropped: list[Entry] = []
        while self.entries and self.entries[-1].next_offset > leo:
            entry = self.entries.pop()
            del self._by_end[entry.next_offset], self._by_base[entry.base_offset]
            dropped.append(entry)
        while self.controls and self.controls[-1].next_offset > leo:
            self.controls.pop()
        return dropped

    def beyond(self, leo: int) -> list[Entry]:
        """The batches that reach beyond `leo`, in order."""
        found: list[Entry] = []
        for entry in reversed(self.entries):
            if entry.next_offset <= leo:
                break
            found.append(entry)
        return found[::-1]

    def ending_at(self, offset: int) -> Entry | None:
        return self._by_end.get(offset)

    def starting_at(self, offset: int) -> Entry | None:
        return self._by_base.get(offset)


class NodeView:
    """One node. `core` and `controller` are those of the running incarnation, None before they are open and after its end."""

    def __init__(self, node: SimHost) -> None:
        self.node = node
        self.node_id: NodeId = node.node_id
        self.here: Incarnation | None = None
        self.core: RaftCore | None = None
        self.controller: ControllerCore | None = None
        self.kept_from = 0
        """The offset at which the log begins on the disk: what was before is in a snapshot."""
        self.directory: str = ""
        self.directory_id: UUID | None = None
        self.log = LogMemory()
        self.lost: dict[UUID | None, LogMemory] = {}
        """The logs of disks that were replaced, by their directories."""
        self.durable = 0
        """Everything below it was once seen to be on the disk for good."""
        self.forgets = False
        """This incarnation began without files of the metadata that the one before it had: see `Losses.forgetful`."""
        self.forgot = 0
        self.state: RoleState | None = None
        self.hw = 0
        """The committed offset that this incarnation knows."""
        self.opened_leo: int | None = None
        """The end of the log when this incarnation had recovered it, before it wrote anything."""
        self.raft_stamp: tuple[object, ...] = ()
        self.controller_stamp: tuple[object, ...] = ()
        self.image: object = None
        self.cached: object = None

    @property
    def incarnation(self) -> int:
        return self.here.number if self.here is not None else 0

    @property
    def author(self) -> tuple[NodeId, int]:
        """The identity of the writer: a restarted node is another one."""
        return self.node_id, self.incarnation

    @property
    def raft(self) -> RaftCore:
        assert self.core is not None, f"node {self.node_id} has no raft core now"
        return self.core

    @property
    def active_controller(self) -> ControllerCore:
        assert self.controller is not None, f"node {self.node_id} has no controller now"
        return self.controller

    def enter(self, here: Incarnation | None) -> None:
        """Another incarnation runs, or none."""
        self.here = here
        self.core = self.controller = None
        self.state = None
        self.hw = 0
        self.opened_leo = None
        self.raft_stamp = self.controller_stamp = ()
        self.image = self.cached = None

    def read_log(self, pool: EntryPool, start: int, end: int) -> list[Entry]:
        """The batches [start, end) as the node's log returns them now."""
        found: list[Entry] = []
        log = self.raft.metalog.log
        with self.node.disk.undisturbed():
            while start < end:
                data = log.read(start, _READ_BYTES, up_to=end)
                batches = list(pool.entries(data))
                if not batches:
                    break
                found += batches
                start = batches[-1].next_offset
        return found

    def stored_election(self) -> ElectionState | None:
        """The content of `quorum-state`; None without one."""
        path = f"{self.directory}/{FILE_NAME}"
        with self.node.disk.undisturbed():
            if self.node.disk.stat(path) is None:
                return None
            return parse(self.node.disk.read_file(path), path)

    def durable_end(self, up_to: int) -> int:
        """Return how much of the log, as it is known, would survive a power cut now; looks no further than `up_to`."""
        self.durable = max(self.durable, self.log.start, self.kept_from)
        wanted: list[Entry] = []
        offset = self.durable
        while offset < up_to and (entry := self.log.starting_at(offset)) is not None:
            wanted.append(entry)
            offset = entry.next_offset
        if wanted:
            files = self._surviving_segments()
            for entry in wanted:
                if not any(data.rfind(entry.raw) >= 0 for data in files):
                    break
                self.durable = entry.next_offset
        return self.durable

    def _surviving_segments(self) -> list[bytes]:
        """Newest first."""
        files = self.node.disk.surviving(self.directory, ".log")
        return [files[name] for name in sorted(files, reverse=True)]

    def lose_disk(self) -> None:
        self.lost[self.directory_id] = self.log
        self.directory_id = None
        self.forget_disk()

    def forget_disk(self, start: int = 0) -> None:
        self.log = LogMemory(start)
        self.kept_from = start
        self.durable = start


def running(views: Iterable[NodeView]) -> list[NodeView]:
    return [view for view in views if view.core is not None]
