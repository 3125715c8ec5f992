"""Brokers with two log directories as processes: a directory is replaced by a file while it is written to; replicas are moved."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kraftlite.client.admin import describe_log_dirs
from kraftlite.config.server import load as load_config
from kraftlite.host.disk import HostDisk
from kraftlite.local.client import cluster_at
from kraftlite.node.storage import format_directories
from tests.harness.cluster import CLUSTER_ID, Client, Cluster, NodeProcess, running, wait_for

pytestmark = pytest.mark.cluster
PARTITIONS = 4
QUICK = {"replica.high.watermark.checkpoint.interval.ms": "500", "min.insync.replicas": "1"}


def two_disks(tmp_path: Path, brokers: int, config: dict[str, str]) -> Cluster:
    found = Cluster.create(tmp_path, controllers=1, brokers=brokers, config=config, format=False)
    for node in found.brokers:
        text = node.config_path.read_text().replace(f"log.dirs={node.data}", f"log.dirs={','.join(map(str, disks(node)))}")
        node.config_path.write_text(f"{text}metadata.log.dir={node.directory}/metadata\n")
    found.format()
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = two_disks(tmp_path, brokers=2, config=QUICK)
    with running(found):
        yield found


def disks(node: NodeProcess) -> tuple[Path, Path]:
    return node.directory / "d1", node.directory / "d2"


def _is_removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def places(cluster: Cluster, node: NodeProcess) -> dict[str, str]:
    """The directory of each replica of a broker, while none moves."""
    found = describe_log_dirs(cluster_at(cluster.bootstrap), node.node_id)
    replicas = [
        (one["partition"], directory["logDir"], one["isFuture"]) for directory in found for one in directory["partitions"]
    ]
    return {} if any(is_future for _, _, is_future in replicas) else {name: path for name, path, _ in replicas}


def partitions(cluster: Cluster) -> list[Any]:
    return list(cluster_at(cluster.bootstrap).topics(["orders"])["orders"].partitions)


def whole(cluster: Cluster, *brokers: int) -> bool:
    return all(sorted(map(int, part.isr_nodes)) == list(brokers or (2, 3)) for part in partitions(cluster))


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kraftlite", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_bl_16_jb_07_a_directory_becomes_a_file_while_it_is_written_to(cluster: Cluster) -> None:
    client, victim = Client(cluster.bootstrap), cluster.brokers[0]
    client.create_topic("orders", partitions=PARTITIONS, replicas=2)
    client.produce("orders", [f"a{number}" for number in range(200)])
    before = places(cluster, victim)
    lost, kept = disks(victim)
    assert {path for name, path in before.items() if name.startswith("orders")} == {str(lost), str(kept)}
    lost.rename(f"{lost}-away")
    lost.write_bytes(b"")

    def moved() -> bool:
        gone = [name for name, path in before.items() if path == str(lost) and name.startswith("orders")]
        found = {f"orders-{part.partition_index}": part for part in partitions(cluster)}
        return all(int(found[name].leader_id) == 3 and list(map(int, found[name].isr_nodes)) == [3] for name in gone)

    wait_for(moved, "the leaderships and ISRs to leave the directory")
    client.produce("orders", [f"b{number}" for number in range(200)])
    stay = [name for name, path in before.items() if path == str(kept) and name.startswith("orders")]
    found = {f"orders-{part.partition_index}": part for part in partitions(cluster)}
    assert stay and all(sorted(map(int, found[name].isr_nodes)) == [2, 3] for name in stay), "they were not touched"
    victim.stop()
    victim.start()
    assert {path for name, path in places(cluster, victim).items() if name.startswith("orders")} == {str(kept)}
    assert {path.name for path in kept.glob("orders-*")} == set(stay), "nothing was begun anew"
    victim.stop()
    lost.unlink()
    Path(f"{lost}-away").rename(lost)
    victim.start()
    wait_for(lambda: whole(cluster), "full ISRs")
    assert places(cluster, victim) == before
    wanted = {f"{batch}{number}" for batch in "ab" for number in range(200)}
    consumed = client.consume("orders", 400, partitions=PARTITIONS)
    assert set(consumed) == wanted, (sorted(wanted - set(consumed)), [it for it in consumed if consumed.count(it) > 1])


def test_bl_16_a_directory_is_removed_under_load_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Three replicas, acks=all. The broker may not notice at once: files that are open can be written to when they are gone."""
    cluster = two_disks(tmp_path, brokers=3, config={**QUICK, "min.insync.replicas": "2"})
    with running(cluster):
        client, victim = Client(cluster.bootstrap), cluster.brokers[0]
        client.create_topic("orders", partitions=PARTITIONS, replicas=3)
        acknowledged: list[str] = []
        enough = threading.Event()

        def load() -> None:
            number = 0
            while not enough.is_set():
                values = [f"r{number + index}" for index in range(20)]
                Client(cluster.bootstrap).produce("orders", values)
                acknowledged.extend(values)
                number += len(values)

        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(load)
            wait_for(lambda: len(acknowledged) >= 100 or loading.done(), "the load to begin")
            before = places(cluster, victim)
            lost, kept = disks(victim)
            gone = [name for name, path in before.items() if path == str(lost) and name.startswith("orders")]
            assert gone
            wait_for(lambda: _is_removed(lost), "the directory, into which the broker goes on writing, to be removed")

            def moved() -> bool:
                found = {f"orders-{part.partition_index}": part for part in partitions(cluster)}
                return loading.done() or all(victim.node_id not in map(int, found[name].isr_nodes) for name in gone)

            wait_for(moved, "the ISRs to leave the directory")
            so_far = len(acknowledged)
            wait_for(lambda: len(acknowledged) >= so_far + 100 or loading.done(), "the load to go on")
            enough.set()
            loading.result()
        victim.stop()
        lost.mkdir()
        format_directories(HostDisk(), load_config(victim.config_path), CLUSTER_ID, ignore_formatted=True)
        victim.start()
        wait_for(lambda: whole(cluster, 2, 3, 4), "full ISRs, on an empty disk")
        assert {name for name, path in places(cluster, victim).items() if path == str(kept)} >= set(before) - set(gone)
        consumed = client.consume("orders", len(set(acknowledged)), partitions=PARTITIONS)
        assert set(consumed) >= set(acknowledged), sorted(set(acknowledged) - set(consumed))


def test_jb_14_to_26_replicas_are_moved_by_the_command_line_and_by_a_reassignment(cluster: Cluster, tmp_path: Path) -> None:
    client, node = Client(cluster.bootstrap), cluster.brokers[0]
    client.create_topic("orders", partitions=1, replicas=2)
    client.produce("orders", [f"a{number}" for number in range(200)])
    first, second = map(str, disks(node))
    home = places(cluster, node)["orders-0"]
    away = second if home == first else first
    at = ("--bootstrap-server", cluster.bootstrap)
    said = run("log-dirs", "move", "--broker", "2", "--topic", "orders", "--to", away, *at)
    assert said == f"orders-0: on its way to {away}\n"
    wait_for(lambda: places(cluster, node).get("orders-0") == away, "the move")
    wanted = {"topic": "orders", "partition": 0, "replicas": [2, 3], "log_dirs": [home, "any"]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    tool = ("compat", "kafka-reassign-partitions", *at, "--reassignment-json-file", str(plan))
    started = f"Successfully started moving log directory to {home} for replica orders-0 with broker 2"
    assert started in run(*tool, "--execute")
    wait_for(lambda: places(cluster, node).get("orders-0") == home, "the move back")
    assert "Reassignment of replica orders-0-2 completed successfully." in run(*tool, "--verify")
    assert whole(cluster)
    client.produce("orders", [f"b{number}" for number in range(200)])
    assert sorted(client.consume("orders", 400)) == sorted([f"{batch}{number}" for batch in "ab" for number in range(200)])
