r"""The history of a producer, in which it says what it was told: one JSON object a line, in files `*.jsonl`.

A record:

    {"topic": "orders", "partition": 3, "offset": 1841, "key": "k", "value": "v", "time_ms": 1795289349629}

| field | meaning |
|---|---|
| `topic`, `partition` | where it went; the partition may be absent (or -1) where `error` says that nobody knows |
| `offset` | where it was acknowledged; absent or -1: not acknowledged |
| `key` or `key_b64` | text, or base64; null: no key; absent: not known |
| `value` or `value_b64` | text, or base64; null: a tombstone |
| `value_hash` | instead of the value: `<algorithm>:<hex>` of its bytes, `crc32` or one of hashlib's (`sha256:9f86…`) |
| `checksum` | instead of both: `kraftlite.local.stream.checksum(key, value)`, an integer |
| `producer`, `seq` | who sent it, and its number there: records of one producer and partition must lie in the order of `seq` |
| `time_ms` | when the answer came; `sent_ms`: when it was sent (wall milliseconds) |
| `error` | why it was not acknowledged (a Kafka error name) |

A failure that was caused on purpose, which `failover-report` times everything from:

    {"event": "kill", "node": 4, "time_ms": 1795289353790}

with `event` one of kill, stop, pause, resume, cut, heal, start. Lines that are neither are refused with file and line number.
`python -m kraftlite.local.demo --history FILE` writes both.

An acknowledged record without any of value, value_hash and checksum is looked for by its offset alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraftlite.client.opening import open_at_once
from kraftlite.host.files import MAX_LINE_BYTES, bounded_lines

FAILURES: Final = ("kill", "stop", "pause", "cut")
RECOVERIES: Final = ("start", "resume", "heal")
ABSENT: Final = "absent"


class HistoryError(ValueError):
    """A line that is not of the format; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One record of a history. `offset` -1: not acknowledged.

    Its content is checked with `proof` by `algorithm`: "kv" (checksum of key and value), "v" (CRC-32 of the value), one of
    hashlib's (the first 64 bits of the value's digest), or "" (nothing is known).
    """

    topic: str
    partition: int
    offset: int
    algorithm: str
    proof: int
    producer: str
    seq: int
    time_ms: int
    sent_ms: int
    error: str
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Injected:
    """A failure that was caused, or its end. `by`: who did it, where the cluster's ledger of faults tells."""

    event: str
    node: int
    time_ms: int
    by: str = ""


def checksum(key: bytes | None, value: bytes | None) -> int:
    """Compute the checksum as `kraftlite.local.stream.checksum` does; a tombstone counts as an empty value."""
    return zlib.crc32(value or b"", zlib.crc32(key) if key is not None else 1)


def proofs_of(algorithm: str, keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[int]:
    """Compute the `proof` that each record must have. ValueError for an unknown algorithm."""
    if algorithm == "kv":
        return [checksum(key, value) for key, value in zip(keys, values, strict=True)]
    if algorithm == "v":
        return [zlib.crc32(value or b"") for value in values]
    return [int.from_bytes(hashlib.new(algorithm, value or b"").digest()[:8]) for value in values]


def history_files(patterns: Iterable[str]) -> list[str]:
    """The files that patterns name, each once, sorted. Raises HistoryError for a pattern that names none."""
    found: set[str] = set()
    for pattern in patterns:
        path = Path(pattern).expanduser().absolute()
        files = [str(file) for file in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if file.is_file()]
        if not files:
            raise HistoryError(f"{pattern}: there is no such file")
        found |= set(files)
    return sorted(found)


def read_history(path: str, *, longest: int = MAX_LINE_BYTES) -> Iterator[Sent | Injected]:
    """The lines of one file. Raises HistoryError; a last line without an end is left out (its writer was killed)."""
    try:
        with open_at_once(path) as file:
            for number, line in enumerate(bounded_lines(file, longest), start=1):
                if line.strip():
                    try:
                        yield _parse(json.loads(line), path, number)
                    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
                        if not line.endswith(b"\n"):
                            return
                        raise HistoryError(f"{path}:{number}: {error or type(error).__name__}") from None
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}") from None
    except HistoryError:
        raise
    except ValueError as error:  # of a line that has no end
        raise HistoryError(f"{path}: {error}") from None


def _parse(line: dict[str, Any], file: str, number: int) -> Sent | Injected:
    if "event" in line:
        event = str(line["event"])
        if event not in (*FAILURES, *RECOVERIES):
            raise ValueError(f"event {event!r}: allowed are {', '.join((*FAILURES, *RECOVERIES))}")
        return Injected(event, _whole(line, "node"), _whole(line, "time_ms"))
    if not isinstance(line.get("topic"), str):
        raise ValueError("neither a record (topic) nor an event")
    error = str(line.get("error") or "")
    offset, partition = line.get("offset"), line.get("partition")
    if not error and (offset is None or partition is None):
        raise ValueError("an acknowledged record needs partition and offset, another one an error")
    algorithm, proof = _proof(line)
    return Sent(
        topic=sys.intern(line["topic"]),
        partition=-1 if partition is None else _whole(line, "partition"),
        offset=-1 if offset is None or error else _whole(line, "offset"),
        algorithm=algorithm,
        proof=proof,
        producer=sys.intern(str(line.get("producer", ""))),
        seq=_whole(line, "seq"),
        time_ms=_whole(line, "time_ms"),
        sent_ms=_whole(line, "sent_ms"),
        error=sys.intern(error),
        file=file,
        line=number,
    )


def _whole(line: dict[str, Any], name: str) -> int:
    """A number of 64 bits; -1 where there is none."""
    found = int(line.get(name, -1))
    if not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"{name} is no number of 64 bits")
    return found


def _proof(line: dict[str, Any]) -> tuple[str, int]:
    if "checksum" in line:
        return "kv", int(line["checksum"]) & 0xFFFFFFFF
    if "value_hash" in line:
        algorithm, colon, digest = str(line["value_hash"]).partition(":")
        if not colon or (algorithm != "crc32" and algorithm not in hashlib.algorithms_guaranteed):
            raise ValueError(f"value_hash {line['value_hash']!r}: allowed is algorithm:hex")
        return ("v", int(digest, 16)) if algorithm == "crc32" else (algorithm, int.from_bytes(bytes.fromhex(digest)[:8]))
    value = _bytes(line, "value")
    if isinstance(value, str):
        return "", 0
    key = _bytes(line, "key")
    if isinstance(key, str):
        return "v", proofs_of("v", [None], [value])[0]
    return "kv", checksum(key, value)


def _bytes(line: dict[str, Any], name: str) -> bytes | str | None:
    """Content, None for null, ABSENT when the line does not say."""
    if f"{name}_b64" in line:
        encoded = line[f"{name}_b64"]
        try:
            return None if encoded is None else base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name}_b64: {error}") from None
    if name not in line:
        return ABSENT
    text = line[name]
    return None if text is None else str(text).encode()
