"""The start offset of each leader epoch: the cache behind `leader-epoch-checkpoint`.

Source: KIP-101, KIP-279; RP-28, RP-29.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kraftlite.model.messages.replica import EpochEndOffset


class LeaderEpochCache:
    """(epoch, start offset) pairs, strictly increasing in both. Pure memory: `log.py` reads and writes the file.

    Epoch e covers [its start, the next entry's start), the latest up to the log's end. `dirty` says that the entries differ
    from what was last handed to the file.
    """

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.dirty = False
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> bool:
        """Note that `epoch` starts at `start`; entries that contradict it (epoch or start not smaller) are dropped.

        Whether anything changed. A known latest epoch keeps its start unless `start` is smaller.
        """
        if epoch < 0 or start < 0:
            raise ValueError(f"epoch {epoch} and start offset {start} must not be negative")
        if self._epochs and self._epochs[-1] == epoch and start >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.dirty = True
        return True

    def end_offset_for(self, epoch: int, leo: int) -> EpochEndOffset | None:
        """Largest known epoch <= `epoch` and where it ends. None: newer than all that is known, or nothing is known.

        Older than all: `epoch` itself, ending where the first known one starts.
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return EpochEndOffset(leader_epoch=epoch, end_offset=leo)
        higher = bisect_right(self._epochs, epoch)
        floor = self._epochs[higher - 1] if higher else epoch
        return EpochEndOffset(leader_epoch=floor, end_offset=self._starts[higher])

    def epoch_at(self, offset: int) -> int | None:
        """The epoch whose range holds `offset`; None before the first start."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def truncate_from_end(self, offset: int) -> None:
        """Drop entries that start at or beyond `offset`: the log ends there now."""
        keep = bisect_left(self._starts, offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """The log starts at `offset` now: drop entries that end at or before it; the one that covers it starts there."""
        covering = bisect_right(self._starts, offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == offset):
            return
        del self._epochs[:covering], self._starts[:covering]
        self._starts[0] = offset
        self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.dirty = True
