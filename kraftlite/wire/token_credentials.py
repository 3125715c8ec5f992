"""SCRAM credentials of delegation tokens: the id of a token is the name, and its code in base64 the password.

A token's record has no credential. One is derived when a token logs in for the first time, off the loop, because that takes some
milliseconds, and kept for later logins. Source: KIP-48; SE-16.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.tokens import token_secret
from kraftlite.model.principal import Principal
from kraftlite.security.scram import (
    MIN_ITERATIONS,
    NUMBERS,
    ScramCredential,
    ScramIdentity,
    credential_from,
    salted_password,
)
from kraftlite.security.tokens import has_expired, token_password

MAX_KEPT: Final = 10_000
_NAMES: Final = {number: name for name, number in NUMBERS.items()}


class CredentialPending(Exception):
    """The credential has to be computed first: `keep` takes what `compute`, which takes its time, returns."""

    def __init__(self, compute: Callable[[], ScramCredential], keep: Callable[[ScramCredential], None]) -> None:
        super().__init__("a credential is being derived")
        self.compute = compute
        self.keep = keep


class TokenCredentials:
    """The credentials that were derived lately, by token and mechanism."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], ScramCredential] = OrderedDict()

    def identity(self, ctx: BrokerContext, token_id: str, mechanism: int) -> ScramIdentity | None:
        """None for a token that is not there, or has expired. Raises CredentialPending."""
        secret = token_secret(ctx)
        token = ctx.metadata.image.delegation_tokens.tokens.get(token_id)
        if secret is None or token is None or has_expired(token, ctx.clock.wall_ms()):
            return None
        key = (token_id, mechanism)
        credential = self._kept.get(key)
        if credential is None:
            raise CredentialPending(lambda: _derived(secret, token_id, mechanism), lambda it: self._keep(key, it))
        self._kept.move_to_end(key)
        owner = Principal.written(token.owner)._replace(token_authenticated=True)
        return ScramIdentity(credential, owner, token.expiration_timestamp_ms)

    def _keep(self, key: tuple[str, int], credential: ScramCredential) -> None:
        self._kept[key] = credential
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)


def _derived(secret: str, token_id: str, mechanism: int) -> ScramCredential:
    name, salt = _NAMES[mechanism], secrets.token_bytes(16)
    salted = salted_password(name, token_password(secret, token_id), salt, MIN_ITERATIONS)
    return credential_from(name, salted, salt, MIN_ITERATIONS)
