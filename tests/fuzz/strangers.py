"""The doors that ask who one is: what comes before SASL and TLS have said yes.

Source: RFC 5246, RFC 8446; KIP-43; SE-03, SE-10.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.fuzz import mutate, values
from tests.fuzz.cases import Step
from tests.fuzz.values import Known
from tests.harness.wire_fakes import request_bytes

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "plain", "\0", "P" * 30_000)
_NAMES: Final = ("alice", "bob", "nobody", "", "=2C", "a" * 10_000, "ü", "\x1b[31m", "alice\0alice")
_SIZES: Final = (-1, 0, 1, 3, 2**31 - 1, -(2**31), 16 << 20, 524_288, 524_289, 65_536)
_RECORDS: Final = (20, 21, 22, 23, 24, 0, 128)
"""Types of TLS records: ChangeCipherSpec, alert, handshake, data, heartbeat, and none."""


class StrangersDrawer:
    """`sasl` and `tls` draw the steps of a case."""

    def __init__(self, rng: random.Random, known: Known) -> None:
        self.rng = rng
        self.known = known
        self._number = 0

    # --- SASL

    def sasl(self) -> Iterator[Step]:
        for conn in range(self.rng.choice((1, 1, 2))):
            if self.rng.randrange(2):
                yield self._step(conn, self._request(18, self.rng.choice((0, 3, 4, 77)), _VERSIONS), "ApiVersions")
            version = self.rng.choice((0, 1, 1, 2))
            mechanism = self.rng.choice(MECHANISMS) if self.rng.randrange(3) == 0 else self.rng.choice(MECHANISMS[:4])
            yield self._step(
                conn, self._request(17, min(version, 1), {"mechanism": mechanism}), f"SaslHandshake {mechanism[:20]}"
            )
            for _ in range(self.rng.choice((1, 2, 3))):
                token = self._token(mechanism)
                kind = self.rng.randrange(8)
                if kind == 0:
                    names = self.rng.choice((0, 1, 50_000))
                    yield self._step(conn, metadata_of(names), f"Metadata of {names} topics before authentication")
                elif version == 0 or kind == 1:
                    yield self._step(conn, token, "a bare token")
                else:
                    data = self._request(36, self.rng.choice((0, 1, 2)), {"auth_bytes": token})
                    yield self._step(conn, data, "SaslAuthenticate")

    def _request(self, key: int, version: int, body: dict[str, object]) -> bytes:
        self._number += 1
        known = {18: (0, 4), 17: (0, 1), 36: (0, 2), 3: (0, 12)}[key]
        frame = request_bytes(key, max(known[0], min(version, known[1])), body, self._number % 2**31)
        return frame[:2] + struct.pack(">h", version) + frame[4:]

    def _step(self, conn: int, payload: bytes, note: str) -> Step:
        rng = self.rng
        if rng.randrange(4) == 0:
            payload, note = mutate.damage(payload, rng), f"{note}, damaged"
        size = rng.choice(_SIZES) if rng.randrange(12) == 0 else len(payload)
        data = struct.pack(">i", size) + payload
        cuts = tuple(sorted(rng.sample(range(1, len(data)), min(4, len(data) - 1)))) if rng.randrange(6) == 0 else ()
        return Step(conn, data, cuts=cuts, note=note)

    def _token(self, mechanism: str) -> bytes:
        rng = self.rng
        name = rng.choice(_NAMES).encode()
        if rng.randrange(10) == 0:
            return values.junk(rng)
        if rng.randrange(12) == 0:
            return rng.choice((b"", b"\0" * 600_000, b"n,,n=" + b"=2C" * 170_000, b"n,,\1" + b"a=b\1" * 120_000))
        if mechanism == "PLAIN":
            return b"\0".join((rng.choice((b"", name)), name, rng.choice((b"", b"wrong", b"x" * 70_000))))
        if mechanism == "OAUTHBEARER":
            return b"n,,\1auth=Bearer " + self._bearer() + rng.choice((b"\1\1", b"\1x=y\1\1", b"\1", b""))
        first = b"n,,n=" + name + b",r=" + rng.choice((b"abc", b"", b",", b"x" * 60_000)) + rng.choice((b"", b",tokenauth=true"))
        final = b"c=biws,r=" + rng.choice((b"abc", b"abcdef")) + b",p=" + rng.choice((b"AAAA", b"", b"=" * 50, b"A" * 88))
        return rng.choice((first, first, final))

    def _bearer(self) -> bytes:
        rng = self.rng
        header = rng.choice(({"alg": "none"}, {"alg": "none"}, {"alg": "HS256"}, {"alg": []}, [], {"alg": "none", "crit": ["x"]}))
        sub = rng.choice(("zed", "", "\ud800", "x" * 40_000, 7, None, ["zed"], {"a": "b"}))
        # Not a whole token: nobody of a fuzzer gets in.
        claims = rng.choice(({"sub": sub, "exp": rng.choice((0, -1, 1e308, True, "soon", 10**40))}, {"sub": sub}, [], "x", None))
        nested = b"[" * 30_000 if rng.randrange(8) == 0 else json.dumps(claims).encode()
        parts = (json.dumps(header).encode(), nested)
        return b".".join(base64.urlsafe_b64encode(it).rstrip(b"=") for it in parts) + rng.choice((b".", b"", b".AAAA", b"..."))

    # --- TLS

    def tls(self) -> Iterator[Step]:
        rng = self.rng
        for conn in range(rng.choice((1, 1, 2, 3))):
            hello = client_hello(rng.choice(("localhost", "a" * 60, "127.0.0.1")), rng.choice((True, False)))
            draw = rng.choice((self._damaged, self._in_pieces, self._records, self._other, self._whole_then_more))
            yield from draw(conn, hello)

    def _damaged(self, conn: int, hello: bytes) -> Iterator[Step]:
        yield Step(conn, mutate.damage(hello, self.rng), note="ClientHello: damaged")
        yield Step(conn, mutate.damage(hello, self.rng), note="ClientHello: damaged, once more")

    def _in_pieces(self, conn: int, hello: bytes) -> Iterator[Step]:
        """Each record has a byte or two of the message; or there is a size that lies."""
        size = self.rng.choice((1, 2, 7))
        body = hello[5:]
        pieces = b"".join(_record(22, body[at : at + size]) for at in range(0, len(body), size))
        yield Step(conn, pieces, note="ClientHello: in tiny records")
        lies = bytearray(hello)
        lies[6:9] = self.rng.choice((b"\xff\xff\xff", b"\x00\x00\x00", b"\x01\x00\x00"))
        yield Step(conn + 10, bytes(lies), note="ClientHello: its size lies")

    def _records(self, conn: int, hello: bytes) -> Iterator[Step]:
        rng = self.rng
        made = (_record(rng.choice(_RECORDS), rng.randbytes(rng.choice((0, 1, 2, 40, 16_384, 20_000)))) for _ in range(8))
        data = b"".join(made) if rng.randrange(2) else hello + b"".join(made)
        yield Step(conn, data, note="records of all types")
        yield Step(conn, _record(20, b"\1") * rng.choice((1, 33, 3_000)), note="ChangeCipherSpec, many times")
        yield Step(conn, _record(22, b"") * 3_000, note="empty records")

    def _other(self, conn: int, hello: bytes) -> Iterator[Step]:
        rng = self.rng
        frame = request_bytes(18, 3, _VERSIONS, 1)
        data = rng.choice((values.junk(rng), b"\x80\x2e\x01\x00\x02" + bytes(41), b"GET / HTTP/1.1\r\n\r\n", b"\x16" * 70_000))
        yield Step(conn, rng.choice((data, struct.pack(">i", len(frame)) + frame)), note="no TLS")

    def _whole_then_more(self, conn: int, hello: bytes) -> Iterator[Step]:
        """A hello that is answered, and then what does not belong behind it."""
        rng = self.rng
        yield Step(conn, hello, note="ClientHello")
        more = rng.choice((hello, _record(23, rng.randbytes(200)), _record(21, b"\2\50"), _record(22, rng.randbytes(4_000)) * 20))
        yield Step(conn, more, note="what does not belong behind a ClientHello")
        yield Step(conn, mutate.damage(more, rng), note="and again")


_VERSIONS: Final[dict[str, object]] = {"client_software_name": "x", "client_software_version": "1"}
_METADATA: Final[dict[str, object]] = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def _record(kind: int, content: bytes) -> bytes:
    return struct.pack(">BHH", kind, 0x0303, min(len(content), 0xFFFF)) + content


@cache
def metadata_of(names: int) -> bytes:
    """A request, without its size, for as many topics: as many as may be sent before anybody has logged in."""
    return request_bytes(3, 9, {**_METADATA, "topics": [{"name": "t"}] * names}, 1)


@cache
def client_hello(name: str, newest: bool) -> bytes:
    """What a client says first, of TLS 1.3 or of 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")
