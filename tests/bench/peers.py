"""kraftlite beside Apache Kafka and librdkafka's mock cluster, one after the other in one run: ratios, not figures.

Each cluster gets the same nodes (all combined), the same topics and the same librdkafka; Kafka runs with the heap, the flags and
the configuration that it is shipped with, in which segments roll at 1 GiB and nothing is flushed by hand, as here. What is
repeated is given as the median; the first repetition only warms up, which a JVM needs more than others. A cluster whose
throughput is measured shares its cores with the client, so the ratio says how much CPU each needs for the same work.

With acks=1 the acknowledgement says nothing about the followers, and a cluster that puts them off looks faster. So those loads
have a second line, which ends when every replica has every record: when the high watermarks have reached the end. A consumer may
be limited by librdkafka itself, which the CPU of both sides per MB tells.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench import rdkafka
from tests.bench.cluster import BenchCluster, cpu_s, until
from tests.bench.failover import admin, create, delete, whole
from tests.bench.throughput import CLUSTER, CONSUMER, KIB, PRODUCER, single_record_latency
from tests.clients.java.apache import apache_kafka
from tests.clients.java.tools import Missing

REPETITIONS: Final = 3
BYTES: Final = 100_000_000
"""Of payload in one repetition with 1 KiB records; a fifth of it with 100 B, where records count and not bytes."""
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
CONNECTIONS: Final = 1_000
MEMBERS: Final = 10

KRAFTLITE: Final = "kraftlite"
KAFKA: Final = "Apache Kafka"
MOCK: Final = "mock"


@dataclass(frozen=True)
class Load:
    """One line of the table: what is produced to which topic."""

    size: int
    partitions: int
    replication: int
    acks: str
    codec: str = "none"

    @property
    def records(self) -> int:
        return (BYTES if self.size >= KIB else BYTES // 5) // self.size

    def __str__(self) -> str:
        size = "1 KiB" if self.size == KIB else f"{self.size} B"
        parts = "partition" if self.partitions == 1 else "partitions"
        codec = "" if self.codec == "none" else f", {self.codec}"
        return f"{size}, {self.partitions} {parts}, RF {self.replication}, acks={self.acks}{codec}"


LOADS: Final = tuple(
    Load(size, partitions, replication, acks)
    for replication in (1, 3)
    for size in (100, KIB)
    for partitions in (1, 6)
    for acks in ("1", "all")
) + tuple(Load(KIB, 6, 3, "all", codec) for codec in CODECS)


@dataclass
class Peer:
    """A running cluster, whoever's. `pids` are its brokers."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    topics: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    def rss_mib(self) -> float:
        """Of one node, on average."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids]
        return statistics.mean(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_s(self) -> float:
        """Processor time of all brokers since their starts."""
        return sum(cpu_s(pid) for pid in self.pids)

    def topic(self, load: Load) -> str:
        self.topics += 1
        name = f"{self.name.split()[-1].lower()}-{len(self.pids)}-{self.topics}"
        create(self.bootstrap, name, load.partitions, load.replication, min_insync_replicas=str(min(2, load.replication)))
        until("led and whole", lambda: whole(self.bootstrap, name))
        return name


@contextmanager
def kraftlite(nodes: int) -> Iterator[Peer]:
    with BenchCluster(controllers=nodes, brokers=nodes, combined=True, config=CLUSTER) as cluster:
        yield Peer(KRAFTLITE, cluster.bootstrap, tuple(node.pid for node in cluster.nodes()))


@contextmanager
def kafka(nodes: int) -> Iterator[Peer]:
    with apache_kafka(nodes=nodes, config=CLUSTER, production=True) as cluster:
        yield Peer(KAFKA, cluster.bootstrap_servers, tuple(process.pid for process in cluster.nodes.values()))


def measure(peer: Peer, loads: tuple[Load, ...]) -> dict[str, float]:
    """Every figure of one cluster. MB/s of payload, milliseconds, MiB."""
    peer.figures["memory of an idle node, MiB"] = peer.rss_mib()
    for load in loads:
        peer.figures |= _throughput(peer, load)
    replication = loads[0].replication
    if replication > 1:
        latency = Load(100, 1, replication, "all")
        p50, p99 = single_record_latency(peer.bootstrap, peer.topic(latency))
        peer.figures |= {"single acks=all produce, p50 ms": p50, "single acks=all produce, p99 ms": p99}
        peer.figures |= dict(zip(("end to end, p50 ms", "end to end, p99 ms"), _end_to_end(peer, latency), strict=True))
        peer.figures[f"rebalance of {MEMBERS} members, s"] = _rebalance(peer)
    else:
        peer.figures[f"memory with {CONNECTIONS} idle connections, MiB"] = _idle_connections(peer)
    peer.figures[f"memory of a node after the load, RF {replication}, MiB"] = peer.rss_mib()
    return peer.figures


def _throughput(peer: Peer, load: Load) -> dict[str, float]:
    """MB/s and milliseconds of CPU per MB, by figure. Consumed is only what was produced with acks=all and no codec."""
    config = {**PRODUCER, "bootstrap.servers": peer.bootstrap, "acks": load.acks, "compression.codec": load.codec}
    found: dict[str, list[float]] = {}
    for repetition in range(REPETITIONS + 1):
        name = peer.topic(load)
        began, busy = time.perf_counter(), peer.cpu_s()
        wrote = rdkafka.produce(config, name, records=load.records, size=load.size)
        if wrote.errors or wrote.records != load.records:
            raise RuntimeError(f"{peer.name}, {load}: {wrote}")
        rates = {f"produce {load}, MB/s": wrote.mb_per_s}
        if load.acks == "1" and load.replication > 1:
            until("replicated", lambda name=name: _committed(peer, name, load.partitions) == load.records)
            rates[f"produce {load}, until replicated, MB/s"] = wrote.bytes / 1e6 / (time.perf_counter() - began)
        rates[f"produce {load}, brokers' CPU, ms/MB"] = (peer.cpu_s() - busy) * 1e9 / wrote.bytes
        if load.acks == "all" and load.codec == "none":
            reader = {**CONSUMER, "bootstrap.servers": peer.bootstrap}
            busy, own = peer.cpu_s(), time.process_time()
            read = rdkafka.consume(reader, name, partitions=load.partitions, records=load.records, size=load.size)
            rates[f"consume {load}, MB/s"] = read.mb_per_s
            rates[f"consume {load}, brokers' CPU, ms/MB"] = (peer.cpu_s() - busy) * 1e9 / read.bytes
            rates[f"consume {load}, the client's CPU, ms/MB"] = (time.process_time() - own) * 1e9 / read.bytes
        for figure, rate in rates.items() if repetition else ():
            found.setdefault(figure, []).append(rate)
        delete(peer.bootstrap, name)
    return {figure: statistics.median(rates) for figure, rates in found.items()}


def _committed(peer: Peer, topic: str, partitions: int) -> int:
    """Records below the high watermarks of all partitions."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    latest = {TopicPartition(topic, it): OffsetSpec.latest() for it in range(partitions)}
    return sum(it.result(30).offset for it in admin(peer.bootstrap).list_offsets(latest).values())


def _end_to_end(peer: Peer, load: Load, count: int = 1_000) -> tuple[float, float]:
    """Milliseconds from `produce` to the consumer's hands, one record every 5 ms: p50 and p99."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    topic = peer.topic(load)
    took: list[float] = []
    reader = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "end-to-end", "fetch.wait.max.ms": 500})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read() -> None:
        while len(took) < count:
            message = reader.poll(1)
            if message is not None and message.error() is None:
                took.append((time.perf_counter() - float(message.value())) * 1000)

    thread = threading.Thread(target=read, name="end-to-end")
    thread.start()
    producer = Producer({"bootstrap.servers": peer.bootstrap, "acks": "all", "linger.ms": 0})
    for _ in range(count):
        producer.produce(topic, repr(time.perf_counter()).encode(), partition=0)
        producer.poll(0)
        time.sleep(0.005)
    producer.flush(30)
    thread.join(60)
    reader.close()
    cuts = statistics.quantiles(took[50:], n=100)
    return cuts[49], cuts[98]


def _rebalance(peer: Peer) -> float:
    """Seconds from the leaving of one member of a group to an assignment without it in the hands of all others."""
    from confluent_kafka import Consumer

    topic = peer.topic(Load(100, 2 * MEMBERS, 3, "all"))
    assigned: dict[int, int] = {}
    stop = threading.Event()
    gone = threading.Event()

    def member(number: int) -> None:
        def change(_consumer: Any, partitions: list[Any]) -> None:
            assigned[number] = len(partitions)

        def revoke(_consumer: Any, _partitions: list[Any]) -> None:
            assigned[number] = 0

        consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": f"rebalance-{topic}", "log_level": 0})
        consumer.subscribe([topic], on_assign=change, on_revoke=revoke)
        while not stop.is_set() and not (number == 0 and gone.is_set()):
            consumer.poll(0.05)
        consumer.close()
        assigned.pop(number, None)

    threads = [threading.Thread(target=member, args=(number,)) for number in range(MEMBERS)]
    try:
        for thread in threads:
            thread.start()
        until("a whole group", lambda: sorted(assigned.values()) == [2] * MEMBERS, timeout_s=90)
        began = time.perf_counter()
        gone.set()
        until(
            "a group without it",
            lambda: 0 not in assigned and len(assigned) == MEMBERS - 1 and sum(assigned.values()) == 2 * MEMBERS,
            timeout_s=90,
        )
        return time.perf_counter() - began
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def _idle_connections(peer: Peer) -> float:
    """Memory of the node while that many clients are connected and say nothing."""
    host, port = peer.bootstrap.split(",")[0].rsplit(":", 1)
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        time.sleep(1)
        return peer.rss_mib()


def mock(loads: tuple[Load, ...]) -> dict[str, float]:
    """librdkafka against its own mock, in its own process: no disk, no CRC, no replication; a generous peer. No consuming."""
    found = {}
    for load in loads:
        config = {**PRODUCER, "test.mock.num.brokers": "1", "acks": load.acks, "compression.codec": load.codec}
        runs = [rdkafka.produce(config, "mock", records=load.records, size=load.size, partition=0) for _ in range(REPETITIONS)]
        found[f"produce {load}, MB/s"] = statistics.median(it.mb_per_s for it in runs)
    return found


def peers() -> dict[str, Any]:
    """The table, also written to standard output as it comes: figure, kraftlite, Apache Kafka, the mock, and kraftlite's ratio to
    each (above 1 is better for throughput, below 1 for latency, time and memory)."""
    columns: dict[str, dict[str, float]] = {KRAFTLITE: {}, KAFKA: {}, MOCK: {}}
    for replication, nodes in ((1, 1), (3, 3)):
        loads = tuple(it for it in LOADS if it.replication == replication)
        for start in (kafka, kraftlite):
            try:
                with start(nodes) as peer:
                    columns[peer.name] |= measure(peer, loads)
            except Missing as reason:
                print(f"{KAFKA} is left out: {reason}", file=sys.stderr)
        columns[MOCK] |= mock(tuple(it for it in loads if it.replication == 1))
    return {name: _row(name, columns) for name in columns[KRAFTLITE]}


def _row(name: str, columns: Mapping[str, Mapping[str, float]]) -> str:
    own, theirs, mocked = (columns[it].get(name) for it in (KRAFTLITE, KAFKA, MOCK))
    assert own is not None
    cells = [f"{own:8.1f}" if own < 100 else f"{own:8.0f}"]
    for label, other in (("Kafka", theirs), ("mock", mocked)):
        if other:
            cells.append(f"{label} {other:8.1f} ratio {own / other:5.2f}")
    return "  ".join(cells)
