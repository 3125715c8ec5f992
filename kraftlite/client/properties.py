"""A client's settings from Kafka's own option names.

An option that cannot be honoured is an error that names it, its value and what is allowed; secrets are never part of a message.

Source: Kafka's consumer, producer and admin configuration (names, defaults, meaning); KIP-651 (PEM); librdkafka
(`sasl.username`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraftlite.client.login import TOKEN_URL, login_of
from kraftlite.client.settings import ClientSettings, SaslSettings, TlsSettings, split_address
from kraftlite.log.codecs import CODEC_NAMES
from kraftlite.model.config_effects import has_secret, may_be_secret
from kraftlite.model.limits import KIB, MAX_INT32, MIB
from kraftlite.security.jaas import MECHANISMS
from kraftlite.tls.options import CLIENT_OPTIONS

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
CONVERT: Final = "keytool -importkeystore -srckeystore FILE.jks -destkeystore FILE.p12 -deststoretype PKCS12 converts one of JKS"
PEM_ENDINGS: Final = (".pem", ".crt", ".cer")
_ADDRESSES: Final = "host:port, several separated by commas"


def settings_from(options: Mapping[str, str], *, prefix: str = "", reasons: Mapping[str, str] | None = None) -> ClientSettings:
    """Settings from Kafka's names, in any case. Raises ValueError for the first option, by name, that is unknown, has a bad
    value, or asks for what does not exist here. `prefix` is put before each name that a message tells; `reasons` says of names
    that Kafka's clients know why they cannot be honoured."""
    return _Options({name.lower(): value for name, value in options.items()}, prefix, reasons or {}).settings()


class _NotAllowed(Exception):
    """A value cannot be used; the message says what can."""


def _int(lowest: int, highest: int = MAX_INT32) -> Callable[[str], int]:
    def read(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            number = lowest - 1
        if not lowest <= number <= highest:
            raise _NotAllowed(f"a whole number from {lowest} to {highest}")
        return number

    return read


def _choice(**choices: Any) -> Callable[[str], Any]:
    def read(value: str) -> Any:
        key = value.strip().lower()
        if key not in choices:
            raise _NotAllowed(" or ".join(choices))
        return choices[key]

    return read


def _text(value: str) -> str:
    if len(value.encode()) > 249:
        raise _NotAllowed("a text of at most 249 bytes")
    return value


_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_PLAIN: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "client.id": ("client_id", _text),
    "request.timeout.ms": ("request_timeout_ms", _int(1)),
    "default.api.timeout.ms": ("retry_timeout_ms", _int(0)),
    "retry.backoff.ms": ("retry_backoff_ms", _int(0)),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _int(0)),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _int(0)),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _int(1)),
    "max.partition.fetch.bytes": ("fetch_bytes", _int(1)),
    "fetch.max.bytes": ("fetch_bytes", _int(1)),
    "isolation.level": ("read_committed", _choice(read_uncommitted=False, read_committed=True)),
    "acks": ("acks", _choice(**_ACKS)),
    "enable.idempotence": ("idempotent", _choice(true=True, false=False)),
    "compression.type": ("compression", _choice(**{name: name for name in CODEC_NAMES})),
    "max.request.size": ("max_request_bytes", _int(KIB, 64 * MIB)),
    "delivery.timeout.ms": ("delivery_timeout_ms", _int(1)),
}
_TLS_NAMES: Final = (CLIENT_OPTIONS[0], "ssl.ca.location", *CLIENT_OPTIONS[1:])
"""With librdkafka's name for a trust store of PEM."""
_SASL_NAMES: Final = ("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password", TOKEN_URL)
KNOWN: Final = frozenset({"bootstrap.servers", "security.protocol", *_PLAIN, *_TLS_NAMES, *_SASL_NAMES})


def is_security(name: str) -> bool:
    """Return whether an option, in lower case, is about protection. Such a one is honoured or refused, never left out."""
    return name.startswith(("security.", "sasl.", "ssl."))


class _Options:
    """Options by their names in lower case, on their way to settings."""

    def __init__(self, given: Mapping[str, str], prefix: str, reasons: Mapping[str, str]) -> None:
        self._given = given
        self._prefix = prefix
        self._reasons = reasons

    def settings(self) -> ClientSettings:
        given, prefix = self._given, self._prefix
        for name in given:
            if name not in KNOWN:
                raise self._unknown(name)
        found: dict[str, Any] = {"bootstrap": self._bootstrap()}
        for name, (target, _read) in _PLAIN.items():
            if name in given:
                found[target] = self._plain(name)
        if "max.partition.fetch.bytes" in given and "fetch.max.bytes" in given:
            found["fetch_bytes"] = min(self._plain("max.partition.fetch.bytes"), found["fetch_bytes"])
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ValueError(f"{prefix}security.protocol={protocol!r}: allowed is {' or '.join(PROTOCOLS)}")
        found["security_protocol"] = protocol
        found["tls"] = self._tls(protocol)
        found["sasl"] = self._sasl(protocol)
        self._check_acks(found)
        return ClientSettings(**found)

    def _plain(self, name: str) -> Any:
        try:
            return _PLAIN[name][1](self._given[name])
        except _NotAllowed as error:
            raise self._bad(name, str(error)) from None

    def _bad(self, name: str, allowed: str) -> ValueError:
        return ValueError(f"{self._prefix}{name}={self._given[name]!r}: allowed is {allowed}")

    def _unknown(self, name: str) -> ValueError:
        prefix = self._prefix
        hidden = may_be_secret(name) or has_secret(self._given[name])
        said = f"{prefix}{name}={'…' if hidden else repr(self._given[name])} cannot be honoured"
        if name in self._reasons:
            return ValueError(f"{said}: {self._reasons[name]}")
        return ValueError(f"{said}: allowed are {', '.join(f'{prefix}{it}' for it in sorted(KNOWN))}")

    def _bootstrap(self) -> tuple[str, ...]:
        text = self._given.get("bootstrap.servers")
        if text is None:
            raise ValueError(f"{self._prefix}bootstrap.servers is missing: allowed is {_ADDRESSES}")
        found = tuple(part.strip() for part in text.split(",") if part.strip())
        try:
            for address in found:
                split_address(address)
        except ValueError:
            raise self._bad("bootstrap.servers", _ADDRESSES) from None
        if not found:
            raise self._bad("bootstrap.servers", _ADDRESSES)
        return found

    def _check_acks(self, found: dict[str, Any]) -> None:
        """Check acks as Kafka's producer does: without a word about it, fewer acks turn idempotence off; asked for both, it
        refuses."""
        if found.get("acks", -1) == -1:
            return
        prefix = self._prefix
        if self._given.get("enable.idempotence", "").strip().lower() == "true":
            raise ValueError(
                f"{prefix}acks={self._given['acks']!r} and {prefix}enable.idempotence=true exclude each other: "
                "allowed is acks=all"
            )
        found["idempotent"] = False

    # --- TLS and SASL

    def _tls(self, protocol: str) -> TlsSettings | None:
        given, prefix = self._given, self._prefix
        named = [name for name in _TLS_NAMES if name in given]
        if not protocol.endswith("SSL"):
            if named:
                raise ValueError(
                    f"{prefix}{named[0]} is given, but {prefix}security.protocol={protocol}: allowed is SSL or SASL_SSL"
                )
            return None
        kinds = {store: self._kind(store) for store in ("truststore", "keystore")}
        trust = [it for it in ("ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates") if it in given]
        if len(trust) > 1:
            raise ValueError(f"{prefix}{trust[0]} and {prefix}{trust[1]} exclude each other")
        chain, key, location = (given.get(f"ssl.keystore.{it}") for it in ("certificate.chain", "key", "location"))
        if (chain is None) != (key is None) or (chain is not None and location is not None):
            raise ValueError(
                f"allowed is {prefix}ssl.keystore.location, or {prefix}ssl.keystore.certificate.chain with ssl.keystore.key"
            )
        check = given.get("ssl.endpoint.identification.algorithm", "https")
        if check.lower() not in ("https", "", "none"):
            raise self._bad("ssl.endpoint.identification.algorithm", "https, or nothing for no check of the host's name")
        return TlsSettings(
            trust_location=given.get("ssl.truststore.location", given.get("ssl.ca.location")),
            trust_certificates=given.get("ssl.truststore.certificates"),
            key_location=location,
            key_chain=chain,
            key=key,
            key_password=given.get("ssl.key.password"),
            check_host=check.lower() == "https",
            trust_kind=kinds["truststore"],
            trust_password=given.get("ssl.truststore.password"),
            key_kind=kinds["keystore"],
            key_store_password=given.get("ssl.keystore.password"),
            versions=self._several("ssl.enabled.protocols", TLS_VERSIONS),
            suites=self._several("ssl.cipher.suites", None),
        )

    def _kind(self, store: str) -> str:
        """PEM or PKCS12. A file whose name ends as those of PEM do is one where no type is given; a text always is."""
        key = f"ssl.{store}.type"
        kind, location = self._given.get(key), self._given.get(f"ssl.{store}.location", "")
        if kind is None:
            has_password = f"ssl.{store}.password" in self._given
            found = "PEM" if location.lower().endswith(PEM_ENDINGS) or not (location or has_password) else "PKCS12"
        else:
            found = kind.strip().upper()
        if found not in ("PEM", "PKCS12"):
            raise self._bad(key, f"PEM or PKCS12 ({CONVERT})")
        if location.lower().endswith((".jks", ".jceks")):
            raise self._bad(f"ssl.{store}.location", f"a file in PEM or PKCS12 ({CONVERT})")
        if found == "PEM" and f"ssl.{store}.password" in self._given:
            said = f"PEM stores have none; the password of a private key is {self._prefix}ssl.key.password"
            raise ValueError(f"{self._prefix}ssl.{store}.password: {said}")
        return found

    def _several(self, name: str, allowed: Sequence[str] | None) -> tuple[str, ...]:
        found = tuple(item.strip() for item in self._given.get(name, "").split(",") if item.strip())
        if allowed is not None and any(item not in allowed for item in found):
            raise self._bad(name, " and ".join(allowed))
        if allowed is None and found:
            from kraftlite.tls.ciphers import problems_of

            if problems := problems_of(found):
                raise ValueError(f"{self._prefix}{name}={self._given[name]!r}: {problems[0]}")
        return found

    def _sasl(self, protocol: str) -> SaslSettings | None:
        given, prefix = self._given, self._prefix
        named = [name for name in _SASL_NAMES if name in given]
        if not protocol.startswith("SASL"):
            if named:
                raise ValueError(
                    f"{prefix}{named[0]} is given, but {prefix}security.protocol={protocol}: "
                    "allowed is SASL_PLAINTEXT or SASL_SSL"
                )
            return None
        name = "sasl.mechanism" if "sasl.mechanism" in given else "sasl.mechanisms"
        mechanism = given.get(name)
        if mechanism is None:
            raise ValueError(f"{prefix}sasl.mechanism is missing: allowed is {' or '.join(MECHANISMS)}")
        mechanism = mechanism.upper()
        if mechanism not in MECHANISMS:
            raise self._bad(name, " or ".join(MECHANISMS))
        jaas = given.get("sasl.jaas.config")
        pair = ("sasl.username" in given, "sasl.password" in given)
        if mechanism == "OAUTHBEARER":
            if jaas is None or any(pair):
                raise ValueError(f"{prefix}sasl.mechanism=OAUTHBEARER: allowed is {prefix}sasl.jaas.config")
        elif TOKEN_URL in given:
            raise ValueError(f"{prefix}{TOKEN_URL} is given, but {prefix}sasl.mechanism={mechanism}: allowed is OAUTHBEARER")
        elif (jaas is not None and any(pair)) or (jaas is None and not all(pair)):
            raise ValueError(f"allowed is {prefix}sasl.jaas.config, or {prefix}sasl.username with {prefix}sasl.password")
        if jaas is None:
            return SaslSettings(mechanism=mechanism, username=given["sasl.username"], password=given["sasl.password"])
        try:
            return login_of(jaas, mechanism, given.get(TOKEN_URL))
        except ValueError as error:
            raise ValueError(f"{prefix}{error}") from None
