"""Zigzag varints, many at once: what the fields of a record batch are made of. No loop runs per record.

Source: Kafka protocol, "Record" (varint, varlong); the scalar forms are in `kraftlite.log.batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

MAX_BYTES: Final = 10
"""The longest varint of 64 bits."""


class Malformed(Exception):
    """Bytes that no record batch consists of. Callers turn it into ApiError(CORRUPT_MESSAGE) with the offset that they know."""


def read(data: U8, at: I64) -> tuple[I64, I64]:
    """(values, positions behind them) of the varints that start at `at`, all below 2^62.

    Positions beyond the data read its last byte: callers check where the last field ends. Malformed: more than 64 bits.
    """
    byte = data.take(at, mode="clip")
    if not byte.size or int(byte.max()) < 0x80:
        found = byte.astype(np.int64)
        return (found >> 1) ^ -(found & 1), at + 1
    value = (byte & 0x7F).astype(np.uint64)
    behind = at + 1
    more = byte >> 7
    shift = 7
    while True:
        byte = data.take(behind, mode="clip")
        byte *= more
        behind += more
        value |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        if int(byte.max()) < 0x80:
            break
        more = byte >> 7
        shift += 7
        if shift > 63:
            raise Malformed("varint is too long")
    if shift == 63 and int(byte.max()) > 1:
        raise Malformed("varint has more than 64 bits")
    one = np.uint64(1)
    return ((value >> one).view(np.int64)) ^ -((value & one).view(np.int64)), behind


def zigzag(values: npt.NDArray[Any]) -> U64:
    """Signed numbers as what their varints hold."""
    wide = values.astype(np.int64, copy=False)
    return ((wide << 1) ^ (wide >> 63)).view(np.uint64)


def sizes(zigzagged: U64) -> I64:
    """Bytes that each takes."""
    found = np.ones(zigzagged.size, np.int64)
    top = int(zigzagged.max()) if zigzagged.size else 0
    bits = 7
    while bits < 64 and top >> bits:
        found += zigzagged >= np.uint64(1 << bits)
        bits += 7
    return found


def size(value: int) -> int:
    """Bytes that the varint of one signed number takes."""
    unsigned = value * 2 if value >= 0 else -value * 2 - 1
    return max(1, -(-unsigned.bit_length() // 7))


def write(fields: Sequence[U64 | int], rows: int) -> Any:
    """A pa.binary() array: row i has the varints of every field's i-th (zigzagged) number one after the other.

    A field that is an int is one constant byte below 0x80 in every row.
    """
    widths = [1 if isinstance(field, int) else size_of_largest(field) for field in fields]
    cells = np.empty((rows, sum(widths)), np.uint8)
    present = np.ones(cells.shape, np.bool_) if max(widths, default=1) > 1 else None
    column = 0
    for field, width in zip(fields, widths, strict=True):
        if isinstance(field, int) or width == 1:
            cells[:, column] = field
        else:
            assert present is not None
            rest = field
            for index in range(width):
                following = rest >> np.uint64(7)
                cells[:, column + index] = (rest.astype(np.uint8) & 0x7F) | ((following > 0).view(np.uint8) << 7)
                if index:
                    np.greater(rest, 0, out=present[:, column + index])
                rest = following
        column += width
    if present is None:
        edges = np.arange(0, cells.size + 1, cells.shape[1], dtype=np.int32)
        flat = cells.reshape(-1)
    else:
        used = np.full(rows, len(fields), np.int64)
        for field, width in zip(fields, widths, strict=True):
            if not isinstance(field, int) and width > 1:
                used += sizes(field) - 1
        edges = np.zeros(rows + 1, np.int32)
        np.cumsum(used, out=edges[1:])
        flat = cells[present]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(edges), pa.py_buffer(flat)])


def size_of_largest(zigzagged: U64) -> int:
    """Bytes of the longest of these varints; 1 when there is none."""
    return max(1, -(-int(zigzagged.max()).bit_length() // 7)) if zigzagged.size else 1
