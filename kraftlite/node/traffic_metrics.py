"""Series of requests, connections, replication and the quorum that need counting while a node runs, not only a look.

What is measured costs something, so it begins with `register_traffic`: only a node with a metrics page does. Names are those of
Kafka's MBeans by Strimzi's rules (`obs/dialects` has the others).

Source: CE-30; `kafka.network:type=RequestMetrics`, `SocketServer`, `RequestChannel`; `kafka.server:type=socket-server-metrics`,
`raft-metrics`, `raft-channel-metrics`, `FetchSessionCache`, `ReplicaFetcherManager`, `KafkaServer`; GroupMetadataManager.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftlite.host.loop_lag import BOUNDS_S, LoopLag
from kraftlite.model.faults import KINDS
from kraftlite.obs.metrics import QUANTILES, Metrics, Texts
from kraftlite.obs.rates import Rate
from kraftlite.runtime.durations import DurationSummary
from kraftlite.runtime.ports import ChannelBytes, CountsBytes, Transport

if TYPE_CHECKING:
    from kraftlite.broker.server import BrokerServer
    from kraftlite.node.build import Node
    from kraftlite.raft.driver import RaftDriver

_US_PER_MS: Final = 1_000
MOST_SOFTWARE: Final = 50
"""Names and versions of clients' software that have a series of their own; the rest is told as `others`."""
MOST_CHARS: Final = 64
"""The part of each of these texts that is shown: clients choose them."""
_IO: Final = Path("/proc/self/io")
_DISK: Final = re.compile(r"^(read|write)_bytes: (\d+)$", re.MULTILINE)
_STATES: Final = ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance")
_TIMES: Final = (
    ("requestqueuetimems", "for which requests waited for the turn of their connection", "request_queue"),
    ("localtimems", "of work on requests until they were answered or had to wait for others", "local"),
    ("remotetimems", "for which requests waited for others, such as followers, or for data", "remote"),
    ("responsequeuetimems", "for which answers waited for those before them", "response_queue"),
    ("responsesendtimems", "until a socket had been handed what it took of an answer at once", "response_send"),
    ("totaltimems", "from the arrival of requests to the sending of their answers", "total"),
)
_FOLLOWER: Final = "FetchFollower"
_RAFT: Final = "Raft"
"""The service of the quorum (`raft/rpc`)."""

Measured = Iterable[tuple[Texts, int, float, list[float]]]


def register_traffic(metrics: Metrics, node: Node) -> None:
    """Once, when the node's parts are made. Begins to measure the requests of clients."""
    now_ms = node.ports.clock.now_ms
    _register_requests(metrics, node)
    _register_sockets(metrics, node, now_ms)
    _register_loop(metrics)
    _register_disk(metrics)
    _register_raft(metrics, node.raft, now_ms)
    _register_bytes(metrics, node.ports.transport)
    if node.broker is not None:
        _register_broker(metrics, node.broker, now_ms)
    if (injector := node.injector) is not None:
        metrics.family(
            "kraftlite_faults_active",
            "Faults that this node causes to itself now, because it was told to (kraftlite fault).",
            "kind",
            lambda: Counter(dict.fromkeys(KINDS, 0) | Counter(it.fault.kind for it in injector.states())).items(),
        )


def _register_requests(metrics: Metrics, node: Node) -> None:
    times = node.listeners.measure_requests()
    metrics.before(times.fold)
    fetched = None if node.broker is None else node.broker.replicas.fetch_times

    def counts() -> Iterator[tuple[Texts, float]]:
        for name, kind in sorted(times.kinds.items()):
            for version, count in sorted(kind.requests.items()):
                yield (name, str(version)), count
        if fetched is not None:
            yield (_FOLLOWER, None), fetched.total.count

    def measured(part: str) -> Callable[[], Measured]:
        def read() -> Measured:
            for name, kind in sorted(times.kinds.items()):
                yield ((name,), *_in_ms(getattr(kind, part)))
            if fetched is not None and hasattr(fetched, part):
                yield ((_FOLLOWER,), *_in_ms(getattr(fetched, part)))

        return read

    metrics.samples(
        "kafka_network_requestmetrics_requests",
        "Requests of clients and of followers, since the start.",
        ("request", "version"),
        counts,
        counter=True,
    )
    metrics.samples(
        "kafka_network_requestmetrics_errors",
        "Errors in answers to clients, since the start: of an answer as a whole, and of each of its entries. NONE is not told.",
        ("request", "error"),
        lambda: (
            ((name, error), count) for name, kind in sorted(times.kinds.items()) for error, count in sorted(kind.errors.items())
        ),
        counter=True,
    )
    for name, doc, part in _TIMES:
        metrics.histograms(f"kafka_network_requestmetrics_{name}", f"Milliseconds {doc}.", ("request",), measured(part))
    metrics.gauge(
        "kafka_network_requestchannel_requestqueuesize",
        "Connections of clients that wait for their turn with requests.",
        lambda: 0 if (found := node.listeners.share) is None else found.turns.deferred,
    )
    metrics.gauge(
        "kafka_network_requestchannel_responsequeuesize",
        "Requests of clients that are not answered yet, or whose answers wait for those before them.",
        lambda: sum(connection.in_flight for client in node.listeners.for_clients for connection in client.connections),
    )


def _in_ms(found: DurationSummary) -> tuple[int, float, list[float]]:
    return found.count, found.total_us / _US_PER_MS, [value / _US_PER_MS for value in found.quantiles(QUANTILES)]


def _register_sockets(metrics: Metrics, node: Node, now_ms: Callable[[], int]) -> None:
    rates: dict[tuple[str, str], Rate] = {}

    def rate(what: str, listener: str, count: int) -> Iterator[tuple[Texts, float]]:
        found = rates.setdefault((what, listener), Rate(now_ms)).of(count)
        if found is not None:
            yield (listener,), found

    def software() -> Iterator[tuple[Texts, float]]:
        every = (connection.software for client in node.listeners.for_clients for connection in client.connections)
        found = Counter((name[:MOST_CHARS], version[:MOST_CHARS]) for name, version in every)
        most = found.most_common(MOST_SOFTWARE)
        yield from most
        if rest := found.total() - sum(count for _, count in most):
            yield ("others", "others"), rest

    prefix, labels = "kafka_server_socketservermetrics_", ("listener",)
    metrics.samples(
        f"{prefix}connection_count",
        "Connections of clients, by listener.",
        labels,
        lambda: [((client.name,), client.connection_count) for client in node.listeners.for_clients],
    )
    metrics.samples(
        f"{prefix}connection_creation_rate",
        "New connections of clients a second, in the last half minute.",
        labels,
        lambda: [it for client in node.listeners.for_clients for it in rate("accepted", client.name, client.accepted)],
    )
    metrics.samples(
        f"{prefix}connection_close_rate",
        "Connections of clients that ended a second, in the last half minute.",
        labels,
        lambda: [it for client in node.listeners.for_clients for it in rate("closed", client.name, client.closed_count)],
    )
    metrics.samples(
        f"{prefix}connections",
        "Connections of clients, by the software that they say they are.",
        ("client_software_name", "client_software_version"),
        software,
    )


class _Idle:
    """The share of the time since the last look in which the loop's thread did not compute. Both of Kafka's pools are that thread
    here. Looked at on the loop."""

    def __init__(self) -> None:
        self._at, self._used = time.perf_counter(), time.thread_time()
        self._share = 1.0

    def look(self) -> None:
        at, used = time.perf_counter(), time.thread_time()
        if at > self._at:
            self._share = max(0.0, min(1.0, 1 - (used - self._used) / (at - self._at)))
        self._at, self._used = at, used

    def read(self) -> float:
        return self._share


def _register_loop(metrics: Metrics) -> None:
    idle = _Idle()
    metrics.before(idle.look)
    doc = "Share of the time since the last look in which the loop of this node, which does all its work, did not compute."
    metrics.gauge("kafka_network_socketserver_networkprocessoravgidle_percent", doc, idle.read)
    metrics.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", doc, idle.read)
    metrics.gauge("kafka_server_raftmetrics_poll_idle_ratio_avg", doc, idle.read)


def register_loop_lag(metrics: Metrics, lag: LoopLag) -> None:
    metrics.buckets(
        "kraftlite_loop_lag_seconds",
        "Seconds by which the loop of this node, which does all its work, came too late to a tick every 100 ms.",
        BOUNDS_S,
        lambda: (lag.counts, lag.total_s),
    )


def _register_disk(metrics: Metrics) -> None:
    """Source: Kafka's LinuxIoMetricsCollector."""
    found: dict[str, float] = {}

    def look() -> None:
        found.clear()
        try:
            found.update((way, float(count)) for way, count in _DISK.findall(_IO.read_text()))
        except OSError:
            return  # no Linux, or not allowed: then nobody knows

    metrics.before(look)
    for way, done in (("read", "read from"), ("write", "written to")):
        metrics.gauge(
            f"kafka_server_kafkaserver_linux_disk_{way}_bytes",
            f"Bytes that this process has {done} disks, without what the page cache had.",
            lambda way=way: found.get(way),  # type: ignore[misc]
        )


def _register_raft(metrics: Metrics, raft: RaftDriver, now_ms: Callable[[], int]) -> None:
    """Source: KafkaRaftMetrics; KIP-595."""
    measures, gauge = raft.measures, metrics.gauge
    appended, fetched = Rate(now_ms), Rate(now_ms)
    prefix, window = "kafka_server_raftmetrics_", "a second, in the last half minute."
    gauge(
        f"{prefix}append_records_rate",
        f"Metadata records that this node appended as the leader {window}",
        lambda: appended.of(measures.appended),
    )
    gauge(
        f"{prefix}fetch_records_rate",
        f"Metadata records that this node got from the leader {window}",
        lambda: fetched.of(measures.fetched),
    )
    for name, doc, found in (
        ("commit_latency", "until a record that this leader had appended was committed", measures.commits),
        ("election_latency", "from standing for election until there was a leader", measures.elections),
    ):
        gauge(f"{prefix}{name}_avg", f"Milliseconds {doc}, on average of the latest.", lambda it=found: _mean_ms(it))  # type: ignore[misc]
        gauge(f"{prefix}{name}_max", f"Most milliseconds {doc}, of the latest.", lambda it=found: _most_ms(it))  # type: ignore[misc]
    channel = "kafka_server_raftchannelmetrics_"
    metrics.counter(f"{channel}request", "Requests of this node to others of the metadata quorum.", lambda: measures.requests)
    metrics.counter(
        f"{channel}response",
        "Answers that this node got to its requests to others of the metadata quorum.",
        lambda: measures.responses,
    )


def _register_bytes(metrics: Metrics, transport: Transport) -> None:
    """Source: Kafka's raft-channel-metrics; the other services have one of ours."""

    def counted() -> Mapping[str, ChannelBytes]:
        return transport.channel_bytes if isinstance(transport, CountsBytes) else {}

    def of_raft(read: Callable[[ChannelBytes], int]) -> Callable[[], float | None]:
        return lambda: None if (found := counted().get(_RAFT)) is None else read(found)

    for name, doc, read in (
        ("outgoing", "sent to others", lambda it: it.sent),
        ("incoming", "got in answers from others", lambda it: it.received),
    ):
        of: Callable[[ChannelBytes], int] = read
        metrics.counter(
            f"kafka_server_raftchannelmetrics_{name}_byte",
            f"Bytes of messages of the metadata quorum that this node {doc}.",
            of_raft(of),
        )
        metrics.samples(
            f"kraftlite_rpc_{name}_bytes",
            f"Bytes of messages that this node {doc}, as the one who asks, by service; without what gRPC and TLS add.",
            ("service",),
            lambda of=of: (((service,), of(found)) for service, found in sorted(counted().items())),  # type: ignore[misc]
            counter=True,
        )


def _mean_ms(found: DurationSummary) -> float | None:
    return sum(found.recent) / len(found.recent) / _US_PER_MS if found.recent else None


def _most_ms(found: DurationSummary) -> float | None:
    return max(found.recent) / _US_PER_MS if found.recent else None


def _register_broker(metrics: Metrics, broker: BrokerServer, now_ms: Callable[[], int]) -> None:
    sessions, replicas = broker.context.fetch_sessions, broker.replicas
    metrics.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Incremental fetch sessions of clients.",
        lambda: len(sessions),
    )
    metrics.counter(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
        "Incremental fetch sessions of clients that made room for others.",
        lambda: sessions.evictions,
    )
    rates: dict[tuple[int, int], Rate] = {}

    def slowest() -> Iterator[tuple[Texts, float]]:
        counts = replicas.fetch_counts()
        for key in [key for key in rates if key not in counts]:
            del rates[key]
        found = [rates.setdefault(key, Rate(now_ms)).of(count) for key, count in counts.items()]
        known = [rate for rate in found if rate is not None]
        if known:
            yield ("Replica",), min(known)

    metrics.samples(
        "kafka_server_replicafetchermanager_minfetchrate",
        "Fetches a second of the fetcher with the fewest, in the last half minute.",
        ("clientid",),
        slowest,
    )
    metrics.samples(
        "kafka_server_replicafetchermanager_maxlag",
        "Most offsets by which a replica here is behind its leader's high watermark.",
        ("clientid",),
        lambda: [(("Replica",), replicas.max_lag())],
    )
    states: Counter[str] = Counter()

    def look() -> None:
        states.clear()
        states.update(broker.groups.group_states())

    metrics.before(look)
    for state in _STATES:
        metrics.gauge(
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
            f"Groups that this broker coordinates, in the state {state}.",
            lambda state=state: states[state],  # type: ignore[misc]
        )
