"""How a client reaches a cluster: from Kafka's own option names to one frozen value that travels to Spark's workers.

An option that cannot be honoured is an error that names it, its value and what is allowed; secrets are never part of a message.

Source: Kafka's consumer and producer configuration (names, defaults, meaning); KIP-651 (PEM); librdkafka (`sasl.username`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraftlite.log.codecs import CODEC_NAMES
from kraftlite.model.limits import KIB, MAX_INT32, MIB

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PEM_ENDINGS: Final = (".pem", ".crt", ".cer")
DEFAULT_CLIENT_ID: Final = "kraftlite-spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """PEM only. Locations are read where the client runs; texts travel with the settings."""

    trust_location: str | None = None
    trust_certificates: str | None = None
    key_location: str | None = None
    """One PEM file with the certificate chain and its private key."""
    key_chain: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_host: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """`mechanism` is one of `MECHANISMS`."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Everything that a `KafkaClient` needs to know. Hashable, and picklable: it is part of every input partition.

    `retry_timeout_ms` bounds how long a call tries again, `delivery_timeout_ms` the same for produce; `request_timeout_ms` bounds
    one request, `connect_timeout_ms` one connection, TLS and SASL included. `bootstrap`: (host:port, …), not empty.
    """

    bootstrap: tuple[str, ...]
    client_id: str = DEFAULT_CLIENT_ID
    security_protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    connect_timeout_ms: int = 10_000
    fetch_bytes: int = MIB
    """What `fetch` asks for unless told."""
    read_committed: bool = False
    """Unless told by the call."""
    acks: int = -1
    idempotent: bool = True
    compression: str = "none"
    max_request_bytes: int = MIB
    """Of one record batch that is produced."""
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("bootstrap: at least one host:port must be given")
        for address in self.bootstrap:
            split_address(address)

    @classmethod
    def from_kafka_options(cls, options: Mapping[str, str]) -> ClientSettings:
        """From Kafka's names (without Spark's prefix `kafka.`) to settings; names in any case. Raises ValueError for the first
        option, by name, that is unknown, has a bad value, or asks for what does not exist here."""
        given = {name.lower(): value for name, value in options.items()}
        for name, value in given.items():
            if name not in _KNOWN:
                raise _unknown(name, value)
        found: dict[str, Any] = {"bootstrap": _bootstrap(given)}
        for name, (target, read) in _PLAIN.items():
            if name in given:
                found[target] = read(name, given[name])
        if "max.partition.fetch.bytes" in given and "fetch.max.bytes" in given:
            partition = _PLAIN["max.partition.fetch.bytes"][1]("max.partition.fetch.bytes", given["max.partition.fetch.bytes"])
            found["fetch_bytes"] = min(partition, found["fetch_bytes"])
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise _bad("security.protocol", protocol, " or ".join(PROTOCOLS))
        found["security_protocol"] = protocol
        found["tls"] = _tls(given, protocol)
        found["sasl"] = _sasl(given, protocol)
        _check_acks(given, found)
        return cls(**found)


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of host:port or [v6]:port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise _bad("bootstrap.servers", address, "host:port, several separated by commas")
    return host, int(port)


def _bad(name: str, value: str, allowed: str) -> ValueError:
    return ValueError(f"kafka.{name}={value!r}: allowed is {allowed}")


def _bootstrap(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("bootstrap.servers")
    if text is None:
        raise ValueError("kafka.bootstrap.servers is missing: allowed is host:port, several separated by commas")
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise _bad("bootstrap.servers", text, "host:port, several separated by commas")
    for address in found:
        split_address(address)
    return found


# --- plain values --------------------------------------------------------------------------------------------------------


def _int(lowest: int, highest: int = MAX_INT32) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            number = lowest - 1
        if not lowest <= number <= highest:
            raise _bad(name, value, f"a whole number from {lowest} to {highest}")
        return number

    return read


def _choice(**choices: Any) -> Callable[[str, str], Any]:
    def read(name: str, value: str) -> Any:
        key = value.strip().lower()
        if key not in choices:
            raise _bad(name, value, " or ".join(choices))
        return choices[key]

    return read


def _text(name: str, value: str) -> str:
    if len(value.encode()) > 249:
        raise _bad(name, value, "a text of at most 249 bytes")
    return value


_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_PLAIN: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
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


def _check_acks(given: Mapping[str, str], found: dict[str, Any]) -> None:
    """As Kafka's producer: without a word about it, fewer acks turn idempotence off; asked for both, it refuses."""
    if found.get("acks", -1) == -1:
        return
    if given.get("enable.idempotence", "").strip().lower() == "true":
        raise ValueError(
            f"kafka.acks={given['acks']!r} and kafka.enable.idempotence=true exclude each other: allowed is acks=all"
        )
    found["idempotent"] = False


# --- what does not exist here --------------------------------------------------------------------------------------------

_OTHERWISE: Final = {
    "batch.size": "use kafka.max.request.size: records are encoded as the rows come, in batches of up to that size",
    "buffer.memory": "what is on its way is bounded by a constant",
    "client.rack": "records are read from the leader",
    "connections.max.idle.ms": "connections are kept until their broker closes them",
    "fetch.max.wait.ms": "a read ends at an offset that is known before it begins",
    "fetch.min.bytes": "a read ends at an offset that is known before it begins",
    "linger.ms": "records are encoded as the rows come, without waiting for more",
    "max.block.ms": "use kafka.delivery.timeout.ms",
    "max.in.flight.requests.per.connection": "one batch of a partition is on its way at a time",
    "max.poll.interval.ms": "there is no group membership",
    "max.poll.records": "use the options arrowBatchRows and maxOffsetsPerTrigger",
    "metadata.max.age.ms": "metadata is asked for whenever offsets are planned, and after every change of a leader",
    "partitioner.class": "use the column partition; without it, keys are hashed as Kafka's default partitioner does",
    "receive.buffer.bytes": "the size of socket buffers is fixed",
    "reconnect.backoff.max.ms": "use kafka.reconnect.backoff.ms",
    "retries": "use kafka.delivery.timeout.ms, or for reads kafka.default.api.timeout.ms",
    "send.buffer.bytes": "the size of socket buffers is fixed",
    "session.timeout.ms": "there is no group membership",
    "heartbeat.interval.ms": "there is no group membership",
    "transactional.id": "there are no transactions yet",
    "transaction.timeout.ms": "there are no transactions yet",
}
_TLS_NAMES: Final = (
    "ssl.truststore.location",
    "ssl.ca.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_SASL_NAMES: Final = ("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password")
_SECRET: Final = re.compile("password|jaas|key$|secret|token|certificate")
_KNOWN: Final = frozenset({"bootstrap.servers", "security.protocol", *_PLAIN, *_TLS_NAMES, *_SASL_NAMES})


def _unknown(name: str, value: str) -> ValueError:
    shown = "…" if _SECRET.search(name) else repr(value)
    if name in ("ssl.truststore.password", "ssl.keystore.password"):
        return ValueError(f"kafka.{name}: PEM stores have none; the password of a private key is kafka.ssl.key.password")
    if name in _OTHERWISE:
        return ValueError(f"kafka.{name}={shown} cannot be honoured: {_OTHERWISE[name]}")
    return ValueError(f"kafka.{name}={shown} cannot be honoured: allowed are {', '.join(f'kafka.{it}' for it in sorted(_KNOWN))}")


# --- TLS and SASL --------------------------------------------------------------------------------------------------------


def _tls(given: Mapping[str, str], protocol: str) -> TlsSettings | None:
    named = [name for name in _TLS_NAMES if name in given]
    if not protocol.endswith("SSL"):
        if named:
            raise ValueError(f"kafka.{named[0]} is given, but kafka.security.protocol={protocol}: allowed is SSL or SASL_SSL")
        return None
    for store in ("truststore", "keystore"):
        kind = given.get(f"ssl.{store}.type")
        if kind is not None and kind.upper() != "PEM":
            raise _bad(f"ssl.{store}.type", kind, "PEM (keytool and openssl convert JKS and PKCS12)")
        location = given.get(f"ssl.{store}.location")
        if location is not None and kind is None and not location.lower().endswith(PEM_ENDINGS):
            raise _bad(
                f"ssl.{store}.location", location, f"a PEM file: its name ends in .pem, .crt or .cer, or ssl.{store}.type=PEM"
            )
    trust = [it for it in ("ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates") if it in given]
    if len(trust) > 1:
        raise ValueError(f"kafka.{trust[0]} and kafka.{trust[1]} exclude each other")
    chain, key, location = (given.get(f"ssl.keystore.{it}") for it in ("certificate.chain", "key", "location"))
    if (chain is None) != (key is None) or (chain is not None and location is not None):
        raise ValueError("allowed is kafka.ssl.keystore.location, or kafka.ssl.keystore.certificate.chain with ssl.keystore.key")
    check = given.get("ssl.endpoint.identification.algorithm", "https")
    if check.lower() not in ("https", "", "none"):
        raise _bad("ssl.endpoint.identification.algorithm", check, "https, or nothing for no check of the host's name")
    return TlsSettings(
        trust_location=given.get("ssl.truststore.location", given.get("ssl.ca.location")),
        trust_certificates=given.get("ssl.truststore.certificates"),
        key_location=location,
        key_chain=chain,
        key=key,
        key_password=given.get("ssl.key.password"),
        check_host=check.lower() == "https",
    )


def _sasl(given: Mapping[str, str], protocol: str) -> SaslSettings | None:
    named = [name for name in _SASL_NAMES if name in given]
    if not protocol.startswith("SASL"):
        if named:
            raise ValueError(
                f"kafka.{named[0]} is given, but kafka.security.protocol={protocol}: allowed is SASL_PLAINTEXT or SASL_SSL"
            )
        return None
    name = "sasl.mechanism" if "sasl.mechanism" in given else "sasl.mechanisms"
    mechanism = given.get(name)
    if mechanism is None:
        raise ValueError(f"kafka.sasl.mechanism is missing: allowed is {' or '.join(MECHANISMS)}")
    if mechanism.upper() not in MECHANISMS:
        raise _bad(name, mechanism, " or ".join(MECHANISMS))
    mechanism = mechanism.upper()
    jaas = given.get("sasl.jaas.config")
    pair = ("sasl.username" in given, "sasl.password" in given)
    if (jaas is not None and any(pair)) or (jaas is None and not all(pair)):
        raise ValueError("allowed is kafka.sasl.jaas.config, or kafka.sasl.username with kafka.sasl.password")
    if jaas is None:
        return SaslSettings(mechanism=mechanism, username=given["sasl.username"], password=given["sasl.password"])
    username, password = parse_jaas(jaas, mechanism)
    return SaslSettings(mechanism=mechanism, username=username, password=password)


_JAAS: Final = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*?);\s*", re.DOTALL | re.IGNORECASE)
_JAAS_OPTION: Final = re.compile(r"""\s*([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"';]+)""", re.DOTALL)


def parse_jaas(text: str, mechanism: str) -> tuple[str, str]:
    """(username, password) of a `sasl.jaas.config` for this mechanism. Raises ValueError, which never shows the text."""
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    allowed = f'allowed is: org.apache.kafka.common.security.….{module} required username="…" password="…";'
    found = _JAAS.fullmatch(text)
    if found is None:
        raise ValueError(f"kafka.sasl.jaas.config cannot be read: {allowed}")
    if found[1].rpartition(".")[2] != module:
        raise ValueError(f"kafka.sasl.jaas.config names {found[1]}, which is not for sasl.mechanism={mechanism}: {allowed}")
    options: dict[str, str] = {}
    at, body = 0, found[3]
    while body[at:].strip():
        option = _JAAS_OPTION.match(body, at)
        if option is None:
            raise ValueError(f"kafka.sasl.jaas.config cannot be read behind {', '.join(options) or found[2]}: {allowed}")
        value = option[2]
        options[option[1]] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] in "\"'" else value
        at = option.end()
    unknown = [name for name in options if name not in ("username", "password")]
    if unknown or "username" not in options or "password" not in options:
        raise ValueError(f"kafka.sasl.jaas.config has the options {', '.join(options) or 'none'}: {allowed}")
    return options["username"], options["password"]
