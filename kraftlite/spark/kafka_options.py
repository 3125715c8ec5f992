"""Options `kafka.*` of the data source and the sink: Kafka's own names, and why some of them mean nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlite.client.properties import KNOWN, settings_from
from kraftlite.client.settings import ClientSettings

DEFAULT_CLIENT_ID: Final = "kraftlite-spark"

_NOT_HONOURED: Final = {
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
    "transactional.id": "kraftlite.sink.mode=exactly_once makes its own ids; kraftlite.sink.transactional.id.prefix begins them",
    "transaction.timeout.ms": "only a sink with kraftlite.sink.mode=exactly_once has transactions",
}


READING: Final = frozenset({"fetch.max.bytes", "isolation.level", "max.partition.fetch.bytes"})
"""Options of Kafka's consumers."""
WRITING: Final = frozenset({"acks", "compression.type", "delivery.timeout.ms", "enable.idempotence", "max.request.size"})
"""Options of Kafka's producers."""


def client_settings(options: Mapping[str, str], *, reads: bool | None = None) -> ClientSettings:
    """From options without their prefix `kafka.`, of the data source (`reads`), of the sink, or (None) of whoever does both.

    Raises ValueError, as `settings_from`, with the prefix before every name; also for an option of the other side."""
    given = {name.lower(): value for name, value in options.items()}
    others = frozenset() if reads is None else WRITING if reads else READING
    for name in given:
        if name in others:
            sides = ("writing", "source") if reads else ("reading", "sink")
            allowed = ", ".join(f"kafka.{it}" for it in sorted(KNOWN - others))
            raise ValueError(
                f"kafka.{name}={given[name]!r} is for {sides[0]}, the {sides[1]} has no use for it: allowed are {allowed}"
            )
    return settings_from({"client.id": DEFAULT_CLIENT_ID, **given}, prefix="kafka.", reasons=_NOT_HONOURED)
