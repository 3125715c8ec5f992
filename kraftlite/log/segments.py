"""The segments of one log, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kraftlite.log.segment import Segment


class SegmentList:
    """Sorted by base offset; the last one is active."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, first: Segment) -> None:
        self._segments = [first]
        self._bases = [first.base_offset]
        self.active = first

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        segments = self._segments
        return sum(segment.size for segment in segments) if len(segments) > 1 else segments[0].size

    def add(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset, (segment.base_offset, self.active.base_offset)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def index_of(self, offset: int) -> int:
        """Index of the segment whose range holds `offset`; 0 when it lies before all."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all behind it."""
        return self._segments[self.index_of(offset) :]

    def end_of(self, index: int, leo: int) -> int:
        """Return the exclusive end of a segment's range."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else leo

    def drop_last(self) -> Segment:
        """Take the active one away; at least one must remain."""
        assert len(self._segments) > 1, "the only segment cannot be dropped"
        self._bases.pop()
        dropped = self._segments.pop()
        self.active = self._segments[-1]
        return dropped

    def drop_first(self) -> Segment:
        assert len(self._segments) > 1, "the only segment cannot be dropped"
        del self._bases[0]
        return self._segments.pop(0)

    def holds(self, segments: Sequence[Segment], sizes: Sequence[int] | None = None) -> bool:
        """Return whether these segments are in it, one behind the other, the active one not among them. `sizes`: and of these
        sizes."""
        start = self.index_of(segments[0].base_offset)
        if self._segments[start : start + len(segments)] != list(segments) or segments[-1] is self.active:
            return False
        return sizes is None or all(segment.size == size for segment, size in zip(segments, sizes, strict=True))

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """`new` in the place of `old`, which `holds` says are here. It begins where they begin."""
        assert self.holds(old) and new.base_offset == old[0].base_offset, (new.base_offset, old[0].base_offset)
        start = self.index_of(old[0].base_offset)
        self._segments[start : start + len(old)] = [new]
        self._bases[start : start + len(old)] = [new.base_offset]

    def replace_active(self, segment: Segment) -> None:
        """Put a segment in place of the active one, which is empty."""
        self._segments[-1] = self.active = segment
        self._bases[-1] = segment.base_offset

    def restart(self, segment: Segment) -> None:
        """Replace all segments by this one."""
        self._segments = [segment]
        self._bases = [segment.base_offset]
        self.active = segment
