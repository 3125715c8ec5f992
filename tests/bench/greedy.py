"""Greedy and slow connections beside a good client: what its requests take, and what the broker's memory does.

One broker; the greedy connections are in a process of their own, at a lower priority. The good client produces a record and
fetches it, one request at a time, with pauses. KRAFTLITE_GREEDY: a part of the name of the only scenario to run.
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Event
from typing import Any

from tests.bench.cluster import BenchCluster, Node, until
from tests.bench.failover import create, serves
from tests.harness.wire_fakes import batch, request_bytes

SECONDS = 8
MIB = 2**20
DATA_MIB = 48


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def fetch(topic: str, *, offset: int = 0, most: int = MIB, wait_ms: int = 0) -> bytes:
    place = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": most,
    }
    values = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": most,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [place]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return framed(request_bytes(1, 11, values, 1))


def produce(topic: str, size: int) -> bytes:
    data = {"index": 0, "records": bytes(batch(bytes(size)))}
    values = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }
    return framed(request_bytes(0, 9, values, 1))


def ask(sock: socket.socket, frame: bytes) -> bytes:
    sock.sendall(frame)
    found = bytearray()
    while len(found) < 4 or len(found) < 4 + struct.unpack_from(">i", found)[0]:
        more = sock.recv(1 << 20)
        if not more:
            raise ConnectionError("the broker closed the good client's connection")
        found += more
    return bytes(found)


def unread(count: int) -> list[tuple[bytes, bool, bool]]:
    """Each asks for 36 MiB and reads nothing."""
    return [(fetch("big", most=36 * MIB), False, False)] * count


def announced(count: int) -> list[tuple[bytes, bool, bool]]:
    """Each announces 90 MiB and sends 100 KiB of them."""
    return [(struct.pack(">i", 90 * MIB) + bytes(100_000), False, False)] * count


def pipelined(count: int) -> list[tuple[bytes, bool, bool]]:
    """Each asks a hundred times at once, reads all, and asks again."""
    return [(fetch("big", most=64 * 1024) * 100, True, True)] * count


def dripping(count: int) -> list[tuple[bytes, bool, bool]]:
    """Each sends a byte of a request now and then."""
    return [(fetch("big")[:5], False, True)] * count


SCENARIOS: dict[str, Callable[[], list[tuple[bytes, bool, bool]]]] = {
    "nobody else": list,
    "150 x 36 MiB unread": lambda: unread(150),
    "1,500 x 90 MiB announced": lambda: announced(1_500),
    "500 x 100 pipelined": lambda: pipelined(500),
    "2,000 of all kinds": lambda: pipelined(500) + unread(500) + announced(500) + dripping(500),
}


def greedy(address: tuple[str, int], kinds: list[tuple[bytes, bool, bool]], ready: Event, over: Event) -> None:
    """(what is sent, whether answers are read, whether it is sent again or goes on) for each connection."""
    os.nice(5)
    selector = selectors.DefaultSelector()
    socks = []
    for frame, reads, again in kinds:
        sock = socket.create_connection(address)
        sock.setblocking(False)
        socks.append((sock, frame, again))
        if reads:
            selector.register(sock, selectors.EVENT_READ, [frame, 0])
    for sock, frame, _ in socks:
        with suppress(OSError):
            sock.send(frame)
    ready.set()
    sink = bytearray(1 << 20)
    answers = 100 * (64 * 1024 - 4096)
    while not over.is_set():
        for key, _ in selector.select(0.05):
            with suppress(OSError):
                key.data[1] += key.fileobj.recv_into(sink)  # type: ignore[union-attr]
                if key.data[1] >= answers:
                    key.data[1] = 0
                    key.fileobj.send(key.data[0])  # type: ignore[union-attr]
        if not selector.get_map():
            time.sleep(0.05)


def good(address: tuple[str, int], seconds: float, node: Node) -> tuple[list[float], float]:
    """Milliseconds that each of its requests took, and the broker's greatest RSS in MiB."""
    sock = socket.create_connection(address, timeout=120)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times, most = [], node.rss_mib
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        for frame in (produce("good", 100), fetch("good", most=10_000)):
            begin = time.perf_counter()
            ask(sock, frame)
            times.append((time.perf_counter() - begin) * 1e3)
        most = max(most, node.rss_mib)
        time.sleep(0.01)
    sock.close()
    return sorted(times), most


def fill(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as sock:
        for _ in range(DATA_MIB * 2):
            ask(sock, produce("big", MIB // 2 - 200))


def greedy_connections() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    context = multiprocessing.get_context("fork")
    only = os.environ.get("KRAFTLITE_GREEDY", "")
    for name, kinds in SCENARIOS.items():
        if only not in name:
            continue
        with BenchCluster(controllers=1, brokers=1, combined=True) as cluster:
            (node,) = cluster.nodes()
            assert node.kafka is not None
            host, port = node.kafka.rsplit(":", 1)
            address = (host, int(port))
            for topic in ("big", "good"):
                create(node.kafka, topic, 1, 1)
                until(f"{topic} is served", lambda topic=topic, kafka=node.kafka: serves(kafka, topic, [0]))
            fill(address)
            before = node.rss_mib
            ready, over = context.Event(), context.Event()
            others = context.Process(target=greedy, args=(address, kinds(), ready, over))
            others.start()
            try:
                ready.wait(60)
                times, most = good(address, SECONDS, node)
            finally:
                over.set()
                others.join(10)
                others.kill()
            figures[f"{name}: requests"] = len(times)
            figures[f"{name}: p50 ms"] = round(times[len(times) // 2], 1)
            figures[f"{name}: p99 ms"] = round(times[len(times) * 99 // 100], 1)
            figures[f"{name}: max ms"] = round(times[-1], 1)
            figures[f"{name}: RSS MiB, more than before"] = round(most - before)
    return figures
