"""Prometheus metrics: counters from the trace, gauges read at scrape time, under the names that Kafka's stock boards expect.

Source: CE-30; names as jmx_exporter and Strimzi's rules make them of Kafka's MBeans. What only we have is `kraftlite_*`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kraftlite.model.ids import Endpoint
from kraftlite.runtime.trace import TraceEvent

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_REQUEST_BYTES = 16 * 1024

# Trace events that are Kafka's own counters.
_COUNTED: Mapping[str, tuple[str, str]] = {
    "raft.leader_elected": ("kraftlite_raft_elections_won", "Elections of the metadata quorum that this node won."),
    "partition.isr_shrunk": ("kafka_server_replicamanager_isrshrinks", "ISR shrinks of partitions led here."),
    "partition.isr_expanded": ("kafka_server_replicamanager_isrexpands", "ISR expansions of partitions led here."),
}


@dataclass(frozen=True, slots=True)
class _Reading:
    name: str
    doc: str
    read: Callable[[], float | None]
    labels: tuple[tuple[str, str], ...]
    counter: bool


class Metrics:
    """The metrics of one node. A sink of the tracer, and a collector: gauges are read on the loop when the page is asked for."""

    def __init__(self, constant_labels: Mapping[str, str] | None = None) -> None:
        self._readings: list[_Reading] = []
        self._events: dict[str, int] = {}
        self._labels = tuple((constant_labels or {}).items())
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def gauge(self, name: str, doc: str, read: Callable[[], float | None], *, labels: Mapping[str, str] | None = None) -> None:
        """`read` returning None leaves the sample out: this node has no such thing now."""
        self._readings.append(_Reading(name, doc, read, (*self._labels, *(labels or {}).items()), counter=False))

    def counter(self, name: str, doc: str, read: Callable[[], float | None], *, labels: Mapping[str, str] | None = None) -> None:
        """A number that only rises; its sample is called `<name>_total`."""
        self._readings.append(_Reading(name, doc, read, (*self._labels, *(labels or {}).items()), counter=True))

    def __call__(self, wall_ms: int, event: TraceEvent, facts: dict[str, Any]) -> None:
        self._events[event.event] = self._events.get(event.event, 0) + 1

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for reading in self._readings:
            value = reading.read()
            if value is None:
                continue
            family = families.get(reading.name)
            if family is None:
                kind = CounterMetricFamily if reading.counter else GaugeMetricFamily
                family = families[reading.name] = kind(reading.name, reading.doc, labels=[name for name, _ in reading.labels])
            family.add_metric([text for _, text in reading.labels], float(value))  # type: ignore[attr-defined]
        yield from families.values()
        names = [name for name, _ in self._labels]
        texts = [text for _, text in self._labels]
        events = CounterMetricFamily("kraftlite_trace_events", "Trace events by name.", labels=[*names, "event"])
        for event, count in sorted(self._events.items()):
            events.add_metric([*texts, event], count)
        yield events
        for event, (name, doc) in _COUNTED.items():
            counted = CounterMetricFamily(name, doc, labels=names)
            counted.add_metric(texts, self._events.get(event, 0))
            yield counted

    def render(self) -> bytes:
        return generate_latest(self.registry)


class MetricsServer:
    """`GET /metrics` over plain HTTP/1.1, one request per connection, on the node's own loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=_MAX_REQUEST_BYTES)
        bound = self._server.sockets[0].getsockname()
        return Endpoint(host or "localhost", int(bound[1]))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=10)
            writer.write(self._answer(head))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        path = words[1].split(b"?", 1)[0] if len(words) > 1 else b""
        if words[0] != b"GET":
            return _response("405 Method Not Allowed", "text/plain", b"only GET\n")
        if path not in (b"/", b"/metrics"):
            return _response("404 Not Found", "text/plain", b"/metrics\n")
        return _response("200 OK", CONTENT_TYPE, self._metrics.render())


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
