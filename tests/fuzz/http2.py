"""Floods and lies in frames of HTTP/2, as a stranger sends them to a port that speaks gRPC: what costs its sender little.

Each is one write: the preface, settings, and then hundreds to thousands of frames. The frames are sound as frames; what they ask
for is too much, too often, or contradicts what came before.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4
PATHS: Final = (
    b"/kraftlite.v1.Controller/BrokerHeartbeat",
    b"/kraftlite.v1.Raft/Fetch",
    b"/kraftlite.v1.Raft/Vote",
    b"/kraftlite.v1.Replica/Fetch",
    b"/nowhere",
    b"",
)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", size: int | None = None) -> bytes:
    """`size`: what it says of its length; None: the truth."""
    length = len(payload) if size is None else size
    return length.to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _text(data: bytes) -> bytes:
    """A string of HPACK, without Huffman."""
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    out, size = bytearray((127,)), size - 127
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes((size,)) + data


def literal(name: bytes, value: bytes, *, indexed: bool = False) -> bytes:
    return (b"\x40" if indexed else b"\0") + _text(name) + _text(value)


def request(path: bytes) -> bytes:
    """The headers of a call."""
    return b"\x83\x86" + b"".join(
        literal(name, value)
        for name, value in ((b":path", path), (b":authority", b"x"), (b"content-type", b"application/grpc"), (b"te", b"trailers"))
    )


def _calls(rng: random.Random, count: int, behind: Callable[[int], bytes], flags: int = END_HEADERS) -> bytes:
    path = rng.choice(PATHS)
    return b"".join(frame(HEADERS, flags, stream, request(path)) + behind(stream) for stream in range(1, 2 * count, 2))


def _setting(number: int, value: int) -> bytes:
    return struct.pack(">HI", number, value)


def _settings(rng: random.Random) -> bytes:
    return b"".join(
        frame(SETTINGS, 0, 0, _setting(rng.randrange(8), rng.choice((0, 1, 2**14, 2**31 - 1, 2**32 - 1)))) for _ in range(2000)
    )


def _pings(rng: random.Random) -> bytes:
    return frame(PING, 0, 0, rng.randbytes(8)) * 5000


def _rapid_resets(rng: random.Random) -> bytes:
    return _calls(rng, 1000, lambda stream: frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))


def _continuations(rng: random.Random) -> bytes:
    path, more = rng.choice(PATHS), rng.choice((b"", literal(b"x" * 20, b"y" * 200) * 10))
    return frame(HEADERS, 0, 1, request(path)) + frame(CONTINUATION, 0, 1, more) * (5000 if not more else 100)


def _giant_headers(rng: random.Random) -> bytes:
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, request(b"/x") + literal(b"x", b"y" * 15_000)) for stream in range(1, 40, 2)
    )


def _small_references_to_a_large_header(rng: random.Random) -> bytes:
    large = literal(b"x", b"z" * 3900, indexed=True)
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, request(b"/x") + (large if stream == 1 else b"") + b"\xbe" * 8000)
        for stream in range(1, 40, 2)
    )


def _streams(rng: random.Random) -> bytes:
    return _calls(rng, 2000, lambda stream: b"")


def _no_window(rng: random.Random) -> bytes:
    return frame(SETTINGS, 0, 0, _setting(4, 0)) + _calls(rng, 600, lambda stream: frame(DATA, END_STREAM, stream, bytes(5)))


def _windows_beyond_their_bound(rng: random.Random) -> bytes:
    return frame(WINDOW_UPDATE, 0, rng.choice((0, 0, 1)), struct.pack(">I", rng.choice((0, 1, 2**31 - 1)))) * 3000


def _priorities(rng: random.Random) -> bytes:
    return b"".join(frame(PRIORITY, 0, stream, struct.pack(">IB", rng.choice((0, stream)), 5)) for stream in range(1, 4000, 2))


def _empty_data(rng: random.Random) -> bytes:
    return frame(HEADERS, END_HEADERS, 1, request(rng.choice(PATHS))) + frame(DATA, 0, 1) * 5000


def _oversized_messages(rng: random.Random) -> bytes:
    size = rng.choice((2**32 - 1, 2**31 - 1, 1 << 28))
    return _calls(rng, 50, lambda stream: frame(DATA, 0, stream, b"\0" + struct.pack(">I", size) + bytes(200)))


def _unknown_frames(rng: random.Random) -> bytes:
    return frame(rng.randrange(10, 256), rng.randrange(256), rng.randrange(2**31), rng.randbytes(50)) * 2000


def _going_away(rng: random.Random) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", rng.choice((0, 2**31 - 1)), rng.randrange(14))) * 500 + _streams(rng)[:20_000]


def _lying_frames(rng: random.Random) -> bytes:
    kinds = [rng.randrange(10) for _ in range(200)]
    return b"".join(
        frame(kind, rng.randrange(256), rng.choice((0, 1, 2, 2**31, 2**32 - 1)), rng.randbytes(rng.randrange(30)), size)
        for kind in kinds
        for size in (rng.choice((None, None, 0, 5, 2**24 - 1)),)
    )


FLOODS: Final[Mapping[str, Callable[[random.Random], bytes]]] = {
    made.__name__.strip("_").replace("_", " "): made
    for made in (
        _settings,
        _pings,
        _rapid_resets,
        _continuations,
        _giant_headers,
        _small_references_to_a_large_header,
        _streams,
        _no_window,
        _windows_beyond_their_bound,
        _priorities,
        _empty_data,
        _oversized_messages,
        _unknown_frames,
        _going_away,
        _lying_frames,
    )
}


def flood(rng: random.Random) -> tuple[str, bytes]:
    """(its name, what is sent on a new connection)."""
    name = rng.choice(sorted(FLOODS))
    settings = frame(SETTINGS, 0, 0) if rng.randrange(8) else b""
    return name, PREFACE + settings + FLOODS[name](rng)
