"""Logins by SCRAM under a name that nobody has: they are shown a salt, so that nothing tells who there is. Source: SE-12.

Kafka refuses such a login after its first message, so that anybody can try names. Here it gets a salt and a number of iterations
like those of a user, the same ones each time and on every node, and is refused with its proof, as a wrong password is.
"""

from __future__ import annotations

import hmac
import string
from collections.abc import Mapping
from typing import Final, Protocol

from kraftlite.model.principal import USER, Principal
from kraftlite.security.scram import MIN_ITERATIONS, ScramCredential, ScramIdentity

_LETTERS: Final = (string.digits + string.ascii_lowercase).encode()
"""The characters of which Kafka's tools make salts."""


class Kept(Protocol):
    """The part of a credential's record that is looked at."""

    @property
    def salt(self) -> bytes: ...

    @property
    def server_key(self) -> bytes: ...

    @property
    def iterations(self) -> int: ...


class UnknownUsers:
    """Credentials that nobody has a password for. They look like that of the first user with the mechanism, whose server key,
    which is told to nobody, is what makes them."""

    def __init__(self) -> None:
        self._seen: Mapping[tuple[str, int], Kept] | None = None
        self._examples: dict[int, Kept] = {}

    def identity(self, known: Mapping[tuple[str, int], Kept], name: str, mechanism: int) -> ScramIdentity:
        """`known`: the credentials there are, by name and mechanism; one that is handed in again is not looked through again."""
        if known is not self._seen:
            self._seen = known
            firsts = {kind: (user, kind) for user, kind in sorted(known, reverse=True)}
            self._examples = {kind: known[key] for kind, key in firsts.items()}
        example = self._examples.get(mechanism)
        salt, secret = (b"\0" * 16, b"nobody") if example is None else (example.salt, example.server_key)
        made = b"".join(_drawn(secret, f"salt {part} of {name}") for part in range(1 + len(salt) // 32))[: len(salt)]
        if all(it in _LETTERS for it in salt):
            made = bytes(_LETTERS[it % len(_LETTERS)] for it in made)
        iterations = MIN_ITERATIONS if example is None else example.iterations
        key = _drawn(secret, f"key of {name}")
        return ScramIdentity(ScramCredential(made, key, key, iterations), Principal(USER, name), is_known=False)


def _drawn(secret: bytes, what: str) -> bytes:
    return hmac.digest(secret, what.encode(), "sha256")
