"""SASL/PLAIN. Source: RFC 4616; Kafka's PlainSaslServer for the texts; SE-11."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from kraftlite.model.principal import USER, Principal
from kraftlite.security.exchange import Authenticated, Reply, SaslRefused, check_size, refused_openly
from kraftlite.security.jaas import LoginModule

_USER: Final = "user_"
_NOBODY: Final = "\0"
"""No password: none contains the character that ends one."""


class PlainServer:
    """A `ServerExchange` of one message. `users`: the passwords by name."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def evaluate(self, token: bytes, now_ms: int) -> Reply:
        check_size(token)
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslRefused("the message is not UTF-8") from None
        if len(parts) != 3:
            raise SaslRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        asked, name, password = parts
        if not name:
            raise SaslRefused("Authentication failed: username not specified")
        if not password:
            raise SaslRefused("Authentication failed: password not specified")
        expected = self._users.get(name)
        # The comparison runs for an unknown name as well, so that its time does not tell.
        same = hmac.compare_digest((_NOBODY if expected is None else expected).encode(), password.encode())
        if expected is None or not same:
            raise refused_openly("Authentication failed: Invalid username or password")
        if asked and asked != name:
            raise refused_openly("Authentication failed: Client requested an authorization id that is different from username")
        return Reply(b"", Authenticated(Principal(USER, name)))


def plain_users(module: LoginModule) -> dict[str, str]:
    """Collect the users of a broker's `PlainLoginModule`: its options `user_NAME="PASSWORD"`. Raises ValueError."""
    found: dict[str, str] = {}
    for option, value in module.options.items():
        if option in ("username", "password"):  # with which Kafka's broker itself would log in
            continue
        if not option.startswith(_USER) or option == _USER:
            raise ValueError(f"{option} is no option of it: allowed are user_NAME, username and password")
        if not value or "\0" in value:
            raise ValueError(f"{option} has no password that a client could send")
        found[option.removeprefix(_USER)] = value
    return found
