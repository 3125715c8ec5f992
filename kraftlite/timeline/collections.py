"""Map, set and scalar that can be read at, and reverted to, an earlier timeline snapshot. Source: TL-01 to TL-10."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from kraftlite.timeline.registry import ABSENT, LATEST, Revertable, TimelineRegistry

K = TypeVar("K")
V = TypeVar("V")


class TimelineMap(Revertable, Generic[K, V]):
    """A map. Reads take an `epoch` (default: live). Keys and values must not be None (TL-08).

    Iteration yields a list made at the call, in insertion order of the live map: changing the map meanwhile is allowed.
    """

    __slots__ = ()

    def __setitem__(self, key: K, value: V) -> None:
        if key is None or value is None:
            raise ValueError("a timeline map holds neither None as a key nor None as a value")
        self._write(key, value)

    def __getitem__(self, key: K) -> V:
        return self._data[key]  # type: ignore[no-any-return]

    def __delitem__(self, key: K) -> None:
        if key not in self._data:
            raise KeyError(key)
        self._write(key, ABSENT)

    def pop(self, key: K) -> V | None:
        """Remove `key`; its value, or None when it was not there."""
        if key not in self._data:
            return None
        return self._write(key, ABSENT)  # type: ignore[no-any-return]

    def get(self, key: K, epoch: int = LATEST) -> V | None:
        if epoch == LATEST:
            return self._data.get(key)
        value = self._read(key, epoch)
        return None if value is ABSENT else value

    def items(self, epoch: int = LATEST) -> list[tuple[K, V]]:
        return self._items(epoch)

    def values(self, epoch: int = LATEST) -> list[V]:
        return [value for _, value in self._items(epoch)]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._data))

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimelineMap) and self._data == other._data

    def __hash__(self) -> int:
        return hash(frozenset(self._data.items()))

    def __repr__(self) -> str:
        return f"TimelineMap({self._data!r})"


class TimelineSet(Revertable, Generic[K]):
    """A set, in insertion order. The same rules as `TimelineMap`."""

    __slots__ = ()

    def add(self, key: K) -> bool:
        """Add an item, and return whether it was new."""
        if key is None:
            raise ValueError("a timeline set does not hold None")
        if key in self._data:
            return False
        self._write(key, True)
        return True

    def discard(self, key: K) -> bool:
        """Remove an item, and return whether it was there."""
        if key not in self._data:
            return False
        self._write(key, ABSENT)
        return True

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._data))

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimelineSet) and self._data.keys() == other._data.keys()

    def __hash__(self) -> int:
        return hash(frozenset(self._data))

    def __repr__(self) -> str:
        return f"TimelineSet({list(self._data)!r})"


class TimelineValue(Revertable, Generic[V]):
    """One value (a number, an object; None is allowed). `reset` of the registry gives the initial value back (TL-09)."""

    __slots__ = ("_initial",)

    def __init__(self, registry: TimelineRegistry, initial: V) -> None:
        super().__init__(registry)
        self._initial = initial

    def get(self, epoch: int = LATEST) -> V:
        value = self._data.get(0, ABSENT) if epoch == LATEST else self._read(0, epoch)
        return self._initial if value is ABSENT else value

    def set(self, value: V) -> None:
        """A value equal to the old one opens no tier."""
        if self.get() != value:
            self._write(0, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimelineValue) and bool(self.get() == other.get())

    def __hash__(self) -> int:
        return hash(self.get())

    def __repr__(self) -> str:
        return f"TimelineValue({self.get()!r})"
