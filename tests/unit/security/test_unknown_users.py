"""Names that nobody has, tried by SCRAM. SE-12."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kraftlite.client.security import Scram
from kraftlite.security.exchange import SaslRefused
from kraftlite.security.scram import NUMBERS, ScramCredential, ScramServer, credential_from, salted_password, user_identity
from kraftlite.security.unknown_users import UnknownUsers

MECHANISM = "SCRAM-SHA-512"
NUMBER = NUMBERS[MECHANISM]
Known = Mapping[tuple[str, int], ScramCredential]


def users(salt: bytes = b"3n5kz0w9x", iterations: int = 8192, **passwords: str) -> Known:
    found = {}
    for name, password in passwords.items():
        salted = salted_password(MECHANISM, password, salt, iterations)
        found[name, NUMBER] = credential_from(MECHANISM, salted, salt, iterations)
    return found


def server(known: Known, nobody: UnknownUsers) -> ScramServer:
    def find(name: str, _is_token: bool) -> object:
        found = known.get((name, NUMBER))
        return nobody.identity(known, name, NUMBER) if found is None else user_identity(name, found)

    return ScramServer(MECHANISM, find, nonce="server")  # type: ignore[arg-type]


def shown(known: Known, name: str, nobody: UnknownUsers | None = None) -> tuple[bytes, int]:
    """The salt and the iterations that a login under this name is shown."""
    first = server(known, nobody or UnknownUsers()).evaluate(f"n,,n={name},r=client".encode(), 0).token.decode()
    fields = dict(part.split("=", 1) for part in first.split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


def refusal(known: Known, name: str, password: str) -> SaslRefused:
    found, client = server(known, UnknownUsers()), Scram(MECHANISM, name, password, nonce="client")
    first = client.answer(None)
    assert first is not None
    proof = client.answer(found.evaluate(first, 0).token)
    assert proof is not None
    with pytest.raises(SaslRefused) as error:
        found.evaluate(proof, 0)
    return error.value


def test_se_12_nobody_is_refused_where_a_wrong_password_is_and_told_the_same() -> None:
    known = users(alice="secret")
    assert refusal(known, "alice", "guess").told is None
    assert refusal(known, "mallory", "guess").told is None


def test_se_12_nobody_looks_like_a_user_and_each_time_the_same() -> None:
    known = users(bob="x", alice="secret")
    salt, iterations = shown(known, "mallory")
    assert (len(salt), iterations) == (len(b"3n5kz0w9x"), 8192) and salt.isalnum() and salt == salt.lower()
    assert shown(known, "mallory", UnknownUsers()) == (salt, iterations), "another node shows the same"
    assert shown(users(bob="y", alice="secret"), "mallory") == (salt, iterations), "and so it is when another user changes"
    assert shown(known, "mallet")[0] != salt, "names have salts of their own, as users do"
    binary = shown(users(salt=bytes(range(200, 240)), alice="secret"), "mallory")[0]
    assert len(binary) == 40 and not binary.isalnum()


def test_se_12_users_that_come_and_go_are_seen() -> None:
    nobody = UnknownUsers()
    assert shown({}, "mallory", nobody)[1] == 4096
    assert shown(users(alice="secret"), "mallory", nobody)[1] == 8192
    assert shown({}, "mallory", nobody)[1] == 4096


def test_se_12_no_proof_lets_nobody_in() -> None:
    """Not even one that is right."""
    known = user_identity("mallory", users(mallory="secret")["mallory", NUMBER])
    for identity in (known, replace(known, is_known=False)):
        found = ScramServer(MECHANISM, lambda _name, _is_token, it=identity: it, nonce="server")  # type: ignore[misc]
        client = Scram(MECHANISM, "mallory", "secret", nonce="client")
        proof = client.answer(found.evaluate(client.answer(None) or b"", 0).token) or b""
        if identity.is_known:
            assert found.evaluate(proof, 0).outcome is not None
        else:
            with pytest.raises(SaslRefused, match="Invalid user credentials"):
                found.evaluate(proof, 0)
