"""Throughput and handshakes of TLS beside plain text: one broker with a listener of each, by turns, so that the load of the
machine hits both alike; and the same for Apache Kafka, where Java is there. librdkafka, records of 1 kB, three rounds; the best
one counts. The broker's processor time per MB and per handshake is the figure to compare between runs."""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.bench.cluster import cpu_s
from tests.bench.sides import sides
from tests.clients.java.apache import apache_kafka
from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import Client, Cluster, free_ports, running

RECORDS = 60_000
VALUE = bytes(1_000)
MEGABYTES = RECORDS * len(VALUE) / 1e6
ROUNDS = 3
HANDSHAKES = 150
"""In one round, one after the other."""


@dataclass(frozen=True)
class Side:
    """One running broker. `pid`: its process."""

    plain: str
    secure: str
    pid: int


@contextmanager
def kraftlite(folder: Path, stores: Stores) -> Iterator[Side]:
    (folder / "cluster").mkdir()
    (folder / "port").mkdir()
    cluster = Cluster.create(folder / "cluster", combined=1, config=stores.as_kafka())
    (port,) = free_ports(folder / "port", 1)
    path = cluster.nodes[1].config_path
    path.write_text(
        path.read_text()
        .replace("listeners=", f"listeners=SECURE://127.0.0.1:{port},")
        .replace("protocol.map=", "protocol.map=SECURE:SSL,")
    )
    with running(cluster):
        process = cluster.nodes[1].process
        assert process is not None
        yield Side(cluster.bootstrap, f"127.0.0.1:{port}", process.pid)


@contextmanager
def kafka(_folder: Path, stores: Stores) -> Iterator[Side]:
    """With the heap and the flags that it is shipped with."""
    with apache_kafka(config=stores.as_kafka(), production=True, listeners=("SSL",)) as found:
        yield Side(found.bootstrap_servers, found.listeners["SSL"], found.nodes[1].pid)


def tls() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, start in sides(kraftlite, kafka).items():
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority()
            stores = Stores(Path(folder) / "node").write(authority.issue("node"), authority)
            with start(Path(folder), stores) as side:
                figures |= {f"{name}: {fact}": value for fact, value in figures_of(side, stores).items()}
    return figures


def figures_of(side: Side, stores: Stores) -> dict[str, float]:
    options: Mapping[str, Mapping[str, str]] = {
        "plain text": {"bootstrap.servers": side.plain},
        "TLS": {"bootstrap.servers": side.secure, **stores.as_librdkafka(client_certificate=False)},
    }
    figures: dict[str, float] = {}
    for fact, measured in (("produce", produced), ("consume", consumed)):
        rates, costs = dict.fromkeys(options, 0.0), dict.fromkeys(options, float("inf"))
        for number in range(ROUNDS):
            for kind, config in options.items():
                topic = f"{kind.split()[0]}-{number}"
                if fact == "produce":
                    Client(side.plain).create_topic(topic)
                before = cpu_s(side.pid)
                rates[kind] = max(rates[kind], measured(config, topic))
                costs[kind] = min(costs[kind], (cpu_s(side.pid) - before) * 1e6 / MEGABYTES)
        for kind in options:
            figures[f"{fact} {kind}, MB/s"] = round(rates[kind], 1)
            figures[f"{fact} {kind}, µs of CPU per MB"] = round(costs[kind])
        figures[f"{fact} TLS / plain text"] = round(rates["TLS"] / rates["plain text"], 2)
    rounds = [handshakes(side, stores.trust) for _ in range(ROUNDS)]
    figures["handshakes/s, one after the other"] = round(max(rate for rate, _ in rounds))
    figures["µs of CPU per handshake"] = round(min(cost for _, cost in rounds))
    return figures


def produced(options: Mapping[str, str], topic: str) -> float:
    producer = Producer({**options, "linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": RECORDS})
    failures: list[Any] = []
    producer.list_topics(topic, timeout=30)
    began = time.perf_counter()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(120) == 0 and not failures
    return MEGABYTES / (time.perf_counter() - began)


def consumed(options: Mapping[str, str], topic: str) -> float:
    consumer = Consumer({**options, "group.id": "bench", "enable.auto.commit": False, "fetch.message.max.bytes": 8_000_000})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert consumer.consume(1, 60)
    began, count = time.perf_counter(), 1
    while count < RECORDS:
        count += len(consumer.consume(10_000, 1))
    took = time.perf_counter() - began
    consumer.close()
    return MEGABYTES / took


def handshakes(side: Side, trust: Path) -> tuple[float, float]:
    """In a second, and what the broker uses for one, in microseconds. Each is whole: the first answer has come."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(trust)
    host, _, port = side.secure.rpartition(":")
    asked = bytes.fromhex("0000000a" + "00120000" + "00000007" + "ffff")  # ApiVersions
    before, began = cpu_s(side.pid), time.perf_counter()
    for _ in range(HANDSHAKES):
        with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname="localhost") as secure:
            secure.sendall(asked)
            assert secure.recv(4)
    took, used = time.perf_counter() - began, cpu_s(side.pid) - before
    return HANDSHAKES / took, used * 1e6 / HANDSHAKES
