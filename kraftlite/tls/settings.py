"""Kafka's `ssl.*` settings of one listener, read and checked. Source: KIP-651, KIP-103; SE-01 to SE-04, SE-06."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftlite.security.mapping_rules import MappingRules
from kraftlite.tls.ciphers import problems_of
from kraftlite.tls.stores import STORE_KINDS, KeyStoreSettings, TrustStoreSettings

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_DEFAULT_RULES: Final = MappingRules.parse("DEFAULT")


class ClientAuth(StrEnum):
    """`ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """One side's settings. `check_host`: whether a name is looked for in the certificate of who is dialled. `rules` make the
    principal of a client's certificate. `revoked`: the file with lists of certificates that are refused."""

    keys: KeyStoreSettings
    trust: TrustStoreSettings
    client_auth: ClientAuth = ClientAuth.NONE
    versions: tuple[str, ...] = VERSIONS
    suites: tuple[str, ...] = ()
    check_host: bool = True
    rules: MappingRules = _DEFAULT_RULES
    revoked: str | None = None
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.keys.location, self.trust.location, self.revoked) if path is not None)


def read_settings(get: Callable[[str], str | None], key_of: Callable[[str], str], problems: list[str]) -> TlsSettings:
    """`get` gives the text of a key without the listener's prefix, `key_of` the key as it was written. What is wrong is appended
    to `problems`, one line each."""

    def one_of(key: str, allowed: tuple[str, ...], default: str, *, upper: bool = False) -> str:
        text = (get(key) or default).strip()
        text = text.upper() if upper else text
        if text not in allowed:
            problems.append(f"{key_of(key)}={text}: allowed is {' or '.join(allowed)}")
            return default
        return text

    def several(key: str) -> tuple[str, ...]:
        return tuple(item.strip() for item in (get(key) or "").split(",") if item.strip())

    versions = several("ssl.enabled.protocols") or VERSIONS
    for version in versions:
        if version not in VERSIONS:
            told = f"{key_of('ssl.enabled.protocols')}={','.join(versions)}"
            problems.append(f"{told}: {version} is not supported; allowed is TLSv1.2 and TLSv1.3")
    suites = several("ssl.cipher.suites")
    problems += [f"{key_of('ssl.cipher.suites')}={','.join(suites)}: {problem}" for problem in problems_of(suites)]
    check = get("ssl.endpoint.identification.algorithm")
    check = "https" if check is None else check.strip().lower()
    if check not in ("https", ""):
        key = key_of("ssl.endpoint.identification.algorithm")
        problems.append(f"{key}={check}: allowed is https, or nothing for no check of the host's name")
    rules = _DEFAULT_RULES
    try:
        rules = MappingRules.parse(get("ssl.principal.mapping.rules") or "DEFAULT")
    except ValueError as error:
        problems.append(f"{key_of('ssl.principal.mapping.rules')}: {error}")
    prefix = key_of("ssl.").removesuffix("ssl.")
    return TlsSettings(
        keys=KeyStoreSettings(
            prefix=prefix,
            kind=one_of("ssl.keystore.type", STORE_KINDS, "JKS", upper=True),
            location=get("ssl.keystore.location") or None,
            password=get("ssl.keystore.password"),
            chain=get("ssl.keystore.certificate.chain"),
            key=get("ssl.keystore.key"),
            key_password=get("ssl.key.password"),
        ),
        trust=TrustStoreSettings(
            prefix=prefix,
            kind=one_of("ssl.truststore.type", STORE_KINDS, "JKS", upper=True),
            location=get("ssl.truststore.location") or None,
            password=get("ssl.truststore.password"),
            certificates=get("ssl.truststore.certificates"),
        ),
        client_auth=ClientAuth(one_of("ssl.client.auth", tuple(ClientAuth), "none")),
        versions=tuple(version for version in versions if version in VERSIONS) or VERSIONS,
        suites=suites,
        check_host=check == "https",
        rules=rules,
        revoked=get("kraftlite.ssl.crl.location") or None,
        allow_dn_changes=(get("ssl.allow.dn.changes") or "false").strip().lower() == "true",
        allow_san_changes=(get("ssl.allow.san.changes") or "false").strip().lower() == "true",
    )
