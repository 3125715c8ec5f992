"""A fingerprint of rows that is the same in whatever order they come: the sum of 128-bit hashes, one of each row.

It tells whether two runs made the same rows, unless somebody makes rows on purpose to deceive it. A row's hash covers its topic,
key, value, headers, and its partition where the row names one. It is computed for many rows at once, eight bytes at a step: in
C where it was built (`_hashes.c`), else with numpy. Both give the same.

Source: SX-01.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
"""Two of 64 bits for each row: shape (2, rows)."""

ROWS_AT_ONCE: Final = 16_384
"""So many rows' hashes stay in a core's cache."""
LONG_BYTES: Final = 1_024
"""Longer contents are hashed one by one."""
_MULTIPLIERS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_SEEDS: Final = (np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344))
_NULL: Final = (np.uint64(0xA4093822299F31D0), np.uint64(0x082EFA98EC4E6C89))
_SHIFT: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(8)], np.uint64)
_CONTRACT: Final = 1


class Fingerprint:
    """The fingerprint of the rows that were added."""

    def __init__(self) -> None:
        self._sums = np.zeros(2, np.uint64)

    def add(self, batch: Any, topics: Iterable[tuple[str, npt.NDArray[np.int64]]]) -> None:
        """The rows of a pa.RecordBatch with the columns of a sink. `topics`: each one with its rows."""
        found = np.empty((2, batch.num_rows), np.uint64)
        for name, rows in topics:
            found[:, rows] = _digest(name.encode())[:, None]
        names = batch.schema.names
        for name in ("key", "value"):
            if name in names:
                found = _mixed(found, bytes_hashes(batch.column(names.index(name))))
        if "headers" in names:
            found = _mixed(found, _headers_hashes(batch.column(names.index("headers"))))
        if "partition" in names:
            numbers = batch.column(names.index("partition")).cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            found = _mixed(found, numbers.astype(np.uint64)[None, :])
        self._sums += found.sum(axis=1, dtype=np.uint64)

    @property
    def text(self) -> str:
        """32 hexadecimal digits."""
        return f"{int(self._sums[0]):016x}{int(self._sums[1]):016x}"


def bytes_hashes(column: Any) -> Hashes:
    """The hashes of an array of binary or string, null among them."""
    array = column.cast(pa.binary())
    count = len(array)
    found = np.empty((2, count), np.uint64)
    _, offsets, data = array.buffers()
    edges = np.zeros(count + 1, np.int64)
    if count and offsets is not None:
        edges = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    content = memoryview(b"" if data is None else data)
    fill(content, edges, found, LONG_BYTES)
    for row in np.flatnonzero(np.diff(edges) > LONG_BYTES).tolist():
        found[:, row] = _digest(content[int(edges[row]) : int(edges[row + 1])])
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        for lane in (0, 1):
            found[lane, nulls] = _NULL[lane]
    return found


def fill_with_numpy(data: Any, edges: npt.NDArray[np.int64], found: Hashes, longest: int) -> None:
    """Fill in the hashes of the contents between these edges of `data`, but not of those that are longer."""
    count = found.shape[1]
    first, last = int(edges[0]), int(edges[-1])
    padded = np.zeros(last - first + 8, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    words = np.ndarray((padded.size - 7,), "<u8", padded, 0, (1,))
    at, sizes = edges[:-1] - first, np.diff(edges)
    for low in range(0, count, ROWS_AT_ONCE):
        high = min(low + ROWS_AT_ONCE, count)
        found[:, low:high] = _short_hashes(words, at[low:high], np.where(sizes[low:high] > longest, 0, sizes[low:high]))


def _short_hashes(words: npt.NDArray[np.uint64], at: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Hashes:
    """Rows with more words come first, so that each step is about the first of them, and not about some."""
    blocks = sizes >> 3
    order = None
    if int(blocks.min()) != int(blocks.max()):
        order = np.argsort((-blocks).astype(np.int16), kind="stable")
        at, sizes, blocks = at[order], sizes[order], blocks[order]
    lengths = sizes.astype(np.uint64)
    found = np.stack([seed ^ (lengths * multiplier) for seed, multiplier in zip(_SEEDS, _MULTIPLIERS, strict=True)])
    going = np.searchsorted(-blocks, -np.arange(int(blocks.max())), side="left").tolist()
    for step, rows in enumerate(going):
        word = words[at[:rows] + 8 * step]
        _absorb(found[:, :rows], word)
    tail = words[at + (blocks << 3)] & _MASKS[sizes & 7]
    _absorb(found, tail)
    _finish(found)
    if order is None:
        return found
    back = np.empty_like(found)
    back[:, order] = found
    return back


def _absorb(hashes: Hashes, word: npt.NDArray[np.uint64]) -> None:
    for lane in (0, 1):
        one = hashes[lane]
        one ^= word
        one *= _MULTIPLIERS[lane]
        one ^= one >> _SHIFT


def _finish(hashes: Hashes) -> None:
    """Let every bit count for every other one."""
    for lane in (0, 1):
        one = hashes[lane]
        one *= _MULTIPLIERS[1 - lane]
        one ^= one >> np.uint64(29)
        one *= _MULTIPLIERS[lane]
        one ^= one >> _SHIFT


def _mixed(hashes: Hashes, more: npt.NDArray[np.uint64]) -> Hashes:
    """The hashes of what was hashed, and of more behind it."""
    found = hashes * np.array(_MULTIPLIERS)[:, None] + more
    _finish(found)
    return found


def _headers_hashes(lists: Any) -> Hashes:
    """The sum over a row's headers, each with its place; no list is as an empty one."""
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    edges = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    upto = np.zeros((2, int(edges[-1]) + 1), np.uint64)
    if edges[-1]:
        name_of, value_of = lists.flatten().flatten()
        places = (np.arange(int(edges[-1])) - np.repeat(edges[:-1], counts)).astype(np.uint64)
        items = _mixed(_mixed(bytes_hashes(name_of), bytes_hashes(value_of)), places[None, :])
        np.cumsum(items, axis=1, dtype=np.uint64, out=upto[:, 1:])
    found: Hashes = upto[:, edges[1:]] - upto[:, edges[:-1]]
    return found


def _digest(data: bytes | memoryview) -> npt.NDArray[np.uint64]:
    return np.frombuffer(blake2b(data, digest_size=16).digest(), "<u8").astype(np.uint64)


fill: Callable[[Any, npt.NDArray[np.int64], Hashes, int], None] = fill_with_numpy
"""The one that is used. ValueError: an edge is outside of the data or before the one before it."""

try:
    from kraftlite.columns import _hashes
except ImportError:
    pass
else:
    if _hashes.CONTRACT == _CONTRACT:  # else it is the file of another version, and not to be used
        fill = _hashes.fill
