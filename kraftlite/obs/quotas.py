"""The usage of quotas as metrics: under the names that jmx_exporter makes of Kafka's MBeans, and some of our own.

Series are bounded: clients choose their names. Of each quota those are shown that are nearest to their bound. Source: QU-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from kraftlite.obs.metrics import Metrics
from kraftlite.quotas.matching import FETCH, PRODUCE, REQUEST, Scope
from kraftlite.quotas.usage import ClientQuotas, Usage

MAX_SERIES: Final = 100
"""Scopes of one quota."""
_RATES: Final = (
    (PRODUCE, "kafka_server_produce_byte_rate", "Bytes a second produced, of clients with a quota."),
    (FETCH, "kafka_server_fetch_byte_rate", "Bytes a second fetched, of clients with a quota."),
    (REQUEST, "kafka_server_request_request_time", "Percent of the loop used, by clients with a quota."),
)
_WAITS: Final = (
    (PRODUCE, "kafka_server_produce_throttle_time"),
    (FETCH, "kafka_server_fetch_throttle_time"),
    (REQUEST, "kafka_server_request_throttle_time"),
)
_LABELS: Final = ("user", "client_id")

Row = tuple[tuple[str, ...], float]


class Bucket(Protocol):
    """The tokens of one client (`controller/mutation_quotas`)."""

    @property
    def scope(self) -> Scope: ...

    @property
    def left(self) -> float: ...


class Buckets(Protocol):
    """All of them."""

    def buckets(self) -> Iterable[Bucket]: ...


def register_quotas(metrics: Metrics, quotas: ClientQuotas, now_ms: Callable[[], int], most: int = MAX_SERIES) -> None:
    def busiest(key: str) -> list[tuple[Usage, float]]:
        return quotas.busiest(key, most, now_ms())

    for key, name, doc in _RATES:
        metrics.samples(name, doc, _LABELS, lambda key=key: [(usage.scope, rate) for usage, rate in busiest(key)])  # type: ignore[misc]
    for key, name in _WAITS:
        metrics.samples(
            name,
            "Milliseconds of a throttling on average, since the client is known.",
            _LABELS,
            lambda key=key: [  # type: ignore[misc]
                (usage.scope, usage.throttled_ms / max(1, usage.throttled_times)) for usage, _rate in busiest(key)
            ],
        )

    def each(value: Callable[[Usage], float]) -> Callable[[], Iterator[Row]]:
        def rows() -> Iterator[Row]:
            for key, _name, _doc in _RATES:
                for usage, _rate in busiest(key):
                    yield (key, *usage.scope), value(usage)

        return rows

    labels = ("quota", *_LABELS)
    metrics.samples("kraftlite_quota_bound", "The quota, in its own unit.", labels, each(lambda usage: usage.bound))
    metrics.samples(
        "kraftlite_quota_throttled_seconds",
        "Seconds for which connections were throttled; those of connections at the same time add up.",
        labels,
        each(lambda usage: usage.throttled_ms / 1000),
        counter=True,
    )
    metrics.samples(
        "kraftlite_quota_throttled_now",
        "1 while a connection of the client is throttled.",
        labels,
        each(lambda usage: int(usage.throttled_until_ms > now_ms())),
    )


def register_mutations(metrics: Metrics, mutations: Buckets) -> None:
    def tokens() -> list[Row]:
        found: list[Row] = [(bucket.scope, bucket.left) for bucket in mutations.buckets()]
        return sorted(found, key=lambda row: row[1])[:MAX_SERIES]

    metrics.samples(
        "kafka_server_controllermutation_tokens",
        "Partitions that a client may still change at once, when it asked last; below 0 it must wait.",
        _LABELS,
        tokens,
    )
