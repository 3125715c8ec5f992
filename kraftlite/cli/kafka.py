"""librdkafka's admin client, and its errors as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from importlib import import_module
from typing import Any, TypeVar

import click

from kraftlite.local.client import client_config, reach
from kraftlite.model.errors import ErrorCode

T = TypeVar("T")
API_TIMEOUT_S = 60.0


@contextlib.contextmanager
def kafka_errors(what: str = "") -> Iterator[None]:
    """A KafkaException becomes one line: Kafka's error name and its message."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise click.ClickException(f"{what}{': ' if what else ''}{kafka_message(error)}") from None


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


def admin_types() -> Any:
    """The module `confluent_kafka.admin`, whose re-exports are not typed."""
    return import_module("confluent_kafka.admin")


def admin(bootstrap: str) -> Any:
    """librdkafka's admin client of a cluster of which a broker answers; otherwise one line that names whom was asked."""
    reach(bootstrap)
    return admin_types().AdminClient(client_config(bootstrap))


def result(future: Future[T], timeout_s: float = API_TIMEOUT_S) -> T:
    """Wait for the cluster's answer. ClickException when none came in time, which leaves open whether the request was carried
    out."""
    try:
        return future.result(timeout=timeout_s)
    except TimeoutError:
        raise click.ClickException(
            f"no broker answered within {timeout_s:.0f} s; the request may have been carried out"
        ) from None


def list_topics(client: Any, timeout_s: float = 15.0) -> Any:
    """librdkafka's cluster metadata."""
    with kafka_errors():
        return client.list_topics(timeout=timeout_s)
