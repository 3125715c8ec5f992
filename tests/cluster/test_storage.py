"""What a node does with damaged, foreign and locked directories, and with configurations that cannot work."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kraftlite.local.ports import reserve
from kraftlite.local.state import update_node
from tests.harness.local import Cluster, described_by, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]


def start_node(config: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Start a node in the foreground that is expected to refuse."""
    command = [sys.executable, "-m", "kraftlite.cli.main", "start", "--config", str(config)]
    for override in overrides:
        command += ["--override", override]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "NO_COLOR": "1"})


def test_bl_15_directory_in_use(cluster: Cluster) -> None:
    node = cluster.node(cluster.brokers[0])
    refused = start_node(node.config_path)
    assert refused.returncode != 0
    assert node.data_dir in refused.stderr
    assert "Traceback" not in refused.stderr


def test_bl_14_foreign_cluster_id(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    node = cluster.node(broker)
    cluster.terminate(broker)
    cluster.wait_stopped(broker)
    meta = Path(node.data_dir) / "meta.properties"
    original = meta.read_text()
    try:
        meta.write_text(original.replace(f"node.id={broker}", "node.id=77"))
        refused = start_node(node.config_path)
        assert refused.returncode != 0
        assert "77" in refused.stderr and str(meta.parent) in refused.stderr
        meta.unlink()
        refused = start_node(node.config_path)
        assert refused.returncode != 0
        assert node.data_dir in refused.stderr and "format" in refused.stderr.lower()
    finally:
        meta.write_text(original)


def test_lg_26_torn_and_flipped_bytes_are_healed_from_the_leader() -> None:
    with running(controllers=1, brokers=3) as cluster:
        cluster.create_topic("orders", config={"segment.bytes": "1048576"})
        values = [f"{n}-" + "x" * 200 for n in range(3000)]
        assert cluster.produce("orders", values) == []
        cluster.wait_whole("orders")
        victim = next(b for b in cluster.brokers if b != cluster.leader("orders"))
        cluster.kill(victim)
        folder = Path(cluster.node(victim).data_dir) / "orders-0"
        log = max(folder.glob("*.log"))
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 0xFF
        log.write_bytes(bytes(data) + b"half a batch")
        for index in folder.glob("*.index"):
            index.unlink()
        cluster.restart(victim)
        cluster.wait_whole("orders")
        leader = cluster.leader("orders")
        cluster.kill(*[b for b in cluster.brokers if b not in (victim, leader)])
        cluster.kill(leader)
        cluster.wait_leader("orders", not_in=(leader,))
        assert cluster.consume("orders", at_least=3000) == values


def test_rf_43_wiped_follower_catches_up_from_a_snapshot() -> None:
    small = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "4000",
        "metadata.log.segment.bytes": "8388608",
    }
    with running(controllers=1, brokers=2, config=small) as cluster:
        for n in range(30):
            cluster.create_topic(f"topic-{n}", partitions=4, replication=2)
        controller = Path(cluster.node(1).data_dir) / "__cluster_metadata-0"
        wait_for("a metadata snapshot", lambda: [f for f in controller.glob("*.checkpoint") if not f.name.startswith("0" * 20)])
        broker = cluster.brokers[1]
        cluster.kill(broker)
        metadata = Path(cluster.node(broker).data_dir) / "__cluster_metadata-0"
        for file in metadata.iterdir():
            file.unlink()
        cluster.restart(broker)
        cluster.wait_isr("topic-29", set(cluster.brokers))
        names = {f"topic-{n}" for n in range(30)}
        wait_for("it answers", lambda: (view := described_by(str(cluster.node(broker).kafka))) and set(view.topics) == names)


def test_bl_26_a_new_advertised_port_reaches_all_clients() -> None:
    with running(controllers=1, brokers=2) as cluster, tempfile.TemporaryDirectory() as owner:
        cluster.create_topic("orders", replication=2)
        moved, other = cluster.brokers
        old = str(cluster.node(moved).kafka)
        (Path(owner) / ".starting").touch()  # holds the port, as a cluster that starts does
        new = f"127.0.0.1:{reserve(Path(owner), [int(old.rsplit(':', 1)[1]) + 307])[0]}"
        config = cluster.node(moved).config_path
        cluster.terminate(moved)
        cluster.wait_stopped(moved)
        config.write_text(config.read_text().replace(old, new))
        update_node(cluster.data_dir, moved, kafka=new)
        cluster.restart(moved)

        def named() -> str | None:
            view = described_by(str(cluster.node(other).kafka))
            return None if view is None else view.brokers.get(moved)

        wait_for("the other broker names the new port", lambda: named() == new)
        cluster.wait_whole("orders")
        assert cluster.produce("orders", ["a"], **{"bootstrap.servers": cluster.node(other).kafka}) == []
