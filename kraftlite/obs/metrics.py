"""Prometheus metrics: counters from the trace, gauges read at scrape time, under the names that Kafka's stock boards expect.

Source: CE-30; names as jmx_exporter and Strimzi's rules make them of Kafka's MBeans. What only we have is `kraftlite_*`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
    UnknownMetricFamily,
)

from kraftlite.model.ids import Endpoint
from kraftlite.obs.dialects import also_called
from kraftlite.runtime.trace import TraceEvent

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_REQUEST_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
"""The most connections at once; a board and a few Prometheus need one each. For one more the oldest that has not asked yet is
closed."""
_REQUEST_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 10.0
_FRESH_S = 0.5
"""The page is made at most so often, however many ask."""

# Trace events that are Kafka's own counters.
_COUNTED: Mapping[str, tuple[str, str]] = {
    "raft.leader_elected": ("kraftlite_raft_elections_won", "Elections of the metadata quorum that this node won."),
    "partition.isr_shrunk": ("kafka_server_replicamanager_isrshrinks", "ISR shrinks of partitions led here."),
    "partition.isr_expanded": ("kafka_server_replicamanager_isrexpands", "ISR expansions of partitions led here."),
    "partition.isr_change_refused": (
        "kafka_server_replicamanager_failedisrupdates",
        "Changes of the ISR of partitions led here that the controller refused.",
    ),
}


_EVENTS: Final = ("kraftlite_trace_events", "counter", ("event",), "Events of this node's trace, by name.")

Texts = tuple[str | None, ...]


class Described(NamedTuple):
    """A series: its type, its labels, and what it says. The samples of a counter are called `<name>_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class _Reading:
    name: str
    doc: str
    read: Callable[[], float | None]
    labels: tuple[tuple[str, str], ...]
    counter: bool


@dataclass(frozen=True, slots=True)
class _Summary:
    name: str
    doc: str
    read: Callable[[], tuple[int, float]]


QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms, as jmx_exporter writes them."""


@dataclass(frozen=True, slots=True)
class _Histogram:
    name: str
    doc: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[tuple[Texts, int, float, Sequence[float]]]]


@dataclass(frozen=True, slots=True)
class _Buckets:
    name: str
    doc: str
    bounds: tuple[float, ...]
    read: Callable[[], tuple[Sequence[int], float]]


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    doc: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[tuple[Texts, float]]]
    counter: bool


_RESERVED: Final = ("_count", "_sum", "_bucket", "_total")
"""Endings that Prometheus keeps for parts of histograms and for counters. A gauge that Kafka calls so has no type."""


_FAMILIES: Final = {"counter": CounterMetricFamily, "unknown": UnknownMetricFamily, "gauge": GaugeMetricFamily}


def _kind(name: str, counter: bool) -> type[CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily]:
    return _FAMILIES[_type(name, counter)]


def _type(name: str, counter: bool) -> str:
    return "counter" if counter else "unknown" if name.endswith(_RESERVED) else "gauge"


class Metrics:
    """The metrics of one node. A sink of the tracer, and a collector: gauges are read on the loop when the page is asked for."""

    def __init__(self, constant_labels: Mapping[str, str] | None = None) -> None:
        self._readings: list[_Reading] = []
        self._summaries: list[_Summary] = []
        self._histograms: list[_Histogram] = []
        self._buckets: list[_Buckets] = []
        self._families: list[_Family] = []
        self._looks: list[Callable[[], None]] = []
        self._events: dict[str, int] = {}
        self._listeners: list[Callable[[TraceEvent], None]] = []
        self._labels = tuple((constant_labels or {}).items())
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def gauge(self, name: str, doc: str, read: Callable[[], float | None], *, labels: Mapping[str, str] | None = None) -> None:
        """`read` returning None leaves the sample out: this node has no such thing now."""
        self._readings.append(_Reading(name, doc, read, (*self._labels, *(labels or {}).items()), counter=False))

    def counter(self, name: str, doc: str, read: Callable[[], float | None], *, labels: Mapping[str, str] | None = None) -> None:
        """A number that only rises; its sample is called `<name>_total`."""
        self._readings.append(_Reading(name, doc, read, (*self._labels, *(labels or {}).items()), counter=True))

    def summary(self, name: str, doc: str, read: Callable[[], tuple[int, float]]) -> None:
        """`read` returns how many and their sum; the samples are called `<name>_count` and `<name>_sum`."""
        self._summaries.append(_Summary(name, doc, read))

    def histogram(self, name: str, doc: str, read: Callable[[], tuple[int, float, Sequence[float]]]) -> None:
        """`read` returns how many, their sum, and the values at `QUANTILES` of the latest ones, which may be none yet."""
        self.histograms(name, doc, (), lambda: [((), *read())])

    def histograms(
        self,
        name: str,
        doc: str,
        labels: tuple[str, ...],
        read: Callable[[], Iterable[tuple[Texts, int, float, Sequence[float]]]],
    ) -> None:
        """Several of them, each with its texts for `labels`, which no client chooses."""
        self._histograms.append(_Histogram(name, doc, labels, read))

    def buckets(self, name: str, doc: str, bounds: tuple[float, ...], read: Callable[[], tuple[Sequence[int], float]]) -> None:
        """A histogram of Prometheus. `read` returns a count for each of the upper `bounds`, and one for what is above the last,
        and the sum of all."""
        self._buckets.append(_Buckets(name, doc, bounds, read))

    def family(
        self, name: str, doc: str, label: str, read: Callable[[], Iterable[tuple[str, float]]], *, counter: bool = False
    ) -> None:
        """Samples that come and go: `read` returns the text of `label` and the value of each. They are few, and no client chooses
        their texts."""
        self.samples(name, doc, (label,), lambda: (((text,), number) for text, number in read()), counter=counter)

    def samples(
        self,
        name: str,
        doc: str,
        labels: tuple[str, ...],
        read: Callable[[], Iterable[tuple[Texts, float]]],
        *,
        counter: bool = False,
    ) -> None:
        """Samples that come and go: `read` returns the texts of `labels` and the value of each, and bounds how many there are,
        for clients may choose the texts. None stands for no label at all."""
        self._families.append(_Family(name, doc, labels, read, counter))

    def __call__(self, wall_ms: int, event: TraceEvent, facts: dict[str, object]) -> None:
        self._events[event.event] = self._events.get(event.event, 0) + 1
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Callable[[TraceEvent], None]) -> None:
        """Tell it of every event of the trace."""
        self._listeners.append(listener)

    def before(self, look: Callable[[], None]) -> None:
        """Do this once for each page, before anything is read: for what several families are read from."""
        self._looks.append(look)

    def described(self) -> list[Described]:
        """Every series that this page can have, by name, but those of the process (`process_*`, `python_*`)."""
        found = [
            Described(it.name, _type(it.name, it.counter), tuple(name for name, _ in it.labels), it.doc) for it in self._readings
        ]
        found += [Described(it.name, "summary", (), it.doc) for it in self._summaries]
        found += [Described(it.name, "summary", (*it.labels, "quantile"), it.doc) for it in self._histograms]
        found += [Described(it.name, "histogram", ("le",), it.doc) for it in self._buckets]
        found += [Described(it.name, _type(it.name, it.counter), it.labels, it.doc) for it in self._families]
        found += [Described(name, "counter", (), doc) for name, doc in _COUNTED.values()]
        found.append(Described(*_EVENTS))
        return sorted(set(found))

    def collect(self) -> Iterator[Metric]:
        for metric in self._collected():
            yield metric
            yield from also_called(metric)

    def _collected(self) -> Iterator[Metric]:
        for look in self._looks:
            look()
        families: dict[str, Metric] = {}
        for reading in self._readings:
            value = reading.read()
            if value is None:
                continue
            family = families.get(reading.name)
            if family is None:
                kind = _kind(reading.name, reading.counter)
                family = families[reading.name] = kind(reading.name, reading.doc, labels=[name for name, _ in reading.labels])
            family.add_metric([text for _, text in reading.labels], float(value))  # type: ignore[attr-defined]
        yield from families.values()
        names = [name for name, _ in self._labels]
        texts = [text for _, text in self._labels]
        for summary in self._summaries:
            count, total = summary.read()
            made = SummaryMetricFamily(summary.name, summary.doc, labels=names)
            made.add_metric(texts, count, total)
            yield made
        yield from self._many(names, texts)
        name, _, labels, doc = _EVENTS
        events = CounterMetricFamily(name, doc, labels=[*names, *labels])
        for event, count in sorted(self._events.items()):
            events.add_metric([*texts, event], count)
        yield events
        for event, (name, doc) in _COUNTED.items():
            counted = CounterMetricFamily(name, doc, labels=names)
            counted.add_metric(texts, self._events.get(event, 0))
            yield counted

    def _many(self, names: list[str], texts: list[str]) -> Iterator[Metric]:
        for histogram in self._histograms:
            found = SummaryMetricFamily(histogram.name, histogram.doc, labels=[*names, *histogram.labels])
            for chosen, count, total, values in histogram.read():
                labels = {
                    **dict(self._labels),
                    **{label: str(text) for label, text in zip(histogram.labels, chosen, strict=True)},
                }
                for share, value in zip(QUANTILES, values, strict=False):
                    found.add_sample(histogram.name, {**labels, "quantile": str(share)}, value)
                found.add_metric([*texts, *map(str, chosen)], count, total)
            yield found
        for buckets in self._buckets:
            counts, total = buckets.read()
            counted = HistogramMetricFamily(buckets.name, buckets.doc, labels=names)
            bounds = [*map(str, buckets.bounds), "+Inf"]
            counted.add_metric(texts, list(zip(bounds, accumulate(counts), strict=True)), total)
            yield counted
        for family in self._families:
            kind = _kind(family.name, family.counter)
            made = kind(family.name, family.doc, labels=[*names, *family.labels])
            name = f"{family.name}_total" if family.counter else family.name
            constant = dict(self._labels)
            for chosen, number in family.read():
                labels = {label: text for label, text in zip(family.labels, chosen, strict=True) if text is not None}
                made.add_sample(name, {**constant, **labels}, number)
            yield made

    def render(self) -> bytes:
        return generate_latest(self.registry)

    async def page(self) -> bytes:
        """Return the page. It is read family by family, with the loop free in between, and its text is written on a thread: a
        page of thousands of series takes longer than a loop may be held."""
        found = []
        for metric in self.registry.collect():
            found.append(metric)
            await asyncio.sleep(0)
        return await asyncio.to_thread(generate_latest, _Collected(found))


class _Collected:
    """The metrics that were read of a registry."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


class MetricsServer:
    """`GET` and `HEAD` of `/metrics` over plain HTTP/1.1, one request per connection, on the node's own loop.

    A door: connections, the size of a request, and how long it and its answer take are bounded, and the page is made at most
    every half second.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        request_timeout_s: float = _REQUEST_TIMEOUT_S,
        answer_timeout_s: float = _ANSWER_TIMEOUT_S,
        fresh_s: float = _FRESH_S,
    ) -> None:
        self._metrics = metrics
        self._request_timeout_s = request_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._fresh_s = fresh_s
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Those of them that have not asked yet, the oldest first."""
        self._page = b""
        self._made_at = float("-inf")
        self._making = asyncio.Lock()

    async def start(self, host: str, port: int) -> Endpoint:
        """Raises OSError, or UnicodeError for a host that cannot be one."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=_MAX_REQUEST_BYTES)
        bound = self._server.sockets[0].getsockname()
        return Endpoint(host or "localhost", int(bound[1]))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    @property
    def connection_count(self) -> int:
        return len(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._silent), writer)
            self._forget(oldest)
            oldest.transport.abort()
            if oldest is writer:
                return
        self._open.add(writer)
        self._silent[writer] = None
        writer.transport.set_write_buffer_limits(0)  # so that drain waits until all is sent
        try:
            answer = await self._answer(reader)
            self._silent.pop(writer, None)
            writer.write(answer)
            async with asyncio.timeout(self._answer_timeout_s):
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()
        finally:
            self._forget(writer)
            writer.close()

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        self._silent.pop(writer, None)

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        """Raises TimeoutError and IncompleteReadError: there is nobody to answer."""
        try:
            async with asyncio.timeout(self._request_timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", "text/plain", b"the request is too large\n")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", "text/plain", b"GET /metrics HTTP/1.1 is expected\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"only GET and HEAD\n", "Allow: GET, HEAD\r\n")
        if words[1].split(b"?", 1)[0] not in (b"/", b"/metrics"):
            return _response("404 Not Found", "text/plain", b"the page is /metrics\n", bodiless=words[0] == b"HEAD")
        return _response("200 OK", CONTENT_TYPE, await self._fresh_page(), bodiless=words[0] == b"HEAD")

    async def _fresh_page(self) -> bytes:
        async with self._making:
            if asyncio.get_running_loop().time() - self._made_at >= self._fresh_s:
                self._page = await self._metrics.page()
                self._made_at = asyncio.get_running_loop().time()
            return self._page


def _response(status: str, content_type: str, body: bytes, headers: str = "", *, bodiless: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{headers}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() if bodiless else head.encode() + body
