"""The partitions to which a column of keys goes.

Source: Kafka's Utils.murmur2 and BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftlite.columns.varints import I64

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_FEW: Final = 8
"""So few keys, longer than all others, are hashed one by one."""


def murmur2_partition(keys: Any, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key (an array of binary or string) as Kafka's producers choose it; -1 for null. Raises
    ValueError for less than one partition."""
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    if isinstance(keys, pa.ChunkedArray):
        parts = [murmur2_partition(chunk, partitions) for chunk in keys.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
    keys = keys.cast(pa.binary())
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        hashed = _murmur2(np.zeros(1, np.uint8), np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64))
    else:
        edges = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
        hashed = _murmur2(np.frombuffer(data, np.uint8), edges[:-1], np.diff(edges))
    found = ((hashed & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def _murmur2(data: npt.NDArray[np.uint8], at: I64, size: I64) -> npt.NDArray[np.uint32]:
    """Return the hash of the `size` bytes at each `at`. One step mixes four bytes into every hash whose key still has them."""
    m = np.uint32(_M)
    hashed = np.uint32(_SEED) ^ size.astype(np.uint32)
    blocks = size >> 2
    if data.size >= 4:
        words = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))
        going = np.flatnonzero(blocks)
        step = 0
        while going.size > _FEW:
            k = words[at[going] + 4 * step] * m
            k ^= k >> np.uint32(24)
            hashed[going] = hashed[going] * m ^ k * m
            step += 1
            going = going[blocks[going] > step]
        for index in going.tolist():
            low, high = int(at[index]) + 4 * step, int(at[index]) + 4 * int(blocks[index])
            hashed[index] = _mix(int(hashed[index]), data[low:high].tobytes())
    tail = at + (blocks << 2)
    left = size & 3
    for byte in (2, 1, 0):
        having = np.flatnonzero(left > byte)
        hashed[having] ^= data[tail[having] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashed[left > 0] *= m
    hashed ^= hashed >> np.uint32(13)
    hashed *= m
    hashed ^= hashed >> np.uint32(15)
    return hashed


def _mix(hashed: int, blocks: bytes) -> int:
    """Whole blocks of one key."""
    for (block,) in struct.iter_unpack("<I", blocks):
        k = block * _M & _MASK
        k ^= k >> 24
        hashed = hashed * _M & _MASK ^ k * _M & _MASK
    return hashed
