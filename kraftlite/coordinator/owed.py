"""The tombstones that the log is owed of groups that are no more."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlite.coordinator.core.effects import Effects, Then, nothing
from kraftlite.coordinator.records import CoordinatorRecord
from kraftlite.model.errors import ErrorCode


class OwedTombstones:
    """Tombstones that the log did not take, of an empty group to which another one of the same name and of the other protocol has
    succeeded. They go before the next records of the name, in the same batch: else who reads the log would find a group that is
    no more, when the one that succeeded to it is deleted. Of a record that the group of that name has written since there is no
    tombstone (`Journal.write`). Departs: in Kafka the other group does not begin before they are there.
    """

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._owed: dict[str, dict[CoordinatorRecord, None]] = {}

    def append(self, group_id: str, records: Sequence[CoordinatorRecord], then: Then = nothing, tell: Then | None = None) -> None:
        """Write records of a group, behind what is owed."""
        owed = self.take(group_id)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.owe(group_id, owed)
            then(error)

        self._effects.append([*owed, *records], written if owed else then, tell)

    def take(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the tombstones that are owed, which are owed no more: they are being written."""
        return [*self._owed.pop(group_id, ())]

    def owe(self, group_id: str, tombstones: Sequence[CoordinatorRecord]) -> None:
        """These could not be written."""
        if tombstones:
            self._owed.setdefault(group_id, {}).update(dict.fromkeys(tombstones))
