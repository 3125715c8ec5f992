"""Signed tokens of OAUTHBEARER, checked against a JSON Web Key Set by PyJWT, which the extra `oauth` installs.

Source: RFC 7515, RFC 7517, RFC 7519; KIP-768; SE-14.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kraftlite.security.oauthbearer import BadToken, TokenOwner, claim_ms

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key only. A secret that is shared has no place in a public set of keys, and `none` proves nothing."""
MAX_KEYS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRules:
    """`url`: https, http or file. `tls`: Kafka's `ssl.*` settings for https; empty: as of any client. `audiences`: a token must
    name one of them; empty: it may name any. `issuer` None: any."""

    url: str
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_max_ms: int = 10_000
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    principal_claim: str = "sub"


def is_available() -> bool:
    """Return whether the libraries that check signatures are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jwt", "cryptography"))


class SigningKey(NamedTuple):
    """`algorithm`: the only one that the key is for; None: any that fits its kind."""

    key: Any
    algorithm: str | None


class KeySet:
    """Public keys by their id. Immutable."""

    def __init__(self, keys: Mapping[str, SigningKey]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, kid: str) -> SigningKey | None:
        return self._keys.get(kid)

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """Read a JSON Web Key Set; keys of a kind that is not known are left out. Raises ValueError. Not for the loop."""
        import jwt

        try:
            found = json.loads(data)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        listed = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(listed, list) or len(listed) > MAX_KEYS:
            raise ValueError(f"it is no JSON object with a list of at most {MAX_KEYS} keys")
        keys: dict[str, SigningKey] = {}
        for item in listed:
            if isinstance(item, dict) and isinstance(item.get("kid"), str) and item.get("kty") in ("RSA", "EC", "OKP"):
                try:
                    keys[item["kid"]] = SigningKey(jwt.PyJWK(item).key, item.get("alg"))
                except (jwt.PyJWTError, ValueError, TypeError):
                    continue
        if not keys:
            raise ValueError("it has no public key with an id (kid)")
        return cls(keys)


class Signed:
    """A `Validator` of signatures. `keys` gives the set in force, None before it has been read; `unknown` is told of ids
    that it does not have."""

    def __init__(self, rules: SignedRules, keys: Callable[[], KeySet | None], unknown: Callable[[], None]) -> None:
        self._rules = rules
        self._keys = keys
        self._unknown = unknown

    def validate(self, token: str, now_ms: int) -> TokenOwner:
        keys = self._keys()
        if keys is None:
            raise BadToken("the keys are not here yet")
        import jwt

        rules = self._rules
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise BadToken("the token cannot be read") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise BadToken("the token is not signed by an algorithm that is allowed")
        found = keys.get(kid) if isinstance(kid, str) else None
        if found is None:
            self._unknown()
            raise BadToken("the token is signed by a key that is not in the set")
        if found.algorithm not in (None, algorithm):
            raise BadToken("the key of the token is for another algorithm")
        try:
            claims = jwt.decode(
                token,
                found.key,
                algorithms=[algorithm],
                audience=list(rules.audiences) or None,
                issuer=rules.issuer,
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": bool(rules.audiences)},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise BadToken(f"the token is refused: {type(error).__name__}") from None
        return self._owner(claims, now_ms)

    def _owner(self, claims: Mapping[str, Any], now_ms: int) -> TokenOwner:
        """Check the times by the node's own clock."""
        rules = self._rules
        skew_ms = rules.clock_skew_s * 1000
        name = claims.get(rules.principal_claim)
        if not isinstance(name, str) or not name:
            raise BadToken(f"the token has no claim {rules.principal_claim}")
        ends_ms = claim_ms(claims, "exp")
        if ends_ms is None:
            raise BadToken("the token has no claim exp")
        if now_ms - skew_ms >= ends_ms:
            raise BadToken("the token has expired")
        for claim in ("iat", "nbf"):
            begins_ms = claim_ms(claims, claim)
            if begins_ms is not None and begins_ms > now_ms + skew_ms:
                raise BadToken(f"the claim {claim} of the token is later than now")
        if not isinstance(claims.get(rules.scope_claim, ""), str | list):
            raise BadToken(f"the claim {rules.scope_claim} is neither a text nor a list")
        return TokenOwner(name, ends_ms)
