"""The largest requests that the limits allow, in every shape that a schema has: how long the node answers nobody else meanwhile.

One node in a process of its own, all APIs that it offers. Beside each request a second connection asks for the versions every few
milliseconds; a figure is the longest time that it waited for an answer, or the processor time that the node used meanwhile if
that is less: what other processes take from this machine does not count. KRAFTLITE_LONG: which requests, as `10` or `10.4` (API
and version), separated by commas, or `all` for every version; else the highest version of each API.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import kraftlite.protocol.kio_import  # noqa: F401  # before kio
from kraftlite.model.limits import MAX_REQUEST_ITEMS, MAX_STRING_BYTES, MIB
from kraftlite.protocol.primitives import uvarint
from tests.bench.cluster import BenchCluster, Node, until
from tests.bench.failover import create, serves
from tests.bench.greedy import ask, framed
from tests.harness.extreme import NONE, Extreme, arrays, extreme_request

from kio.index import load_request_schema  # isort: skip
from kio.serial._introspect import EntityField, EntityTupleField, classify_field  # isort: skip

MOST_BYTES: Final = 95 * MIB
"""A little below `socket.request.max.bytes`."""
NOT_ASKED: Final = frozenset({57, 64})
"""UpdateFeatures and UnregisterBroker: they may end what is measured."""
PAUSE_S: Final = 0.002
TELL_MS: Final = 15.0
PATIENCE_S: Final = 120.0


class Long(NamedTuple):
    """One request without its size prefix, and what it is."""

    key: int
    version: int
    shape: str
    request: bytes


def _base(text: Any, way: tuple[str, ...], entries: int) -> Extreme:
    return Extreme(
        name="long", number=lambda _: 0, text=text, data=b"", float64=1.0, flag=False, uuid=NONE, entries=entries, longest=way,
        tags=False,
    )  # fmt: skip


def _numbered(size: int) -> Any:
    """Names of `size` bytes that differ."""
    count = itertools.count()
    return lambda: f"n{next(count)}".ljust(size, "x")


def _has_bytes(schema: Any) -> bool:
    from dataclasses import fields

    for field in fields(schema):
        kind = classify_field(field)
        nested = isinstance(kind, EntityField | EntityTupleField)
        if _has_bytes(kind.type_) if nested else field.metadata.get("kafka_type") == "bytes":
            return True
    return False


def _filling(key: int, version: int, how: Extreme) -> bytes:
    """As many elements as the limits allow, told by the size of the first few."""
    few = [len(extreme_request(key, version, replace(how, entries=count), 5, b"long")) for count in (1, 3)]
    size = max(1, (few[1] - few[0]) // 2)
    most = min(MAX_REQUEST_ITEMS - 10, MOST_BYTES // size)
    return extreme_request(key, version, replace(how, entries=most), 5, b"long")


def shapes(key: int, version: int) -> Iterator[Long]:
    """The long requests of one version."""
    schema = load_request_schema(key, version)
    for way in arrays(schema):
        name = ".".join(way)
        yield Long(key, version, f"{name}: many unknown", _filling(key, version, _base(_numbered(1), way, 1)))
        yield Long(key, version, f"{name}: many known", _filling(key, version, _base("events", way, 1)))
        huge = _filling(key, version, _base(_numbered(MAX_STRING_BYTES), way, 1))
        if len(huge) > MOST_BYTES // 2:  # else it has no names
            yield Long(key, version, f"{name}: few huge", huge)
    if _has_bytes(schema):
        how = replace(_base("events", (), 1), data=bytes(MOST_BYTES // 2))
        yield Long(key, version, "one huge blob", extreme_request(key, version, how, 5, b"long"))
    if schema.__flexible__:
        plain = extreme_request(key, version, _base("events", (), 0), 5, b"long")
        tag = b"\x01\x4d" + uvarint(MOST_BYTES) + bytes(MOST_BYTES)
        yield Long(key, version, "one huge tag", plain[: -len(b"\x01\x4d\x07unknown")] + tag)


def asked() -> list[str]:
    return [it for it in os.environ.get("KRAFTLITE_LONG", "").split(",") if it]


def offered(address: tuple[str, int]) -> list[tuple[int, int]]:
    """(API, version) of what is measured."""
    with socket.create_connection(address, timeout=PATIENCE_S) as sock:
        answer = ask(sock, framed(struct.pack(">hhih", 18, 0, 5, -1)))
    (count,) = struct.unpack_from(">i", answer, 10)
    ranges = [struct.unpack_from(">hhh", answer, 14 + 6 * n) for n in range(count)]
    named = asked()
    found = []
    for key, low, high in ranges:
        for version in range(max(low, 3) if key == 0 else low, high + 1):
            wanted = {str(key), f"{key}.{version}", "all"}
            if key not in NOT_ASKED and (wanted & set(named) if named else version == high):
                found.append((key, version))
    return found


class Beside:
    """Asks for the versions all the time, on a connection of its own; the longest wait since the last `take`."""

    def __init__(self, address: tuple[str, int], node: Node) -> None:
        self._node = node
        self._sock = socket.create_connection(address, timeout=PATIENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._over = threading.Event()
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        request = framed(struct.pack(">hhih", 18, 0, 5, -1))
        while not self._over.is_set():
            begin, cpu = time.perf_counter(), self._node.cpu_s
            ask(self._sock, request)
            took = time.perf_counter() - begin
            if took > self._longest:
                self._longest = max(self._longest, min(took, self._node.cpu_s - cpu))
            time.sleep(PAUSE_S)

    def take_ms(self) -> float:
        time.sleep(0.05)  # what was let go of behind the answer counts too
        found, self._longest = self._longest, 0.0
        return found * 1000

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        self._sock.close()


def _answered(address: tuple[str, int], request: bytes) -> str:
    """Sends it and reads the answer, of which nothing is kept."""
    with socket.create_connection(address, timeout=PATIENCE_S) as sock:
        try:
            sock.sendall(struct.pack(">i", len(request)))
            sock.sendall(request)
            sink, got, size = bytearray(1 << 20), 0, None
            head = b""
            while size is None or got < size + 4:
                count = sock.recv_into(sink)
                if not count:
                    return "closed"
                got += count
                if size is None:
                    head += bytes(sink[: min(4, count)])
                    if len(head) >= 4:
                        (size,) = struct.unpack_from(">i", head)
            return f"answered with {size} bytes"
        except ConnectionError:
            return "closed"
        except TimeoutError:
            return "not answered"


def long_requests() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with BenchCluster(controllers=1, brokers=1, combined=True) as cluster:
        (node,) = cluster.nodes()
        assert node.kafka is not None
        host, port = node.kafka.rsplit(":", 1)
        address = (host, int(port))
        create(node.kafka, "events", 1, 1)
        until("events is served", lambda: serves(str(node.kafka), "events", [0]))
        _coordinators(address)
        beside = Beside(address, node)
        worst: list[tuple[float, str]] = []
        for key, version in offered(address):
            worst.extend(_one(address, node, beside, it) for it in shapes(key, version))
        beside.stop()
    for took, what in sorted(worst, reverse=True)[:20]:
        figures[what] = round(took, 1)
    return figures


def _coordinators(address: tuple[str, int]) -> None:
    """Both topics of the coordinators exist, and this node has loaded them."""
    for kind in (0, 1):
        request = struct.pack(">hhih", 10, 1, 5, -1) + b"\x00\x01g" + bytes([kind])

        def found(request: bytes = request) -> bool:
            with socket.create_connection(address, timeout=PATIENCE_S) as sock:
                answer = ask(sock, framed(request))
            return answer[12:14] == b"\x00\x00"

        until("the coordinator is there", found, every_s=0.1)
    time.sleep(2)


def _one(address: tuple[str, int], node: Node, beside: Beside, it: Long) -> tuple[float, str]:
    beside.take_ms()
    cpu, begin = node.cpu_s, time.perf_counter()
    said = _answered(address, it.request)
    took_s = time.perf_counter() - begin
    longest = beside.take_ms()
    what = f"API {it.key} v{it.version} {it.shape}"
    if longest > TELL_MS or asked():
        print(
            f"{what}: {longest:.0f} ms; {len(it.request) >> 10} KiB, {said}, {took_s:.2f} s, CPU {node.cpu_s - cpu:.2f} s, "
            f"RSS {node.rss_mib:.0f} MiB",
            flush=True,
        )
    return longest, f"{what}: ms"
