"""Kafka's own tools on brokers with two log directories: kafka-log-dirs, and kafka-reassign-partitions with `log_dirs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlite.testing import SyncCluster
from tests.clients.java.conftest import Kafka
from tests.harness.local import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


def test_jb_12_jb_14_a_replica_is_moved_by_a_reassignment_and_seen(java: None, tmp_path: Path) -> None:
    with SyncCluster(controllers=1, brokers=2, directories=2) as cluster:
        cluster.create_topic("orders", replication_factor=1)
        kafka = Kafka(cluster.bootstrap_servers)
        broker = cluster.leader("orders")
        assert broker is not None
        (other,) = (it for it in cluster.brokers if it != broker)
        home = cluster.directory(broker, "orders")
        away = next(path for path in cluster.log_dirs if path != home)
        plan = tmp_path / "plan.json"

        def reassign(replicas: list[int], log_dirs: list[str], *how: str) -> str:
            one = {"topic": "orders", "partition": 0, "replicas": replicas, "log_dirs": log_dirs}
            plan.write_text(json.dumps({"version": 1, "partitions": [one]}))
            return kafka("reassign-partitions", "--reassignment-json-file", str(plan), *how).out

        started = f"Successfully started moving log directory to {away} for replica orders-0 with broker {broker}"
        assert started in reassign([broker], [away], "--execute")
        wait_for("the move", lambda: cluster.directory(broker, "orders") == away)
        assert f"Reassignment of replica orders-0-{broker} completed successfully." in reassign([broker], [away], "--verify")
        assert "Successfully started partition reassignment for orders-0" in reassign([other], ["/d2"], "--execute")
        wait_for("the reassignment", lambda: cluster.directory(other, "orders") == "/d2")
        told = json.loads(kafka("log-dirs", "--describe", "--topic-list", "orders").lines[2])
        found = {
            (one["broker"], it["logDir"], part["isFuture"])
            for one in told["brokers"]
            for it in one["logDirs"]
            for part in it["partitions"]
        }
        assert (other, "/d2", False) in found and all(it["error"] is None for one in told["brokers"] for it in one["logDirs"])


def test_qu_10_moves_are_throttled_until_they_are_verified(java: None, tmp_path: Path) -> None:
    with SyncCluster(controllers=1, brokers=1, directories=2) as cluster:
        cluster.create_topic("orders", replication_factor=1)
        kafka = Kafka(cluster.bootstrap_servers)
        (broker,) = cluster.brokers
        # Many steps of a copy: the rate is that of eleven seconds, after each of which one more goes through.
        kafka("console-producer", "--topic", "orders", stdin=("x" * 1_000_000 + "\n") * 20)
        home = cluster.directory(broker, "orders")
        away = next(path for path in cluster.log_dirs if path != home)
        plan = tmp_path / "plan.json"
        plan.write_text(
            json.dumps(
                {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [broker], "log_dirs": [away]}]}
            )
        )

        def reassign(*how: str) -> str:
            return kafka("reassign-partitions", "--reassignment-json-file", str(plan), *how).out

        def rate() -> str:
            return kafka("configs", "--describe", "--entity-type", "brokers", "--entity-name", str(broker)).out

        told = reassign("--execute", "--replica-alter-log-dirs-throttle", "1000")
        assert "The replica-alter-dir throttle limit was set to 1000 B/s" in told
        assert "replica.alter.log.dirs.io.max.bytes.per.second=1000" in rate()
        still = f"Reassignment of replica orders-0-{broker} is still in progress."
        assert still in reassign("--verify"), "twenty steps take minutes"
        assert "replica.alter.log.dirs.io.max.bytes.per.second=1000" in rate(), "kept while it is in progress"
        reassign("--execute", "--additional", "--replica-alter-log-dirs-throttle", "100000000")
        wait_for("the move", lambda: cluster.directory(broker, "orders") == away)
        told = reassign("--verify")
        assert f"Reassignment of replica orders-0-{broker} completed successfully." in told
        assert "Clearing broker-level throttles" in told and "replica.alter" not in rate()
