"""The Prometheus page of a whole node (CE-30)."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kraftlite import __version__
from kraftlite.host.loop_lag import LoopLag
from kraftlite.node.metrics import register_gauges
from kraftlite.node.telemetry import offer_telemetry
from kraftlite.node.traffic_metrics import register_loop_lag, register_traffic
from kraftlite.obs.metrics import Metrics
from tests.harness.node_cluster import MemCluster


def samples(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


RESERVED = ("_total", "_sum", "_bucket", "_count")
"""Kafka's own names that end as only those of histograms and counters should have no type."""
LABELS = {
    *("version", "event", "broker", "quantile", "current_state", "current_vote_directory_id"),
    *("topic", "partition", "user", "client_id", "listener", "ip", "kind", "clientid"),
    *("request", "error", "service", "client_software_name", "client_software_version", "le", "consumergroup"),
    *("featurename", "feature_name"),
}
"""The bounds: `kraftlite.metrics.partitions.max` for topics and partitions, 100 series of each quota, 50 of software."""


async def test_tm_12_what_a_node_has_of_the_metadata(tmp_path: Path) -> None:
    """Levels, the last record, snapshots and the log's end, as Kafka's MBeans tell them."""
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    node = cluster.nodes[1].node
    assert node is not None
    metrics = Metrics({})
    register_gauges(metrics, node, most_partitions=3)
    found = samples(metrics.render().decode())

    def one(name: str, **labels: str) -> float:
        return found[name, tuple(sorted(labels.items()))]

    assert one("kafka_server_metadataloader_currentmetadataversion") == 30
    assert one("kafka_server_metadataloader_finalizedlevel", featurename="metadata.version") == 30
    assert one("kafka_server_metadataloader_finalizedlevel", featurename="kraft.version") == node.raft.kraft_version()
    assert one("kafka_server_metadataloader_currentcontrollerid") == 1
    assert one("kafka_server_metadataloader_handleloadsnapshotcount") == 0
    assert one("kafka_server_node_metrics_minimum_supported_level", feature_name="metadata.version") == 7
    assert one("kafka_server_node_metrics_maximum_supported_level", feature_name="metadata.version") == 30
    assert one("kafka_server_raftmetrics_log_end_epoch") == node.raft.raft_epoch
    assert one("kafka_server_broker_metadata_metrics_ignored_static_voters") == 0
    time_ms = one("kafka_server_broker_metadata_metrics_last_applied_record_timestamp")
    assert time_ms > 0
    assert one("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes") == 0
    await node.snapshotter._write(node.loader.image)
    found = samples(metrics.render().decode())
    assert one("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes") > 100
    assert 0 <= one("kafka_server_snapshotemitter_latestsnapshotgeneratedagems") < 120_000
    for host in cluster.nodes.values():
        await host.stop()


async def test_the_page_of_a_node_obeys_the_rules_of_prometheus(tmp_path: Path) -> None:
    """What `promtool check metrics` looks at. Names of Kafka's own boards may end as Kafka's do."""
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    node = cluster.nodes[1].node
    assert node is not None
    metrics = Metrics({})
    register_gauges(metrics, node, most_partitions=3)
    register_traffic(metrics, node)
    register_loop_lag(metrics, LoopLag())
    page = metrics.render().decode()
    families = list(text_string_to_metric_families(page))
    assert {"process_cpu_seconds", "python_info"} <= {family.name for family in families}, "those of the client library"
    families = [family for family in families if family.name.startswith(("kafka_", "kraftlite_"))]
    assert len(families) > 50
    assert len({family.name for family in families}) == len(families), "each is told once"
    for family in families:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name), family.name
        assert family.type in ("counter", "gauge", "summary", "histogram", "unknown"), family.name
        assert len(family.documentation.split()) >= 3 and family.documentation.endswith("."), family.name
        assert family.type == "unknown" or not family.name.endswith(RESERVED), family.name
        short = {"ms", "us", "ns", "sec", "kb", "mb"} & set(family.name.split("_"))
        assert not short, "units have whole names, or promtool complains"
        endings = {
            "counter": {"_total"},
            "gauge": {""},
            "unknown": {""},
            "summary": {"", "_count", "_sum"},
            "histogram": {"_bucket", "_count", "_sum"},
        }[family.type]
        found = {sample.name.removeprefix(family.name) for sample in family.samples} - {"_created"}
        assert found <= endings and (found or family.type == "counter" or not family.samples), family.name
        assert all(set(sample.labels) <= LABELS for sample in family.samples), (
            "no label that a client could choose without a bound"
        )
    assert f'kraftlite_build_info{{version="{__version__}"}} 1.0' in page
    assert "_count_total" not in page and "_sum_total" not in page


async def test_tm_01_a_broker_with_a_page_takes_clients_metrics_and_a_controller_does_not(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    await cluster.up()
    for host in cluster.nodes.values():
        node = host.node
        assert node is not None
        metrics = Metrics({})
        register_gauges(metrics, node, most_partitions=3)
        offer_telemetry(metrics, node, host.config)
        assert ("kraftlite_client_metrics_series 0.0" in metrics.render().decode()) == (node.broker is not None)
        if node.broker is not None:
            telemetry = node.broker.context.telemetry
            assert telemetry is not None and telemetry.max_bytes == 1 << 20


async def test_counters_only_rise_and_every_event_is_measured(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, combined=1)
    await cluster.up()
    node = cluster.nodes[1].node
    assert node is not None
    metrics = Metrics({})
    register_gauges(metrics, node, most_partitions=3)
    register_traffic(metrics, node)
    before = samples(metrics.render().decode())
    for name in ("a", "b", "c"):
        await cluster.create_topic(name)
    await cluster.clock.run_for(20_000)
    after = samples(metrics.render().decode())
    for name, labels in before:
        if name.endswith(("_total", "_count", "_sum", "_max")) and not name.endswith("percent_total"):
            assert after[name, labels] >= before[name, labels], name
    worked = "kafka_controller_controllereventmanager_eventqueueprocessingtimems_count"
    waited = "kafka_controller_controllereventmanager_eventqueuetimems_count"
    assert after[worked, ()] - before[worked, ()] >= 3
    assert after[worked, ()] > after[waited, ()], "a deferred event is worked on, and did not wait in the queue"
