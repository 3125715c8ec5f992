"""The cost of many partitions: three controllers and three brokers as processes, replication factor 3, nothing produced.

`python -m tests.bench partitions` measures 10,000 partitions; `python -m tests.bench.partitions --sizes 10000,50000 [--kafka]
[--steps idle,failover,whole]` measures what it is told, with Apache Kafka as three combined nodes in the same run. The CPU
beside each time is what the nodes used meanwhile: on a busy machine it says more than the time does. A client looks from outside:
it asks a broker for the metadata of one topic after the other, and each leader for the end of each of its partitions. Where a
failover is measured it asks those that may lead what the killed broker led, and nothing else (`asking`).

"Beyond the session" is beyond nine seconds after the kill. The session began with the last heartbeat, up to two seconds before
that, so it may be over sooner, and the figure below zero; "after the session" counts from when the controller saw it end, as its
trace says, and is told of kraftlite alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from kraftlite.obs.timeline import read_timelines
from kraftlite.runtime.trace.controller import BrokerSessionExpired
from tests.bench.asking import Asker, all_led
from tests.bench.cluster import BenchCluster, cpu_s, until
from tests.bench.failover import admin, serves
from tests.clients.java.apache import ApacheKafka, apache_kafka

PER_TOPIC: Final = 1_000
TOPICS_AT_ONCE: Final = 5
"""The topics of one request to create: one operation writes at most 10,000 records."""
SESSION_S: Final = 9.0
"""`broker.session.timeout.ms` as shipped, here and in Kafka."""
IDLE_S: Final = 10.0
WAIT_S: Final = 240.0
STEPS: Final = ("idle", "failover", "whole")

Partitions: TypeAlias = Mapping[str, Sequence[int]]
"""Of each topic."""


@dataclass
class Side:
    """A running cluster, whoever's: its addresses, its processes, and how one of its brokers is killed and started again."""

    name: str
    bootstrap: dict[int, str]
    """By broker."""
    pids: Callable[[], dict[str, int]]
    kill: Callable[[int], None]
    start: Callable[[int], None]
    session_over: Callable[[int], float | None] = lambda broker: None
    """The wall time at which the controller saw the session of a broker end; None: nobody says."""
    figures: dict[str, Any] = field(default_factory=dict)

    def cpu_s(self) -> dict[str, float]:
        return {name: _cpu_s(pid) for name, pid in self.pids().items()}

    def rss_mib(self) -> float:
        """Of the largest broker."""
        page = os.sysconf("SC_PAGE_SIZE")
        brokers = [pid for name, pid in self.pids().items() if name.startswith("broker")]
        return max(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page / 2**20 for pid in brokers)

    @contextmanager
    def timed(self, what: str, less_s: float = 0.0) -> Iterator[None]:
        """The seconds beyond `less_s`, and the processor time of each node that lived through it."""
        began, before = time.perf_counter(), self.cpu_s()
        yield
        took = time.perf_counter() - began - less_s
        used = {name: round(now - before.get(name, 0.0), 1) for name, now in self.cpu_s().items()}
        self.tell(f"{what}, s", round(took, 1))
        self.tell(f"{what}: CPU, s", " ".join(f"{name}={value}" for name, value in used.items()))

    def tell(self, what: str, value: Any) -> None:
        self.figures[what] = value
        print(f"  {self.name:<13} {what:<60} {value}", file=sys.stderr, flush=True)


def _cpu_s(pid: int) -> float:
    try:
        return cpu_s(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


@contextmanager
def kraftlite() -> Iterator[Side]:
    with BenchCluster() as cluster:
        nodes = {node.node_id: node for node in cluster.nodes()}

        def pids() -> dict[str, int]:
            return {f"{node.roles[0]}-{node.node_id}": node.pid for node in cluster.nodes() if node.pid}

        bootstrap = {node_id: node.kafka for node_id, node in nodes.items() if node.kafka}
        side = Side(
            "kraftlite",
            bootstrap,
            pids,
            kill=lambda broker: os.kill(nodes[broker].pid, signal.SIGKILL),
            start=lambda broker: cluster.start_node(broker),
            session_over=lambda broker: _session_over(cluster.data_dir, broker),
        )
        yield side
        began = time.perf_counter()
        cluster.down()
        side.tell("down --wipe, s", round(time.perf_counter() - began, 1))


def _session_over(data_dir: Path, broker: int) -> float | None:
    ended = [
        event["ts"] / 1_000
        for event in read_timelines(data_dir.glob("node-*/trace.jsonl"))
        if event["event"] == BrokerSessionExpired.event and event["broker_id"] == broker
    ]
    return max(ended, default=None)


@contextmanager
def kafka() -> Iterator[Side]:
    with apache_kafka(nodes=3, production=True) as cluster:
        yield _kafka_side(cluster)


def _kafka_side(cluster: ApacheKafka) -> Side:
    addresses = cluster.bootstrap_servers.split(",")
    return Side(
        "Apache Kafka",
        dict(zip(sorted(cluster.nodes), addresses, strict=True)),
        lambda: {f"broker-{number}": process.pid for number, process in cluster.nodes.items() if process.poll() is None},
        kill=cluster.kill,
        start=cluster.start,
    )


# --- what a client sees


def _topics(count: int) -> list[str]:
    return [f"many-{number}" for number in range(-(-count // PER_TOPIC))]


def create(side: Side, count: int) -> None:
    from confluent_kafka.admin import NewTopic

    names, left = _topics(count), count
    bootstrap = ",".join(side.bootstrap.values())
    for start in range(0, len(names), TOPICS_AT_ONCE):
        wanted = []
        for name in names[start : start + TOPICS_AT_ONCE]:
            wanted.append(NewTopic(name, min(PER_TOPIC, left), 3))
            left -= PER_TOPIC
        for answer in admin(bootstrap).create_topics(wanted, operation_timeout=60, request_timeout=90).values():
            answer.result(120)


def all_topics(bootstrap: str, names: Sequence[str], holds: Callable[[Any], bool]) -> None:
    """Return when `holds` was true of each partition, topic after topic."""

    def topic_holds(name: str) -> bool:
        found = admin(bootstrap).list_topics(name, timeout=30).topics[name]
        return found.error is None and bool(found.partitions) and all(map(holds, found.partitions.values()))

    for name in names:
        until(name, lambda name=name: topic_holds(name), timeout_s=WAIT_S, every_s=0.2)


def all_serve(bootstrap: str, partitions: Partitions) -> None:
    for name, some in partitions.items():
        until(name, lambda name=name, some=some: serves(bootstrap, name, some), timeout_s=WAIT_S, every_s=0.2)


def led_by(bootstrap: str, names: Sequence[str], broker: int) -> dict[str, dict[int, list[int]]]:
    """The partitions that a broker leads, and their other replicas in the order of the assignment."""
    found: dict[str, dict[int, list[int]]] = {}
    for name in names:
        partitions = admin(bootstrap).list_topics(name, timeout=30).topics[name].partitions
        led = {index: partition for index, partition in partitions.items() if partition.leader == broker}
        found[name] = {index: [it for it in partition.replicas if it != broker] for index, partition in led.items()}
    return found


def settled(side: Side) -> None:
    """Return when no broker has much to do any more: a partition is led before its followers are there."""

    def idle() -> bool:
        before = side.cpu_s()
        time.sleep(2)
        return all(now - before[name] < 0.5 for name, now in side.cpu_s().items() if name.startswith("broker"))

    until("idle brokers", idle, timeout_s=WAIT_S)


# --- the story


def measure(side: Side, count: int, steps: Sequence[str]) -> dict[str, Any]:
    names = _topics(count)
    every = {name: range(min(PER_TOPIC, count)) for name in names}
    everywhere = ",".join(side.bootstrap.values())
    with side.timed("created and all led"):
        create(side, count)
        all_topics(everywhere, names, lambda partition: partition.leader >= 0)
        all_serve(everywhere, every)
    settled(side)
    all_topics(everywhere, names, lambda partition: len(partition.isrs) == 3)
    side.tell("memory of a broker, MiB", round(side.rss_mib()))
    if "idle" in steps:
        time.sleep(IDLE_S)
        before = side.cpu_s()
        time.sleep(IDLE_S)
        used = [(now - before[name]) / IDLE_S for name, now in side.cpu_s().items() if name.startswith("broker")]
        side.tell("idle CPU of a broker, cores", round(max(used), 3))
    victim = max(side.bootstrap)
    others = ",".join(address for broker, address in side.bootstrap.items() if broker != victim)
    if "failover" in steps:
        led = led_by(everywhere, names, victim)
        side.tell("led by the broker that is killed", sum(map(len, led.values())))
        asker = Asker(side.bootstrap)
        began = time.perf_counter()
        all_led(asker, {name: {index: [victim] for index in some} for name, some in led.items()}, WAIT_S)
        side.tell("to ask for each of them, with nothing to wait for, s", round(time.perf_counter() - began, 1))
        with side.timed("killed: led elsewhere, beyond the session", SESSION_S):
            killed = time.perf_counter()
            side.kill(victim)
            first = all_led(asker, led, WAIT_S)
            last = time.time()
        over = side.session_over(victim)
        if over is not None:
            side.tell("killed: led elsewhere, after the session, s", round(last - over, 1))
        side.tell("killed: the first of them led elsewhere, beyond the session, s", round(first - killed - SESSION_S, 1))
        asker.close()
        all_topics(others, names, lambda partition: partition.leader not in (victim, -1))
    if "whole" in steps:
        with side.timed("restarted: every ISR whole"):
            side.start(victim)
            all_topics(others, names, lambda partition: len(partition.isrs) == 3)
        side.tell("memory of a broker at the end, MiB", round(side.rss_mib()))
    return side.figures


def partitions() -> dict[str, Any]:
    with kraftlite() as side:
        return {f"10,000 partitions: {what}": value for what, value in measure(side, 10_000, STEPS).items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.partitions", description=__doc__)
    parser.add_argument("--sizes", default="10000", help="partitions, with commas (default: %(default)s)")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka too")
    parser.add_argument("--steps", default=",".join(STEPS), help="after the creation (default: %(default)s)")
    told = parser.parse_args()
    found: dict[str, Any] = {}
    for count in map(int, told.sizes.split(",")):
        for start in (kraftlite, kafka) if told.kafka else (kraftlite,):
            print(f"… {count} partitions", file=sys.stderr, flush=True)
            admin.cache_clear()  # of a cluster that is gone and had the same ports: it would repeat what it asks
            with start() as side:
                measure(side, count, told.steps.split(","))
            found[f"{side.name}, {count}"] = side.figures
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
