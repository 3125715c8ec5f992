"""A cluster of processes whose voters, disks, replicas and levels are changed by a seed while nodes are killed and clients write.

Controllers 1 to 4, of which three are voters, and brokers 5 to 8 with three log directories each and a fourth for the metadata.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kraftlite.client.errors import ClientError
from kraftlite.config.server import load
from kraftlite.host.disk import HostDisk
from kraftlite.local.client import fetch_quorum
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.node.meta_properties import read_meta_properties
from kraftlite.node.storage import format_directories
from tests.harness.cluster import CLUSTER_ID, Cluster, NodeProcess, wait_for

TOPICS: Mapping[str, int] = {"plain": 4, "transactions": 3}
"""Topics and their partitions, of three replicas of which two must be in sync."""
LEVELS = ("4.0-IV3", "4.1-IV1", "4.2-IV1", "4.3-IV0")
CONFIG = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "5",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.log.segment.ms": "3000",
    "metadata.max.retention.bytes": "8000",
    "log.segment.bytes": "200000",
}
PATIENCE_S = 180.0
CLIENT: dict[str, object] = {"log_level": 0, "reconnect.backoff.max.ms": 500, "socket.timeout.ms": 10_000}


def create(directory: Path, release: str) -> tuple[Cluster, set[int]]:
    """A formatted cluster of this release that does not run, and its voters."""
    cluster = Cluster.create(directory, controllers=4, brokers=4, config=CONFIG, format=False)
    first = {node.node_id for node in cluster.controllers[:3]}
    servers = ",".join(f"127.0.0.1:{node.controller_port}" for node in cluster.controllers[:3])
    for node in cluster.nodes.values():
        kept = [
            it for it in node.config_path.read_text().splitlines() if not it.startswith(("controller.quorum.voters", "log.dirs"))
        ]
        kept.append(f"controller.quorum.bootstrap.servers={servers}")
        kept.append(f"log.dirs={','.join(map(str, disks(node)))}")
        if node in cluster.brokers:
            kept.append(f"metadata.log.dir={node.data}")
        node.config_path.write_text("\n".join([*kept, ""]))
    ids = {node.node_id: uuid_to_str(random_uuid(random.SystemRandom())) for node in cluster.controllers[:3]}
    voters = ",".join(f"{id}@127.0.0.1:{cluster.nodes[id].controller_port}:{ids[id]}" for id in sorted(first))
    for node in cluster.nodes.values():
        if node.node_id in first:
            run("format", "-c", node.config_path, "-t", CLUSTER_ID, "-I", voters, "-r", release)
        elif node in cluster.brokers:
            format_directories(HostDisk(), load(node.config_path), CLUSTER_ID)
    return cluster, first


def disks(node: NodeProcess) -> list[Path]:
    return [node.data] if node.kafka_port is None else [node.directory / f"d{number}" for number in range(3)]


def run(*arguments: object) -> str:
    """A command of kraftlite: what it prints. Refused when it does not succeed."""
    command = [sys.executable, "-m", "kraftlite", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, f"{arguments}: {said}"
    if done.returncode != 0:
        raise Refused(said.strip())
    return done.stdout


class Refused(Exception):
    """A command that did not succeed, and its words."""


class Writer:
    """Numbered records to a topic: in transactions, a quarter of which are aborted, or idempotent ones that are sent until they
    are acknowledged. `acked`: by partition, the values in order; `aborted`: values that nobody may read."""

    def __init__(self, name: str, bootstrap: str, topic: str, *, transactional: bool) -> None:
        self.name, self.topic, self.problem = name, topic, ""
        self._transactional = transactional
        self._config: dict[str, object] = {**CLIENT, "bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        if transactional:
            self._config |= {"transactional.id": name, "transaction.timeout.ms": 60_000, "message.timeout.ms": 60_000}
        self.acked: dict[int, list[str]] = defaultdict(list)
        self.aborted: set[str] = set()
        self._number = 0
        self._random = random.Random(name)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self.problem = f"{self.name} did not end within {PATIENCE_S} s"

    def _main(self) -> None:
        try:
            if self._transactional:
                self._write_transactions()
            else:
                self._write()
        except Exception as error:  # noqa: BLE001 - whatever it was, the run must not pass
            self.problem = f"{self.name} ended with {type(error).__name__}: {error}"

    def _values(self) -> list[tuple[int, str]]:
        begin, count = self._number, self._random.randint(1, 30)
        self._number += count
        return [(self._random.randrange(TOPICS[self.topic]), f"{self.name}:{number}") for number in range(begin, begin + count)]

    def _write(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(self._config)
        while not self._stop.is_set():
            for partition, value in self._values():
                producer.produce(self.topic, value.encode(), partition=partition, on_delivery=self._delivered)
            producer.poll(0.05)
        assert producer.flush(PATIENCE_S) == 0, "some records have no verdict"

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, f"{message.value()}: {error}"
        self.acked[message.partition()].append(message.value().decode())

    def _write_transactions(self) -> None:
        from confluent_kafka import KafkaException

        producer = None
        while not self._stop.is_set():
            try:
                if producer is None:
                    producer = self._begin()
                producer.begin_transaction()
                values = self._values()
                for partition, value in values:
                    producer.produce(self.topic, value.encode(), partition=partition)
                if self._random.random() < 0.25:
                    self.aborted.update(value for _, value in values)
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                    for partition, value in values:
                        self.acked[partition].append(value)
                time.sleep(0.05)
            except KafkaException as error:
                producer = self._after(producer, error.args[0])

    def _begin(self) -> Any:
        from confluent_kafka import Producer

        producer = Producer(self._config)
        producer.init_transactions(60)
        return producer

    def _after(self, producer: Any, error: Any) -> Any:
        """What came of the transaction nobody knows, unless it can be aborted."""
        from confluent_kafka import KafkaException

        if producer is None or not error.txn_requires_abort():
            return None
        try:
            producer.abort_transaction(60)
        except KafkaException:
            return None
        return producer


class Changes:
    """Does the changes of one seed. What is refused is part of the story; a node that ends by itself is an error."""

    def __init__(self, cluster: Cluster, voters: set[int], seed: int) -> None:
        self.cluster, self.voters = cluster, voters
        self.random = random.Random(seed)
        self.story: list[str] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:6.1f} {text}")

    def once(self) -> None:
        changes: list[Callable[[], None]] = [
            *(self.kill_broker, self.stop_broker, self.kill_controller, self.kill_both, self.swap_voters, self.swap_voters),
            *(self.replace_controller_disk, self.replace_disk, self.replace_disk, self.change_level),
            *(self.move_replicas, self.move_replicas, self.move_directory),
        ]
        self.random.choice(changes)()
        for node in (*self.cluster.brokers, *(self.cluster.nodes[id] for id in sorted(self.voters))):
            process = node.process
            assert process is not None, f"node {node.node_id} was never started"
            assert process.poll() is None, f"node {node.node_id} ended by itself: {node.tail()}"
        if self.random.random() < 0.6:
            self.wait_whole()

    # --- nodes

    def _broker(self) -> NodeProcess:
        return self.random.choice(self.cluster.brokers)

    def _leader(self) -> int:
        def found() -> int | None:
            with contextlib.suppress(ClientError):
                leader = int(fetch_quorum(self.cluster.bootstrap)["leader_id"])
                return leader if leader in self.cluster.nodes else None
            return None

        return int(wait_for(found, "a leader of the quorum", PATIENCE_S))

    def _down_for(self, longest_s: float, *nodes: NodeProcess) -> None:
        time.sleep(self.random.random() * longest_s)
        for node in nodes:
            node.start(wait=False)

    def kill_broker(self) -> None:
        node = self._broker()
        self.say(f"SIGKILL broker {node.node_id}")
        node.kill()
        self._down_for(6, node)

    def stop_broker(self) -> None:
        node = self._broker()
        self.say(f"SIGTERM broker {node.node_id}")
        node.stop()
        self._down_for(4, node)

    def kill_controller(self) -> None:
        node = self.cluster.nodes[self._leader() if self.random.random() < 0.6 else self.random.choice(sorted(self.voters))]
        self.say(f"SIGKILL controller {node.node_id}")
        node.kill()
        self._down_for(5, node)

    def kill_both(self) -> None:
        broker, controller = self._broker(), self.cluster.nodes[self._leader()]
        self.say(f"SIGKILL broker {broker.node_id} and controller {controller.node_id}")
        broker.kill()
        controller.kill()
        self._down_for(5, broker, controller)

    # --- voters

    def _until_done(self, what: str, done_already: str, *arguments: object) -> None:
        """A command that an election, or a change under way, may refuse for a while."""
        said = ""

        def done() -> bool:
            nonlocal said
            try:
                run(*arguments, "-b", self.cluster.bootstrap)
            except Refused as error:
                said = str(error)
                return done_already in said
            return True

        try:
            wait_for(done, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; last: {said}") from None
        self.say(what)

    def _add(self, node: NodeProcess) -> None:
        shutil.rmtree(node.data, ignore_errors=True)
        run("format", "-c", node.config_path, "-t", CLUSTER_ID, "-N")
        node.start(wait=False)
        self._until_done(f"added {node.node_id}", "DUPLICATE_VOTER", "quorum", "add", "-c", node.config_path)
        self.voters.add(node.node_id)

    def _remove(self, node_id: int, *more: object) -> None:
        self._until_done(f"removed {node_id}", "VOTER_NOT_FOUND", "quorum", "remove", "-i", node_id, *more)
        self.voters.discard(node_id)

    def swap_voters(self) -> None:
        """The fourth controller comes, another one goes: the leader or not, running or not."""
        added = next(node for node in self.cluster.controllers if node.node_id not in self.voters)
        victim = self.cluster.nodes[self._leader()] if self.random.random() < 0.5 else None
        adding = threading.Thread(target=self._add, args=(added,))
        adding.start()
        if victim is not None:
            time.sleep(self.random.random() * 3)
            self.say(f"SIGKILL leader {victim.node_id} while {added.node_id} is added")
            victim.kill()
            self._down_for(2, victim)
        adding.join(2 * PATIENCE_S)
        assert added.node_id in self.voters, f"controller {added.node_id} was not added: {self.story[-3:]}"
        gone = self.cluster.nodes[self._leader() if self.random.random() < 0.4 else self.random.choice(sorted(self.voters))]
        if self.random.random() < 0.5:
            self.say(f"SIGKILL controller {gone.node_id}")
            gone.kill()
        self._remove(gone.node_id)
        gone.kill()

    def replace_controller_disk(self) -> None:
        node = self.cluster.nodes[self.random.choice(sorted(self.voters))]
        old = read_meta_properties(HostDisk(), str(node.data))
        assert old is not None, f"{node.data} is not formatted"
        self.say(f"controller {node.node_id} gets a new disk")
        node.kill()
        shutil.rmtree(node.data)
        run("format", "-c", node.config_path, "-t", CLUSTER_ID, "-N")
        node.start(wait=False)
        self._remove(node.node_id, "-d", uuid_to_str(old.directory_id))
        self._until_done(f"added {node.node_id} anew", "DUPLICATE_VOTER", "quorum", "add", "-c", node.config_path)
        self.voters.add(node.node_id)

    # --- disks, replicas, levels

    def replace_disk(self) -> None:
        """A directory goes while it is used; the broker lives on with the others until it gets a new one."""
        node, number = self._broker(), self.random.randrange(3)
        disk = disks(node)[number]
        self.say(f"broker {node.node_id} loses {disk.name}")
        gone = disk.with_suffix(".gone")
        shutil.rmtree(gone, ignore_errors=True)
        disk.rename(gone)
        if self.random.random() < 0.5:
            disk.write_text("no directory")
        time.sleep(4 + self.random.random() * 8)
        assert node.process is not None and node.process.poll() is None, f"broker {node.node_id} ended: {node.tail()}"
        if self.random.random() < 0.5:
            node.kill()
        else:
            node.stop()
        if disk.is_dir():
            shutil.rmtree(disk)
        disk.unlink(missing_ok=True)
        disk.mkdir()
        run("format", "-c", node.config_path, "-t", CLUSTER_ID, "-g")
        node.start(wait=False)
        self.wait_whole()

    def _try(self, what: str, *arguments: object) -> None:
        try:
            run(*arguments)
            self.say(what)
        except Refused as error:
            self.say(f"{what}: refused: {str(error)[-160:]}")

    def _partition(self) -> tuple[str, int]:
        topic = self.random.choice(list(TOPICS))
        return topic, self.random.randrange(TOPICS[topic])

    def move_replicas(self) -> None:
        topic, partition = self._partition()
        replicas = self.random.sample([node.node_id for node in self.cluster.brokers], 3)
        plan = self.cluster.directory / "move.json"
        move = {"topic": topic, "partition": partition, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        arguments = ("--bootstrap-server", self.cluster.bootstrap, "--reassignment-json-file", plan, "--execute")
        self._try(f"move {topic}-{partition} to {replicas}", "compat", "kafka-reassign-partitions", *arguments)

    def move_directory(self) -> None:
        topic, partition = self._partition()
        node, number = self._broker(), self.random.randrange(3)
        where = ("--topic", topic, "--partition", partition, "--broker", node.node_id, "--to", disks(node)[number])
        what = f"move {topic}-{partition} of {node.node_id} to d{number}"
        self._try(what, "log-dirs", "move", *where, "-b", self.cluster.bootstrap)

    def change_level(self) -> None:
        level = self.random.choice(LEVELS)
        for way in ("downgrade", "upgrade"):
            self._try(f"{way} to {level}", "feature", way, "--metadata", level, "-b", self.cluster.bootstrap)

    def wait_whole(self) -> None:
        """Until every partition has three replicas in sync and a leader."""
        seen: list[object] = []

        def whole() -> bool:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient

            seen.clear()
            try:
                topics = AdminClient({**CLIENT, "bootstrap.servers": self.cluster.bootstrap}).list_topics(timeout=10).topics
            except KafkaException as error:
                seen.append(error)
                return False
            for name, count in TOPICS.items():
                found = topics[name].partitions if name in topics else {}
                seen.extend(
                    (name, it.id, it.leader, it.replicas, it.isrs)
                    for it in found.values()
                    if it.leader < 0 or len(it.replicas) != 3 or set(it.isrs) != set(it.replicas)
                )
                if len(found) != count:
                    seen.append((name, sorted(found)))
            return not seen

        try:
            wait_for(whole, "every ISR to be whole", PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}; {self.story[-8:]}") from None


def read(bootstrap: str, topic: str, partition: int) -> list[str]:
    """The values of a partition as a consumer with read_committed gets them, up to its end."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for message in consumer.consume(2000, 1.0):
                if message.error() is None:
                    found.append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition} could not be read to its end within {PATIENCE_S} s: {len(found)} records")


def verdict(bootstrap: str, writers: list[Writer]) -> list[str]:
    """Problems: what was acknowledged and is not there, is there twice or in another order, or was aborted."""
    problems = [writer.problem for writer in writers if writer.problem]
    for topic, count in TOPICS.items():
        for partition in range(count):
            values = read(bootstrap, topic, partition)
            there = set(values)
            if len(there) != len(values):
                problems.append(f"{topic}-{partition}: {len(values) - len(there)} of {len(values)} records are there twice")
            for writer in (it for it in writers if it.topic == topic):
                own = [value for value in values if value.startswith(f"{writer.name}:")]
                if own != sorted(own, key=lambda value: int(value.partition(":")[2])):
                    problems.append(f"{topic}-{partition}: the records of {writer.name} are not in the order of their numbers")
                if lost := [value for value in writer.acked[partition] if value not in there]:
                    problems.append(f"{topic}-{partition}: {len(lost)} acknowledged records are lost, first {lost[0]}")
                if read_back := writer.aborted & there:
                    problems.append(f"{topic}-{partition}: aborted records are read: {sorted(read_back)[:3]}")
    return problems


def stop(cluster: Cluster, voters: set[int]) -> list[str]:
    """Problems of the way in which the nodes end, and of what they said."""
    problems = []
    for node in (*cluster.brokers, *(cluster.nodes[id] for id in sorted(voters))):
        node.signal(signal.SIGTERM)
    for node in cluster.nodes.values():
        if node.process is not None and (status := node.wait_exit()) not in (0, -signal.SIGKILL):
            problems.append(f"node {node.node_id} ended with {status}: {node.tail(10)}")
        if "Traceback" in node.output():
            problems.append(f"node {node.node_id} printed a stack trace: {node.output().partition('Traceback')[2][:1500]}")
    return problems
