"""Messages of strangers to every mechanism: they are answered or refused, soon, and nobody gets in. SE-10 to SE-14."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.client.security import Scram
from kraftlite.security.exchange import MAX_MESSAGE_BYTES, SaslRefused, ServerExchange
from kraftlite.security.oauthbearer import OAuthBearerServer, Unsecured, UnsecuredRules
from kraftlite.security.plain import PlainServer
from kraftlite.security.scram import ScramServer, credential_from, salted_password, user_identity

NOW_MS = 1_700_000_000_000
LOOP_S = 0.3
"""The promise of docs/ROBUSTNESS.md."""
CREDENTIAL = credential_from("SCRAM-SHA-256", salted_password("SCRAM-SHA-256", "secret", b"salt", 4096), b"salt", 4096)


def scram() -> ServerExchange:
    return ScramServer(
        "SCRAM-SHA-256", lambda name, token: user_identity(name, CREDENTIAL) if name == "alice" else None, nonce="server"
    )


def plain() -> ServerExchange:
    return PlainServer({"alice": "secret"})


def oauth() -> ServerExchange:
    return OAuthBearerServer(Unsecured(UnsecuredRules()))


SERVERS: list[Callable[[], ServerExchange]] = [scram, plain, oauth]


def part(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def bearer(claims: object, header: object = {"alg": "none"}) -> bytes:
    return b"n,,\1auth=Bearer " + part(header) + b"." + part(claims) + b".\1\1"


def answered(server: ServerExchange, *messages: bytes) -> bool:
    """Whether somebody got in."""
    for message in messages:
        try:
            reply = server.evaluate(message, NOW_MS)
        except SaslRefused:
            return False
        if reply.outcome is not None:
            return True
    return False


_SCRAM = (
    b"n,,|y,,|p=tls-unique,,|n,a=alice,|n=alice|n=bob|,r=|abc|,m=x|,tokenauth=true|c=biws|,p=|=2C|=3D|=|,|i=2147483648|s=|AAAA"
)
_OTHERS = b"\0|\1|\xff|\xed\xa0\x80|auth=Bearer |a.b.c|\r\n|alice|eyJhbGciOiJub25lIn0|.|server"
PIECES = st.sampled_from([*_SCRAM.split(b"|"), *_OTHERS.split(b"|")])


@pytest.mark.parametrize("make", SERVERS)
@given(messages=st.lists(st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=12).map(b"".join)), min_size=1, max_size=3))
def test_no_message_ends_otherwise_than_by_an_answer_or_a_refusal(
    make: Callable[[], ServerExchange], messages: list[bytes]
) -> None:
    assert not answered(make(), *messages)


@given(cut=st.integers(0, 200), put=st.binary(max_size=3), at=st.integers(0, 1))
def test_a_damaged_scram_lets_nobody_in(cut: int, put: bytes, at: int) -> None:
    """One byte changed, lost, or more of them: of the first message or of the proof."""
    server, client = scram(), Scram("SCRAM-SHA-256", "alice", "secret", nonce="client")
    first = client.answer(None)
    assert first is not None
    damaged = first[:cut] + put + first[cut + 1 :]
    if at == 0:
        if damaged != first and b"n=alice,r=" not in damaged:
            assert not answered(server, damaged)
        return
    proof = client.answer(server.evaluate(first, NOW_MS).token)
    assert proof is not None
    damaged = proof[:cut] + put + proof[cut + 1 :]
    assert answered(server, damaged) == (damaged == proof)


@pytest.mark.parametrize("nonce", ["", "client", "clientserve", "clientserver2", "serverclient", "clientSERVER"])
def test_only_the_nonce_of_both_is_taken(nonce: str) -> None:
    server = scram()
    server.evaluate(b"n,,n=alice,r=client", NOW_MS)
    with pytest.raises(SaslRefused, match=r"nonce|format"):
        server.evaluate(f"c=biws,r={nonce},p={'A' * 43}=".encode(), NOW_MS)


HUGE = MAX_MESSAGE_BYTES - 200


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=" + b"a" * HUGE + b",r=x",
        b"n,,n=" + b"=2C" * (HUGE // 3) + b",r=x",
        b"n,,n=" + b"=2C" * (HUGE // 3) + b",",
        b"n,,n=a,r=x" + b",a=b" * (HUGE // 4) + b"\0",
        b"n,,n=alice,r=" + b"x" * HUGE,
        b"\0" * HUGE,
        b"\0alice\0" + b"x" * HUGE,
        b"n,,\1" + b"a=b\1" * (HUGE // 4),
        b"n,a=" + b"=2C" * (HUGE // 3) + b",\1",
        b"n,,\1auth=Bearer " + b"a" * HUGE + b"\1\1",
        b"n,,\1auth=Bearer eyJhbGciOiJub25lIn0." + base64.urlsafe_b64encode(b"[" * 40_000).rstrip(b"=") + b".\1\1",
        b"n,,\1auth=Bearer eyJhbGciOiJub25lIn0." + base64.urlsafe_b64encode(b'{"a":' * 8_000).rstrip(b"=") + b".\1\1",
        b"n,,\1auth=Bearer eyJhbGciOiJub25lIn0." + base64.urlsafe_b64encode(b'{"exp":' + b"9" * 40_000).rstrip(b"=") + b".\1\1",
        b"x" * (MAX_MESSAGE_BYTES + 1),
        b"n,,n=" + b"=2C" * 160_000,
    ],
    ids=range(15),
)
@pytest.mark.parametrize("make", SERVERS)
@pytest.mark.usefixtures("uncollected")
def test_no_message_holds_the_loop(make: Callable[[], ServerExchange], message: bytes) -> None:
    before = time.thread_time()
    assert not answered(make(), message)
    assert time.thread_time() - before < LOOP_S


LATER = NOW_MS // 1000 + 60


@pytest.mark.parametrize(
    ("claims", "header"),
    [
        ({"sub": "alice", "exp": LATER}, {"alg": "HS256"}),
        ({"sub": "alice", "exp": LATER}, {"alg": ["none"]}),
        ({"sub": "alice", "exp": LATER}, {"alg": "None"}),
        ({"sub": "alice", "exp": LATER}, ["alg", "none"]),
        ({"sub": "alice", "exp": LATER - 120}, {"alg": "none"}),
        ({"sub": "alice", "exp": float("nan")}, {"alg": "none"}),
        ({"sub": "alice", "exp": float("inf")}, {"alg": "none"}),
        ({"sub": "alice", "exp": 10**30}, {"alg": "none"}),
        ({"sub": "alice", "exp": True}, {"alg": "none"}),
        ({"sub": "alice", "exp": {"a": 1}}, {"alg": "none"}),
        ({"sub": ["alice"], "exp": LATER}, {"alg": "none"}),
        ({"sub": "", "exp": LATER}, {"alg": "none"}),
        ({"sub": "ali\ud800ce", "exp": LATER}, {"alg": "none"}),
        ({"exp": LATER}, {"alg": "none"}),
        ([], {"alg": "none"}),
        ("alice", {"alg": "none"}),
    ],
)
def test_no_odd_token_lets_anybody_in(claims: Any, header: Any) -> None:
    assert not answered(oauth(), bearer(claims, header), b"\1")


def test_a_sound_token_lets_in() -> None:
    assert answered(oauth(), bearer({"sub": "alice", "exp": LATER}))
