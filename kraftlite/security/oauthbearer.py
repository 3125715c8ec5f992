"""SASL/OAUTHBEARER. Source: RFC 7628; KIP-255, KIP-768; Kafka's OAuthBearerSaslServer for the texts; SE-14."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from kraftlite.model.principal import USER, Principal
from kraftlite.security.exchange import Authenticated, Reply, SaslRefused, check_name, check_size, refused_openly

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"[Bb]earer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_SEEN: Final = b"\x01"
"""The answer of a client to a refusal (RFC 7628, 3.2.3). Who says something else is not told more."""
_MAX_MS: Final = 1 << 53


class BadToken(Exception):
    """The token does not let anybody in. The text never has the token. `status`: what the client is told of it."""

    def __init__(self, reason: str, *, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class TokenOwner(NamedTuple):
    """The user whom a token names, and when it ends, in epoch milliseconds."""

    name: str
    expires_ms: int


class Validator(Protocol):
    """The part that decides whether a token holds."""

    def validate(self, token: str, now_ms: int) -> TokenOwner:
        """Raises BadToken."""
        ...


class OAuthBearerServer:
    """A `ServerExchange` of one message, and for a token that is refused one more, with which the client says that it knows."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._refused: str | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Reply:
        if self._refused is not None:
            if token != _SEEN:
                raise SaslRefused("Invalid OAUTHBEARER client second message")
            raise refused_openly(self._refused)
        check_size(token)
        found = _MESSAGE.fullmatch(token.decode("utf-8", "replace"))
        if found is None:
            raise SaslRefused("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise SaslRefused("Invalid OAUTHBEARER client first message: it has no bearer token")
        try:
            owner = self._validator.validate(bearer["token"], now_ms)
        except BadToken as error:
            told = {"status": error.status} | ({"scope": error.scope} if error.scope else {})
            self._refused = json.dumps(told, separators=(",", ":"))
            return Reply(self._refused.encode())
        check_name(owner.name)
        asked = found["authzid"]
        if asked and asked.replace("=2C", ",").replace("=3D", "=") != owner.name:
            raise refused_openly(
                "Authentication failed: Client requested an authorization id that is different from the token's principal name"
            )
        return Reply(b"", Authenticated(Principal(USER, owner.name), owner.expires_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredRules:
    """Options of the validator of tokens that nobody has signed. `required_scope`: all of them, separated by blanks."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnsecuredRules:
        """Read the options of a login module. Raises ValueError."""
        names = {
            "unsecuredValidatorPrincipalClaimName": "principal_claim",
            "unsecuredValidatorScopeClaimName": "scope_claim",
        }
        found: dict[str, Any] = {}
        for option, text in options.items():
            if option in names and text:
                found[names[option]] = text
            elif option == "unsecuredValidatorRequiredScope":
                found["required_scope"] = tuple(text.split())
            elif option == "unsecuredValidatorAllowableClockSkewMs":
                if not (text.isascii() and text.isdigit() and len(text) < 10):
                    raise ValueError(f"{option}: allowed is a whole number of at least 0")
                found["clock_skew_ms"] = int(text)
            elif not option.startswith("unsecuredLogin"):  # with which Kafka's broker itself would log in
                raise ValueError(f"{option} is no option of it")
        return cls(**found)


class Unsecured:
    """A `Validator` for development: it believes whatever a token with the algorithm `none` claims."""

    def __init__(self, rules: UnsecuredRules) -> None:
        self._rules = rules

    def validate(self, token: str, now_ms: int) -> TokenOwner:
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise BadToken("an unsecured token has three parts, the last of them empty")
        header, claims = _json_object(parts[0]), _json_object(parts[1])
        if header.get("alg") != "none":
            raise BadToken("the algorithm of an unsecured token is none")
        rules = self._rules
        name = claims.get(rules.principal_claim)
        if not isinstance(name, str) or not name:
            raise BadToken(f"the token has no claim {rules.principal_claim}")
        ends_ms = claim_ms(claims, "exp")
        if ends_ms is None:
            raise BadToken("the token has no claim exp")
        issued_ms = claim_ms(claims, "iat")
        if now_ms - rules.clock_skew_ms >= ends_ms:
            raise BadToken("the token has expired")
        if issued_ms is not None and (issued_ms > now_ms + rules.clock_skew_ms or issued_ms >= ends_ms):
            raise BadToken("the token was issued later than now, or than it expires")
        check_scope(claims.get(rules.scope_claim), rules.required_scope)
        return TokenOwner(name, ends_ms)


def check_scope(claimed: object, required: tuple[str, ...]) -> None:
    has = claimed.split() if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    missing = [it for it in required if it not in has]
    if missing:
        raise BadToken(f"the token lacks the scope {missing[0]}", status="insufficient_scope", scope=" ".join(required))


def claim_ms(claims: Mapping[str, object], name: str) -> int | None:
    """A time of the token, in milliseconds. BadToken when it is no time."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_MS // 1000:
        raise BadToken(f"the claim {name} is no time")
    return int(value * 1000)


def _json_object(part: str) -> Mapping[str, Any]:
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        raise BadToken("a part of the token is no JSON in base64url") from None
    if not isinstance(found, dict):
        raise BadToken("a part of the token is no JSON object")
    return found
