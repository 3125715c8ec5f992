"""Writing what changes in consumer groups: a change is replayed as it is made, and answered when it is committed.

Source: KIP-848; `CoordinatorRuntime` of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftlite.coordinator.core.effects import Then
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.records import ConsumerKey, ConsumerValue, EpochKey, decode_key, record_of
from kraftlite.coordinator.owed import OwedTombstones
from kraftlite.coordinator.records import CoordinatorRecord, group_tombstone
from kraftlite.model.errors import ErrorCode


def _record(group_id: str, key: ConsumerKey | None, value: ConsumerValue | None) -> CoordinatorRecord:
    """The record with this key; for None the tombstone of the classic group that this was."""
    return group_tombstone(group_id) if key is None else record_of(key, value)


def tombstones(group_id: str, keys: Iterable[ConsumerKey | None]) -> list[CoordinatorRecord]:
    """The records that delete those with these keys (`Journal.keys_of`)."""
    return [_record(group_id, key, None) for key in keys]


def _takes_nothing(tombstone: CoordinatorRecord, group: ConsumerGroup) -> bool:
    """Return whether a tombstone of the group's predecessor takes nothing of this group: a record of this key takes its place
    otherwise, and may be in the log by now."""
    key = decode_key(tombstone.key)
    return key is None or group.value_of(key) is None


class Change:
    """Records of one group, under way. What is refused must be refused before the first of them."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: dict[ConsumerKey | None, CoordinatorRecord] = {}
        """The records by key, in the order of their last writing. None: the tombstone of the classic group that this was."""

    def emit(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        self.group.replay(key, value)
        self.records.pop(key, None)
        self.records[key] = record_of(key, value)

    def adopt(self, records: Iterable[tuple[ConsumerKey, ConsumerValue]]) -> None:
        """Records that the group has replayed already, as it takes the place of a classic group."""
        self.records[None] = group_tombstone(self.group.group_id)
        for key, value in records:
            self.records[key] = record_of(key, value)


@dataclass(eq=False, slots=True)
class _Write:
    """A write under way: who waits for it, and with which error it is late."""

    tell: list[Then] = field(default_factory=list)
    late: ErrorCode | None = None


class Journal:
    """Appends changes. The state in memory is ahead of the log; nobody is told of it before it is committed (KIP-848).

    What could not be written is written again, as it is by then, with the group's next change: after an error of the log that
    leaves this broker the leader, log and memory agree again. Departs: Kafka takes the change back.
    """

    def __init__(self, owed: OwedTombstones) -> None:
        self._owed = owed
        self._last: dict[str, _Write] = {}
        """Per group with a write under way: the last of them."""
        self._unwritten: dict[str, dict[ConsumerKey | None, None]] = {}

    def write(self, change: Change, tell: Then) -> None:
        """`tell` learns the fate of the change, or that it is late; without records, of the group's last change before it."""
        group, group_id = change.group, change.group.group_id
        records = dict(change.records)
        for key in self._unwritten.pop(group_id, {}):
            if key not in records:
                records[key] = _record(group_id, key, None if key is None else group.value_of(key))
        if not records:
            last = self._last.get(group_id)
            if last is None:
                tell(ErrorCode.NONE)
            elif last.late is not None:
                tell(last.late)
            else:
                last.tell.append(tell)
            return
        write = self._last[group_id] = _Write([tell])
        owed = [it for it in self._owed.take(group_id) if _takes_nothing(it, group)]

        def written(error: ErrorCode) -> None:
            if self._last.get(group_id) is write:
                del self._last[group_id]
            if error is not ErrorCode.NONE:
                self.failed(group_id, records)
                self._owed.owe(group_id, owed)

        def told(error: ErrorCode) -> None:
            waiting, write.tell, write.late = write.tell, [], error
            for one in waiting:
                one(error)

        self._owed.append(group_id, [*owed, *records.values()], written, told)

    def failed(self, group_id: str, keys: Iterable[ConsumerKey | None]) -> None:
        """The records with these keys are to be written again."""
        self._unwritten.setdefault(group_id, {}).update(dict.fromkeys(keys))

    def keys_of(self, group: ConsumerGroup, changed: Iterable[ConsumerKey | None] = ()) -> list[ConsumerKey | None]:
        """Return the keys of all records that the log may have of the group, in the order in which they are to be deleted, the
        group last: also of those that are gone from memory, by `changed` or by changes that could not be written. None: the
        classic group that this was is in the log still."""
        unwritten = self._unwritten.get(group.group_id, {})
        gone = (it for it in (*unwritten, *changed) if it is not None and not isinstance(it, EpochKey))
        was_classic = [None] if None in unwritten else []
        return [*was_classic, *dict.fromkeys((*gone, *group.record_keys()))]

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._unwritten.pop(group_id, None)
