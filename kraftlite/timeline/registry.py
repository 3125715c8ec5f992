"""The registry of timeline snapshots that a family of collections shares.

Source: Kafka's SnapshotRegistry; TL-01 to TL-11.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from typing import Any, Final

from kraftlite.model.limits import MAX_INT64

LATEST: Final = MAX_INT64
"""The epoch that reads the live state (TL-05)."""


class _Absent:
    """The old value of a key that was not there."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

Tier = dict[Any, Any]
"""Old values by key: what a key was at the tier's epoch, for each key that changed after it."""


class TimelineSnapshot:
    """One epoch that can be read or reverted to: the tiers of the collections that changed after it."""

    __slots__ = ("__weakref__", "epoch", "touched")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.touched: list[weakref.ref[Revertable]] = []


class Revertable:
    """Base of every timeline collection: keeps, per timeline snapshot, the old values of the keys changed since (copy on write).

    Cost of a write: one extra dictionary entry for the first change of a key after a snapshot (TL-10).
    """

    __slots__ = ("__weakref__", "_data", "_ref", "_registry", "_tiers", "_top", "_top_of")

    def __init__(self, registry: TimelineRegistry) -> None:
        self._registry = registry
        self._data: dict[Any, Any] = {}
        self._tiers: dict[int, Tier] = {}
        self._top: Tier | None = None
        self._top_of: TimelineSnapshot | None = None
        self._ref: weakref.ref[Revertable] = registry._adopt(self)

    def _write(self, key: Any, value: Any) -> Any:
        """Set (or, with ABSENT, remove) `key`; returns the old value or ABSENT."""
        data = self._data
        old = data.get(key, ABSENT)
        latest = self._registry._latest
        if latest is not None:
            tier = self._top if self._top_of is latest else self._open_tier(latest)
            assert tier is not None
            if key not in tier:
                tier[key] = old
        if value is ABSENT:
            data.pop(key, None)
        else:
            data[key] = value
        return old

    def _open_tier(self, snapshot: TimelineSnapshot) -> Tier:
        tier = self._tiers.get(snapshot.epoch)
        if tier is None:
            tier = self._tiers[snapshot.epoch] = {}
            snapshot.touched.append(self._ref)
        self._top, self._top_of = tier, snapshot
        return tier

    def _read(self, key: Any, epoch: int) -> Any:
        """The value of `key` at `epoch`, or ABSENT."""
        if epoch != LATEST:
            for at in self._registry._epochs_from(epoch):
                tier = self._tiers.get(at)
                if tier is not None and key in tier:
                    return tier[key]
        return self._data.get(key, ABSENT)

    def _items(self, epoch: int) -> list[tuple[Any, Any]]:
        """Everything at `epoch`, as a list of its own: later changes do not show (TL-07)."""
        if epoch == LATEST:
            return list(self._data.items())
        old: Tier = {}
        for at in self._registry._epochs_from(epoch):
            for key, value in self._tiers.get(at, {}).items():
                old.setdefault(key, value)
        if not old:
            return list(self._data.items())
        items = [(key, old.get(key, value)) for key, value in self._data.items()]
        items.extend((key, value) for key, value in old.items() if key not in self._data)
        return [(key, value) for key, value in items if value is not ABSENT]

    def _undo(self, epoch: int) -> None:
        """Take back the tier of `epoch`, which is the newest left."""
        tier = self._tiers.pop(epoch, None)
        for key, value in (tier or {}).items():
            if value is ABSENT:
                self._data.pop(key, None)
            else:
                self._data[key] = value
        self._top, self._top_of = None, None

    def _fold(self, epoch: int, into: TimelineSnapshot | None) -> None:
        """Drop the snapshot of `epoch`; what it knows is still needed by the one before it, if there is one."""
        tier = self._tiers.pop(epoch, None)
        if self._top is tier:
            self._top, self._top_of = None, None
        if tier is None or into is None:
            return
        older = self._tiers.get(into.epoch)
        if older is None:
            self._tiers[into.epoch] = tier
            into.touched.append(self._ref)
        else:
            for key, value in tier.items():
                older.setdefault(key, value)

    def _restore(self, epoch: int) -> None:
        """Write the values of `epoch` again, as changes that can themselves be reverted."""
        changed: Tier = {}
        for at in self._registry._epochs_from(epoch):
            for key, value in self._tiers.get(at, {}).items():
                changed.setdefault(key, value)
        for key, value in changed.items():
            self._write(key, value)

    def _clear(self) -> None:
        self._data = {}
        self._tiers = {}
        self._top, self._top_of = None, None


class TimelineRegistry:
    """Owns the timeline snapshots of the collections created with it. Epochs are any non-decreasing integers >= -1.

    Not kept alive by it: a collection that nobody else holds (TL-11). Raises ValueError for an epoch without a snapshot.
    """

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._snapshots: dict[int, TimelineSnapshot] = {}
        self._latest: TimelineSnapshot | None = None
        self._members: dict[int, weakref.ref[Revertable]] = {}
        self._next_member = 0

    def _adopt(self, member: Revertable) -> weakref.ref[Revertable]:
        number = self._next_member
        self._next_member += 1
        members = self._members

        def forget(_: weakref.ref[Revertable]) -> None:
            members.pop(number, None)

        reference = weakref.ref(member, forget)
        members[number] = reference
        return reference

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def epochs(self) -> tuple[int, ...]:
        return tuple(self._epochs)

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def floor(self, epoch: int) -> int | None:
        """The newest snapshot at or before `epoch`."""
        position = bisect_right(self._epochs, epoch)
        return self._epochs[position - 1] if position else None

    def _epochs_from(self, epoch: int) -> list[int]:
        self._check(epoch)
        return self._epochs[bisect_left(self._epochs, epoch) :]

    def _check(self, epoch: int) -> None:
        if epoch not in self._snapshots:
            raise ValueError(f"no timeline snapshot at epoch {epoch}: there are {self._shown()}")

    def _shown(self) -> str:
        return ", ".join(str(epoch) for epoch in self._epochs) or "none"

    def get_or_create_snapshot(self, epoch: int) -> TimelineSnapshot:
        """The snapshot of the live state under `epoch`; the newest one again when `epoch` is its own (TL-02)."""
        latest = self._latest
        if latest is not None:
            if latest.epoch == epoch:
                return latest
            if epoch < latest.epoch:
                raise ValueError(f"cannot create a timeline snapshot at epoch {epoch}: there are {self._shown()}")
        snapshot = TimelineSnapshot(epoch)
        self._epochs.append(epoch)
        self._snapshots[epoch] = snapshot
        self._latest = snapshot
        return snapshot

    def revert_to(self, epoch: int) -> None:
        """Undo everything after `epoch`; its snapshot stays (TL-03)."""
        self._check(epoch)
        while True:
            newest = self._epochs[-1]
            snapshot = self._snapshots[newest]
            for reference in snapshot.touched:
                member = reference()
                if member is not None:
                    member._undo(newest)
            snapshot.touched.clear()
            if newest == epoch:
                return
            self._drop(newest)

    def restore(self, epoch: int) -> None:
        """Bring the state of `epoch` back by new writes: no snapshot is lost, and a revert undoes it like any change."""
        members: dict[int, Revertable] = {}
        for at in self._epochs_from(epoch):
            for reference in self._snapshots[at].touched:
                member = reference()
                if member is not None:
                    members[id(member)] = member
        for member in members.values():
            member._restore(epoch)

    def delete_snapshot(self, epoch: int) -> None:
        """Forget one snapshot; the others read as before (TL-04)."""
        self._check(epoch)
        position = bisect_left(self._epochs, epoch)
        into = self._snapshots[self._epochs[position - 1]] if position else None
        for reference in self._snapshots[epoch].touched:
            member = reference()
            if member is not None:
                member._fold(epoch, into)
        self._drop(epoch)

    def delete_snapshots_up_to(self, epoch: int) -> None:
        """Forget every snapshot below `epoch`; that of `epoch` itself survives (TL-04)."""
        while self._epochs and self._epochs[0] < epoch:
            self.delete_snapshot(self._epochs[0])

    def _drop(self, epoch: int) -> None:
        del self._epochs[bisect_left(self._epochs, epoch)]
        del self._snapshots[epoch]
        self._latest = self._snapshots[self._epochs[-1]] if self._epochs else None

    def reset(self) -> None:
        """Empty every collection and forget every snapshot (TL-06)."""
        for reference in list(self._members.values()):
            member = reference()
            if member is not None:
                member._clear()
        self._epochs.clear()
        self._snapshots.clear()
        self._latest = None
