"""Computes the partition of a coordinator's topic to which a key belongs. Source: CP-25."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"

_INT32: Final = 1 << 32
_MIN_INT32: Final = 1 << 31


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, wrapped to a signed 32-bit number."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        value = (31 * value + unit) % _INT32
    return value - _INT32 if value >= _MIN_INT32 else value


@lru_cache(maxsize=256)
def partition_for(key: str, partitions: int) -> int:
    """Kafka's `Utils.abs(hash) % partitions`, where the smallest number of all counts as 0."""
    value = java_hash(key)
    return 0 if value == -_MIN_INT32 else abs(value) % partitions
