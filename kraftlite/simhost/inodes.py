"""Files and directories of a disk in memory, each with what is in the page cache and what is durable."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MayFlip = Callable[[bytearray, int], bool]
"""(content, position): whether a bit of that byte may turn over in a power cut."""


@dataclass(eq=False)
class Inode:
    """A file's bytes."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    clean_below: int = 0
    """Bytes before this position are the same in `data` and `durable`; equal to both lengths when nothing is dirty."""
    mtime_ms: int = 0
    flushing: dict[int, int] = field(default_factory=dict)
    """The beginning of the dirty part, of each flush under way, by its number."""
    begun: int = 0
    landed: int = 0
    """The newest flush that reached the platter: an older one that ends after it has nothing to add."""

    def touch(self, position: int) -> None:
        self.clean_below = min(self.clean_below, position)

    def _dirty_from(self) -> int:
        under_way = (low for number, low in self.flushing.items() if number > self.landed)
        return min(self.clean_below, len(self.data), *under_way)

    def sync(self) -> None:
        low = self._dirty_from()
        if low < len(self.data) or len(self.durable) != len(self.data):
            self.durable[low:] = self.data[low:]
        self.clean_below = len(self.data)
        self.begun += 1
        self.landed = self.begun

    def begin_flush(self) -> tuple[int, bytes]:
        """Number and bytes: what a flush makes durable when it ends, everything from a position on, as it is now."""
        low = self._dirty_from()
        self.begun += 1
        self.flushing[self.begun] = low
        self.clean_below = len(self.data)
        return self.begun, bytes(self.data[low:])

    def end_flush(self, number: int, content: bytes) -> None:
        low = self.flushing.pop(number)
        if number > self.landed:
            self.durable[low:] = content
            self.landed = number

    def abandon_flush(self, number: int) -> None:
        low = self.flushing.pop(number, None)
        if low is not None and number > self.landed:
            self.touch(low)

    def drop_dirty(self, rng: random.Random) -> bool:
        """Forget what is not durable, and return whether there was anything. The file keeps its length with zeros, or is as long
        as it was on the platter."""
        low = self._dirty_from()
        if low == len(self.data) == len(self.durable):
            return False
        length = len(self.data)
        self.data = bytearray(self.durable)
        if rng.randrange(2) and length > len(self.data):
            self.data += bytes(length - len(self.data))
        self.durable = bytearray(self.data)
        self.clean_below = len(self.data)
        self.flushing = dict.fromkeys(self.flushing, len(self.data))
        self.landed = self.begun
        return True

    def crash(self, rng: random.Random | None, may_flip: MayFlip) -> bool:
        """Keep what a power cut keeps, and return whether anything was lost or damaged."""
        low = self._dirty_from()
        self.flushing.clear()
        kept, before = self.durable, self.data
        if rng is not None and (low < len(self.data) or low < len(self.durable)):
            kept = self._torn(rng, low, may_flip)
        self.data = bytearray(kept)
        self.durable = bytearray(kept)
        self.clean_below = len(kept)
        return kept != before

    def _torn(self, rng: random.Random, low: int, may_flip: MayFlip) -> bytearray:
        """Some of what was unsynced reached the platter: a prefix, perhaps followed by zeros or by what was there before."""
        fate = rng.randrange(6)
        if fate == 0:
            return self.durable
        if fate == 1:
            return self.data
        if fate == 5 and low < len(self.data):
            flipped, at, bit = bytearray(self.data), rng.randrange(low, len(self.data)), 1 << rng.randrange(8)
            if may_flip(self.data, at):
                flipped[at] ^= bit
            return flipped
        cut = rng.randint(min(low, len(self.data)), len(self.data))
        torn = self.data[:cut]
        if fate == 2:
            torn += self.durable[cut:]
        elif fate == 3:
            torn += bytes(len(self.data) - cut)
        return torn


@dataclass(eq=False)
class Directory:
    """Names, and which of their changes are durable."""

    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    journal: list[tuple[tuple[str, Inode | Directory | None], ...]] = field(default_factory=list)
    """Changes since the last sync, in order; each is atomic."""

    def change(self, *changes: tuple[str, Inode | Directory | None]) -> None:
        apply(self.entries, changes)
        self.journal.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.journal.clear()

    def crash(self, rng: random.Random | None, where: str, lost: list[str], may_flip: Callable[[str], MayFlip]) -> None:
        kept = dict(self.durable)
        for changes in self.journal[: rng.randint(0, len(self.journal)) if rng is not None else 0]:
            apply(kept, changes)
        lost += [f"{where}/{name}" for name in sorted(self.entries.keys() ^ kept.keys())]
        self.entries = kept
        self.durable = dict(kept)
        self.journal.clear()
        for name in sorted(kept):
            node = kept[name]
            if isinstance(node, Directory):
                node.crash(rng, f"{where}/{name}", lost, may_flip)
            elif node.crash(rng, may_flip(f"{where}/{name}")):
                lost.append(f"{where}/{name}")


def apply(entries: dict[str, Inode | Directory], changes: Sequence[tuple[str, Inode | Directory | None]]) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
