"""kafka-python: replicas in the log directories of their brokers, seen and moved (AlterReplicaLogDirs, DescribeLogDirs)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.testing import SyncCluster
from tests.harness.local import wait_for

kafka: Any = pytest.importorskip("kafka")
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


def test_jb_09_jb_12_a_replica_is_moved_and_seen() -> None:
    from kafka.admin import KafkaAdminClient

    with SyncCluster(controllers=1, brokers=1, directories=2) as cluster:
        cluster.create_topic("orders")
        (broker,) = cluster.brokers
        home = cluster.directory(broker, "orders")
        away = next(path for path in cluster.log_dirs if path != home)
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)

        def alter(topic: str, path: str) -> str:
            ((_replica, error),) = admin.alter_replica_log_dirs({(topic, 0, broker): path}).items()
            return str(error.__name__)

        def where() -> dict[str, bool]:
            """By path of the directories that have it: is it the copy of a move."""
            (one,) = admin.describe_log_dirs(["orders"])
            assert one["broker"] == broker and {it["log_dir"] for it in one["log_dirs"]} == set(cluster.log_dirs)
            return {
                it["log_dir"]: part["is_future_key"]
                for it in one["log_dirs"]
                for topic in it["topics"]
                for part in topic["partitions"]
            }

        assert where() == {home: False}
        assert alter("orders", away) == "NoError"
        wait_for("the move", lambda: where() == {away: False})
        assert alter("orders", "/elsewhere") == "LogDirNotFoundError"
        assert alter("none", away) == "NotLeaderForPartitionError"
        cluster.fail_directory(broker, home or "")
        assert alter("orders", "/elsewhere") == "LogDirNotFoundError"
        admin.close()
