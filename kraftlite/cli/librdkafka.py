"""librdkafka, by which records are produced and consumed: its names of properties, and its errors as one line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from kraftlite.client.properties import KNOWN, is_security, settings_from
from kraftlite.client.settings import SaslSettings
from kraftlite.model.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlite.client.settings import TlsSettings


@contextlib.contextmanager
def kafka_errors() -> Iterator[None]:
    """A KafkaException becomes one line: Kafka's error name and its message."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise click.ClickException(kafka_message(error)) from None


def kafka_message(error: Any) -> str:
    """`TOPIC_ALREADY_EXISTS: Topic 'x' already exists.`: Kafka's name of the error, not librdkafka's shorter one."""
    inner = error.args[0] if getattr(error, "args", None) else error
    if not hasattr(inner, "code"):
        return str(inner)
    code, text = int(inner.code()), str(inner.str())
    if inner.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"):
        return f"no broker answered ({text})"
    if code >= 0 and code in ErrorCode._value2member_map_:
        return f"{ErrorCode(code).name}: {text.removeprefix('Broker: ')}"
    return text


_RENAMED: Final = {
    "delivery.timeout.ms": "message.timeout.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "buffer.memory": None,
    "max.block.ms": None,
    "metadata.max.age.ms": "metadata.max.age.ms",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "request.timeout.ms": None,
    "default.api.timeout.ms": None,
    "max.poll.records": None,
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "key.serializer": None,
    "value.serializer": None,
    "key.deserializer": None,
    "value.deserializer": None,
    "partitioner.class": None,
    "interceptor.classes": None,
    "metric.reporters": None,
    "enable.metrics.push": None,
    "retries": "retries",
    "exclude.internal.topics": None,
    "share.acknowledgement.mode": None,
}
"""Java's name to librdkafka's; None for what has no meaning here."""

_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def translated(values: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka's properties for those of a Java client. Raises ValueError for what cannot be had, TLS and SASL above all."""
    secured = _secured(values) if any(name in values for name in _JAVAS_SECURITY) else {}
    found: dict[str, Any] = {**secured}
    for key, value in values.items():
        if secured and is_security(key) and key in KNOWN:
            continue  # there already, as librdkafka calls it
        if key == "partition.assignment.strategy":
            found[key] = ",".join(assignor(one) for one in value.split(","))
            continue
        name = _RENAMED.get(key, key)
        if name is not None:
            found[name] = value
    return found


_JAVAS_SECURITY: Final = (
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.truststore.password",
    "ssl.keystore.password",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
)
"""Names that librdkafka does not know, or calls something else; all other names of security are its own, too."""


def _secured(values: Mapping[str, str]) -> dict[str, str | None]:
    """TLS and SASL as librdkafka calls them."""
    theirs = {name: value for name, value in values.items() if is_security(name) and name in KNOWN}
    settings = settings_from({**theirs, "bootstrap.servers": "localhost:9092"})
    found: dict[str, str | None] = {"security.protocol": settings.security_protocol}
    if settings.sasl is not None:
        found["sasl.mechanism"] = settings.sasl.mechanism
        found |= _login(settings.sasl)
    tls = settings.tls
    if tls is not None:
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.check_host else "none"
        found.update(_tls(tls))
    return {name: value for name, value in found.items() if value is not None}


def _tls(tls: TlsSettings) -> dict[str, str | None]:
    """Files in PEM as they are; what librdkafka cannot read as texts in PEM."""
    from kraftlite.client.security import stores
    from kraftlite.tls.ciphers import TLS_1_3_SUITES, openssl_name
    from kraftlite.tls.pem import in_lines
    from kraftlite.tls.stores import read_keys, read_trusted

    if tls.versions:
        raise ValueError("ssl.enabled.protocols cannot be honoured: librdkafka has no such property")
    found: dict[str, str | None] = {}
    keys, trust = stores(tls)
    if tls.trust_kind == "PEM":
        found["ssl.ca.location"] = tls.trust_location
        found["ssl.ca.pem"] = None if tls.trust_certificates is None else in_lines(tls.trust_certificates)
    else:
        found["ssl.ca.pem"] = read_trusted(trust)
    if tls.key_kind == "PEM":
        found["ssl.certificate.location"] = found["ssl.key.location"] = tls.key_location
        found["ssl.certificate.pem"] = None if tls.key_chain is None else in_lines(tls.key_chain)
        found["ssl.key.pem"] = None if tls.key is None else in_lines(tls.key)
        found["ssl.key.password"] = tls.key_password
    elif (read := read_keys(keys)) is not None:
        found["ssl.certificate.pem"], found["ssl.key.pem"] = read.chain, read.key
    if tls.suites:
        if any(suite in TLS_1_3_SUITES for suite in tls.suites):
            raise ValueError("ssl.cipher.suites cannot be honoured: librdkafka takes suites of TLS 1.2 only")
        found["ssl.cipher.suites"] = ":".join(filter(None, map(openssl_name, tls.suites)))
    return found


def _login(sasl: SaslSettings) -> dict[str, str]:
    """Raises ValueError for logins that librdkafka does not have."""
    if sasl.token:
        raise ValueError(
            'sasl.jaas.config with tokenauth="true": producing and consuming with a delegation token is not supported'
        )
    if sasl.mechanism != "OAUTHBEARER":
        return {"sasl.username": sasl.username, "sasl.password": sasl.password}
    claims = dict(sasl.claims)
    if claims.keys() != {"sub"} or not re.fullmatch(r"[^\s]+", claims["sub"]):
        raise ValueError(
            "sasl.jaas.config: to produce and consume by OAUTHBEARER, allowed is unsecuredLoginStringClaim_sub alone"
        )
    config = f"principal={claims['sub']} lifeSeconds={sasl.lifetime_s}"
    return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": config}


def assignor(name: str) -> str:
    """librdkafka's name of a Java assignor. Raises ValueError."""
    found = _ASSIGNORS.get(name.strip())
    if found is None:
        raise ValueError(f"partition.assignment.strategy={name.strip()} is not supported; allowed are {', '.join(_ASSIGNORS)}")
    return found
