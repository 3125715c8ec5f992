"""Throughput and handshakes of TLS beside plain text: one broker with a listener of each, by turns, so that the load of the
machine hits both alike. librdkafka, records of 1 kB, three rounds; the best one counts."""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import Client, Cluster, free_ports, running

RECORDS = 60_000
VALUE = bytes(1_000)
ROUNDS = 3
HANDSHAKES = 150


def tls() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder, authority = Path(name), Authority()
        (folder / "cluster").mkdir()
        (folder / "port").mkdir()
        stores = Stores(folder / "node").write(authority.issue("node"), authority)
        cluster = Cluster.create(folder / "cluster", combined=1, config=stores.as_kafka())
        (port,) = free_ports(folder / "port", 1)
        path = cluster.nodes[1].config_path
        path.write_text(
            path.read_text()
            .replace("listeners=", f"listeners=SECURE://127.0.0.1:{port},")
            .replace("protocol.map=", "protocol.map=SECURE:SSL,")
        )
        with running(cluster):
            plain: Mapping[str, str] = {"bootstrap.servers": cluster.bootstrap}
            secure = {"bootstrap.servers": f"127.0.0.1:{port}", **stores.as_librdkafka(client_certificate=False)}
            figures: dict[str, Any] = {}
            for fact, measured in (("produce", produced), ("consume", consumed)):
                best = {"plain text": 0.0, "TLS": 0.0}
                for number in range(ROUNDS):
                    for kind, options in (("plain text", plain), ("TLS", secure)):
                        topic = f"{kind.split()[0]}-{number}"
                        if fact == "produce":
                            Client(cluster.bootstrap).create_topic(topic)
                        best[kind] = max(best[kind], measured(options, topic))
                for kind, rate in best.items():
                    figures[f"{fact} {kind}, MB/s"] = round(rate, 1)
                figures[f"{fact} TLS / plain text"] = round(best["TLS"] / best["plain text"], 2)
            figures["handshakes/s, one after the other"] = round(handshakes(port, stores.trust))
            return figures


def produced(options: Mapping[str, str], topic: str) -> float:
    producer = Producer({**options, "linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": RECORDS})
    failures: list[Any] = []
    producer.list_topics(topic, timeout=30)
    began = time.perf_counter()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(120) == 0 and not failures
    return RECORDS * len(VALUE) / (time.perf_counter() - began) / 1e6


def consumed(options: Mapping[str, str], topic: str) -> float:
    consumer = Consumer({**options, "group.id": "bench", "enable.auto.commit": False, "fetch.message.max.bytes": 8_000_000})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert consumer.consume(1, 60)
    began, count = time.perf_counter(), 1
    while count < RECORDS:
        count += len(consumer.consume(10_000, 1))
    took = time.perf_counter() - began
    consumer.close()
    return RECORDS * len(VALUE) / took / 1e6


def handshakes(port: int, trust: Path) -> float:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(trust)
    began = time.perf_counter()
    for _ in range(HANDSHAKES):
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"):
            pass
    return HANDSHAKES / (time.perf_counter() - began)
