"""The voters and the kraft.version that the metadata log says at each of its offsets, with the configuration before it.

The control records KRaftVersion and KRaftVoters count from the moment in which they are in this node's log, committed or not, and
stop to count when they are truncated. `MetadataLog` tells of every append, truncation, snapshot and start of its log.

Source: KIP-853; Kafka's KRaftControlRecordStateMachine; DQ-02 to DQ-05, DQ-09, DQ-35.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.control import ControlRecord, KRaftVersion, KRaftVoters, decode_control
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.raft.voters import ReplicaKey, VoterSet, voters_of_record

BEFORE_THE_LOG: Final = -1
"""The offset of what the bootstrap snapshot says."""
KRAFT_VERSION_STATIC: Final = 0
KRAFT_VERSION_DYNAMIC: Final = 1
"""From this kraft.version on the voters are in the log."""

V = TypeVar("V")


class History(Generic[V]):
    """Values, each from the offset of its record on. Offsets grow."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[V] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, value: V) -> None:
        last = self._offsets[-1] if self._offsets else None
        assert last is None or offset > last, f"a value at offset {offset} after one at {last}"
        self._offsets.append(offset)
        self._values.append(value)

    def at(self, offset: int) -> V | None:
        """The value that holds behind the record at `offset`."""
        found = bisect_right(self._offsets, offset)
        return self._values[found - 1] if found else None

    @property
    def latest(self) -> V | None:
        return self._values[-1] if self._values else None

    @property
    def latest_offset(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    def truncate_to(self, end: int) -> None:
        """Drop the values of records at `end` and behind it."""
        while self._offsets and self._offsets[-1] >= end:
            self._offsets.pop()
            self._values.pop()

    def trim_to(self, start: int) -> None:
        """Drop what can hold nowhere any more: the newest value before `start` stays, as the log may be cut there (DQ-04)."""
        kept = max(0, bisect_left(self._offsets, start) - 1)
        del self._offsets[:kept], self._values[:kept]

    def clear(self) -> None:
        self._offsets.clear()
        self._values.clear()


class Membership:
    """The two histories of one node's log. `voters` and `kraft_version` are what counts now.

    Invariant: everything below `next_offset` has been read.
    """

    def __init__(self, configured: VoterSet, listener_name: str | None = None) -> None:
        """`configured`: controller.quorum.voters, which counts while neither log nor snapshot says anything."""
        self._configured = configured
        self._listener_name = listener_name
        self._voters: History[VoterSet] = History()
        self._versions: History[int] = History()
        self.next_offset = 0
        self.voters = configured
        self.kraft_version = KRAFT_VERSION_STATIC
        self.leaps: list[int] = []
        """Offsets of records that add or remove more than one voter, since the last time somebody looked (DQ-35)."""

    @property
    def is_static(self) -> bool:
        """Return whether the voters are those of the configuration, and nobody else can become one."""
        return not len(self._voters) and len(self._configured) > 0

    @property
    def voters_offset(self) -> int | None:
        """The offset of the record that says who votes; None when only the configuration does."""
        return self._voters.latest_offset

    @property
    def ignores_configured(self) -> bool:
        """Return whether controller.quorum.voters is set and has no effect any more (DQ-09)."""
        return len(self._configured) > 0 and len(self._voters) > 0

    def read(self, data: bytes | bytearray | memoryview, leo: int) -> None:
        """Read the batches that continue what was read, up to the end of the log. Raises ApiError(CORRUPT_MESSAGE) for a control
        record that says nonsense."""
        for header, raw in iter_batches(data):
            if header.next_offset > leo:
                return
            if header.is_control:
                for record in iter_records(raw):
                    self._note(header.base_offset + record.offset_delta, decode_control(record))
            self.next_offset = header.next_offset

    def load(self, controls: Iterable[ControlRecord], end_offset: int) -> None:
        """Start over with what a snapshot that ends at `end_offset` says; the bootstrap snapshot ends at 0. Raises
        ApiError(CORRUPT_MESSAGE) when it says something twice, or nonsense."""
        self._voters.clear()
        self._versions.clear()
        for control in controls:
            history = self._voters if isinstance(control, KRaftVoters) else self._versions
            if isinstance(control, KRaftVoters | KRaftVersion) and len(history):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"there are two {type(control).__name__} records")
            self._note(end_offset - 1, control)
        self.next_offset = end_offset
        self._settle()

    def _note(self, offset: int, control: ControlRecord | None) -> None:
        if isinstance(control, KRaftVoters):
            found = parse_voters_record(control, self._listener_name)
            known_at = self._voters.latest_offset
            if known_at is not None and known_at > BEFORE_THE_LOG and not found.is_one_step_from(self.voters):
                self.leaps.append(offset)
            self._voters.add(offset, found)
        elif isinstance(control, KRaftVersion):
            self._versions.add(offset, control.kraft_version)
        else:
            return
        self._settle()

    def truncate_to(self, end: int) -> None:
        """The log was cut: what it said from `end` on was never said (DQ-03)."""
        if end < self.next_offset:
            self._voters.truncate_to(end)
            self._versions.truncate_to(end)
            self.next_offset = end
            self._settle()

    def trim_to(self, start: int) -> None:
        """The log begins at `start` now."""
        self._voters.trim_to(start)
        self._versions.trim_to(start)

    def removes(self, key: ReplicaKey, committed: int) -> bool:
        """Return whether the latest record takes this replica out of the voters, and is not known to be committed."""
        offset = self.voters_offset
        if offset is None or offset < committed or self.voters.contains(key):
            return False
        before = self._voters.at(offset - 1)
        return before is not None and before.contains(key)

    def at(self, offset: int) -> tuple[int, VoterSet | None]:
        """(kraft.version, voters) behind the record at `offset`; None: the log says nothing of voters there.

        Raises ValueError for an offset that was not read yet: the newest value is not the answer (DQ-05).
        """
        if offset >= self.next_offset:
            raise ValueError(f"the voters at offset {offset} are not known: the log was read up to {self.next_offset}")
        return self._versions.at(offset) or KRAFT_VERSION_STATIC, self._voters.at(offset)

    def snapshot_controls(self, end_offset: int) -> tuple[ControlRecord, ...]:
        """The records that a metadata snapshot with this end begins with, behind its header (DQ-05)."""
        version, voters = self.at(end_offset - 1)
        return membership_records(version, voters) if version >= KRAFT_VERSION_DYNAMIC else ()

    def _settle(self) -> None:
        voters, version = self._voters.latest, self._versions.latest
        self.voters = voters if voters is not None else self._configured
        self.kraft_version = version if version is not None else KRAFT_VERSION_STATIC


def membership_records(kraft_version: int, voters: VoterSet | None) -> tuple[ControlRecord, ...]:
    """The control records that say this, the version first."""
    version = KRaftVersion(kraft_version=kraft_version)
    return (version,) if voters is None else (version, voters.to_record())


def parse_voters_record(control: KRaftVoters, listener_name: str | None) -> VoterSet:
    """Raises ApiError(CORRUPT_MESSAGE) when the record cannot be a set of voters."""
    try:
        return voters_of_record(control, listener_name)
    except ValueError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a KRaftVoters record cannot be used: {error}") from None
