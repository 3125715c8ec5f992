"""Clients' metrics (KIP-714): an Apache Kafka with a receiver answers as kraftlite does, and Java clients push to it."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

import kraftlite.protocol.kio_import
from kraftlite.client.admin import alter_configs
from kraftlite.local.client import cluster_at
from kraftlite.local.state import load
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from tests.clients.java import tools
from tests.clients.java.apache import apache_kafka
from tests.clients.orders import filled
from tests.clients.raw import Connection
from tests.harness.local import Cluster, running, wait_for
from tests.harness.otlp import gauge, pushed

# isort: split
from kio.index import load_request_schema

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]

HOUR, MOMENT = "3600000", "100"
SUBSCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "all": {"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.", "interval.ms": HOUR},
    "quick": {"metrics": "quick", "interval.ms": MOMENT, "match": "client_instance_id=AAAAAAAAAAAAAAAAAAAAB."},
    "starred": {"metrics": "*,a", "match": "client_instance_id=AAAAAAAAAAAAAAAAAAAAC."},
    "source": {"metrics": "by source", "match": "client_source_address=127.0.0.1,client_source_port=[0-9]+"},
    "part of the text": {"metrics": "never", "match": "client_id=ra"},
    "unknown software": {"metrics": "unknown", "match": "client_software_name=unknown,client_software_version=unknown"},
    "other": {"metrics": "other", "match": "client_id=other"},
}
VALUES = pushed(gauge("org.apache.kafka.producer.connection.count", 3.0))


def subscribe(bootstrap: str, name: str, values: Mapping[str, str]) -> None:
    changes = [(key, AlterConfigOp.SET, value) for key, value in values.items()]
    with cluster_at(bootstrap) as client:
        alter_configs(client, ConfigResourceType.CLIENT_METRICS, name, changes)


class Teller:
    """Asks one side, and keeps what it was told."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.told: list[tuple[Any, ...]] = []
        self.subscription_ids: dict[UUID, int] = {}
        self.connection = Connection(bootstrap)

    def get(self, number: int, *, quiet: bool = False) -> tuple[Any, ...]:
        """`number`: that of the instance id. `quiet`: the answer is not part of the story."""
        schema = load_request_schema(71, 0)
        answer = self.connection.ask(filled(schema, {"client_instance_id": UUID(int=number)}))
        given = answer.client_instance_id or UUID(int=0)
        self.subscription_ids[given] = int(answer.subscription_id)
        found = (
            "get",
            number,
            int(answer.error_code.value),
            given.int == number if number and not answer.error_code.value else given.int > 1,
            answer.accepted_compression_types,
            answer.push_interval.total_seconds(),
            answer.telemetry_max_bytes,
            answer.delta_temporality,
            sorted(answer.requested_metrics),
        )
        if not quiet:
            self.told.append(found)
        return found

    def push(self, number: int, payload: bytes = VALUES, *, off: int = 0, last: bool = False, codec: int = 0) -> int:
        values = {
            "client_instance_id": UUID(int=number),
            "subscription_id": self.subscription_ids.get(UUID(int=number), 0) + off,
            "terminating": last,
            "compression_type": codec,
            "metrics": payload,
        }
        answer = self.connection.ask(filled(load_request_schema(72, 0), values))
        code = int(answer.error_code.value)
        self.told.append(("push", number, len(payload), off, last, codec, code))
        return code


def story(it: Teller) -> None:
    for name, values in SUBSCRIPTIONS.items():
        subscribe(it.bootstrap, name, values)
    whole = len([name for name in SUBSCRIPTIONS if name in ("all", "source", "unknown software")]) + 1
    numbers = iter(range(10**6, 10**7))
    wait_for("all subscriptions", lambda: len(it.get(next(numbers), quiet=True)[-1]) == whole)
    for number in (0, 1, 0x10, 0x20, 1000):
        it.get(number)
    it.get(1000)
    for _ in range(2):
        it.push(1000)
    it.get(1000)
    it.push(1000, last=True)
    it.push(1000)
    it.push(1000, last=True)
    it.get(1000)
    for number in (0, 1):
        it.push(number)
    it.push(2000)  # has not asked
    it.get(2000)
    it.push(2000)
    wrong: tuple[dict[str, Any], ...] = (
        {"off": 1},
        {"off": 1, "codec": 9},
        {"codec": 5},
        {"codec": -1},
        {"codec": -1, "payload": bytes(1 << 20 | 1)},
        {"payload": bytes(1 << 20 | 1)},
        {"payload": b"\xff"},
        {"payload": b""},
        {"payload": b"", "off": 1},
        {"last": True, "off": 1},
        {"last": True, "codec": 5},
    )
    for number, changed in enumerate(wrong, start=3000):
        it.get(number)
        it.push(number, **changed)
        it.push(number)
        it.get(number)
        it.push(number)
    it.get(4000)
    subscribe(it.bootstrap, "other", {"metrics": "other,more"})
    wait_for("the change", lambda: it.get(4000, quiet=True)[2] == 0)
    it.push(4000)
    it.push(4000)
    # An interval that ends while it is waited for.
    wait_for("the interval of a quick one", lambda: it.get(0x10, quiet=True)[2] == 0)
    it.push(0x10)
    # Another connection is the same client, until the first one is lost.
    first, it.connection = it.connection, Connection(it.bootstrap)
    it.get(5000)
    second, it.connection = it.connection, first
    it.get(5000)
    second.close()
    wait_for("it is forgotten", lambda: it.get(5000, quiet=True)[2] == 0)
    it.push(5000)
    it.connection.close()


@pytest.fixture(scope="module")
def kraftlite() -> Iterator[Cluster]:
    with running(controllers=1, brokers=1, combined=True, config={"kraftlite.metrics.port": "0"}) as cluster:
        cluster.create_topic("events", partitions=1, replication=1)
        yield cluster


def test_tm_02_tm_03_answers_are_those_of_apache_kafka(java: None, kraftlite: Cluster) -> None:
    ours, theirs = Teller(kraftlite.bootstrap), None
    with apache_kafka(config={"metric.reporters": "TelemetryReporter"}, more=(tools.programs(),)) as kafka:
        theirs = Teller(kafka.bootstrap_servers)
        story(theirs)
    story(ours)
    assert len(theirs.told) > 60
    assert {71, 72} <= set(Connection(kraftlite.bootstrap).offered())
    assert [pair for pair in zip(ours.told, theirs.told, strict=True) if pair[0] != pair[1]] == []


def names(cluster: Cluster, client_id: str) -> set[str]:
    """The series of this client on the metrics pages of the brokers."""
    found = set()
    for node in load(cluster.data_dir).nodes:
        with contextlib.closing(urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=10)) as page:
            for family in text_string_to_metric_families(page.read().decode()):
                found |= {it.name for it in family.samples if it.labels.get("client_id") == client_id}
    return found


def test_tm_04_a_java_producer_pushes_and_its_metrics_are_on_the_page(java: None, kraftlite: Cluster) -> None:
    subscribe(
        kraftlite.bootstrap, "java", {"metrics": "*", "interval.ms": "200", "match": "client_software_name=apache-kafka-java"}
    )
    settings = [f"bootstrap.servers={kraftlite.bootstrap}", "client.id=java-one", "compression.type=zstd"]
    args = ["--topic", "events", "--num-records", "300", "--throughput", "100", "--record-size", "100"]
    done = tools.kafka_tool("kafka-producer-perf-test", *args, "--command-property", *settings)
    assert done.code == 0, done.out + done.err
    found = names(kraftlite, "java-one")
    assert {"kafka_client_producer_connection_creation_total", "kraftlite_client_metrics_info"} <= found
    assert len(found) > 10
