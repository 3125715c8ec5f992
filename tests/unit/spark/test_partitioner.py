"""Keys go where Kafka's own producers send them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlite.spark.sink.partitioner import murmur2_partition

# From Kafka's UtilsTest.testMurmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def murmur2(key: bytes) -> int:
    """The scalar form, as Kafka writes it; unsigned."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    found = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        found = found * m & mask ^ k
    if len(key) > whole:
        found = (found ^ int.from_bytes(key[whole:], "little")) * m & mask
    found = (found ^ found >> 13) * m & mask
    return found ^ found >> 15


def wanted(keys: list[bytes | None], partitions: int) -> list[int]:
    return [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


@pytest.mark.parametrize("key", KNOWN)
def test_known_hashes(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] & 0xFFFFFFFF
    for count in (1, 20):
        found = murmur2_partition(pa.array([key] * count, pa.binary()), 2**31 - 1)
        assert found.tolist() == [(KNOWN[key] & 0x7FFFFFFF) % (2**31 - 1)] * count


keys = st.lists(st.none() | st.binary(max_size=40) | st.binary(max_size=3), max_size=60)


@example([None], 3, 0)
@example([b"", None, b""], 3, 1)
@given(keys, st.integers(1, 2**31 - 1), st.integers(0, 5))
def test_every_key(found: list[bytes | None], partitions: int, low: int) -> None:
    array = pa.array(found, pa.binary())
    assert murmur2_partition(array, partitions).tolist() == wanted(found, partitions)
    assert murmur2_partition(array.slice(low), partitions).tolist() == wanted(found[low:], partitions)
    chunked: Any = pa.chunked_array([array, array.slice(low)])
    assert murmur2_partition(chunked, partitions).tolist() == wanted(found + found[low:], partitions)


def test_few_long_keys_among_many() -> None:
    found: list[bytes | None] = [b"x" * 9] * 30 + [bytes(range(256)) * size for size in (1, 3, 90)]
    assert murmur2_partition(pa.array(found), 12).tolist() == wanted(found, 12)


def test_text_and_no_keys() -> None:
    assert murmur2_partition(pa.array(["ä", None]), 9).tolist() == wanted(["ä".encode(), None], 9)
    assert murmur2_partition(pa.array([], pa.binary()), 9).tolist() == []
    assert murmur2_partition(pa.nulls(2), 9).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="0 partitions"):
        murmur2_partition(pa.array([b"k"]), 0)
