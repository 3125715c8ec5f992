"""TLS contexts and SASL exchanges of a client. Nothing here touches a socket.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), KIP-84.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kraftlite.client.settings import SaslSettings, TlsSettings

if TYPE_CHECKING:
    from kraftlite.tls.stores import KeyStoreSettings, TrustStoreSettings

MAX_ITERATIONS: Final = 1_000_000
"""More than any server asks for: a bound against one that would keep the client busy."""
MIN_ITERATIONS: Final = 4_096
_ITERATIONS: Final = re.compile("[1-9][0-9]{3,6}")
"""Every number from `MIN_ITERATIONS` to `MAX_ITERATIONS`, and few others."""
MAX_TOKEN_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(rb"[-_A-Za-z0-9]+\.[-_A-Za-z0-9]+\.[-_A-Za-z0-9]*")
_SHOWN: Final = 20
"""The most characters of a server's nonsense that a message repeats."""


class SaslError(Exception):
    """The server broke the rules of the exchange, or does not know the password either."""


class Exchange(Protocol):
    """One side of a SASL exchange: `answer(None)` is the first message, then one per challenge; None: nothing left to say."""

    def answer(self, challenge: bytes | None) -> bytes | None: ...


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises TlsError when a file or a text is not what it must be."""
    from kraftlite.tls.contexts import load
    from kraftlite.tls.settings import VERSIONS
    from kraftlite.tls.settings import TlsSettings as Whole

    keys, trust = stores(settings)
    versions = settings.versions or VERSIONS
    return load(Whole(keys=keys, trust=trust, versions=versions, suites=settings.suites, check_host=settings.check_host)).client


def stores(settings: TlsSettings) -> tuple[KeyStoreSettings, TrustStoreSettings]:
    """The stores in the words of those that read them."""
    from kraftlite.tls.stores import KeyStoreSettings, TrustStoreSettings

    keys = KeyStoreSettings(
        kind=settings.key_kind,
        location=settings.key_location,
        password=settings.key_store_password,
        chain=settings.key_chain,
        key=settings.key,
        key_password=settings.key_password,
    )
    trust = TrustStoreSettings(
        kind=settings.trust_kind,
        location=settings.trust_location,
        password=settings.trust_password,
        certificates=settings.trust_certificates,
    )
    return keys, trust


def exchange(settings: SaslSettings) -> Exchange:
    """A fresh one, for one connection. Raises SaslError when a token cannot be read."""
    if settings.mechanism == "PLAIN":
        return Plain(settings.username, settings.password)
    if settings.mechanism == "OAUTHBEARER":
        return Bearer(_token_of(settings))
    nonce = secrets.token_urlsafe(24)
    return Scram(settings.mechanism, settings.username, settings.password, nonce=nonce, token=settings.token)


class Plain:
    """One message. As `Exchange`."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def answer(self, challenge: bytes | None) -> bytes | None:
        return self._message if challenge is None else None


class Bearer:
    """One message with the token, and one that takes note of a refusal. As `Exchange`."""

    def __init__(self, token: str) -> None:
        self._message = f"n,,\1auth=Bearer {token}\1\1".encode()

    def answer(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return self._message
        return b"\1" if challenge else None


def _token_of(settings: SaslSettings) -> str:
    if settings.token_file is None:
        now = int(time.time())
        claims = {**dict(settings.claims), "iat": now, "exp": now + settings.lifetime_s}
        head, body = (base64.urlsafe_b64encode(json.dumps(it).encode()) for it in ({"alg": "none"}, claims))
        return f"{head.decode().rstrip('=')}.{body.decode().rstrip('=')}."
    try:
        with Path(settings.token_file).open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise SaslError(f"{settings.token_file}: {error.strerror or error}") from None
    found = _TOKEN.fullmatch(data.strip())
    if found is None or len(data) > MAX_TOKEN_BYTES:
        raise SaslError(
            f"{settings.token_file} has no token: allowed are at most {MAX_TOKEN_BYTES} bytes in three parts with dots"
        )
    return found[0].decode()


class Scram:
    """The client's side of SCRAM without channel binding. As `Exchange`; raises SaslError when the server does not prove that it
    knows the password. `nonce`: printable, without commas, never used before."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str, token: bool = False) -> None:
        """`token`: they are the id and the code of a delegation token."""
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._first = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}{',tokenauth=true' if token else ''}"
        self._expected: bytes | None = None
        self._step: Callable[[bytes], bytes | None] = self._final

    def answer(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return f"n,,{self._first}".encode()
        return self._step(challenge)

    def _final(self, challenge: bytes) -> bytes:
        server_first = challenge.decode("utf-8", "replace")
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server's nonce does not continue ours")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _unbase64(salt), _iterations(iterations))
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first},{server_first},{without_proof}".encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = self._mac(self._mac(salted, b"Server Key"), signed)
        self._step = self._verify
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        fields = _fields(challenge.decode("utf-8", "replace"))
        if "e" in fields:
            raise SaslError(f"the server refuses: {fields['e']}")
        assert self._expected is not None
        if not hmac.compare_digest(_unbase64(fields.get("v", "")), self._expected):
            raise SaslError("the server does not know the password")

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()


def _iterations(text: str) -> int:
    """The count is in ASCII digits (RFC 5802, posit-number): anything else that `int` takes, or fails on, is refused before."""
    if not _ITERATIONS.fullmatch(text) or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise SaslError(f"the server asks for {shown!r} iterations: allowed is {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise SaslError(f"not base64: {error}") from error
