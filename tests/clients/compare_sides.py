"""The two clusters that `tests.clients.compare` puts the same questions to, and what their answers are reduced to."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

from kraftlite.protocol.kio_codec import build_entity, decode_response
from kraftlite.testing import SyncCluster
from tests.clients.java import tools
from tests.clients.java.apache import SMALL, apache_kafka
from tests.clients.raw import Closed, Connection

# isort: split
from kio.index import load_request_schema

NODES: Final = (1, 2, 3)
UNREADABLE: Final = frozenset({65})
"""APIs whose answers may have what kio does not read: a time of -1, where there is none."""
SHARED: Final = {key: value for key, value in SMALL.items() if key.startswith(("group.", "offsets.", "transaction."))}
"""What is configured on both sides."""
WHOLE_S: Final = 120.0
PATIENT: Final = {
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
    "replica.socket.timeout.ms": "30000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "20000",
    "controller.quorum.request.timeout.ms": "20000",
    "connections.max.idle.ms": "86400000",
    "log.retention.ms": "-1",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.retention.check.interval.ms": "86400000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
}
"""On both sides, too: nobody is fenced, leaves an ISR or loses the lead because the machine is busy (who leads is told, and is
asked). No connection, record (their times are long ago), group or transaction is gone because all of it takes minutes, and no
assignment waits because the one before it was just made."""


class Side:
    """One of the clusters. Node ids are 1, 2, 3, each broker and controller."""

    def __init__(self, name: str, bootstrap_servers: str, *, stop: Callable[[int], None], start: Callable[[int], None]) -> None:
        """`stop`: of one node, in order; returns when it is down. `start`: returns when it serves."""
        self.name = name
        self.stop, self.start = stop, start
        self.bootstrap_servers = bootstrap_servers
        self._addresses = dict(zip(NODES, bootstrap_servers.split(","), strict=True))
        self._connections: dict[int, Connection] = {}

    def call(self, key: int, version: int, values: Mapping[str, Any], *, node: int = 1) -> Any:
        """The answer as dicts and lists; `{"closed": True}` when the broker hangs up instead."""
        if node not in self._connections:
            self._connections[node] = Connection(self._addresses[node], timeout_s=40)
        try:
            self._connections[node].send_request(build_entity(load_request_schema(key, version), values))
            if key in UNREADABLE:
                return plain(decode_response(key, version, memoryview(self._connections[node].receive())))
            return plain(self._connections[node].answer(key, version))
        except Closed:
            self._connections.pop(node).close()
            return {"closed": True}

    def tool(self, name: str, *args: str, stdin: str = "") -> list[str]:
        """The exit status and what the tool wrote, without what differs from run to run."""
        done = tools.kafka_tool(f"kafka-{name}", "--bootstrap-server", self.bootstrap_servers, *args, stdin=stdin)
        errors = [f"error: {line}" for line in self.reduced(done.err).splitlines() if line.strip()]
        return [f"exit {done.code}", *(line for line in self.reduced(done.out).splitlines() if line.strip()), *errors]

    def reduced(self, text: str) -> str:
        for node, address in self._addresses.items():
            text = text.replace(address, f"<node {node}>")
        text = re.sub(r"\n\s+at [^\n]*", "", text)
        text = re.sub(
            r"(?<![\w.-])(?=[A-Za-z0-9_-]*[A-Z])(?=[A-Za-z0-9_-]*[a-z])(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{22}(?![\w-])",
            "<id>",
            text,
        )
        text = re.sub(r"(?<!\d)1[67]\d{11}(?!\d)", "<time>", text)
        text = re.sub(r"Local controller \d", "Local controller <n>", text)  # whichever is the active one
        return re.sub(r"Epoch: \d+|\d+ ms ago", "<n>", text)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Waits for one."""
        deadline = time.monotonic() + 30
        while True:
            answer = self.call(
                3,
                12,
                {
                    "topics": [{"topic_id": None, "name": topic}],
                    "allow_auto_topic_creation": False,
                    "include_topic_authorized_operations": False,
                },
            )
            for found in (it for one in answer.get("topics", ()) for it in one["partitions"]):
                if found["partition_index"] == partition and found["leader_id"] >= 0:
                    return int(found["leader_id"])
            assert time.monotonic() < deadline, f"{self.name}: {topic} has no leader: {answer}"
            time.sleep(0.05)

    def create(self, topic: str, replicas: Sequence[Sequence[int]] = ((1, 2, 3),), **configs: str) -> None:
        wanted = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": n, "broker_ids": tuple(ids)} for n, ids in enumerate(replicas)],
            "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
        }
        answer = self.call(19, 7, {"topics": [wanted], "timeout": 20_000, "validate_only": False})
        assert answer["topics"][0]["error_code"] == "none", (self.name, answer)
        for node in NODES:
            self._wait_known(topic, node)

    def wait_whole(self) -> None:
        """Until no broker is fenced, as every broker sees it: one that is has its replicas out of the ISRs of new topics."""
        query = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}
        deadline = time.monotonic() + WHOLE_S
        for node in NODES:
            while len(alive := self._alive(query, node)) < len(NODES):
                assert time.monotonic() < deadline, f"{self.name}: node {node} sees {alive}"
                time.sleep(0.1)

    def _alive(self, query: Mapping[str, Any], node: int) -> list[int]:
        return [it["broker_id"] for it in self.call(60, 2, query, node=node).get("brokers", ()) if not it["is_fenced"]]

    def _wait_known(self, topic: str, node: int) -> None:
        deadline = time.monotonic() + 30
        while True:
            query = {
                "topics": [{"topic_id": None, "name": topic}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            }
            for found in self.call(3, 12, query, node=node).get("topics", ()):
                if found["partitions"] and all(it["error_code"] == "none" for it in found["partitions"]):
                    return
            assert time.monotonic() < deadline, f"{self.name}: node {node} does not know {topic}"
            time.sleep(0.05)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def plain(value: Any) -> Any:
    """A message of kio as dicts, lists, texts and numbers; ids and times of the run become words."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {it.name: plain(getattr(value, it.name)) for it in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(it) for it in value]
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, UUID):
        return "<no id>" if value.int == 0 else "<id>"
    if isinstance(value, timedelta):
        return int(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, bytes):
        return value.hex()
    return value


def flat(value: Any, path: str = "") -> dict[str, str]:
    """One entry for each leaf. Lists of named things are keyed by the name, so that their order does not matter."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for name, it in value.items():
            found |= flat(it, f"{path}.{name}" if path else str(name))
        return found
    if isinstance(value, list) and value and all(isinstance(it, dict) for it in value):
        found = {}
        for n, it in enumerate(value):
            name = next(
                (str(it[key]) for key in ("name", "partition_index", "config_name", "group_id", "api_key") if key in it), str(n)
            )
            found |= flat(it, f"{path}[{name}]")
        return found
    return {path: str(value)}


@contextmanager
def both() -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and kraftlite, with what clients may see configured alike."""
    with (
        apache_kafka(nodes=len(NODES), config=PATIENT) as apache,
        SyncCluster(controllers=len(NODES), brokers=len(NODES), combined=True, config={**SHARED, **PATIENT}) as ours,
    ):

        def start_apache(node: int) -> None:
            apache.start(node)
            apache.wait()

        sides = (
            Side("Apache Kafka", apache.bootstrap_servers, stop=apache.stop, start=start_apache),
            Side("kraftlite", ours.bootstrap_servers, stop=ours.stop, start=ours.restart),
        )
        try:
            for side in sides:
                side.wait_whole()
            yield sides
        finally:
            for side in sides:
                side.close()
