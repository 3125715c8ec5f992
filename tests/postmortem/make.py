"""Makes the incident of docs/POSTMORTEM.md with a real Apache Kafka: `python -m tests.postmortem.make`.

Three nodes, each controller and broker. Somebody allows unclean elections for `payments`; a broker dies, then the broker that
leads dies too, and the first one comes back without the records that it missed. Before and after that there is what a cluster has
besides: a topic that is moved, a preferred election, quotas, credentials, ACLs, a topic that is deleted.

`incident.tar.xz` is committed: the directories of the three nodes as they were after it, and what Kafka's own metadata shell says
of them is compared in `tests/clients/java/test_metadata_shell.py`.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.clients.java.apache import ApacheKafka, apache_kafka
from tests.clients.java.tools import kafka_tool

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE / "incident.tar.xz"
MAX_BYTES = 200_000
LIMIT_S = 60.0
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "log.index.size.max.bytes": "4096",
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "leader.imbalance.check.interval.seconds": "3600",
}
LEFT_OUT = {".lock", "cleaner-offset-checkpoint"}


class Incident:
    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {LIMIT_S:.0f} s: {what}")
            time.sleep(0.2)

    def partition(self, topic: str, number: int = 0) -> Any:
        return self.admin.list_topics(topic, timeout=10).topics[topic].partitions[number]

    def led_by(self, topic: str, leader: int) -> Callable[[], bool]:
        return lambda: self._holds(lambda: self.partition(topic).leader == leader)

    def whole(self, topic: str) -> Callable[[], bool]:
        return lambda: self._holds(lambda: len(self.partition(topic).isrs) == len(self.partition(topic).replicas))

    @staticmethod
    def _holds(condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except (KafkaException, KeyError):
            return False

    def produce(self, topic: str, first: int, count: int) -> None:
        config = {"bootstrap.servers": self.kafka.bootstrap_servers, "acks": "all", "log_level": 0, "linger.ms": 5}
        producer = Producer(config)
        for number in range(first, first + count):
            producer.produce(topic, f"{topic} {number}".encode(), partition=0)
        assert producer.flush(LIMIT_S) == 0

    def configure(self, kind: Any, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for future in self.admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values():
            future.result(LIMIT_S)

    def tool(self, name: str, *arguments: str, stdin: str = "") -> None:
        done = kafka_tool(name, "--bootstrap-server", self.kafka.bootstrap_servers, *arguments, stdin=stdin)
        assert done.code == 0, f"{name} {' '.join(arguments)}: {done.out}{done.err}"


def ordinary(it: Incident) -> None:
    """What a cluster has."""
    topics = [
        NewTopic("orders", 2, replica_assignment=[[1, 2, 3], [2, 3, 1]]),
        NewTopic("payments", 1, replica_assignment=[[2, 3]], config={"min.insync.replicas": "1"}),
        NewTopic("scratch", 1, 1),
    ]
    for topic in topics:
        for future in it.admin.create_topics([topic]).values():
            future.result(LIMIT_S)
    it.configure(ResourceType.BROKER, "1", "log.cleaner.threads", "2")
    it.tool(
        "kafka-configs",
        "--alter",
        "--add-config",
        "producer_byte_rate=10485760,request_percentage=12.5",
        "--entity-type",
        "users",
        "--entity-name",
        "alice",
    )
    it.tool(
        "kafka-configs", "--alter", "--add-config", "consumer_byte_rate=2048", "--entity-type", "users", "--entity-name", "a(b)",
        "--entity-type", "clients", "--entity-name", "app",
    )  # fmt: skip
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in it.admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("alice", credential, b"secret", b"salt")]
    ).values():
        future.result(LIMIT_S)
    acl = AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    for future in it.admin.create_acls([acl]).values():
        future.result(LIMIT_S)
    for future in it.admin.delete_topics(["scratch"]).values():
        future.result(LIMIT_S)
    it.produce("orders", 0, 50)
    it.produce("payments", 0, 50)


def moved(it: Incident, folder: Path) -> None:
    """orders-1 gets another order of replicas, and the preferred leaders lead."""
    plan = folder / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 1, "replicas": [3, 2]}]}')
    it.tool("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")
    it.wait("orders-1 is moved", lambda: it._holds(lambda: it.partition("orders", 1).replicas == [3, 2]))
    it.tool("kafka-leader-election", "--election-type", "preferred", "--topic", "orders", "--partition", "1")


def unclean(it: Incident) -> None:
    """payments: 3 dies, 2 goes on alone and dies, 3 comes back without what it missed, and is elected."""
    it.configure(ResourceType.TOPIC, "payments", "unclean.leader.election.enable", "true")
    it.kafka.kill(3)
    it.wait("3 is out of the ISR", lambda: it._holds(lambda: it.partition("payments").isrs == [2]))
    it.produce("payments", 50, 25)
    it.kafka.kill(2)
    it.kafka.start(3)
    it.wait("3 leads payments", it.led_by("payments", 3))
    it.produce("payments", 100, 10)
    it.kafka.start(2)
    it.wait("payments is whole", it.whole("payments"))
    it.wait("orders is whole", it.whole("orders"))


def make(folder: Path) -> bytes:
    with apache_kafka(nodes=3, config=CONFIG) as kafka:
        it = Incident(kafka)
        it.wait("three brokers", lambda: len(it.admin.list_topics(timeout=10).brokers) == 3)
        ordinary(it)
        moved(it, kafka.folder)
        unclean(it)
        it.tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
        it.wait("2 leads payments", it.led_by("payments", 2))
        it.kafka.nodes[1].terminate()  # a controlled shutdown
        it.kafka.nodes[1].wait(LIMIT_S)
        time.sleep(1)
        for node in (2, 3):
            kafka.kill(node)
        return archive(kafka)


def archive(kafka: ApacheKafka) -> bytes:
    """The same bytes for the same files: names in order, no owner, no times."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for node in sorted(kafka.nodes):
            for path in sorted(kafka.data_dir(node).rglob("*")):
                if path.name in LEFT_OUT or not path.is_file():
                    continue
                info = tarfile.TarInfo(f"node-{node}/{path.relative_to(kafka.data_dir(node))}")
                data = path.read_bytes()
                info.size, info.mode = len(data), 0o644
                tar.addfile(info, io.BytesIO(data))
    return lzma.compress(raw.getvalue(), preset=9)


def main() -> int:
    data = make(HERE)
    if len(data) > MAX_BYTES:
        print(f"{len(data)} bytes, which is more than {MAX_BYTES}", file=sys.stderr)
        return 1
    ARCHIVE.write_bytes(data)
    print(f"{ARCHIVE}: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
