"""Metrics that clients push, as series of the metrics page: `org.apache.kafka.producer.record.send.total` of a client becomes
`kafka_client_producer_record_send_total{client_instance_id, client_id, …}`.

Clients choose everything here, so everything is bounded: what one push unfolds to, its points, the length of names and texts, the
series of a client and of all of them, and how long they stand without a further push. What is beyond a bound is left out and
counted. Source: KIP-714; TM-03, TM-04.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast
from uuid import UUID

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from kraftlite.broker.telemetry import ClientTelemetry, Decoded, PushingClient
from kraftlite.log.codecs import decompress
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.limits import MIB
from kraftlite.obs.metrics import Metrics
from kraftlite.rpc.telemetry import Point, PointKind, points_in

MAX_UNPACKED_BYTES: Final = MIB
"""The most that one push may be; a Java producer's is about 20 KiB."""
LOOK_MS: Final = 1_000
"""A push looks for what is over at most so often; a page always does."""
MAX_CLIENT_SERIES: Final = 2_000
MAX_NAME: Final = 200
MAX_LABELS: Final = 16
MAX_LABEL_NAME: Final = 64
MAX_TEXT: Final = 256
PREFIX: Final = "kafka_client_"
_STANDARD: Final = "org.apache.kafka."
_OURS: Final = ("client_instance_id", "client_id")
_MEANT: Final = ("quantile", "le")
"""Labels that readers of a page expect numbers in."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_ENDINGS: Final = {PointKind.GAUGE: ("",), PointKind.COUNTER: ("_total",), PointKind.DISTRIBUTION: ("", "_count", "_sum")}


class _Pushed(NamedTuple):
    points: list[Point]
    more: bool
    """There were more than are read."""


class _Key(NamedTuple):
    """One series of a client."""

    family: str
    kind: PointKind
    labels: tuple[tuple[str, str], ...]


class _Value(NamedTuple):
    value: float
    observed: int
    """The number of values of a distribution; else 0."""
    until_ms: float


@dataclass(slots=True)
class _Client:
    labels: tuple[str, str]
    about: PushingClient
    series: dict[_Key, _Value] = field(default_factory=dict)


@dataclass(slots=True)
class _Family:
    """A name on the page: its kind, the metric's own name, and how many series have it."""

    kind: PointKind
    told_as: str
    series: int = 0


class ClientMetrics:
    """The latest values of each client. Implements `TelemetryReceiver`; all but `decode` runs on the loop."""

    def __init__(self, *, most_series: int, now_ms: Callable[[], int]) -> None:
        """`most_series`: of all clients together."""
        self._most = most_series
        self._now_ms = now_ms
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        self._families: dict[str, _Family] = {}
        self._told: dict[str, str] = {}
        """The family that each name of a sample belongs to."""
        self.series_count = 0
        self._looked_ms = float("-inf")
        self.left_out: Counter[str] = Counter(dict.fromkeys(("series", "name", "labels", "kind", "value"), 0))

    def decode(self, codec: int, payload: bytes, /) -> Decoded:
        """Raises ApiError or ValueError for what is compressed otherwise, too large, or no OTLP."""
        return _Pushed(*points_in(bytes(decompress(codec, payload, MAX_UNPACKED_BYTES)), MAX_CLIENT_SERIES))

    def take(self, instance_id: UUID, client: PushingClient, keep_ms: int, decoded: Decoded, /) -> None:
        pushed, now = cast(_Pushed, decoded), self._now_ms()
        if now - self._looked_ms >= LOOK_MS:
            self._forget(now)
        known = self._clients.get(instance_id)
        if known is None:
            known = self._clients[instance_id] = _Client((uuid_to_str(instance_id), _printable(client.client_id)), client)
        if pushed.more:
            self.left_out["series"] += 1
        for point in pushed.points:
            reason = self._set(known, point, now + keep_ms)
            if reason is not None:
                self.left_out[reason] += 1

    def _set(self, client: _Client, point: Point, until_ms: float) -> str | None:
        """Return why the point is left out."""
        family, labels = _family_name(point), _labels(point)
        if family is None:
            return "name"
        if labels is None:
            return "labels"
        total = point.kind is not PointKind.GAUGE
        if (total and not math.isfinite(point.value)) or (point.kind is PointKind.COUNTER and point.value < 0):
            return "value"
        key = _Key(family, point.kind, labels)
        before = client.series.get(key)
        if before is None:
            if self.series_count >= self._most or len(client.series) >= MAX_CLIENT_SERIES:
                return "series"
            if not self._begin(family, point):
                return "kind"
            self.series_count += 1
        value, observed = (before.value, before.observed) if before is not None and point.delta else (0.0, 0)
        client.series[key] = _Value(value + point.value, observed + point.observed, until_ms)
        return None

    def _begin(self, family: str, point: Point) -> bool:
        """Take the names of one more series; False where another kind of metric has one of them."""
        names = [family + ending for ending in _ENDINGS[point.kind]]
        known = self._families.get(family)
        if known is None:
            if any(name in self._told for name in names):
                return False
            known = self._families[family] = _Family(point.kind, _printable(point.name))
            self._told.update(dict.fromkeys(names, family))
        elif known.kind is not point.kind:
            return False
        known.series += 1
        return True

    def _forget(self, now: float) -> None:
        """Drop the series whose time is over, and the clients that have none left."""
        self._looked_ms = now
        for instance_id, client in list(self._clients.items()):
            for key in [key for key, value in client.series.items() if value.until_ms <= now]:
                del client.series[key]
                self._end(key)
            if not client.series:
                del self._clients[instance_id]

    def _end(self, key: _Key) -> None:
        self.series_count -= 1
        family = self._families[key.family]
        family.series -= 1
        if not family.series:
            del self._families[key.family]
            for ending in _ENDINGS[key.kind]:
                del self._told[key.family + ending]

    # --- the page ------------------------------------------------------------------------------------------------------

    def describe(self) -> list[Metric]:
        """Tell the registry no names beforehand: there are none yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families of one moment; a push that comes while the page is made is on the next one."""
        self._forget(self._now_ms())
        by_family: dict[tuple[str, PointKind, str], list[tuple[_Client, _Key]]] = {}
        for client in self._clients.values():
            for key in client.series:
                told_as = self._families[key.family].told_as
                by_family.setdefault((key.family, key.kind, told_as), []).append((client, key))
        for (name, kind, told_as), series in sorted(by_family.items(), key=lambda item: item[0][0]):
            yield _page_family(name, kind, told_as, series)

    def about(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for client in self._clients.values():
            it = client.about
            texts = (it.software_name, it.software_version, it.address)
            yield (*client.labels, *map(_printable, texts)), 1


def _page_family(name: str, kind: PointKind, told_as: str, series: list[tuple[_Client, _Key]]) -> Metric:
    doc = f"Pushed by clients: {told_as}."
    kinds: dict[PointKind, type[Metric]] = {
        PointKind.GAUGE: GaugeMetricFamily,
        PointKind.COUNTER: CounterMetricFamily,
        PointKind.DISTRIBUTION: SummaryMetricFamily,
    }
    made = kinds[kind](name, doc)  # type: ignore[call-arg]
    for client, key in series:
        value, observed, _until_ms = client.series[key]
        labels = dict(zip(_OURS, client.labels, strict=True)) | dict(key.labels)
        if kind is PointKind.DISTRIBUTION:
            made.add_sample(f"{name}_count", labels, observed)
            made.add_sample(f"{name}_sum", labels, value)
        else:
            made.add_sample(name + _ENDINGS[kind][0], labels, value)
    return made


def _family_name(point: Point) -> str | None:
    """The name on the page, without the ending of its kind; None for one that is empty or too long."""
    if not 0 < len(point.name) <= MAX_NAME:
        return None
    plain = _plain(point.name.removeprefix(_STANDARD))
    if point.kind is PointKind.COUNTER:
        plain = plain.removesuffix("_total")
    return PREFIX + plain if plain else None


def _labels(point: Point) -> tuple[tuple[str, str], ...] | None:
    """The labels of a series; None for too many, too long or unprintable ones, or one that comes twice. The two of ours are not
    a client's."""
    found: dict[str, str] = {}
    for key, text in point.attributes:
        if len(key) > MAX_LABEL_NAME or len(text) > MAX_TEXT or not text.isprintable():
            return None
        name = _plain(key)
        if name in _OURS:
            continue
        if not name or name in found or len(found) == MAX_LABELS:
            return None
        found[f"_{name}" if name[0].isdigit() or name in _MEANT else name] = text
    return tuple(found.items())


def _printable(text: str) -> str:
    return "".join(it if it.isprintable() else "?" for it in text[:MAX_TEXT])


def _plain(name: str) -> str:
    """Write a name as Prometheus likes it: small letters, digits and single underscores."""
    return _NO_NAME.sub("_", _CAMEL.sub("_", name).lower()).strip("_")


def register_client_metrics(metrics: Metrics, telemetry: ClientTelemetry, clients: ClientMetrics) -> None:
    """The clients' series, and Kafka's own metrics of telemetry. Source: KIP-714; Kafka's ClientMetricsStats."""
    metrics.registry.register(clients)
    stats = "kafka_server_clientmetrics_clientmetrics"
    metrics.gauge(f"{stats}instancecount", "Client instances that are known.", lambda: telemetry.instance_count)
    for name, doc, read in (
        ("throttle", "Requests of clients that came before their next interval.", lambda: telemetry.throttled),
        (
            "unknownsubscriptionrequest",
            "Pushes for a subscription that is not the client's.",
            lambda: telemetry.unknown_subscriptions,
        ),
        ("pluginexport", "Pushes of clients that were taken.", lambda: telemetry.taken),
        ("pluginerror", "Pushes of clients that could not be read.", lambda: telemetry.failed),
    ):
        metrics.counter(stats + name, doc, read)
    metrics.gauge("kraftlite_client_metrics_series", "Series of clients on this page.", lambda: clients.series_count)
    metrics.family(
        "kraftlite_client_metrics_left_out",
        "Values of clients that are not on this page, by what was too much or wrong.",
        "reason",
        lambda: sorted(clients.left_out.items()),
        counter=True,
    )
    metrics.samples(
        "kraftlite_client_metrics_info",
        "1 for each client whose metrics are on this page.",
        (*_OURS, "software_name", "software_version", "address"),
        clients.about,
    )
