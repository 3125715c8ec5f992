"""Transactions of kraftlite beside those of Apache Kafka, in one run: ratios, not figures.

Both clusters run at the same time, with the configuration that `peers` gives them, and take turns of about a second: what else
runs on the machine meets both alike. Every line is the median over the rounds, and the ratio is the median of the rounds' ratios;
the first round only warms up, for so long that a JVM has compiled what it runs. The client is librdkafka, which asks for
transactions as clients before Kafka 4.0 do (`transaction.version` 0), and where it is named Java's, which has an epoch for each
transaction (2).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.settings import ClientSettings
from kraftlite.client.transactions import fence_producer
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from tests.bench import rdkafka
from tests.bench.cluster import BenchCluster, cpu_s, until
from tests.bench.failover import create, described, leaders_in, serves, whole
from tests.bench.peers import KAFKA, KRAFTLITE
from tests.bench.throughput import CLUSTER, CONSUMER, KIB
from tests.clients.java.apache import ApacheKafka, apache_kafka
from tests.clients.java.tools import Missing, java, kafka_tool, programs

ROUNDS = 9
WARM_UP_S = 10.0
"""Of each side and client, before anything is measured."""
SHORT_ROUNDS: Final = 3
SHORT_WARM_UP_S: Final = 3.0
TURN_S: Final = 1.0
"""For so long a side is measured, then the other one."""
PAUSE_S: Final = 0.002
"""Between two transactions whose time is taken: the one before is complete by then, or the next waits for it."""
PRODUCERS: Final = 10
IDS: Final = 10_000
CONSUMED: Final = 100_000
FAILOVERS: Final = 3
SESSION_MS: Final = 3_000
FAST: Final = {
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 2,
}
"""The pauses of librdkafka grow to a second: it is the cluster that is measured."""


@dataclass
class Side:
    """A running cluster, whoever's."""

    name: str
    bootstrap: str
    pids: Callable[[], dict[int, int]]
    restart: Callable[[int], None]
    topics: int = 0
    producers: dict[str, Any] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """Of all nodes, all threads."""
        return sum(cpu_s(pid) for pid in self.pids().values())

    def rss_mib(self) -> float:
        """Of one node, on average."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids().values()]
        return statistics.mean(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def topic(self, partitions: int, replication: int) -> str:
        self.topics += 1
        name = f"transactions-{self.topics}"
        create(self.bootstrap, name, partitions, replication, min_insync_replicas=str(min(2, replication)))
        until("led and whole", lambda: whole(self.bootstrap, name) and serves(self.bootstrap, name, range(partitions)))
        return name


@contextmanager
def kraftlite(nodes: int) -> Iterator[Side]:
    with BenchCluster(controllers=nodes, brokers=nodes, combined=True, config=_config()) as cluster:
        pids = {node.node_id: node.pid for node in cluster.nodes()}

        def restart(node_id: int) -> None:
            cluster.kraftlite("restart", str(node_id))
            pids.update({node.node_id: node.pid for node in cluster.nodes()})

        yield Side(KRAFTLITE, cluster.bootstrap, lambda: pids, restart)


@contextmanager
def kafka(nodes: int) -> Iterator[Side]:
    with apache_kafka(nodes=nodes, config=_config(), production=True) as cluster:

        def restart(node_id: int) -> None:
            cluster.nodes[node_id].wait()
            cluster.start(node_id)
            cluster.wait()

        yield Side(KAFKA, cluster.bootstrap_servers, lambda: _pids(cluster), restart)


def _config() -> dict[str, str]:
    return {**CLUSTER, "broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}


def _pids(cluster: ApacheKafka) -> dict[int, int]:
    return {node_id: process.pid for node_id, process in cluster.nodes.items()}


# --- clients --------------------------------------------------------------------------------------------------------------


class RdkafkaProducer:
    """A transactional producer of librdkafka."""

    def __init__(self, side: Side, transactional_id: str, *, partition: int = 0, **config: Any) -> None:
        from confluent_kafka import Producer

        self._partition = partition

        self._producer = Producer(
            {**FAST, "bootstrap.servers": side.bootstrap, "transactional.id": transactional_id, **config}, logger=_silent()
        )
        self._producer.init_transactions(60)

    def run(self, topic: str, seconds: float, *, records: int = 1, size: int = 100, pause_s: float = 0.0) -> list[float]:
        """Commit one transaction after the other for so long, at least one. Milliseconds of each, from begin to answer."""
        payload = bytes(size)
        took: list[float] = []
        end = time.perf_counter() + seconds
        while not took or time.perf_counter() < end:
            began = time.perf_counter()
            self._producer.begin_transaction()
            self._fill(topic, payload, records)
            self._producer.commit_transaction(60)
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(pause_s)
        return took

    def abort(self, topic: str, *, records: int, size: int) -> None:
        """A transaction that is aborted, its records in their partition."""
        self._producer.begin_transaction()
        self._fill(topic, bytes(size), records)
        self._producer.flush(60)
        self._producer.abort_transaction(60)

    def _fill(self, topic: str, payload: bytes, records: int) -> None:
        for _ in range(records):
            self._producer.produce(topic, payload, partition=self._partition)

    def commit_soon(self, topic: str, deadline_s: float = 60) -> float:
        """Seconds until a transaction of one record is committed, whatever has to be tried again."""
        from confluent_kafka import KafkaException

        began = time.perf_counter()
        while time.perf_counter() - began < deadline_s:
            try:
                self._producer.begin_transaction()
                self._producer.produce(topic, b"x" * 100, partition=self._partition)
                self._producer.commit_transaction(deadline_s)
                return time.perf_counter() - began
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    self._producer.abort_transaction(deadline_s)
                elif not error.args[0].retriable():
                    raise
        raise RuntimeError(f"no transaction was committed within {deadline_s} s")


class JavaProducer(AbstractContextManager["JavaProducer"]):
    """A transactional producer of Apache Kafka's own client, in a process of its own that is told what to do line by line."""

    def __init__(self, side: Side, transactional_id: str) -> None:
        self._side = side.name
        self._process = subprocess.Popen(
            [*java("TransactionRounds", more=[programs()], flags=()), side.bootstrap, transactional_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, topic: str, seconds: float, *, records: int = 1, size: int = 100, pause_s: float = 0.0) -> list[float]:
        """See `RdkafkaProducer.run`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{topic} {round(seconds * 1000)} {records} {size} {round(pause_s * 1000)}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java client of {self._side} has ended with {self._process.wait()}")
        return [float(it) for it in json.loads(line)]

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _silent() -> Any:
    import logging

    logger = logging.getLogger("bench.transactions")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


# --- rounds ---------------------------------------------------------------------------------------------------------------

Figures = dict[str, float]
Round = Callable[[Side], Figures]


def interleaved(sides: Sequence[Side], turn: Round) -> dict[str, str]:
    """Run the turn of each side, round by round, the first of them alternating. The table's rows."""
    seen: dict[str, list[dict[str, float]]] = {}
    for number in range(ROUNDS + 1):
        found = {side.name: turn(side) for side in (sides if number % 2 else sides[::-1])}
        for name in found[KRAFTLITE] if number else ():
            seen.setdefault(name, []).append({side: figures[name] for side, figures in found.items()})
    return {name: _row(measured) for name, measured in seen.items()}


def _row(rounds: list[dict[str, float]]) -> str:
    own = statistics.median(it[KRAFTLITE] for it in rounds)
    if KAFKA not in rounds[0]:
        return _number(own)
    theirs = statistics.median(it[KAFKA] for it in rounds)
    ratios = sorted(it[KRAFTLITE] / it[KAFKA] for it in rounds)
    spread = f" ({ratios[0]:.2f} to {ratios[-1]:.2f})" if len(ratios) > 1 else ""
    return f"{_number(own)}  Kafka {_number(theirs)}  ratio {statistics.median(ratios):5.2f}{spread}"


def _number(value: float) -> str:
    return f"{value:8.2f}" if value < 100 else f"{value:8.0f}"


def _cuts(took: Sequence[float]) -> tuple[float, float]:
    if len(took) < 2:
        return took[0], took[0]
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return cuts[49], cuts[98]


def one_by_one(sides: Sequence[Side], replication: int) -> dict[str, str]:
    """Latency, and the rate and the CPU of one producer without a pause."""
    topics = {side.name: side.topic(1, replication) for side in sides}
    rows: dict[str, str] = {}
    with ExitStack() as stack:
        clients: dict[str, dict[str, Any]] = {
            "": {side.name: RdkafkaProducer(side, "one-by-one") for side in sides},
            ", Java": {side.name: stack.enter_context(JavaProducer(side, "one-by-one-java")) for side in sides},
        }
        for kind, producers in clients.items():
            for side in sides:
                producers[side.name].run(topics[side.name], WARM_UP_S)

            def turn(side: Side, kind: str = kind, producers: dict[str, Any] = producers) -> Figures:
                run, topic = producers[side.name].run, topics[side.name]
                p50, p99 = _cuts(run(topic, TURN_S, pause_s=PAUSE_S))
                cpu, began = side.cpu_s(), time.perf_counter()
                count = len(run(topic, TURN_S))
                rate = count / (time.perf_counter() - began)
                cpu_ms = (side.cpu_s() - cpu) / count * 1000
                return {
                    f"RF {replication}{kind}: begin, send 1, commit, p50 ms": p50,
                    f"RF {replication}{kind}: begin, send 1, commit, p99 ms": p99,
                    f"RF {replication}{kind}: transactions/s of 1 producer": rate,
                    f"RF {replication}{kind}: the same, CPU of all nodes, ms per transaction": cpu_ms,
                }

            rows |= interleaved(sides, turn)
    return rows


def at_once(sides: Sequence[Side], replication: int) -> dict[str, str]:
    """Ten producers, each with an id and a partition of its own."""
    topics = {side.name: [side.topic(1, replication) for _ in range(PRODUCERS)] for side in sides}
    clients = {side.name: [RdkafkaProducer(side, f"at-once-{n}") for n in range(PRODUCERS)] for side in sides}

    def turn(side: Side) -> Figures:
        cpu, began = side.cpu_s(), time.perf_counter()
        with ThreadPoolExecutor(PRODUCERS) as threads:
            jobs = zip(clients[side.name], topics[side.name], strict=True)
            running = [threads.submit(client.run, topic, TURN_S) for client, topic in jobs]
            count = sum(len(it.result()) for it in running)
        return {
            f"RF {replication}: transactions/s of {PRODUCERS} producers": count / (time.perf_counter() - began),
            f"RF {replication}: CPU at {PRODUCERS} producers, ms per transaction": (side.cpu_s() - cpu) / count * 1000,
        }

    return interleaved(sides, turn)


def large(sides: Sequence[Side], replication: int) -> dict[str, str]:
    """Transactions of a thousand records; MB of payload."""
    topics = {side.name: side.topic(1, replication) for side in sides}
    clients = {side.name: RdkafkaProducer(side, "large", **{"batch.size": 1_000_000, "linger.ms": 5}) for side in sides}

    def turn(side: Side) -> Figures:
        cpu, began = side.cpu_s(), time.perf_counter()
        size = len(clients[side.name].run(topics[side.name], TURN_S, records=1000, size=KIB)) * 1000 * KIB / 1e6
        return {
            f"RF {replication}: transactions of 1,000 records of 1 KiB, MB/s": size / (time.perf_counter() - began),
            f"RF {replication}: the same, CPU of all nodes, ms per MB": (side.cpu_s() - cpu) / size * 1000,
        }

    return interleaved(sides, turn)


def read_committed(sides: Sequence[Side], replication: int) -> dict[str, str]:
    """Transactions of a hundred records of 1 KiB, one of ten aborted, read from the beginning."""
    topics, records = {}, 100
    for side in sides:
        topic = topics[side.name] = side.topic(1, replication)
        producer = RdkafkaProducer(side, "read")
        for number in range(CONSUMED // records):
            if number % 10 == 9:
                producer.abort(topic, records=records, size=KIB)
            else:
                producer.run(topic, 0, records=records, size=KIB)

    def turn(side: Side) -> Figures:
        config = {**CONSUMER, "bootstrap.servers": side.bootstrap, "isolation.level": "read_committed"}
        cpu = side.cpu_s()
        wanted = CONSUMED // 10 * 9
        read = rdkafka.consume(config, topics[side.name], partitions=1, records=wanted, size=KIB)
        if read.records < wanted:
            raise RuntimeError(f"{side.name}: {read.records} records of {wanted} that are committed")
        return {
            f"RF {replication}: read_committed consume, MB/s": read.mb_per_s,
            f"RF {replication}: the same, CPU of all nodes, ms per MB": (side.cpu_s() - cpu) / (read.bytes / 1e6) * 1000,
        }

    return interleaved(sides, turn)


# --- what is done once ----------------------------------------------------------------------------------------------------


def memory(sides: Sequence[Side], replication: int) -> dict[str, str]:
    """The growth of the only node by ten thousand ids, each asked for once. Of a JVM what lives after a collection counts: its
    heap grows as it likes."""
    assert replication == 1
    found: dict[str, float] = {}
    resident: dict[str, float] = {}
    for side in sides:
        (pid,) = side.pids().values()
        RdkafkaProducer(side, "before-memory")  # the topic of states is there
        before = _live_mib(side, pid)
        with ClusterClient(ClientSettings(bootstrap=(side.bootstrap,))) as cluster:
            for number in range(IDS):
                fence_producer(cluster, f"memory-{number}")
        found[side.name] = _live_mib(side, pid) - before
        resident[side.name] = side.rss_mib()
    return {
        f"memory of {IDS:,} transactional ids, MiB": _row([found]),
        "resident memory of the node with them, MiB": _row([resident]),
    }


def _live_mib(side: Side, pid: int) -> float:
    if side.name == KRAFTLITE:
        return side.rss_mib()
    told = subprocess.run(["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, timeout=60, check=True)
    return int(told.stdout.split("Total")[-1].split()[1]) / 2**20


def failover(sides: Sequence[Side], replication: int) -> dict[str, str]:
    """The time until a transaction is committed that begins as the coordinator goes: it is killed, or told to stop."""
    rows: dict[str, str] = {}
    for side in sides:
        RdkafkaProducer(side, "first").run(side.topic(1, replication), TURN_S)
        until("the topic of states is whole", lambda side=side: whole(side.bootstrap, TRANSACTION_TOPIC))  # type: ignore[misc]
    for sent in (signal.SIGKILL, signal.SIGTERM):
        seen = [{side.name: _fail(side, sent, number) for side in sides} for number in range(FAILOVERS)]
        what = f"killed, session timeout {SESSION_MS / 1000:g} s" if sent is signal.SIGKILL else "told to stop"
        rows[f"RF 3: the next commit when the coordinator is {what}, s"] = _row(seen)
    return rows


def _fail(side: Side, sent: signal.Signals, number: int) -> float:
    """The coordinator of the id does not lead the quorum, nor the partition that is written to."""
    partitions = 6
    topic, spared = side.topic(partitions, 3), (_quorum_leader(side), -1)
    states = _leaders(side, TRANSACTION_TOPIC)
    names = (f"failover-{sent.name}-{number}-{n}" for n in range(10_000))
    name, victim = next(it for it in ((name, states[partition_for(name, len(states))]) for name in names) if it[1] not in spared)
    partition = next(index for index, leader in _leaders(side, topic).items() if leader not in (victim, -1))
    producer = RdkafkaProducer(side, name, partition=partition)
    producer.run(topic, TURN_S)
    os.kill(side.pids()[victim], sent)
    took = producer.commit_soon(topic)
    side.restart(victim)
    until("whole", lambda: whole(side.bootstrap, topic) and whole(side.bootstrap, TRANSACTION_TOPIC), every_s=0.2, timeout_s=120)
    return took


def _quorum_leader(side: Side) -> int:
    told = kafka_tool("kafka-metadata-quorum", "--bootstrap-server", side.bootstrap, "describe", "--status")
    return next(int(line.split()[1]) for line in told.lines if line.startswith("LeaderId:"))


def _leaders(side: Side, topic: str) -> dict[int, int]:
    return leaders_in(described(side.bootstrap, topic))


Part = Callable[[Sequence[Side], int], dict[str, str]]
ALL: Final = (1, 3)
PARTS: Final[dict[str, tuple[Part, Sequence[int]]]] = {
    "latency": (one_by_one, ALL),
    "rate": (at_once, ALL),
    "large": (large, ALL),
    "read_committed": (read_committed, (1,)),
    "memory": (memory, (1,)),
    "failover": (failover, (3,)),
}
"""Each part, and the replication factors with which it is measured: of as many nodes."""


def transactions(*names: str) -> dict[str, Any]:
    """The table: figure, kraftlite, Apache Kafka, and kraftlite's ratio to it (above 1 is better for rates, below 1 for times,
    CPU and memory). `names`: of the parts, as `memory`, or with a replication factor, as `rate-3`; none: all."""
    rows: dict[str, str] = {}
    for replication in ALL:
        parts = [
            part
            for name, (part, factors) in PARTS.items()
            if replication in factors and (not names or name in names or f"{name}-{replication}" in names)
        ]
        if not parts:
            continue
        with ExitStack() as stack:
            sides = [stack.enter_context(kraftlite(replication))]
            with contextlib.suppress(Missing):
                sides.append(stack.enter_context(kafka(replication)))
            if len(sides) == 1:
                print(f"{KAFKA} is left out: its jars are not there", file=sys.stderr)
            for part in parts:
                rows |= part(sides, replication)
    return rows


def measured(arguments: Sequence[str]) -> dict[str, Any]:
    """Parts by name, for a look at one thing: `python -m tests.bench.transactions memory rate-3`. `--short`: fewer and shorter
    rounds, from which only a large difference can be told."""
    global ROUNDS, WARM_UP_S
    names = [it for it in arguments if it != "--short"]
    known = {*PARTS, *(f"{name}-{factor}" for name, (_, factors) in PARTS.items() for factor in factors)}
    if unknown := [it for it in names if it not in known]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(known))}, and --short")
    if len(names) < len(arguments):
        ROUNDS, WARM_UP_S = SHORT_ROUNDS, SHORT_WARM_UP_S
    return transactions(*names)


if __name__ == "__main__":
    for fact, value in measured(sys.argv[1:]).items():
        print(f"{fact:<75} {value}")
