"""Properties of Kafka's Java clients as librdkafka's, for the tools that produce and consume."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kraftlite.cli.compat.tool import UsageError, is_security, key_values, read_properties
from kraftlite.client.properties import KNOWN, settings_from
from kraftlite.client.security import in_lines
from kraftlite.local.client import client_config

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


def translated(values: Mapping[str, str]) -> dict[str, object]:
    """librdkafka's properties for those of a Java client. UsageError for what cannot be had, TLS and SASL above all."""
    secured = _secured(values) if any(name in values for name in _JAVAS_SECURITY) else {}
    found: dict[str, object] = {**secured}
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
)
"""Names that librdkafka does not know, or calls something else; all other names of security are its own, too."""


def _secured(values: Mapping[str, str]) -> dict[str, str | None]:
    """TLS and SASL as librdkafka calls them."""
    theirs = {name: value for name, value in values.items() if is_security(name) and name in KNOWN}
    try:
        settings = settings_from({**theirs, "bootstrap.servers": "localhost:9092"})
    except ValueError as error:
        raise UsageError(str(error)) from None
    found: dict[str, str | None] = {"security.protocol": settings.security_protocol}
    if settings.sasl is not None:
        found["sasl.mechanism"] = settings.sasl.mechanism
        found["sasl.username"], found["sasl.password"] = settings.sasl.username, settings.sasl.password
    tls = settings.tls
    if tls is not None:
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.check_host else "none"
        found["ssl.ca.location"] = tls.trust_location
        found["ssl.ca.pem"] = None if tls.trust_certificates is None else in_lines(tls.trust_certificates)
        found["ssl.certificate.location"] = found["ssl.key.location"] = tls.key_location
        found["ssl.certificate.pem"] = None if tls.key_chain is None else in_lines(tls.key_chain)
        found["ssl.key.pem"] = None if tls.key is None else in_lines(tls.key)
        found["ssl.key.password"] = tls.key_password
    return {name: value for name, value in found.items() if value is not None}


def assignor(name: str) -> str:
    """librdkafka's name of a Java assignor."""
    found = _ASSIGNORS.get(name.strip())
    if found is None:
        raise UsageError(f"partition.assignment.strategy={name.strip()} is not supported; allowed are {', '.join(_ASSIGNORS)}")
    return found


def properties(files: Sequence[tuple[str | None, str]], items: Sequence[tuple[Sequence[str], str]]) -> dict[str, object]:
    """The properties of files, then those given one by one, as librdkafka's. (value, option) each."""
    found: dict[str, str] = {}
    for path, option in files:
        found.update({} if path is None else read_properties(path, option))
    for given, option in items:
        found.update(key_values(given, option))
    found.pop("bootstrap.servers", None)
    return translated(found)


def producer(bootstrap: str, values: Mapping[str, object]) -> Any:
    """A librdkafka producer that hashes keys as Java's does. UsageError for properties that it does not take."""
    from confluent_kafka import Producer

    quiet = {**client_config(bootstrap), "error_cb": _Connection(bootstrap)}
    config: dict[str, object] = {**quiet, "partitioner": "murmur2_random", **values}
    if str(values.get("acks", "all")) in ("all", "-1") and "retries" not in values:
        config.setdefault("enable.idempotence", True)  # as Java's producer by default
    return _made(Producer, config)


def consumer(bootstrap: str, values: Mapping[str, object]) -> Any:
    from confluent_kafka import Consumer

    return _made(Consumer, {**client_config(bootstrap), "error_cb": _Connection(bootstrap), **values})


class _Connection:
    """Says on standard error that no broker can be reached, as Kafka's clients do, and not more often than every ten seconds.

    librdkafka itself goes on trying, in silence.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._next_s = 0.0

    def __call__(self, error: Any) -> None:
        if error.name() not in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE") or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + 10
        click.echo(f"WARN no connection to {self.bootstrap} could be established ({error.str()}): trying again", err=True)


def _made(make: Any, config: dict[str, object]) -> Any:
    from confluent_kafka import KafkaException

    from kraftlite.cli.kafka import kafka_message

    try:
        return make(config)
    except KafkaException as error:
        raise UsageError(kafka_message(error)) from None
