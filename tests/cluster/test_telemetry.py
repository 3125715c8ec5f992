"""Clients' own metrics (KIP-714): librdkafka pushes them by itself, and they are on the metrics page. TM-01, TM-04."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from kraftlite.cli.main import cli
from kraftlite.client.admin import alter_configs
from kraftlite.local.client import cluster_at
from kraftlite.local.state import LocalNode, load
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from tests.harness.local import CALM, Cluster, running, wait_for

BYTES = [f"kafka_server_raftchannelmetrics_{way}_byte_total" for way in ("incoming", "outgoing")]
pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=2, config={**CALM, "kraftlite.metrics.port": "0"}) as cluster:
        cluster.create_topic("events", partitions=2, replication=1)
        yield cluster


def values(cluster: Cluster, client_id: str) -> dict[str, float]:
    """The series of this client on the pages of all nodes, by name."""
    found: dict[str, float] = {}
    for node in load(cluster.data_dir).nodes:
        with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=10) as page:
            for family in text_string_to_metric_families(page.read().decode()):
                found |= {it.name: it.value for it in family.samples if it.labels.get("client_id") == client_id}
    return found


def test_tm_04_librdkafka_pushes_and_its_metrics_are_on_the_page(cluster: Cluster) -> None:
    from confluent_kafka import Consumer, Producer

    wanted = [("metrics", "*"), ("interval.ms", "200"), ("match", "client_id=mine.*")]
    with cluster_at(cluster.bootstrap) as admin:
        changes = [(key, AlterConfigOp.SET, value) for key, value in wanted]
        alter_configs(admin, ConfigResourceType.CLIENT_METRICS, "m", changes)
    producer, other = (Producer({"bootstrap.servers": cluster.bootstrap, "client.id": it}) for it in ("mine-p", "other"))
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "client.id": "mine-c", "group.id": "g"})
    consumer.subscribe(["events"])

    def both() -> bool:
        for it in (producer, other):
            it.produce("events", b"v")
            it.flush()
        consumer.poll(0.05)
        return "kafka_client_producer_request_latency_avg" in values(cluster, "mine-p") and (
            "kafka_client_consumer_coordinator_assigned_partitions" in values(cluster, "mine-c")
        )

    wait_for("both have pushed", both)
    assert values(cluster, "mine-p")["kraftlite_client_metrics_info"] == 1
    shown = CliRunner().invoke(
        cli, ["client-metrics", "show", "mine-p", "--values"], env={"KRAFTLITE_DATA_DIR": str(cluster.data_dir)}
    )
    assert shown.exit_code == 0 and "mine-p (" in shown.output and "  kafka_client_producer_request_latency_avg " in shown.output
    assert values(cluster, "other") == {}, "no subscription is for it"
    consumer.close()


def test_ce_30_the_bytes_between_nodes_are_on_their_pages(cluster: Cluster) -> None:
    """Which nodes of one process do not have."""

    def told(node: LocalNode) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=10) as page:
            families = text_string_to_metric_families(page.read().decode())
            return {it.name: it.value for family in families for it in family.samples if it.name in BYTES}

    for node in load(cluster.data_dir).nodes:
        if not node.is_controller:
            first = told(node)
            assert set(first) == set(BYTES) and min(first.values()) > 0
            wait_for("more of them", lambda: all(told(node)[name] > first[name] for name in BYTES))  # noqa: B023
