"""Goes on with reads and writes of which the system did a part: a signal came, or the disk is nearly full.

The fast path, one call that does it all, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def finish_read(pread: Callable[[int, int], bytes], data: bytes, length: int, offset: int) -> bytes:
    """`data` was read at `offset`; read on until there are `length` bytes, or the file ends. `pread(length, offset)` may raise
    OSError."""
    if len(data) == length or not data:
        return data
    parts = [data]
    read = len(data)
    while read < length and (data := pread(length - read, offset + read)):
        parts.append(data)
        read += len(data)
    return b"".join(parts)


def write_each(pwrite: Callable[[memoryview, int], int], buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
    """Write the buffers one behind the other, from the start, however small the parts are that `pwrite(data, offset)` takes.
    Return the number of bytes, which is all of them. OSError: some of it may be written."""
    written = 0
    for buffer in buffers:
        view = memoryview(buffer)
        while len(view):
            count = pwrite(view, offset + written)
            written += count
            view = view[count:]
    return written
