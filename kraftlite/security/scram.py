"""SASL/SCRAM, the server's side. Source: RFC 5802, RFC 7677; KIP-84, KIP-48 for tokens; Kafka's ScramSaslServer; SE-12.

Names are compared as they come, without the preparation of RFC 4013, as in Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftlite.model.principal import USER, Principal
from kraftlite.security.exchange import Authenticated, Reply, SaslRefused, check_size, refused_openly

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The mechanisms by the numbers that records and requests use."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
TOKEN_AUTH: Final = "tokenauth"
_NAME: Final = r"(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m=[^,\0]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_BASE64: Final = r"[A-Za-z0-9/+]+={0,2}"
_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class ScramCredential(NamedTuple):
    """The part of a password that a server keeps."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramIdentity:
    """A credential that was found, and whose it is: for a delegation token its owner."""

    credential: ScramCredential = field(repr=False)
    principal: Principal
    expires_ms: int | None = None
    is_known: bool = True
    """False: there is no such user, whatever proof comes; see `unknown_users`."""


FindIdentity = Callable[[str, bool], ScramIdentity | None]
"""By the name that the client gives; the flag tells that it is the id of a delegation token. None: there is none, which
the client may know."""


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2: a few milliseconds for 4096 iterations, so not for a loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_from(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Derive the keys from a salted password. Source: RFC 5802, 3."""
    algorithm = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored = hashlib.new(algorithm, client_key).digest()
    return ScramCredential(salt, stored, hmac.digest(salted, b"Server Key", algorithm), iterations)


class ScramServer:
    """A `ServerExchange` of two messages. `nonce`: printable, without commas, never used before."""

    def __init__(self, mechanism: str, find: FindIdentity, *, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._find = find
        self._nonce = nonce
        self._clients = ""
        """The client's part of it."""
        self._identity: ScramIdentity | None = None
        self._channel = ""
        self._bare = ""
        self._server_first = ""

    def evaluate(self, token: bytes, now_ms: int) -> Reply:
        check_size(token)
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslRefused("the message is not UTF-8") from None
        if self._identity is None:
            return Reply(self._first(text))
        return self._final(text, self._identity)

    def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise SaslRefused("Invalid SCRAM client first message format")
        name = unescaped(found["name"])
        is_token = _extension(found["extensions"], TOKEN_AUTH).lower() == "true"
        identity = self._find(name, is_token)
        if identity is None:
            raise SaslRefused("Authentication failed: Invalid user credentials")
        if found["authzid"] and unescaped(found["authzid"]) != name:
            raise refused_openly("Authentication failed: Client requested an authorization id that is different from username")
        credential = identity.credential
        if credential.iterations < MIN_ITERATIONS:
            raise SaslRefused(f"Iterations {credential.iterations} is less than the minimum {MIN_ITERATIONS}")
        self._identity = identity
        self._bare = found["bare"]
        self._channel = base64.b64encode(text.removesuffix(self._bare).encode()).decode()
        self._clients = found["nonce"]
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _final(self, text: str, identity: ScramIdentity) -> Reply:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise SaslRefused("Invalid SCRAM client final message format")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            twice = found["nonce"] == self._clients + self._nonce
            why = ": the client's part is in it twice, as librdkafka before 2.6.1 sends it" if twice else ""
            raise SaslRefused(f"Invalid client nonce in the final client message{why}.")
        if found["channel"] != self._channel:
            raise SaslRefused("the final message repeats another channel binding than the first one had")
        credential = identity.credential
        signed = f"{self._bare},{self._server_first},{found['unproved']}".encode()
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except ValueError:
            raise SaslRefused("Invalid SCRAM client final message format") from None
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslRefused("Invalid client credentials")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not identity.is_known:
            raise SaslRefused("Authentication failed: Invalid user credentials")
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise SaslRefused("Invalid client credentials")
        verifier = base64.b64encode(hmac.digest(credential.server_key, signed, self._hash))
        return Reply(b"v=" + verifier, Authenticated(identity.principal, identity.expires_ms))


def user_identity(name: str, credential: ScramCredential) -> ScramIdentity:
    return ScramIdentity(credential, Principal(USER, name))


def unescaped(name: str) -> str:
    """A name as it was before `,` and `=` were escaped (RFC 5802, 5.1)."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _extension(text: str, name: str) -> str:
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return ""
