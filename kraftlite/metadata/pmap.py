"""An immutable map that shares structure with the maps it was made from. The one wrapper around `immutables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, overload

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

SMALL: Final = 32
"""Up to here a plain dict, copied on change, is smaller and faster than a tree."""


class PMap(Mapping[K, V]):
    """Immutable mapping; `update` makes a new one in O(changes · log n) and leaves this one alone.

    Iteration is always in ascending key order, whatever the process's hash seed, so that it may decide things.
    The order is computed once per map, on the first iteration. Keys of one map must be comparable with one another.
    """

    __slots__ = ("_items", "_order")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: dict[K, V] | Map[K, V] = {}
        self._order: tuple[K, ...] | None = None
        if items:
            self._items = dict(items) if len(items) <= SMALL else Map(items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...

    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...

    def get(self, key: K, default: Any = None, /) -> Any:
        return self._items.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[K]:
        if self._order is None:
            self._order = tuple(sorted(self._items))  # type: ignore[type-var]
        return iter(self._order)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, PMap):
            mine, theirs = self._items, other._items
            if type(mine) is type(theirs):
                return bool(mine == theirs)
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(key in other and other[key] == value for key, value in self._items.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PMap({{{', '.join(f'{key!r}: {self._items[key]!r}' for key in self)}}})"

    def update(self, changes: Mapping[K, V], removed: Iterable[K] = ()) -> PMap[K, V]:
        """This map without `removed`, then with `changes`; keys in `removed` need not exist. Itself when nothing changes."""
        gone = [key for key in dict.fromkeys(removed) if key in self._items]
        if not changes and not gone:
            return self
        result: PMap[K, V] = PMap()
        if len(self._items) + len(changes) <= SMALL:
            small = dict(self._items)
            for key in gone:
                del small[key]
            small.update(changes)
            result._items = small
            return result
        tree = self._items if isinstance(self._items, Map) else Map(self._items)
        with tree.mutate() as mutation:
            for key in gone:
                del mutation[key]
            mutation.update(changes)
            result._items = mutation.finish()
        return result
