"""A local cluster of real processes for tests, with conditions to wait for instead of times to sleep."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftlite.local import cluster as local
from kraftlite.local.state import LocalCluster, LocalNode, load

FAST = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
}
"""Failure detection in about two seconds instead of nine; everything else as in production."""


def wait_for(what: str, check: Callable[[], Any], *, timeout_s: float = 30, every_s: float = 0.05) -> Any:
    """Poll until `check` returns something true, and return that. AssertionError naming `what` and the last value."""
    deadline = time.monotonic() + timeout_s
    while not (value := check()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what} (last: {value!r})"
        time.sleep(every_s)
    return value


@dataclass(frozen=True)
class PartitionView:
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Cluster:
    """A running local cluster. Node ids are controllers 1..C and brokers C+1.. (combined: 1..N)."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._admins: dict[str, Any] = {}

    @property
    def state(self) -> LocalCluster:
        return load(self.data_dir)

    @property
    def bootstrap(self) -> str:
        return self.state.bootstrap_servers

    def node(self, node_id: int) -> LocalNode:
        return self.state.node(node_id)

    @property
    def brokers(self) -> list[int]:
        return [node.id for node in self.state.nodes if node.is_broker]

    @property
    def controllers(self) -> list[int]:
        return [node.id for node in self.state.nodes if node.is_controller]

    # --- faults

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            local.kill(self.data_dir, node_id, signal.SIGKILL)

    def terminate(self, node_id: int) -> None:
        local.kill(self.data_dir, node_id, signal.SIGTERM)

    def pause(self, *node_ids: int) -> None:
        for node_id in node_ids:
            local.pause(self.data_dir, node_id)

    def resume(self, *node_ids: int) -> None:
        for node_id in node_ids:
            local.resume(self.data_dir, node_id)

    def restart(self, *node_ids: int) -> None:
        cluster = self.state
        local.start(cluster, [cluster.node(node_id) for node_id in node_ids])

    def wait_stopped(self, node_id: int, timeout_s: float = 30) -> None:
        wait_for(f"node {node_id} has ended", lambda: self.node(node_id).state == "stopped", timeout_s=timeout_s)

    # --- what clients see

    def admin(self, *node_ids: int) -> Any:
        """Kept, because a client that is collected while a call is under way fails that call."""
        from confluent_kafka.admin import AdminClient

        bootstrap = ",".join(self.node(n).kafka or "" for n in node_ids) if node_ids else self.bootstrap
        if bootstrap not in self._admins:
            self._admins[bootstrap] = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": "10000"})
        return self._admins[bootstrap]

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 3,
        *,
        timeout_s: float = 20,
        config: Mapping[str, str] | None = None,
        assignment: list[list[int]] | None = None,
    ) -> None:
        from confluent_kafka.admin import NewTopic

        if assignment is not None:
            topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=dict(config or {}))
        else:
            topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        self.admin().create_topics([topic], operation_timeout=timeout_s, request_timeout=timeout_s)[name].result(timeout_s + 5)
        wait_for(f"{name} has leaders", lambda: all(p.leader >= 0 for p in self.partitions(name).values()))

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """The partitions as one live broker describes them; empty while it does not know the topic."""
        from confluent_kafka import KafkaException

        try:
            found = self.admin().list_topics(topic, timeout=10).topics[topic]
        except KafkaException:
            return {}
        if found.error is not None:
            return {}
        return {p.id: PartitionView(p.leader, tuple(p.replicas), tuple(p.isrs)) for p in found.partitions.values()}

    def leader(self, topic: str, partition: int = 0) -> int:
        view = self.partitions(topic).get(partition)
        return -1 if view is None else view.leader

    def wait_leader(self, topic: str, partition: int = 0, *, not_in: tuple[int, ...] = (), timeout_s: float = 30) -> int:
        def found() -> int | None:
            leader = self.leader(topic, partition)
            return leader if leader >= 0 and leader not in not_in else None

        result: int = wait_for(f"{topic}-{partition} has a leader other than {not_in}", found, timeout_s=timeout_s)
        return result

    def wait_isr(self, topic: str, isr: set[int], partition: int = 0, *, timeout_s: float = 40) -> None:
        def matches() -> bool:
            view = self.partitions(topic).get(partition)
            return view is not None and set(view.isr) == isr

        wait_for(f"ISR of {topic}-{partition} is {sorted(isr)}", matches, timeout_s=timeout_s)

    def wait_whole(self, topic: str, *, timeout_s: float = 40) -> None:
        def whole() -> bool:
            views = self.partitions(topic)
            return bool(views) and all(set(v.isr) == set(v.replicas) and v.leader >= 0 for v in views.values())

        wait_for(f"every ISR of {topic} is whole", whole, timeout_s=timeout_s)

    def active_controller(self) -> int:
        """Id of the quorum's leader, asked through any broker."""
        return int(self.quorum_status()["LeaderId"])

    def quorum_status(self) -> dict[str, str]:
        from click.testing import CliRunner

        from kraftlite.cli.main import cli

        result = CliRunner().invoke(cli, ["quorum", "describe", "--status", "--bootstrap-server", self.bootstrap])
        assert result.exit_code == 0, result.output
        return {
            name.strip(): value.strip()
            for name, value in (line.split(":", 1) for line in result.output.splitlines() if ":" in line)
        }

    # --- records

    def producer(self, **config: object) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 2, **config})

    def produce(
        self, topic: str, values: list[str], *, partition: int | None = None, timeout_s: float = 60, **config: object
    ) -> list[str]:
        """Send and wait; returns the error names, in the order of the reports, of what was not acknowledged."""
        producer = self.producer(**config)
        errors: list[str] = []

        def report(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error.name())

        for value in values:
            where = {} if partition is None else {"partition": partition}
            producer.produce(topic, value.encode(), on_delivery=report, **where)
            producer.poll(0)
        assert producer.flush(timeout_s) == 0, "records without a verdict"
        return errors

    def consume(self, topic: str, *, partition: int = 0, at_least: int, timeout_s: float = 30, **config: object) -> list[str]:
        """All values of a partition from its beginning, once at least so many are there."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "test", "enable.auto.commit": False, "check.crcs": True, **config}
        )
        values: list[str] = []
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            deadline = time.monotonic() + timeout_s
            quiet_since = time.monotonic()
            while time.monotonic() < deadline and (len(values) < at_least or time.monotonic() - quiet_since < 0.5):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    values.append(message.value().decode())
                    quiet_since = time.monotonic()
        finally:
            consumer.close()
        assert len(values) >= at_least, f"{len(values)} of {at_least} records of {topic}-{partition}"
        return values


@contextmanager
def running(
    *, controllers: int = 3, brokers: int = 3, combined: bool = False, config: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A fresh local cluster in a temporary directory; stopped and wiped at the end whatever happened to it."""
    with tempfile.TemporaryDirectory(prefix="kraftlite-test-") as folder:
        data_dir = Path(folder) / "cluster"
        try:
            local.up(data_dir, controllers=controllers, brokers=brokers, combined=combined, extra={**FAST, **(config or {})})
            yield Cluster(data_dir)
        finally:
            if (data_dir / "cluster.json").exists():
                for node in load(data_dir).nodes:
                    if node.state != "stopped":
                        local.kill(data_dir, node.id, signal.SIGKILL)
