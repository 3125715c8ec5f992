"""Producers and consumers of librdkafka for the tools, with the properties of Kafka's Java clients."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kraftlite.cli import librdkafka
from kraftlite.cli.compat.tool import UsageError, key_values, read_properties
from kraftlite.client.properties import is_security
from kraftlite.local.client import client_config
from kraftlite.model.shown import shown

_UNKNOWN: Final = re.compile(r'No such configuration property: "(.*)"\s*', re.DOTALL)


def translated(values: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka's properties for those of a Java client. UsageError for what cannot be had."""
    try:
        return librdkafka.translated(values)
    except ValueError as error:
        raise UsageError(str(error)) from None


def assignor(name: str) -> str:
    """librdkafka's name of a Java assignor."""
    try:
        return librdkafka.assignor(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


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

    quiet = {**client_config(bootstrap), "error_cb": Connection(bootstrap)}
    config: dict[str, object] = {**quiet, "partitioner": "murmur2_random", **values}
    if str(values.get("acks", "all")) in ("all", "-1") and "retries" not in values:
        config.setdefault("enable.idempotence", True)  # as Java's producer by default
    return _made(Producer, config)


def consumer(bootstrap: str, values: Mapping[str, object]) -> Any:
    from confluent_kafka import Consumer

    return _made(Consumer, {**client_config(bootstrap), "error_cb": Connection(bootstrap), **values})


class Connection:
    """Says on standard error that no broker can be reached, as Kafka's clients do, and not more often than every ten seconds.

    librdkafka itself goes on trying, in silence.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._next_s = 0.0
        self.refused: str | None = None
        """The reason of a broker that refused the login; None: none has. Java's clients give up then, and librdkafka does not."""

    def __call__(self, error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            self.refused = str(error.str())
        if (
            error.name() not in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_AUTHENTICATION", "_SSL")
            or time.monotonic() < self._next_s
        ):
            return
        self._next_s = time.monotonic() + 10
        click.echo(f"WARN no connection to {self.bootstrap} could be established ({error.str()}): trying again", err=True)


def _made(make: Any, config: dict[str, object]) -> Any:
    """Make a client without the properties that there are not, each of which is told, as Kafka's clients go on without them.
    UsageError for one that may protect something, and for a value that is not taken."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return make(config)
        except KafkaException as error:
            said = librdkafka.kafka_message(error)
            unknown = _UNKNOWN.fullmatch(said)
            if unknown is None or unknown[1] not in config or is_security(unknown[1]):
                raise UsageError(said) from None
        config = {name: value for name, value in config.items() if name != unknown[1]}
        name = unknown[1] if unknown[1].isprintable() else repr(unknown[1])
        click.echo(f"WARN {shown(name)} has no effect here", err=True)
