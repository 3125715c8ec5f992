"""Checks that a log's batches follow one another: offsets and leader epochs, on columns of headers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kraftlite.segments.files import Headers

I64 = npt.NDArray[np.int64]
MAX_ANOMALIES: Final = 50
"""The limit for one segment. The first anomaly says what happened; a segment with this many is not the one that was written."""
_IDENTITY: Final = ("size", "last_offset_delta", "attributes", "base_timestamp", "max_timestamp", "base_sequence", "count")


class Anomaly(NamedTuple):
    """`batch`: index of the one at which the order ends; `kind` as in `audit_findings`."""

    batch: int
    kind: str
    detail: str


def next_offsets(headers: Headers) -> I64:
    """The exclusive end of each batch. One with a bad CRC, whose own word counts for little, ends where the next begins."""
    base = headers["base_offset"].astype(np.int64)
    ends = base + np.maximum(headers["last_offset_delta"].astype(np.int64), 0) + 1
    if base.size > 1:
        follows = ~headers["crc_ok"][:-1] & (base[1:] > base[:-1])
        ends[:-1] = np.where(follows, base[1:], ends[:-1])
    return ends


class OffsetOrder:
    """Walks one segment's batches. `dense`: no offset may be missing. `follows`: the base offset of the next segment, if any."""

    def __init__(self, headers: Headers, *, dense: bool, follows: int | None, resumed: frozenset[int]) -> None:
        self._headers = headers
        self._base: I64 = headers["base_offset"].astype(np.int64)
        self._ends = next_offsets(headers)
        self._dense = dense
        self._follows = follows
        self._resumed = resumed
        """Positions in front of which bytes are no batch: a gap there is known already."""
        self.reached = int(self._ends[-1]) if self._ends.size else -1
        """The offset at which the log goes on after `anomalies`, as far as its own words can be believed; -1 for an empty
        segment."""

    def anomalies(self, expected: int) -> Iterator[Anomaly]:
        """`expected`: the offset at which the first batch should begin."""
        count = self._base.size
        if count == 0:
            return
        before = np.concatenate((np.array([expected], np.int64), self._ends[:-1]))
        wrong = np.flatnonzero(self._base != before if self._dense else self._base < before)
        index, found = 0, 0
        while index < count and found < MAX_ANOMALIES:
            begins = int(self._base[index])
            if begins == expected or (begins > expected and not self._dense):
                place = int(np.searchsorted(wrong, index, side="right"))
                if place == wrong.size:
                    return
                index = int(wrong[place])
                expected = int(self._ends[index - 1])
                continue
            anomaly, taken, expected = self._classify(index, expected)
            if anomaly is not None:
                found += 1
                yield anomaly
            index += taken
        if index >= count:
            self.reached = expected

    def _classify(self, index: int, expected: int) -> tuple[Anomaly | None, int, int]:
        """Return what is wrong at `index`, how many batches that explains, and the offset expected behind them."""
        begins, ends = int(self._base[index]), int(self._ends[index])
        if begins > expected and int(self._headers["position"][index]) in self._resumed:
            return None, 1, ends
        behind = int(self._base[index + 1]) if index + 1 < self._base.size else self._follows
        swapped = self._permuted(index, expected) if self._dense else 0
        if swapped:
            listed = ", ".join(map(str, self._base[index : index + min(swapped, 6)].tolist()))
            detail = f"{swapped} batches that belong at {expected} are in the order {listed}{', …' if swapped > 6 else ''}"
            return Anomaly(index, "swapped_batches", detail), swapped, int(self._ends[index : index + swapped].max())
        if self._dense and behind == expected + (ends - begins):
            detail = f"base offset {begins} where {expected} was expected, and the next batch begins at {behind}"
            return Anomaly(index, "misnumbered_batch", detail), 1, expected + (ends - begins)
        if begins > expected:
            return Anomaly(index, "offset_gap", f"offsets {expected} to {begins - 1} are missing"), 1, ends
        return self._behind(index, expected), 1, max(expected, ends)

    def _permuted(self, index: int, expected: int) -> int:
        """The least number of batches from `index` on that, sorted, would continue the log without a gap; 0: there is none."""
        base, ends = self._base[index:], self._ends[index:]
        total = expected + np.cumsum(ends - base)
        fits = (np.minimum.accumulate(base) == expected) & (np.maximum.accumulate(ends) == total)
        fits[:1] = False
        found = np.flatnonzero(fits)
        if found.size == 0:
            return 0
        size = int(found[0]) + 1
        order = np.argsort(base[:size], kind="stable")
        return size if np.array_equal(base[:size][order][1:], ends[:size][order][:-1]) else 0

    def _behind(self, index: int, expected: int) -> Anomaly:
        """A batch that begins below what is there already."""
        begins = int(self._base[index])
        for earlier in np.flatnonzero(self._base[:index] == begins).tolist():
            if all(self._headers[name][earlier] == self._headers[name][index] for name in _IDENTITY):
                at = int(self._headers["position"][earlier])
                return Anomaly(index, "duplicate_batch", f"the batch at offset {begins} is also at position {at}")
        overlaps = bool(np.any((self._base[:index] < self._ends[index]) & (self._ends[:index] > begins)))
        if not self._dense and not overlaps:
            return Anomaly(index, "swapped_batches", f"the batch at offset {begins} is behind the one that ends at {expected}")
        return Anomaly(index, "offset_regression", f"base offset {begins} where {expected} was expected")


def epoch_regressions(headers: Headers) -> Iterator[Anomaly]:
    """Find the places where leader epochs decrease, over all batches of a log. Names the odd one out of three."""
    epochs = headers["epoch"].astype(np.int64)
    if epochs.size == 0:
        return
    previous = np.concatenate((np.array([-1], np.int64), epochs[:-1]))
    for place in np.flatnonzero(epochs < previous).tolist()[:MAX_ANOMALIES]:
        earlier = int(previous[place - 1]) if place else -1
        spike = place > 0 and earlier <= epochs[place] and (place + 1 == epochs.size or epochs[place + 1] >= epochs[place])
        dip = place + 1 < epochs.size and epochs[place + 1] >= previous[place]
        culprit = place - 1 if spike and not dip else place
        detail = f"leader epoch {int(epochs[place])} behind {int(previous[place])}"
        if culprit != place:
            detail = f"leader epoch {int(epochs[culprit])} between {earlier} and {int(epochs[place])}"
        yield Anomaly(culprit, "epoch_regression", detail)


__all__ = ["MAX_ANOMALIES", "Anomaly", "OffsetOrder", "epoch_regressions", "next_offsets"]
