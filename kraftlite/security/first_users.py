"""The users that a closed cluster begins with, and their credentials as `format --add-scram` takes them (KIP-900)."""

from __future__ import annotations

import base64
import secrets
from typing import Final

from kraftlite.security.scram import salted_password

ADMIN: Final = "admin"
FIRST_USERS: Final = (ADMIN, "alice", "bob")
MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 4_096
_PASSWORD_BYTES: Final = 18
_SALT_BYTES: Final = 18


def new_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def add_scram_argument(user: str, password: str) -> str:
    """The credential of a user with its password salted, so that every node can be given the same one."""
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = salted_password(MECHANISM, password, salt, ITERATIONS)
    fields = {
        "name": user,
        "salt": base64.b64encode(salt).decode(),
        "saltedpassword": base64.b64encode(salted).decode(),
        "iterations": str(ITERATIONS),
    }
    return f"{MECHANISM}=[{','.join(f'{name}={_quoted(value)}' for name, value in fields.items())}]"


def _quoted(value: str) -> str:
    return f'"{value}"'
