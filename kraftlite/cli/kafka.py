"""The errors of librdkafka, by which records are produced and consumed, as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from kraftlite.model.errors import ErrorCode


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
