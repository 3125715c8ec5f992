"""The doors between nodes and of the metrics port: gRPC calls made from their descriptors, and bytes that are neither."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from kraftlite._pb import controller_pb2, introspection_pb2, raft_pb2, replica_pb2, transactions_pb2
from tests.fuzz import http2, mutate, values
from tests.fuzz.cases import Step
from tests.fuzz.values import Known, uvarint

METHODS: Final[tuple[MethodDescriptor, ...]] = tuple(
    method
    for module in (raft_pb2, controller_pb2, replica_pb2, introspection_pb2, transactions_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
OWN_ID: Final = 1
STRANGERS: Final = (77, 1000, 2**31 - 1, -1, -(2**31), 0)
LAWFUL: Final = {
    "UnregisterBroker": {"broker_id": STRANGERS},
    "RegisterBroker": {"broker_id": (1, *STRANGERS)},
    "BrokerHeartbeat": {"broker_id": STRANGERS, "broker_epoch": (-1, -(2**63), 2**63 - 1, 2**40)},
    "RegisterController": {"controller_id": STRANGERS},
    "UpdateFeatures": {"validate_only": (True,)},
}
"""What a peer that is believed may do to a node (unregister it, fence it) is no finding: fields that are drawn from here."""
COSTLY: Final = ("num_partitions", "count")


class NodesDrawer:
    """Draws calls. `cluster_id` is the node's: without it nothing gets far."""

    def __init__(self, rng: random.Random, known: Known, cluster_id: str) -> None:
        self.rng = rng
        self.known = known
        self.cluster_id = cluster_id

    def grpc(self) -> Iterator[Step]:
        for _ in range(self.rng.choice((1, 2, 4))):
            kind = self.rng.randrange(8)
            yield self._garbage() if kind == 0 else self._flood() if kind == 1 else self._call()

    def metrics(self) -> Iterator[Step]:
        yield Step(0, self._http(), to="metrics", note="metrics: garbage")

    def _call(self) -> Step:
        rng = self.rng
        method = (
            rng.choice(METHODS)
            if rng.randrange(2)
            else rng.choice([it for it in METHODS if it.containing_service.name != "Controller"])
        )
        message = GetMessageClass(method.input_type)()
        self._fill(message, method.name)
        data = message.SerializeToString()
        note = str(message).replace("\n", " ")[:200]
        kind = rng.randrange(6)
        if method.name in LAWFUL:
            pass  # damaged it may be the one that a peer may send: a repeated field counts as its last value
        elif kind == 0:
            data, note = mutate.damage(data, rng), f"damaged {note}"
        elif kind == 1:
            extra = rng.choice(
                (b"\xff" * 10, b"\x0a" + uvarint(2**31), b"\x0b" * 2000, b"\x22" + uvarint(5) + b"junk!", b"\x08\x01" * 1000)
            )
            data, note = data + extra, f"with junk {note}"
        return Step(0, data, to=f"/{method.containing_service.full_name}/{method.name}", note=f"{method.name}: {note}")

    def _fill(self, message: Any, method: str, depth: int = 0) -> None:
        rng = self.rng
        if message.DESCRIPTOR.name.endswith("Frame"):
            message.correlation_id = values.integer(rng, 64, False)
            message.cancel = rng.randrange(10) == 0
            self._fill(message.head, method, depth + 1)
            return
        for it in message.DESCRIPTOR.fields:
            if it.is_repeated:
                count = rng.choice((0, 1, 1, 2)) if rng.randrange(30) else 3000
                for _ in range(count if depth < 3 else 0):
                    if it.type == FieldDescriptor.TYPE_MESSAGE:
                        self._fill(getattr(message, it.name).add(), method, depth + 2)
                    else:
                        getattr(message, it.name).append(self._value(it, method))
            elif it.type == FieldDescriptor.TYPE_MESSAGE:
                if rng.randrange(4):
                    getattr(message, it.name).SetInParent()
                    self._fill(getattr(message, it.name), method, depth + 1)
            elif rng.randrange(8):
                setattr(message, it.name, self._value(it, method))

    def _value(self, it: FieldDescriptor, method: str) -> Any:
        rng = self.rng
        lawful = LAWFUL.get(method, {}).get(it.name)
        if lawful is not None:
            return rng.choice(lawful)
        if it.name == "cluster_id" and rng.randrange(8):
            return self.cluster_id
        if it.name in COSTLY:
            return rng.choice((-1, 0, 1, 2, 2**31 - 1, -(2**31)))
        if it.type == FieldDescriptor.TYPE_BOOL:
            return bool(rng.randrange(2))
        if it.type == FieldDescriptor.TYPE_STRING:
            known = {
                "name": values.TOPICS,
                "topic": (*values.TOPICS, *values.STATE_TOPICS),
                "transactional_id": values.TRANSACTIONS,
            }
            return rng.choice(known[it.name]) if it.name in known and rng.randrange(2) else values.text(rng)
        if it.type == FieldDescriptor.TYPE_BYTES:
            ids = [topic_id.bytes for topic_id in self.known.topic_ids.values()]
            return rng.choice((*ids, *ids, rng.randbytes(16), bytes(16), b"", b"short"))
        if it.name.endswith("_id") and rng.randrange(2):
            return OWN_ID
        if rng.randrange(3) == 0:
            return rng.choice((0, 1, 2, 3, 5))
        bits = 64 if it.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
        return values.integer(rng, bits)

    def _garbage(self) -> Step:
        rng = self.rng
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        frame = values.integer(rng, 24).to_bytes(3, "big", signed=True) + rng.randbytes(6)
        data = rng.choice(
            (
                values.junk(rng),
                preface + values.junk(rng),
                preface + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + frame + values.junk(rng),
                preface + (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 2000),
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
                b"\x00\x00\x00\x12\x00\x12\x00\x04\x00\x00\x00\x01\x00\x01x\x00",
            )
        )
        return Step(0, data, to=rng.choice(("grpc0", "grpc1")), note="grpc: garbage on the port")

    def _flood(self) -> Step:
        name, data = http2.flood(self.rng)
        return Step(0, data, to=self.rng.choice(("grpc0", "grpc1")), note=f"grpc: {name}")

    def _http(self) -> bytes:
        rng = self.rng
        path = rng.choice(("/metrics", "/", "/metrics?name[]=x", "/" + "a" * 100_000, "/%zz", "/\x00", "*"))
        method = rng.choice(("GET", "POST", "HEAD", "PUT", "X" * 1000, "", "get"))
        version = rng.choice(("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/x", "", "HTTP/0.9"))
        headers = rng.choice(
            (
                "Host: x\r\n",
                "Accept-Encoding: gzip\r\n",
                "Accept: application/openmetrics-text; version=9\r\n",
                "Content-Length: -1\r\n",
                "Content-Length: 99999999999999\r\n",
                "Transfer-Encoding: chunked\r\n",
                "X: " + "y" * 70_000 + "\r\n",
                "X: y\r\n" * 2000,
                ": \r\n",
                "no colon\r\n",
            )
        )
        data = f"{method} {path} {version}\r\n{headers}\r\n".encode("latin-1", "replace")
        kind = rng.randrange(4)
        return values.junk(rng) if kind == 0 else mutate.damage(data, rng) if kind == 1 else data
