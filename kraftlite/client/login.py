"""The login of a client: the module of its `sasl.jaas.config`, by mechanism. Source: KIP-85, KIP-48, KIP-255, KIP-768.

Options that cannot be honoured are refused; no message shows a text in which a password or token may stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from kraftlite.client.settings import SaslSettings
from kraftlite.security.jaas import parse_jaas

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_MODULES: Final = {"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}
_CLAIM: Final = "unsecuredLoginStringClaim_"
_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
_OPTIONS: Final = {"PLAIN": ("username", "password"), "OAUTHBEARER": (_LIFETIME,)}
MAX_LIFETIME_S: Final = 365 * 86_400


def login_of(text: str, mechanism: str, url: str | None = None) -> SaslSettings:
    """The login that a `sasl.jaas.config` asks for with this mechanism. `url`: where a token is to be had. Raises ValueError."""
    module = _MODULES.get(mechanism, "ScramLoginModule")
    wanted = ' username="…" password="…"' if mechanism != "OAUTHBEARER" else ""
    allowed = f"allowed is: org.apache.kafka.common.security.….{module} required{wanted};"
    try:
        found = parse_jaas(text)
    except ValueError as error:
        raise ValueError(f"sasl.jaas.config: {error}; {allowed}") from None
    if found.short_name != module:
        raise ValueError(f"sasl.jaas.config names {found.class_name}, which is not for sasl.mechanism={mechanism}: {allowed}")
    options = found.options
    names = _OPTIONS.get(mechanism, ("username", "password", "tokenauth"))
    unknown = [name for name in options if name not in names and not (mechanism == "OAUTHBEARER" and name.startswith(_CLAIM))]
    if unknown or (mechanism != "OAUTHBEARER" and not {"username", "password"} <= options.keys()):
        raise ValueError(f"sasl.jaas.config has the options {', '.join(options) or 'none'}: {allowed}")
    if mechanism == "OAUTHBEARER":
        return _bearer(options, url)
    token = options.get("tokenauth", "false").lower() == "true"
    return SaslSettings(mechanism=mechanism, username=options["username"], password=options["password"], token=token)


def _bearer(options: Mapping[str, str], url: str | None) -> SaslSettings:
    claims = tuple(sorted((name.removeprefix(_CLAIM), text) for name, text in options.items() if name.startswith(_CLAIM)))
    lifetime = options.get(_LIFETIME, "3600")
    if not (lifetime.isascii() and lifetime.isdigit() and 0 < int(lifetime[:9]) <= MAX_LIFETIME_S and len(lifetime) < 10):
        raise ValueError(f"sasl.jaas.config: {_LIFETIME}: allowed is a number of seconds from 1 to {MAX_LIFETIME_S}")
    if (url is None) == (not claims):
        raise ValueError(
            f"allowed is {TOKEN_URL}=file:///…, which names a file with a token, or, for development alone, "
            f'sasl.jaas.config with {_CLAIM}sub="…", which makes one that nobody has signed'
        )
    if url is None:
        return SaslSettings(
            mechanism="OAUTHBEARER", username=dict(claims).get("sub", ""), password="", claims=claims, lifetime_s=int(lifetime)
        )
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path:
        raise ValueError(f"{TOKEN_URL}: allowed is file:///…: tokens are not asked for over the network")
    return SaslSettings(mechanism="OAUTHBEARER", username="", password="", token_file=unquote(parts.path))
