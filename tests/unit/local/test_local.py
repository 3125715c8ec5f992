"""The local cluster's bookkeeping: nodes, ports, files, and whom it may signal."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraftlite.config.properties import parse_properties
from kraftlite.config.server import load as load_config
from kraftlite.local import cluster as local
from kraftlite.local import process
from kraftlite.local.layout import counted, plan, with_metrics_ports, write_files
from kraftlite.local.ports import reserve
from kraftlite.local.state import STATE_NAME, TARGETS_NAME, LocalCluster, LocalError, default_data_dir, load, save, update_node
from kraftlite.log.checkpoints import PARTITION_METADATA
from kraftlite.segments.directories import local_data_dirs


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports are reserved in a file of this test."""
    import tempfile

    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    data_dir = tmp_path / "cluster"
    data_dir.mkdir()
    made = plan(data_dir, controllers=3, brokers=3, combined=False)
    save(made)
    return made


def test_controllers_come_first(cluster: LocalCluster) -> None:
    assert [(node.id, node.roles) for node in cluster.nodes] == [
        (1, ("controller",)),
        (2, ("controller",)),
        (3, ("controller",)),
        (4, ("broker",)),
        (5, ("broker",)),
        (6, ("broker",)),
    ]
    ports = [address for node in cluster.nodes for address in (node.kafka, node.replication, node.controller) if address]
    assert len(set(ports)) == 9


@pytest.mark.parametrize(
    ("controllers", "brokers", "roles"), [(3, 3, ["bc"] * 3), (1, 3, ["bc", "b", "b"]), (3, 1, ["bc", "c", "c"])]
)
def test_combined(tmp_path: Path, controllers: int, brokers: int, roles: list[str]) -> None:
    made = plan(tmp_path, controllers=controllers, brokers=brokers, combined=True)
    assert ["".join(role[0] for role in node.roles) for node in made.nodes] == roles


def test_too_few_and_too_many(tmp_path: Path) -> None:
    for controllers, brokers in ((0, 1), (1, 0), (50, 51)):
        with pytest.raises(LocalError, match="allowed"):
            plan(tmp_path, controllers=controllers, brokers=brokers, combined=False)


def test_the_files_are_configurations_that_a_node_accepts(cluster: LocalCluster) -> None:
    write_files(cluster, {"num.partitions": "7"})
    for node in cluster.nodes:
        config = load_config(node.config_path)
        assert config.node_id == node.id
        assert config.roles == node.roles
        assert config.log_dirs == (node.data_dir,)
        assert config.get_int("num.partitions") == 7
        assert config.warnings == ()
        keys = [item.key for item in parse_properties(node.config_path.read_text())]
        assert len(keys) == len(set(keys))


def test_what_is_saved_is_loaded(cluster: LocalCluster) -> None:
    found = load(Path(cluster.data_dir))
    assert found == cluster
    assert found.bootstrap_servers.count(",") == 2
    with pytest.raises(LocalError, match="no node 9"):
        found.node(9)


def test_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="kraftlite up"):
        load(tmp_path)


def test_metrics_pages_keep_a_port_each(cluster: LocalCluster) -> None:
    """A port that changes with each start nobody can watch; and the same port for all only one node could have."""
    assert with_metrics_ports(cluster, {"num.partitions": "3"}) is cluster
    extra = {"kraftlite.metrics.port": "0"}
    made = with_metrics_ports(cluster, extra)
    ports = [node.metrics for node in made.nodes if node.metrics is not None]
    assert len(set(ports)) == 6 and all(port.startswith("127.0.0.1:") for port in ports)
    others = {address for node in made.nodes for address in (node.kafka, node.replication, node.controller)}
    assert not others & set(ports)
    save(made)
    assert with_metrics_ports(load(Path(made.data_dir)), extra) == made, "the same ones at the next start"
    write_files(made, extra)
    for node in made.nodes:
        assert load_config(node.config_path).get_int("kraftlite.metrics.port") == int(str(node.metrics).rpartition(":")[2])
        assert node.describe()["addresses"]["metrics"] == node.metrics


def test_prometheus_is_told_of_the_pages(cluster: LocalCluster) -> None:
    targets = Path(cluster.data_dir) / TARGETS_NAME
    save(cluster)
    assert not targets.exists(), "there are no pages"
    made = with_metrics_ports(cluster, {"kraftlite.metrics.port": "0"})
    save(made)
    groups = json.loads(targets.read_text())
    assert [group["targets"] for group in groups] == [[node.metrics] for node in made.nodes]
    assert [group["labels"]["job"] for group in groups] == ["kafka-controller"] * 3 + ["kafka-broker"] * 3
    fewer = counted(replace(made, nodes=made.nodes[:-1]))
    save(fewer)
    assert [group["labels"]["node"] for group in json.loads(targets.read_text())] == ["1", "2", "3", "4", "5"]


def test_metrics_pages_begin_at_the_port_that_is_asked_for(cluster: LocalCluster) -> None:
    made = with_metrics_ports(cluster, {"kraftlite.metrics.port": "21000"})
    assert [node.metrics for node in made.nodes] == [f"127.0.0.1:{21000 + number}" for number in range(6)]
    assert with_metrics_ports(cluster, {"kraftlite.metrics.port": "no port"}) is cluster


def test_the_default_directory() -> None:
    assert default_data_dir({"KRAFTLITE_DATA_DIR": "/x"}) == Path("/x")
    assert default_data_dir({}) == Path.home() / ".kraftlite" / "local"


def test_ps_has_the_shape_that_tools_read(cluster: LocalCluster) -> None:
    broker = cluster.node(4).describe()
    assert list(broker) == ["id", "roles", "pid", "state", "data_dir", "addresses"]
    assert broker["state"] == "stopped"
    assert broker["pid"] is None
    assert list(broker["addresses"]) == ["kafka", "grpc"]
    assert cluster.node(1).describe()["addresses"]["kafka"] is None


def test_a_second_cluster_gets_other_ports_and_a_removed_one_gives_its_ports_back(cluster: LocalCluster, tmp_path: Path) -> None:
    mine = {node.kafka for node in cluster.nodes}
    other = tmp_path / "other"
    other.mkdir()
    second = plan(other, controllers=1, brokers=1, combined=False)
    assert not mine & {node.kafka for node in second.nodes if node.kafka}
    (Path(cluster.data_dir) / "cluster.json").unlink()
    third = plan(other, controllers=1, brokers=1, combined=False)
    assert third.node(2).kafka == cluster.node(4).kafka


def test_a_port_in_use_is_not_taken(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert reserve(tmp_path, [port]) != [port]


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_only_the_process_that_was_started_is_signalled(cluster: LocalCluster, sleeper: subprocess.Popen[bytes]) -> None:
    data_dir = Path(cluster.data_dir)
    mark = process.start_mark(sleeper.pid)
    assert mark is not None
    try:
        update_node(data_dir, 4, pid=sleeper.pid, mark="another")
        assert load(data_dir).node(4).state == "stopped"
        with pytest.raises(LocalError, match="node 4 is not running"):
            local.kill(data_dir, 4, signal.SIGKILL)
        assert sleeper.poll() is None
        update_node(data_dir, 4, pid=sleeper.pid, mark=mark)
        local.pause(data_dir, 4)
        assert load(data_dir).node(4).state == "paused"
        local.resume(data_dir, 4)
        assert load(data_dir).node(4).describe()["pid"] == sleeper.pid
        local.kill(data_dir, 4, signal.SIGKILL)
        assert load(data_dir).node(4).state == "stopped"
        assert sleeper.wait(5) == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_zombie_and_a_pid_of_nobody_are_stopped() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    mark = process.start_mark(child.pid)
    process.wait_until(lambda: process.start_mark(child.pid) is None, 10)
    assert process.state_of(child.pid, mark) == "stopped"
    child.wait()
    assert process.state_of(2**22 + 5, "1") == "stopped"
    assert process.state_of(None, None) == "stopped"
    assert process.start_mark(os.getpid()) is not None


def test_down_wipes_what_up_wrote_and_nothing_else(cluster: LocalCluster) -> None:
    data_dir = Path(cluster.data_dir)
    write_files(cluster, {})
    (data_dir / "mine.txt").touch()
    for name, file in (("idle-0", PARTITION_METADATA), ("written-0", "00000000000000000000.log"), ("bare-0", None)):
        partition = Path(cluster.node(4).directory) / "kafka-logs" / name
        partition.mkdir(parents=True)
        for inside in (PARTITION_METADATA, file) if file else ():
            (partition / inside).touch()
    local.down(data_dir, wipe=True)
    assert [path.name for path in data_dir.iterdir()] == ["mine.txt"]


def test_the_nodes_of_a_cluster_that_is_wiped_are_killed_and_not_asked(cluster: LocalCluster) -> None:
    data_dir = Path(cluster.data_dir)
    write_files(cluster, {})
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"deaf\n"
            update_node(data_dir, 4, pid=child.pid, mark=process.start_mark(child.pid))
            assert local.down(data_dir, wipe=True) == []
            assert child.wait(60) == -signal.SIGKILL
        finally:
            child.kill()
    assert not data_dir.exists()


def test_an_existing_cluster_is_not_reshaped(cluster: LocalCluster) -> None:
    with pytest.raises(LocalError, match="3 controllers and 3 brokers"):
        local.up(Path(cluster.data_dir), brokers=5)
    with pytest.raises(LocalError, match="down --wipe"):
        local.up(Path(cluster.data_dir), combined=True)


def test_replacing_a_value_keeps_the_rest(cluster: LocalCluster) -> None:
    changed = update_node(Path(cluster.data_dir), 5, pid=1, mark="x")
    assert changed.node(5) == replace(cluster.node(5), pid=1, mark="x")
    assert changed.node(4) == cluster.node(4)


def described(directory: Path) -> dict[str, Any]:
    """A cluster.json as `up` writes it."""
    found = plan(directory, controllers=1, brokers=1, combined=True)
    save(found)
    raw: dict[str, Any] = json.loads((directory / STATE_NAME).read_text())
    return raw


def elsewhere(raw: dict[str, Any]) -> None:
    raw["nodes"][0]["directory"] = "/etc"


def not_directly(raw: dict[str, Any]) -> None:
    raw["nodes"][0]["directory"] += "/../.."


FOREIGN: dict[str, tuple[Any, str]] = {
    "another program's": (lambda raw: raw.update(name="my-service"), "the cluster has the field 'name', which is not known"),
    "no nodes": (lambda raw: raw.update(nodes=[]), "it has no nodes"),
    "nodes of another kind": (lambda raw: raw.update(nodes=[3]), "a node is int, not an object"),
    "no list of nodes": (lambda raw: raw.update(nodes=1), "the cluster has a wrong nodes"),
    "a field is missing": (lambda raw: raw.pop("cluster_id"), "the cluster has no cluster_id"),
    "a field of another type": (lambda raw: raw["nodes"][0].update(pid="12"), "a node has a wrong pid"),
    "an id that is none": (lambda raw: raw["nodes"][0].update(id=True), "a node has a wrong id"),
    "an unknown role": (lambda raw: raw["nodes"][0].update(roles=["king"]), "allowed are broker and controller"),
    "an address that is none": (lambda raw: raw["nodes"][0].update(kafka="x:1,evil:9"), "allowed is host:port"),
    "a directory elsewhere": (elsewhere, "node 1 is in /etc, not in"),
    "a directory with dots": (not_directly, "a cluster cannot be moved"),
    "two of one id": (lambda raw: raw["nodes"].append(dict(raw["nodes"][0])), "two of its nodes have the same id"),
}


@pytest.mark.parametrize(("change", "words"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_description_is_refused_in_words(tmp_path: Path, change: Any, words: str) -> None:
    raw = described(tmp_path)
    change(raw)
    (tmp_path / STATE_NAME).write_text(json.dumps(raw))
    with pytest.raises(LocalError, match=re.escape(words)):
        load(tmp_path)


def test_of_a_copy_the_nodes_files_are_read_where_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "incident").mkdir()
    described(tmp_path / "incident")
    shutil.copytree(tmp_path / "incident", tmp_path / "copy")
    with pytest.raises(LocalError, match="a cluster cannot be moved"):
        load(tmp_path / "copy")
    (node,) = load(tmp_path / "copy", copied=True).nodes
    assert node.trace_path == tmp_path / "copy" / "node-1" / "trace.jsonl"
    assert local_data_dirs(tmp_path / "copy") == {"b1": [tmp_path / "copy" / "node-1" / "data"]}
    raw = described(tmp_path / "incident")
    elsewhere(raw)  # also of a copy nothing outside of it is read
    (tmp_path / "copy" / STATE_NAME).write_text(json.dumps(raw))
    with pytest.raises(LocalError, match="node 1 is in /etc"):
        load(tmp_path / "copy", copied=True)


NO_DESCRIPTIONS = {"empty": "", "no fields": "{}", "list": "[]", "null": "null", "torn": "{", "deep": "[" * 100_000}


@pytest.mark.parametrize("text", NO_DESCRIPTIONS.values(), ids=NO_DESCRIPTIONS)
def test_what_is_no_description_is_refused_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_NAME).write_text(text)
    with pytest.raises(LocalError, match="does not describe a local cluster of kraftlite"):
        load(tmp_path)


@pytest.mark.parametrize("secure", [False, True])
def test_the_nodes_of_a_secure_cluster_have_their_files_for_themselves(tmp_path: Path, secure: bool) -> None:
    """Records and salted passwords are in them."""
    write_files(plan(tmp_path / "c", controllers=1, brokers=1, combined=False, secure=secure), {})
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "c").glob("node-*")}
    assert (modes == {0}) is secure and modes
