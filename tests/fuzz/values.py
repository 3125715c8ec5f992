"""The numbers and texts that break things, and what earlier answers have told: ids, epochs, members."""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import fields, is_dataclass
from typing import Any, Final
from uuid import UUID

TOPICS: Final = ("fuzz-a", "fuzz-b", "fuzz-compacted")
"""They exist in every target, with `PARTITIONS` partitions each."""
PARTITIONS: Final = 2
GROUPS: Final = ("fuzz-classic", "fuzz-modern", "fuzz-other")
TRANSACTIONS: Final = ("fuzz-txn", "fuzz-txn-2")
"""Transactional ids."""
STATE_TOPICS: Final = ("__transaction_state", "__consumer_offsets")
CANARY: Final = "canary"
"""The topic of the good client; no request of the fuzzer names it."""

TEXTS: Final = (
    "",
    " ",
    "x",
    "nope",
    "bad name!",
    ".",
    "..",
    *STATE_TOPICS,
    "__cluster_metadata",
    "\x00",
    "\x1b[31mred\x07",
    "ä" * 300,
    "a" * 249,
    "a" * 250,
    "a" * 32767,
    "‮\U0001f525",
    "0",
    "-1",
    "2147483648",
    "9" * 40,
    "1e400",
    "../../etc/passwd",
    "%s%n",
)
CONFIG_KEYS: Final = (
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "cleanup.policy",
    "max.message.bytes",
    "compression.type",
    "min.insync.replicas",
    "message.timestamp.type",
    "message.timestamp.after.max.ms",
    "segment.ms",
    "index.interval.bytes",
    "segment.index.bytes",
    "consumer.session.timeout.ms",
    "metrics",
    "interval.ms",
    "match",
    "producer_byte_rate",
)
CONFIG_VALUES: Final = (
    "",
    "0",
    "-1",
    "1",
    "14",
    "compact",
    "delete",
    "compact,delete",
    "LogAppendTime",
    "2147483648",
    "9" * 30,
    "x",
)


def integer(rng: random.Random, bits: int, signed: bool = True) -> int:
    """One that fits in `bits`: an end of the range, a power of two and its neighbours, or small."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice((low, low + 1, high, high - 1))
    if kind == 1:
        value = (1 << rng.randrange(bits)) + rng.choice((-1, 0, 1))
        return max(low, min(high, -value if signed and rng.randrange(3) == 0 else value))
    if kind == 2:
        return max(low, rng.choice((-2, -1, 0, 1, 2, 3, 10, 100)))
    return rng.randint(low, high)


def text(rng: random.Random) -> str:
    if rng.randrange(4) == 0:
        return "".join(chr(rng.choice((rng.randrange(1, 127), rng.randrange(1, 0xD7FF)))) for _ in range(rng.randrange(40)))
    return rng.choice(TEXTS)


def junk(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 7, 16, 61, 100, 1000)))


class Known:
    """What answers have told, by the name of the field; the newest few of each."""

    def __init__(self) -> None:
        self._found: dict[str, deque[Any]] = {}
        self.topic_ids: dict[str, UUID] = {}

    def tell(self, name: str, value: Any) -> None:
        if value in (None, "", 0, -1):
            return
        pool = self._found.setdefault(name, deque(maxlen=8))
        if value not in pool:
            pool.append(value)

    def learn(self, answer: Any) -> None:
        """Everything in a kio message that a later request may want to say."""
        if not is_dataclass(answer):
            return
        name = getattr(answer, "name", None) or getattr(answer, "topic", None)
        topic_id = getattr(answer, "topic_id", None)
        if name in TOPICS and isinstance(topic_id, UUID):
            self.topic_ids[str(name)] = topic_id
        for field in fields(answer):
            value = getattr(answer, field.name)
            if isinstance(value, tuple):
                for item in value[:20]:
                    self.learn(item)
            elif is_dataclass(value):
                self.learn(value)
            elif isinstance(value, (int, str)) and field.name not in ("name", "topic", "topic_name"):
                self.tell(field.name, value)

    def pick(self, rng: random.Random, name: str) -> Any:
        """None when nothing of that name is known."""
        for alias in (name, *_ALIASES.get(name, ())):
            if pool := self._found.get(alias):
                return rng.choice(pool)
        return None


_ALIASES: Final = {
    "current_leader_epoch": ("leader_epoch",),
    "member_epoch": ("generation_id",),
    "generation_id_or_member_epoch": ("member_epoch", "generation_id"),
    "last_fetched_epoch": ("leader_epoch",),
    "fetch_offset": ("high_watermark", "base_offset", "offset"),
    "committed_offset": ("offset", "base_offset"),
    "committed_leader_epoch": ("leader_epoch",),
    "offset": ("base_offset",),
    "v3_and_below_producer_id": ("producer_id",),
    "v3_and_below_producer_epoch": ("producer_epoch",),
}


def uvarint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag, as in records."""
    return uvarint((value << 1) ^ (value >> 63))


def pack(layout: str, value: int) -> bytes:
    """Like struct.pack, for a value that may not fit: it wraps."""
    size = struct.calcsize(">" + layout)
    return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "big")
