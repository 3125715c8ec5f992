"""SCRAM credentials with which a cluster begins: `--add-scram` of format. Source: KIP-900; Kafka's ScramParser for the texts;
SE-13.

No text of an error repeats a password, which Kafka's do.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.metadata.records import UserScramCredentialRecord
from kraftlite.security.scram import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    NUMBERS,
    credential_from,
    salted_password,
)

_SALT_BYTES: Final = 16
_KNOWN: Final = ("name", "salt", "iterations", "password", "saltedpassword")


def scram_records(arguments: Sequence[str], random_bytes: Callable[[int], bytes]) -> list[UserScramCredentialRecord]:
    """The records of `SCRAM-SHA-256=[name=alice,password=…]` and its like. Raises ValueError."""
    return [_record(argument.strip(), random_bytes) for argument in arguments]


def _record(argument: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    mechanism, equals, config = argument.partition("=")
    if not equals:
        raise ValueError("Failed to find equals sign in SCRAM argument")
    if mechanism not in HASHES:
        raise ValueError(f"The add-scram mechanism {mechanism} is not supported.")
    if not config.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not config.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    given = _components(config[1:-1])
    if "name" not in given:
        raise ValueError("You must supply 'name' to add-scram")
    if not given["name"]:
        raise ValueError("The 'name' of add-scram must not be empty")
    if given.get("password") == "":
        raise ValueError("The 'password' of add-scram must not be empty")
    salt = _unbase64(given["salt"], "salt") if "salt" in given else random_bytes(_SALT_BYTES)
    iterations = _iterations(given.get("iterations", str(MIN_ITERATIONS)))
    salted = _salted_password(mechanism, given, salt)
    unknown = [name for name in sorted(given) if name not in _KNOWN or (name == "saltedpassword" and "password" in given)]
    if unknown:
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    for wrong, sign, bound in (
        (iterations < MIN_ITERATIONS, ">=", MIN_ITERATIONS),
        (iterations > MAX_ITERATIONS, "<=", MAX_ITERATIONS),
    ):
        if wrong:
            raise ValueError(f"The 'iterations' value must be {sign} {bound} for add-scram using {mechanism.replace('-', '_')}")
    found = credential_from(
        mechanism, salted or salted_password(mechanism, given["password"], salt, iterations), salt, iterations
    )
    return UserScramCredentialRecord(name=given["name"], mechanism=NUMBERS[mechanism], **found._asdict())


def _components(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for component in text.split(","):
        name, equals, value = component.partition("=")
        if not equals:
            raise ValueError("No equals sign found in SCRAM component")
        quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        found[name] = value[1:-1] if quoted else value
    return found


def _salted_password(mechanism: str, given: dict[str, str], salt: bytes) -> bytes | None:
    """The salted password that is given instead of a password; None: there is a password."""
    if "password" in given:
        return None
    if "saltedpassword" not in given:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "salt" not in given:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    return _unbase64(given["saltedpassword"], "saltedPassword")


def _unbase64(text: str, name: str) -> bytes:
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        found = b""
    if not found:
        raise ValueError(f"Failed to decode given {name}")
    return found


def _iterations(text: str) -> int:
    try:
        if len(text) > 11:
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(f"Failed to parse iterations count: {text[:40]}") from None
