"""The configuration of clusters with an authorizer, as the theme `security` draws it."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from kraftlite.model.principal import USER, Principal
from kraftlite.security.scram import HASHES, MIN_ITERATIONS, salted_password
from kraftlite.sim.shape import Shape
from kraftlite.sim.themes import SECURITY

ADMIN: Final = Principal(USER, "admin")
"""A super user."""
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FIRST_USER: Final = "first"
FIRST_PASSWORD: Final = "first-hunter2"
"""The user with which such a cluster is formatted, and whom nobody changes (KIP-900)."""
_SALT: Final = b"salt-of-the-first"
TOKENS: Final[Mapping[str, str]] = {
    "delegation.token.secret.key": "secret-of-the-tokens",
    "delegation.token.max.lifetime.ms": "40000",
    "delegation.token.expiry.time.ms": "15000",
    "delegation.token.expiry.check.interval.ms": "2000",
}


@cache
def first_users() -> tuple[str, ...]:
    """The arguments of `format --add-scram`, whose salts are not drawn."""
    salt, found = base64.b64encode(_SALT).decode(), []
    for mechanism in HASHES:
        salted = base64.b64encode(salted_password(mechanism, FIRST_PASSWORD, _SALT, MIN_ITERATIONS)).decode()
        found.append(f"{mechanism}=[name={FIRST_USER},salt={salt},saltedpassword={salted}]")
    return tuple(found)


def added_users(theme: str) -> tuple[str, ...]:
    return first_users() if theme == SECURITY else ()


def vary(shape: Shape, seed: int) -> Shape:
    rng = random.Random(f"security/{seed}")
    config = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": str(ADMIN),
        "allow.everyone.if.no.acl.found": rng.choice(("false", "false", "true")),
        **TOKENS,
    }
    return replace(shape, config={**shape.config, **config})
