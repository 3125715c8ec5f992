"""Real clusters for tests: formatted directories, node processes on loopback, signals, and the logs when something fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraftlite.local.ports import reserve

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0

QUICK = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "initial.broker.registration.timeout.ms": "40000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "replica.fetch.backoff.ms": "100",
    "replica.lag.time.max.ms": "5000",
    "kraftlite.log.format": "json",
}
"""Timeouts that fail over in seconds, yet forgive a machine that is busy with other tests."""


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Poll until `condition` returns something true; AssertionError naming `what` when the time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"gave up after {timeout_s} s waiting for {what}"
        time.sleep(0.05)


FIRST_PORT = 9500


def free_ports(owner: Path, count: int) -> list[int]:
    """Ports that are this directory's until `give_back_ports`, or until it is gone.

    Not any free ones: the system hands those out to outgoing connections too, and a node that restarts would find its own taken.
    """
    _holder(owner).touch()
    return reserve(owner, range(FIRST_PORT, FIRST_PORT + count))


def give_back_ports(owner: Path) -> None:
    _holder(owner).unlink(missing_ok=True)


def _holder(owner: Path) -> Path:
    """What a local cluster that starts has in its directory, and the register of ports looks for."""
    return owner / ".starting"


@dataclass
class NodeProcess:
    """One node: its files, and its process while it runs."""

    node_id: int
    roles: str
    directory: Path
    kafka_port: int | None
    controller_port: int | None
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def config_path(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"

    def output(self) -> str:
        """The whole lines of all its runs."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text[: text.rfind("\n") + 1]

    def start(self, *, wait: bool = True) -> None:
        assert self.process is None or self.process.poll() is not None, f"node {self.node_id} is running"
        self.starts += 1
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "CLUSTER_ID"))}
        with self.log_path.open("ab") as log:
            log.write(f"--- start {self.starts}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kraftlite", "start", "--config", str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        if wait:
            self.wait_started()

    def wait_started(self, timeout_s: float = START_TIMEOUT_S) -> None:
        def started() -> bool:
            assert self.process is not None and self.process.poll() is None, f"node {self.node_id} ended: {self.tail()}"
            return "Kafka Server started" in self.this_run()

        wait_for(started, f"node {self.node_id} to start", timeout_s)

    def this_run(self) -> str:
        return self.output().rsplit(f"--- start {self.starts}\n", 1)[-1]

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(STOP_TIMEOUT_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_exit(timeout_s)

    def wait_exit(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.output().splitlines()[-lines:])


@dataclass
class Cluster:
    """Controllers 1..c and brokers after them; combined: nodes that are both."""

    directory: Path
    nodes: dict[int, NodeProcess] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        controllers: int = 0,
        brokers: int = 0,
        combined: int = 0,
        config: dict[str, str] | None = None,
        format: bool = True,
    ) -> Cluster:
        cluster = cls(directory)
        plan = ["broker,controller"] * combined + ["controller"] * controllers + ["broker"] * brokers
        ports = iter(free_ports(directory, 3 * len(plan)))
        layout = [(node_id, roles, next(ports), next(ports), next(ports)) for node_id, roles in enumerate(plan, start=1)]
        voters = ",".join(f"{node_id}@127.0.0.1:{quorum}" for node_id, roles, _, _, quorum in layout if "controller" in roles)
        replicas = max(1, min(3, combined + brokers))
        for node_id, roles, kafka, replication, quorum in layout:
            listeners = []
            if "broker" in roles:
                listeners += [f"PLAINTEXT://127.0.0.1:{kafka}", f"REPLICATION://127.0.0.1:{replication}"]
            if "controller" in roles:
                listeners.append(f"CONTROLLER://127.0.0.1:{quorum}")
            node = NodeProcess(
                node_id=node_id,
                roles=roles,
                directory=directory / f"node-{node_id}",
                kafka_port=kafka if "broker" in roles else None,
                controller_port=quorum if "controller" in roles else None,
            )
            values = {
                "process.roles": roles,
                "node.id": str(node_id),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": ",".join(listeners),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:GRPC,CONTROLLER:GRPC",
                "log.dirs": str(node.data),
                "default.replication.factor": str(replicas),
                **({"inter.broker.listener.name": "REPLICATION"} if "broker" in roles else {}),
                **QUICK,
                **(config or {}),
            }
            node.directory.mkdir(parents=True)
            node.config_path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            cluster.nodes[node_id] = node
        if format:
            cluster.format()
        return cluster

    def format(self) -> None:
        from kraftlite.config.server import load
        from kraftlite.host.disk import HostDisk
        from kraftlite.node.storage import format_directories

        for node in self.nodes.values():
            format_directories(HostDisk(), load(node.config_path), CLUSTER_ID)

    @property
    def brokers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if "broker" in node.roles]

    @property
    def controllers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if "controller" in node.roles]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.kafka_port}" for node in self.brokers)

    def start(self) -> None:
        """All nodes at once."""
        for node in self.nodes.values():
            node.start(wait=False)
        for node in self.nodes.values():
            node.wait_started()

    def stop(self) -> dict[int, int]:
        """SIGTERM: brokers first, then controllers; exit statuses by node."""
        statuses = {}
        for group in ([n for n in self.nodes.values() if n.roles == "broker"], self.controllers):
            running = [node for node in group if node.process is not None and node.process.poll() is None]
            for node in running:
                node.signal(signal.SIGTERM)
            statuses.update({node.node_id: node.wait_exit() for node in running})
        return statuses

    def kill(self) -> None:
        """SIGKILL to all nodes, at once."""
        running = [node for node in self.nodes.values() if node.process is not None and node.process.poll() is None]
        for node in running:
            node.signal(signal.SIGKILL)
        for node in running:
            node.wait_exit()

    def tails(self) -> str:
        return "\n".join(f"===== node {node.node_id} ({node.roles})\n{node.tail()}" for node in self.nodes.values())


@contextlib.contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Start the cluster; whatever happens, kill it at the end, and show its logs if the test failed."""
    with ended(cluster):
        cluster.start()
        yield cluster


@contextlib.contextmanager
def ended(cluster: Cluster) -> Iterator[Cluster]:
    """`running` for a test that starts what it needs itself."""
    try:
        yield cluster
    except BaseException:
        sys.stderr.write(cluster.tails() + "\n")
        raise
    finally:
        cluster.kill()
        give_back_ports(cluster.directory)


class Client:
    """A few calls of the real Kafka client, each of which waits until it is done. `options`: more of librdkafka's."""

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._options = {"bootstrap.servers": bootstrap, **(options or {})}
        self._admin: Any = None

    def admin(self) -> Any:
        """One for the client's life: its futures fail when it goes."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({**self._options, "reconnect.backoff.max.ms": 500})
        return self._admin

    def create_topic(self, name: str, *, partitions: int = 1, replicas: int = 1, config: dict[str, str] | None = None) -> None:
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {})
        self.admin().create_topics([topic], operation_timeout=60, request_timeout=60)[name].result(65)

    def produce(self, topic: str, values: list[str], *, acks: str = "all", timeout_s: float = 60.0) -> list[int]:
        """Returns the offsets; AssertionError when a record was not acknowledged."""
        from confluent_kafka import Producer

        failures: list[str] = []
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                offsets.append(message.offset())

        producer = Producer(
            {
                **self._options,
                "acks": acks,
                "linger.ms": 0,
                "message.timeout.ms": int(timeout_s * 1000),
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        for value in values:
            producer.produce(topic, value.encode(), on_delivery=delivered)
        remaining = producer.flush(timeout_s)
        assert not failures and remaining == 0, f"{len(failures)} failed ({failures[:1]}), {remaining} unanswered"
        return offsets

    def consume(self, topic: str, count: int, *, partitions: int = 1, timeout_s: float = 60.0) -> list[str]:
        """Read all partitions from their starts, until `count` different records have come: one that was sent again may be there
        twice. Sorted."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                **self._options,
                "group.id": "reader",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
            found: list[str] = []
            different: set[str] = set()
            deadline = time.monotonic() + timeout_s
            while len(different) < count:
                assert time.monotonic() < deadline, f"only {len(different)} of {count} records of {topic} within {timeout_s} s"
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(message.value().decode())
                    different.add(found[-1])
            return sorted(found)
        finally:
            consumer.close()

    def partition(self, topic: str, index: int = 0) -> Any:
        """librdkafka's PartitionMetadata: `.leader`, `.replicas`, `.isrs`; None while the broker that is asked knows nothing of
        it, or does not answer. A new handle each time, which asks the bootstrap servers: an older one has learnt of all brokers
        and may go on asking one that is paused.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            found = AdminClient(self._options).list_topics(topic, timeout=10).topics[topic]
        except KafkaException:
            return None
        return found.partitions.get(index)

    def leader(self, topic: str, index: int = 0) -> int:
        """-1: none, or not known."""
        found = self.partition(topic, index)
        return -1 if found is None else int(found.leader)

    def isr(self, topic: str, index: int = 0) -> list[int]:
        found = self.partition(topic, index)
        return [] if found is None else sorted(found.isrs)
