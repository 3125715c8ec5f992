"""The search for the starts of records, in machine code: the extra `fast` brings the compiler. The first use in a process takes
about a second.

Source: `kraftlite.columns.decoding`, which does the same without it.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types


def _starts(data: Any, bases: Any, sizes: Any, counts: Any, found: Any) -> int:
    """Fill `found`; the index of the first batch whose records do not end where it ends, -1 when there is none."""
    slot = 0
    for index in range(bases.size):
        position = bases[index]
        end = position + sizes[index]
        for _ in range(counts[index]):
            found[slot] = position
            slot += 1
            size = 0
            shift = 0
            while True:
                if position >= end or shift > 28:
                    return index
                byte = data[position]
                position += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            size >>= 1
            if size > end - position:
                return index
            position += size
        if position != end:
            return index
    return -1


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_NUMBERS = types.Array(types.int64, 1, "C")
starts: Any = numba.njit(types.int64(_BYTES, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS), cache=True, nogil=True)(_starts)
