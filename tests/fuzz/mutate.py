"""Mutations: of a request's values and lengths while it is a tree, and of its bytes."""

from __future__ import annotations

import random
import struct
from typing import Final
from uuid import UUID

from tests.fuzz import values
from tests.fuzz.tree import BLOBS, INTEGERS, Value
from tests.fuzz.values import uvarint

LIES: Final = (-1, -2, 0, 1, 2, 127, 128, 255, 256, 2**14, 2**15 - 1, 2**15, 2**20, 2**31 - 1, -(2**31), 2**32 - 1, 2**63)
BIG_ARRAY: Final = 30_000
BIG_TAGS: Final = 30_000
BIG_TEXT: Final = 200_000

COSTLY: Final = ("num_partitions", "count")
"""A number between these limits would be carried out: so many partitions are asked for, and made."""
COSTLY_RANGE: Final = range(8, 10_001)


def mutate(root: Value, rng: random.Random) -> list[str]:
    """Change one to three values in place; what was done, in words."""
    return [_mutate_one(root, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]


def _mutate_one(root: Value, rng: random.Random) -> str:
    it = rng.choice(list(root.walk()))
    if it.kind == "array":
        done = _array(it, rng)
    elif it.kind == "struct":
        done = _struct(it, rng)
    elif it.kind in INTEGERS:
        done = _integer(it, rng)
    elif it.kind == "string" or it.kind in BLOBS:
        done = _sized(it, rng)
    elif it.kind == "uuid":
        it.value = rng.choice((None, UUID(int=1), UUID(int=2**128 - 1), UUID(int=rng.getrandbits(128))))
        done = f"={it.value}"
    elif it.kind == "float64":
        it.value = rng.choice((float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1.7e308, -1.0))
        done = f"={it.value}"
    else:
        it.raw = bytes((rng.randrange(256),))
        done = f" raw {it.raw.hex()}"
    return f"{it.name or 'body'}{done}"


def _integer(it: Value, rng: random.Random) -> str:
    layout = INTEGERS[it.kind]
    it.value = values.integer(rng, 8 * struct.calcsize(">" + layout), layout.islower())
    if it.name in COSTLY and it.value in COSTLY_RANGE:
        it.value = 2**31 - 1
    return f"={it.value}"


def _array(it: Value, rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        it.items = None
        return " null"
    if kind == 1:
        it.items = []
        return " empty"
    if kind == 2 or not it.items:
        it.lie = rng.choice(LIES)
        return f" count {it.lie}"
    if kind == 3:
        times = rng.choice((2, 3, 3, 50, 1000, BIG_ARRAY))
        size = max(len(it.encode()), 1)
        times = max(2, min(times, 4_000_000 // size))
        it.items = it.items * times
        return f" times {times}"
    if kind == 4:
        it.items = it.items[::-1] + it.items
        return " reversed and doubled"
    it.items = it.items[:-1]
    it.lie = len(it.items) + 2
    return " one less than announced"


def _struct(it: Value, rng: random.Random) -> str:
    kind = rng.randrange(5)
    if it.items is None or not it.flexible or kind == 0:
        it.raw = rng.choice((b"", b"\xff", b"\x00", b"\x01", values.junk(rng)))
        return f" raw {len(it.raw)} bytes"
    if kind == 1:
        count = rng.choice((1, 1, 2, 2, 100, BIG_TAGS))
        it.tags = it.tags + [(rng.choice((n + 100, 2**31, 5)), b"") for n in range(count)]
        return f" and {count} unknown tags"
    if kind == 2:
        it.tags = [*it.tags, (rng.choice((0, 1, 2, 3, 10_000)), values.junk(rng))]
        return f" and tag {it.tags[-1][0]} with junk"
    if kind == 3:
        it.tags = it.tags[::-1] + it.tags
        return " tags reversed and doubled"
    it.lie = rng.choice(LIES)
    return f" {it.lie} tags announced"


def _sized(it: Value, rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        it.value = None
        return " null"
    if kind == 1:
        it.lie = rng.choice(LIES)
        return f" length {it.lie}"
    if it.kind == "string":
        it.value = "a" * BIG_TEXT if rng.randrange(12) == 0 and it.flexible else values.text(rng)
        if rng.randrange(10) == 0:
            it.value, it.raw = None, _broken_text(it.flexible)
            return " not UTF-8"
        return f"={it.value[:30]!r}"
    it.value = values.junk(rng) if it.value is None or rng.randrange(2) else damage(bytes(it.value), rng)
    return f" {len(it.value)} other bytes"


def _broken_text(flexible: bool) -> bytes:
    broken = b"\xff\xfe\xc0\x80\xed\xa0\x80"
    return (uvarint(len(broken) + 1) if flexible else struct.pack(">h", len(broken))) + broken


def damage(data: bytes, rng: random.Random) -> bytes:
    """Bytes with one to four things done to them."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not changed:
            return values.junk(rng)
        at = rng.randrange(len(changed))
        kind = rng.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = values.junk(rng)
        elif kind == 3:
            del changed[at : at + rng.choice((1, 2, 4, 8, 16))]
        elif kind == 4:
            size = rng.choice((1, 2, 4, 8))
            changed[at : at + size] = values.integer(rng, 8 * size).to_bytes(size, "big", signed=True)
        elif kind == 5:
            changed[at:at] = changed[max(0, at - rng.choice((4, 16, 64))) : at]
        else:
            changed[at] = rng.choice((0, 0x7F, 0x80, 0xFF))
    return bytes(changed)
