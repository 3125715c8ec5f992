"""A real Prometheus on the metrics pages of a running cluster: nothing to complain about, and alerts that a kill sets off.

Needs `prometheus` and `promtool` (Debian's package `prometheus`), on the PATH or in the folder that KRAFTLITE_PROMETHEUS names:
`KRAFTLITE_PROMETHEUS=… pytest -m slow tests/cluster/test_prometheus.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kraftlite.client.admin import alter_configs, alter_quotas
from kraftlite.local import faults
from kraftlite.local.client import cluster_at
from kraftlite.local.state import TARGETS_NAME, load
from kraftlite.model.faults import MAX_FOR_MS, Injection
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from tests.harness.boards import ENOUGH, panels, series_of
from tests.harness.local import CALM, PATIENCE_S, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RULES = Path(__file__).parents[2] / "docker" / "observe" / "alerts.yml"


def program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("KRAFTLITE_PROMETHEUS")) or shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    program("promtool")
    config = {**CALM, "kraftlite.metrics.port": "0", "kraftlite.faults.enable": "true"}
    with running(controllers=3, brokers=3, config=config) as cluster:
        cluster.create_topic("events", partitions=3, replication=3)
        with cluster_at(cluster.bootstrap) as client:
            changes = [(key, AlterConfigOp.SET, value) for key, value in (("metrics", "*"), ("interval.ms", "200"))]
            alter_configs(client, ConfigResourceType.CLIENT_METRICS, "all", changes)
            alter_quotas(client, {"client-id": "bounded"}, {"producer_byte_rate": 1_000.0})
        yield cluster


def pages(cluster: Cluster, *without: int) -> dict[int, bytes]:
    """The metrics page of each node, but for those that are dead."""
    found = {}
    for node in load(cluster.data_dir).nodes:
        if node.id not in without:
            with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=10) as page:
                found[node.id] = page.read()
    return found


def complaints(page: bytes) -> list[str]:
    done = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
    return (done.stdout + done.stderr).decode().splitlines()


def test_tm_11_promtool_has_nothing_to_say(cluster: Cluster) -> None:
    """With clients that push their metrics, and one that is throttled; while a broker is dead, and when it is back; without a
    quorum."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": "bounded"})

    def told() -> bool:
        producer.produce("events", b"x" * 2_000)
        producer.poll(0.1)
        found = b"".join(pages(cluster).values())
        return b"kafka_client_producer" in found and b"kraftlite_quota_throttled_seconds_total{" in found

    wait_for("a client has pushed, and is throttled", told)

    def said(*without: int) -> dict[int, list[str]]:
        return {node_id: found for node_id, page in pages(cluster, *without).items() if (found := complaints(page))}

    assert said() == {}
    victim = cluster.brokers[0]
    cluster.kill(victim)
    assert said(victim) == {}
    cluster.restart(victim)
    cluster.wait_whole("events")
    assert said() == {}
    two = [node.id for node in load(cluster.data_dir).nodes if node.is_controller][:2]
    for controller in two:
        cluster.kill(controller)
    assert said(*two) == {}
    for controller in two:
        cluster.restart(controller)
    assert said() == {}


class Prometheus:
    """One on loopback, with these rules, that asks the nodes of these targets twice a second."""

    def __init__(self, folder: Path, targets: Path, rules: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "alerts.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "kafka", "file_sd_configs": [{"files": [str(targets)]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        checked = [program("promtool"), "check", "config", str(folder / "prometheus.yml")]
        subprocess.run(checked, check=True, capture_output=True, timeout=60)
        self._log = (folder / "log").open("wb")
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command = [program("prometheus"), *options, f"--web.listen-address={self.address}", "--query.lookback-delta=5s"]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def ask(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            assert self.process.poll() is None, "Prometheus has ended"
            return None

    def firing(self) -> set[str]:
        found = self.ask("alerts") or {"alerts": []}
        return {it["labels"]["alertname"] for it in found["alerts"] if it["state"] == "firing"}

    def up(self) -> int:
        """How many targets answer."""
        found = self.ask("targets?state=active") or {"activeTargets": []}
        return sum(it["health"] == "up" for it in found["activeTargets"])


def test_alerts_fire_when_a_broker_is_killed_and_clear_when_it_is_back(cluster: Cluster, tmp_path: Path) -> None:
    """The alerts of docker/observe, with shorter times."""
    program("prometheus")
    subprocess.run([program("promtool"), "check", "rules", str(RULES)], check=True, capture_output=True, timeout=60)
    targets = [str(node.metrics) for node in load(cluster.data_dir).nodes]
    prometheus = Prometheus(tmp_path, cluster.data_dir / TARGETS_NAME, re.sub(r"for: \d+s", "for: 1s", RULES.read_text()))
    try:
        wait_for("all nodes answer and nothing fires", lambda: prometheus.up() == len(targets) and not prometheus.firing())
        victim = cluster.brokers[0]
        cluster.kill(victim)
        wanted = {"NodeDown", "UnderReplicatedPartitions", "FencedBrokers"}
        wait_for("the alerts of a dead broker, and no others", lambda: prometheus.firing() == wanted, timeout_s=2 * PATIENCE_S)
        cluster.restart(victim)
        wait_for("all is well", lambda: prometheus.up() == len(targets) and not prometheus.firing(), timeout_s=2 * PATIENCE_S)
        fault = faults.inject(cluster.data_dir, victim, Injection(id="new", kind="disk-slow", for_ms=MAX_FOR_MS, amount=1_000))
        wait_for("the alert of a fault", lambda: prometheus.firing() == {"FaultsInjected"}, timeout_s=2 * PATIENCE_S)
        faults.end(cluster.data_dir, [fault])
        wait_for("nothing fires", lambda: not prometheus.firing(), timeout_s=2 * PATIENCE_S)
    finally:
        prometheus.stop()


def test_ce_30_the_panels_of_stock_boards_have_data_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """And every expression of our own board, as Prometheus counts."""
    from confluent_kafka import Consumer

    prometheus = Prometheus(tmp_path, cluster.data_dir / TARGETS_NAME, RULES.read_text())
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "boards", "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    board = json.loads((RULES.parent / "grafana" / "failover.json").read_text())
    ours = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    try:

        def has_data(query: str) -> bool:
            return bool((prometheus.ask(f"query?query={quote(query)}") or {"result": []})["result"])

        def loaded() -> bool:
            assert cluster.produce("events", [str(number) for number in range(20)]) == []
            if (message := consumer.poll(1.0)) is not None and message.error() is None:
                consumer.commit(message, asynchronous=False)
            missing = [line for _, line in panels() if not any(has_data(series.query) for series in series_of(line))]
            return len(list(panels())) - len(missing) >= ENOUGH and all(has_data(query) for query in ours)

        wait_for("the panels have data", loaded, timeout_s=2 * PATIENCE_S)
    finally:
        consumer.close()
        prometheus.stop()
