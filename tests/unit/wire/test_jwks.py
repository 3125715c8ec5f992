"""The keys that sign OAUTHBEARER tokens, read of a file and of servers of every kind. Source: KIP-768; SE-14."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jwt", reason="the extra oauth")

from kraftlite.runtime.trace.wire import SigningKeysRead, SigningKeysUnreadable
from kraftlite.security.oauthbearer import BadToken
from kraftlite.security.signed_tokens import Signed, SignedRules
from kraftlite.wire.jwks_driver import MAX_BYTES, UNKNOWN_PAUSE_MS, UNREADABLE, SigningKeys, read_url
from tests.harness.certificates import LOOPBACK, Authority, Stores
from tests.harness.local import wait_for
from tests.harness.wire_fakes import Harness, until
from tests.unit.security.test_signed_tokens import published, signed


@contextmanager
def serving(*answers: Callable[[socket.socket], object], first_bytes: bool = True) -> Iterator[str]:
    """A server that answers each connection by the next of these, and then by the last again. Yields its URL. `first_bytes`: it
    takes what comes first before."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        number = 0
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(20)
                try:
                    if first_bytes:
                        peer.recv(65_536)
                    answers[min(number, len(answers) - 1)](peer)
                except OSError:
                    pass  # the client has gone
            number += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/keys?of=all"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(20)


def http_answer(
    body: bytes, status: str = "200 OK", headers: str = "", length: int | None = None
) -> Callable[[socket.socket], object]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n{headers}\r\n"
    return lambda peer: peer.sendall(head.encode() + body)


def drip(peer: socket.socket, text: bytes = b"HTTP/1.1 200 OK\r\nX: ") -> None:
    """A byte at a time, for ever."""
    peer.sendall(text)
    while True:
        peer.sendall(b"x")
        threading.Event().wait(0.01)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http_answer(b"{", "500 Broken"), "status 500"),
        (http_answer(b"", "302 Found", "Location: http://127.0.0.1:9/\r\n"), "status 302"),
        (http_answer(b" " * (MAX_BYTES + 10)), "more than"),
        (http_answer(b"{}", length=100), "IncompleteRead"),
        (lambda peer: peer.sendall(b"SSH-2.0-OpenSSH_9\r\n"), "SSH"),
        (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000), "header line"),
        (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), "more than 100"),
        (lambda peer: None, "closed connection"),
    ],
)
def test_what_is_no_set_of_keys_is_an_error_of_few_kinds(answer: Callable[[socket.socket], object], said: str) -> None:
    with serving(answer) as url, pytest.raises(UNREADABLE) as caught:
        read_url(url)
    assert said in str(caught.value) or said in type(caught.value).__name__


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"H"])
def test_a_server_that_sends_byte_by_byte_holds_nobody(head: bytes) -> None:
    with serving(lambda peer: drip(peer, head)) as url, pytest.raises(TimeoutError, match="not there within"):
        read_url(url, 0.3)


def test_a_file_may_be_a_url(tmp_path: Path) -> None:
    path = tmp_path / "the keys.json"
    path.write_bytes(published("one"))
    assert read_url(f"file://{tmp_path}/the%20keys.json") == published("one")
    with pytest.raises(OSError, match="is not a file"):
        read_url(f"file://{tmp_path}")


async def test_keys_are_read_again_and_those_that_are_there_outlive_a_bad_answer() -> None:
    """SE-14: the first answers are none; then there is a set; an unknown key asks for the next one, at most once a minute."""
    async with Harness() as h:
        answers = (
            lambda peer: peer.sendall(b"no HTTP at all"),
            http_answer(json.dumps({"keys": "none"}).encode()),
            http_answer(published("one")),
            http_answer(b"", "503 Busy"),
            http_answer(published("one", "two")),
        )
        with serving(*answers) as url:
            keys = SigningKeys(h.context.ports, "L", SignedRules(url=url))
            keys.start()

            def told(kind: type[SigningKeysRead | SigningKeysUnreadable]) -> int:
                return sum(isinstance(event, kind) for event in h.tracer.events)

            async def seen(read: int, unreadable: int) -> None:
                """On a thread, which the loop's turns do not wait for."""
                await asyncio.to_thread(
                    wait_for,
                    "the next reading",
                    lambda: (told(SigningKeysRead), told(SigningKeysUnreadable)) == (read, unreadable),
                )
                await until(lambda: True)

            assert keys.current() is None
            await seen(0, 1)
            h.clock.advance(100)
            await seen(0, 2)
            h.clock.advance(200)
            await seen(1, 2)
            found = keys.current()
            assert found is not None and found.get("one") is not None
            keys.unknown()
            assert told(SigningKeysUnreadable) == 2, "the set has just been read"
            h.clock.advance(UNKNOWN_PAUSE_MS)
            keys.unknown()
            await seen(1, 3)
            assert keys.current() is found, "what cannot be read leaves those that are there"
            h.clock.advance(100)
            await seen(2, 3)
            found = keys.current()
            assert found is not None and found.get("two") is not None
            keys.stop()


class Https:
    """Answers over TLS, with a certificate of an authority of its own. `trust`: the settings of who knows that one."""

    def __init__(self, folder: Path, *, expired: bool = False, hosts: Sequence[str] = LOOPBACK) -> None:
        authority = Authority()
        self.stores = Stores(folder).write(authority.issue("keys", hosts, expired=expired), authority)
        self.trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.stores.trust)}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.stores.keys)

    def __call__(self, answer: Callable[[socket.socket], object]) -> Callable[[socket.socket], object]:
        def answered(peer: socket.socket) -> None:
            with self._context.wrap_socket(peer, server_side=True) as secure:
                secure.recv(65_536)
                answer(secure)

        return answered


def over_tls(url: str) -> str:
    return url.replace("http:", "https:")


def test_an_authority_of_ones_own_is_trusted_as_the_login_module_says(tmp_path: Path) -> None:
    """Kafka's JaasOptionsUtils: the options of the module are the settings of that client."""
    https = Https(tmp_path / "keys")
    with serving(https(http_answer(published("one"))), first_bytes=False) as url:
        assert read_url(over_tls(url), tls=https.trust) == published("one")
        with pytest.raises(UNREADABLE, match="CERTIFICATE_VERIFY_FAILED"):
            read_url(over_tls(url))
        texts = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": https.stores.trust.read_text()}
        assert read_url(over_tls(url), tls=texts) == published("one")
        wrong = {**https.trust, "ssl.truststore.location": str(tmp_path / "nothing.pem")}
        with pytest.raises(UNREADABLE, match=r"ssl\.truststore\.location"):
            read_url(over_tls(url), tls=wrong)


@pytest.mark.parametrize(("other", "said"), [({"expired": True}, "has expired"), ({"hosts": ("elsewhere",)}, "not valid for")])
def test_whose_certificate_does_not_hold_is_not_asked(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    https = Https(tmp_path / "keys", **other)
    with serving(https(http_answer(published("one"))), first_bytes=False) as url, pytest.raises(UNREADABLE, match=said):
        read_url(over_tls(url), tls=https.trust)


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x03", b"HTTP/1.1 200 OK\r\n"])
def test_a_handshake_has_a_bound_as_well(tmp_path: Path, first: bytes) -> None:
    """A peer that says nothing, or is slow with its first record, or does not speak TLS."""
    https = Https(tmp_path / "keys")
    with serving(lambda peer: drip(peer, first)) as url, pytest.raises(UNREADABLE):
        read_url(over_tls(url), 0.3, tls=https.trust)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http_answer(b"", "302 Found", "Location: https://127.0.0.1:9/\r\n"), "status 302"),
        (http_answer(b" " * (MAX_BYTES + 10)), "more than"),
        (drip, "not there within"),
    ],
)
def test_bounds_hold_over_tls_too(tmp_path: Path, answer: Callable[[socket.socket], object], said: str) -> None:
    https = Https(tmp_path / "keys")
    with serving(https(answer), first_bytes=False) as url, pytest.raises(UNREADABLE, match=said):
        read_url(over_tls(url), 2.0 if answer is drip else 10.0, tls=https.trust)


async def test_a_key_that_is_rotated_counts_without_a_restart(tmp_path: Path) -> None:
    """SE-14: a token of the new key asks for the set; when that has been read the same token lets in, and one of the key that was
    taken away does not."""
    https = Https(tmp_path / "keys")
    async with Harness() as h:
        now_ms = h.context.ports.clock.wall_ms()
        claims = {"sub": "alice", "exp": now_ms // 1000 + 3600, "iat": now_ms // 1000}
        old, new = signed(claims, kid="old"), signed(claims, kid="new")
        answers = (https(http_answer(published("old"))), https(http_answer(published("new"))))
        with serving(*answers, first_bytes=False) as url:
            rules = SignedRules(url=over_tls(url), tls=https.trust)
            keys = SigningKeys(h.context.ports, "L", rules)
            validator = Signed(rules, keys.current, keys.unknown)
            keys.start()

            async def read(times: int) -> None:
                def told() -> bool:
                    return sum(isinstance(event, SigningKeysRead) for event in h.tracer.events) == times

                await asyncio.to_thread(wait_for, "the next reading", told)

            await read(1)
            assert validator.validate(old, now_ms).name == "alice"
            h.clock.advance(UNKNOWN_PAUSE_MS)
            with pytest.raises(BadToken, match="not in the set"):
                validator.validate(new, now_ms)
            await read(2)
            assert validator.validate(new, now_ms).name == "alice"
            with pytest.raises(BadToken, match="not in the set"):
                validator.validate(old, now_ms)
            keys.stop()
