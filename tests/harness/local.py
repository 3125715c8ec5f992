"""A local cluster of real processes for tests, with conditions to wait for instead of times to sleep.

What one broker says another learns a moment later, and a client asks any of them. So what a test waits for here, it waits for at
every broker that runs: whoever is asked next then knows it too.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftlite.client.errors import ClientError
from kraftlite.client.routing import metadata_values
from kraftlite.local import cluster as local
from kraftlite.local.client import cluster_at
from kraftlite.local.state import LocalCluster, LocalError, LocalNode, load
from kraftlite.protocol.api_keys import METADATA

FAST = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
}
"""Failure detection in about two seconds instead of nine; everything else as in production."""

CALM = {
    **FAST,
    "broker.session.timeout.ms": "6000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "replica.lag.time.max.ms": "20000",
}
"""For tests that are not about failover: a machine that stands still for two seconds must not cause one."""

PATIENCE_S = 60.0
"""What takes two seconds on a quiet machine may take this long on a loaded one. Only what is wrong takes all of it."""


def wait_for(what: str, check: Callable[[], Any], *, timeout_s: float = PATIENCE_S, every_s: float = 0.05) -> Any:
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


Partitions = dict[int, PartitionView]
"""By partition; empty: the topic is not known."""


@dataclass(frozen=True)
class BrokerView:
    """The cluster as one broker describes it."""

    brokers: dict[int, str]
    """The addresses of those that are alive."""
    topics: dict[str, Partitions]


def described_by(address: str, *topics: str) -> BrokerView | None:
    """What this very broker knows of these topics (none given: of all); None when it does not answer.

    librdkafka's `list_topics` is no help here: it asks any broker that it has heard of, a paused one included.
    """
    try:
        with cluster_at(address) as cluster:
            answer = cluster.call(METADATA, 12, metadata_values(topics or None), timeout_ms=2_000)
    except ClientError:
        return None
    return BrokerView(
        brokers={int(broker.node_id): f"{broker.host}:{broker.port}" for broker in answer.brokers},
        topics={
            str(topic.name): {
                int(p.partition_index): PartitionView(
                    int(p.leader_id), tuple(map(int, p.replica_nodes)), tuple(map(int, p.isr_nodes))
                )
                for p in topic.partitions
            }
            for topic in answer.topics
            if topic.partitions
        },
    )


class Cluster:
    """A running local cluster. Node ids are controllers 1..C and brokers C+1.. (combined: 1..N)."""

    data_dir: Path
    """Only nodes that are processes of `kraftlite up` have one."""

    def __init__(self, data_dir: Path | None = None) -> None:
        if data_dir is not None:
            self.data_dir = data_dir
        self._admins: dict[str, Any] = {}
        self._created: set[str] = set()

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
        # A client that saw all brokers go may have stopped to look for them.
        self._admins.clear()

    def heal(self) -> None:
        """Every node runs, and every broker knows it."""
        nodes = self.state.nodes
        self.resume(*[node.id for node in nodes if node.state == "paused"])
        if stopped := [node.id for node in nodes if node.state == "stopped"]:
            self.restart(*stopped)
        self.wait_brokers()

    def wait_stopped(self, node_id: int, timeout_s: float = PATIENCE_S) -> None:
        wait_for(f"node {node_id} has ended", lambda: self.node(node_id).state == "stopped", timeout_s=timeout_s)

    # --- what clients see

    def admin(self, *node_ids: int) -> Any:
        """Kept, because a client that is collected while a call is under way fails that call."""
        from confluent_kafka.admin import AdminClient

        bootstrap = ",".join(self.node(n).kafka or "" for n in node_ids) if node_ids else self.bootstrap
        if bootstrap not in self._admins:
            self._admins[bootstrap] = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": "30000"})
        return self._admins[bootstrap]

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 3,
        *,
        timeout_s: float = PATIENCE_S,
        config: Mapping[str, str] | None = None,
        assignment: list[list[int]] | None = None,
    ) -> None:
        """Returns when every broker knows the topic, with a leader of each partition. A controller that is replaced before it has
        answered leaves the next one to say that the topic is there: the first time that is as good."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        if assignment is not None:
            topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=dict(config or {}))
        else:
            topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        again = name in self._created
        self._created.add(name)
        made = self.admin().create_topics([topic], operation_timeout=timeout_s, request_timeout=timeout_s)[name]
        try:
            made.result(timeout_s + 5)
        except KafkaException as error:
            if again or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        self.wait_topic(name)

    def views(self, *topics: str) -> dict[int, BrokerView | None]:
        """What each broker that runs knows now; None: it does not answer."""
        running = [node for node in self.state.nodes if node.is_broker and node.state == "running"]
        return {node.id: described_by(str(node.kafka), *topics) for node in running}

    def _wait_agreed(self, what: str, topic: str, check: Callable[[Partitions], bool], timeout_s: float) -> Partitions:
        """Until what all brokers describe fulfils the condition; what they said last is part of the error."""
        seen: dict[int, BrokerView | None] = {}

        def found() -> bool:
            seen.clear()
            seen.update(self.views(topic))
            views = [{} if view is None else view.topics.get(topic, {}) for view in seen.values()]
            return None not in seen.values() and bool(views) and all(view == views[0] for view in views) and check(views[0])

        try:
            wait_for(what, found, timeout_s=timeout_s, every_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}; by broker: {seen}") from None
        return next(view.topics.get(topic, {}) for view in seen.values() if view is not None)

    def partitions(self, topic: str) -> Partitions:
        """The partitions as one broker that runs describes them; empty while it does not know the topic."""
        return next((view.topics.get(topic, {}) for view in self.views(topic).values() if view is not None), {})

    def leader(self, topic: str, partition: int = 0) -> int:
        """Who leads, as all brokers that run agree: -1 means that there is no leader, not that somebody does not know."""
        known = self._wait_agreed(f"all brokers agree on {topic}-{partition}", topic, lambda p: partition in p, PATIENCE_S)
        return known[partition].leader

    def wait_topic(self, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Until every broker knows the topic and a leader of each of its partitions."""

        def led(partitions: Partitions) -> bool:
            return bool(partitions) and all(view.leader >= 0 for view in partitions.values())

        self._wait_agreed(f"every broker knows {topic} and its leaders", topic, led, timeout_s)

    def wait_gone(self, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        self._wait_agreed(f"no broker knows {topic}", topic, lambda partitions: not partitions, timeout_s)

    def wait_brokers(self, *, timeout_s: float = PATIENCE_S) -> None:
        """Until every broker runs and names all of them as alive."""

        def known() -> bool:
            views = self.views()
            return sorted(views) == self.brokers and all(
                view is not None and sorted(view.brokers) == self.brokers for view in views.values()
            )

        wait_for("every broker knows all brokers", known, timeout_s=timeout_s, every_s=0.1)

    def wait_leader(self, topic: str, partition: int = 0, *, not_in: tuple[int, ...] = (), timeout_s: float = PATIENCE_S) -> int:
        def found(partitions: Partitions) -> bool:
            leader = partitions[partition].leader if partition in partitions else -1
            return leader >= 0 and leader not in not_in

        what = f"{topic}-{partition} has a leader other than {not_in}"
        return self._wait_agreed(what, topic, found, timeout_s)[partition].leader

    def wait_leaderless(self, topic: str, partition: int = 0, *, timeout_s: float = PATIENCE_S) -> None:
        def found(partitions: Partitions) -> bool:
            return partition in partitions and partitions[partition].leader == -1

        self._wait_agreed(f"{topic}-{partition} has no leader", topic, found, timeout_s)

    def wait_isr(self, topic: str, isr: set[int], partition: int = 0, *, timeout_s: float = PATIENCE_S) -> None:
        def matches(partitions: Partitions) -> bool:
            return partition in partitions and set(partitions[partition].isr) == isr

        self._wait_agreed(f"ISR of {topic}-{partition} is {sorted(isr)}", topic, matches, timeout_s)

    def wait_whole(self, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        def whole(partitions: Partitions) -> bool:
            return bool(partitions) and all(set(v.isr) == set(v.replicas) and v.leader >= 0 for v in partitions.values())

        self._wait_agreed(f"every ISR of {topic} is whole", topic, whole, timeout_s)

    def active_controller(self) -> int:
        """Id of the quorum's leader, asked through any broker."""
        return int(self.quorum_status()["LeaderId"])

    def try_quorum_status(self) -> dict[str, str] | None:
        """None while no controller leads, or none answers."""
        from click.testing import CliRunner

        from kraftlite.cli.main import cli

        result = CliRunner().invoke(cli, ["quorum", "describe", "--status", "--bootstrap-server", self.bootstrap])
        if result.exit_code != 0:
            return None
        return {
            name.strip(): value.strip()
            for name, value in (line.split(":", 1) for line in result.output.splitlines() if ":" in line)
        }

    def quorum_status(self) -> dict[str, str]:
        """Asked until there is an answer: an election may be under way."""
        found: dict[str, str] = wait_for("the quorum tells its status", self.try_quorum_status)
        return found

    def wait_quorum(self, *, not_led_by: int | None = None, caught_up: bool = False) -> dict[str, str]:
        """Until a controller (another than this one) leads and, if asked for, every other node has all of its log."""

        def found() -> dict[str, str] | None:
            status = self.try_quorum_status()
            if status is None or int(status["LeaderId"]) in (-1, not_led_by):
                return None
            return status if not caught_up or status["MaxFollowerLag"] == "0" else None

        status: dict[str, str] = wait_for(f"a quorum (not led by {not_led_by}, caught up: {caught_up})", found)
        return status

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

    def consume(
        self, topic: str, *, partition: int = 0, at_least: int, timeout_s: float = PATIENCE_S, **config: object
    ) -> list[str]:
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
                    with contextlib.suppress(LocalError):  # it does not run, or has ended this moment
                        local.kill(data_dir, node.id, signal.SIGKILL)
