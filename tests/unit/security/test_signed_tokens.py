"""Tokens that a key has signed, and the set of keys. SE-14."""

from __future__ import annotations

import json
from typing import Any

import pytest

jwt = pytest.importorskip("jwt", reason="the extra oauth")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa", reason="the extra oauth")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec", reason="the extra oauth")

from kraftlite.security.oauthbearer import BadToken  # noqa: E402
from kraftlite.security.signed_tokens import KeySet, Signed, SignedRules  # noqa: E402

NOW_S = 1_700_000_000
GOOD = {"sub": "alice", "exp": NOW_S + 60, "iat": NOW_S, "aud": "kafka", "iss": "https://issuer"}
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def published(*kids: str, algorithm: str | None = "RS256") -> bytes:
    """`algorithm` None: the keys name none."""
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    key |= {} if algorithm is None else {"alg": algorithm}
    return json.dumps({"keys": [{**key, "kid": kid, "use": "sig"} for kid in kids]}).encode()


def signed(claims: dict[str, Any], *, key: Any = KEY, kid: str = "one", algorithm: str = "RS256") -> str:
    return str(jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid}))


class Checked:
    def __init__(self, **rules: Any) -> None:
        self.keys: KeySet | None = KeySet.parse(published("one"))
        self.unknown = 0
        self.validator = Signed(SignedRules(url="file:///x", **rules), lambda: self.keys, self.asked)

    def asked(self) -> None:
        self.unknown += 1

    def refused(self, token: str) -> str:
        with pytest.raises(BadToken) as caught:
            self.validator.validate(token, NOW_S * 1000)
        return str(caught.value)


def test_a_token_of_a_known_key_lets_in() -> None:
    found = Checked(audiences=("other", "kafka"), issuer="https://issuer").validator.validate(signed(GOOD), NOW_S * 1000)
    assert found.name == "alice" and found.expires_ms == (NOW_S + 60) * 1000
    renamed = Checked(principal_claim="name").validator.validate(signed({**GOOD, "name": "bob"}), NOW_S * 1000)
    assert renamed.name == "bob"


@pytest.mark.parametrize(
    "claims",
    [
        {**GOOD, "exp": NOW_S - 31},
        {key: value for key, value in GOOD.items() if key != "exp"},
        {**GOOD, "iat": NOW_S + 31},
        {**GOOD, "nbf": NOW_S + 31},
        {**GOOD, "aud": "else"},
        {**GOOD, "iss": "https://else"},
        {**GOOD, "sub": ""},
        {**GOOD, "scope": 7},
    ],
)
def test_a_claim_that_does_not_hold_refuses(claims: dict[str, Any]) -> None:
    found = Checked(audiences=("kafka",), issuer="https://issuer").refused(signed(claims))
    assert "alice" not in found


def test_clocks_may_differ() -> None:
    assert Checked().validator.validate(signed({**GOOD, "exp": NOW_S - 29}), NOW_S * 1000).name == "alice"


def test_a_signature_by_another_key_by_a_secret_or_by_nobody_refuses() -> None:
    checked = Checked()
    assert "InvalidSignature" in checked.refused(signed(GOOD, key=OTHER))
    assert "algorithm" in checked.refused(signed(GOOD, key="x" * 40, algorithm="HS256"))
    assert "algorithm" in checked.refused(str(jwt.encode(GOOD, None, algorithm="none")))
    assert "read" in checked.refused("abc")
    assert checked.unknown == 0


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
def test_se_14_a_key_of_any_algorithm_signs_by_each_that_fits_and_a_key_of_one_by_that_alone(algorithm: str) -> None:
    """As Kafka takes a set that names no algorithm, which it may leave out (RFC 7517, 4.4)."""
    checked = Checked()
    checked.keys = KeySet.parse(published("one", algorithm=None))
    token = signed(GOOD, algorithm=algorithm)
    assert checked.validator.validate(token, NOW_S * 1000).name == "alice"
    checked.keys = KeySet.parse(published("one", algorithm="RS512"))
    if algorithm == "RS512":
        assert checked.validator.validate(token, NOW_S * 1000).name == "alice"
    else:
        assert "another algorithm" in checked.refused(token)
    confused = signed(GOOD, key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256")
    assert checked.refused(confused), "a key of RSA checks no signature by an elliptic curve"


def test_an_unknown_key_asks_for_the_set_again() -> None:
    checked = Checked()
    assert "not in the set" in checked.refused(signed(GOOD, kid="two"))
    assert checked.unknown == 1
    checked.keys = None
    assert "not here yet" in checked.refused(signed(GOOD))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "kid": "a", "k": "AA"}]}', b"[" * 200_000]
)
def test_a_set_without_public_keys_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|Expecting"):
        KeySet.parse(data)
