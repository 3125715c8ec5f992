"""`up` of a cluster that is there: what it was given before, and what it is given now; and `up` that is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kraftlite.config.server import load as load_config
from kraftlite.local import cluster as local
from kraftlite.local.layout import plan, write_files
from kraftlite.local.state import LocalCluster, LocalError, load, save


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """A cluster that was made with some values, was started and is down. Its nodes do not really start."""
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))
    monkeypatch.setattr(local, "start", lambda cluster, nodes, **_: cluster)
    monkeypatch.setattr(local, "_without_disk", lambda nodes: {})
    data_dir = tmp_path / "cluster"
    return local.up(data_dir, controllers=1, brokers=1, extra={"num.partitions": "7", "kraftlite.metrics.port": "0"})


def files(cluster: LocalCluster) -> list[str]:
    return [node.config_path.read_text() for node in cluster.nodes]


def test_values_that_no_node_accepts_change_nothing(stopped: LocalCluster) -> None:
    data_dir, before = Path(stopped.data_dir), files(stopped)
    with pytest.raises(LocalError, match=r"log\.retention\.hours=abc: allowed is"):
        local.up(data_dir, extra={"log.retention.hours": "abc", "kraftlite.metrics.host": "0.0.0.0"})
    assert files(stopped) == before
    assert load(data_dir) == stopped
    assert local.up(data_dir) == stopped


def test_values_that_were_given_before_stay(stopped: LocalCluster) -> None:
    broker = stopped.nodes[1]
    with broker.config_path.open("a") as file:
        file.write("log.segment.bytes=2097152\n")
    made = local.up(Path(stopped.data_dir), extra={"log.retention.hours": "5", "num.partitions": "8"})
    assert [node.metrics for node in made.nodes] == [node.metrics for node in stopped.nodes]
    for node in made.nodes:
        config = load_config(node.config_path)
        assert config.get_int("log.retention.hours") == 5
        assert config.get_int("num.partitions") == 8, "the newer one counts"
        assert config.get_int("kraftlite.metrics.port") == int(str(node.metrics).rpartition(":")[2])
    assert load_config(broker.config_path).get_int("log.segment.bytes") == 2_097_152, "what somebody wrote into the file, too"


def test_a_file_that_is_gone_is_made_anew(stopped: LocalCluster) -> None:
    stopped.nodes[0].config_path.unlink()
    local.up(Path(stopped.data_dir), extra={"log.retention.hours": "5"})
    assert load_config(stopped.nodes[0].config_path).node_id == stopped.nodes[0].id


def test_a_cluster_without_pages_gets_them_beside_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))
    monkeypatch.setattr(local, "start", lambda cluster, nodes, **_: cluster)
    monkeypatch.setattr(local, "_without_disk", lambda nodes: {})
    made = plan(tmp_path, controllers=1, brokers=1, combined=True)
    write_files(made, {"num.partitions": "7"})
    save(made)
    found = local.up(tmp_path, extra={"kraftlite.metrics.port": "0"})
    config = load_config(found.nodes[0].config_path)
    assert config.get_int("num.partitions") == 7
    assert config.get_int("kraftlite.metrics.port") == int(str(found.nodes[0].metrics).rpartition(":")[2])


def test_nodes_that_were_launched_are_stopped_when_up_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes while the processes exist and nobody has their ids yet: else they would run on, and nothing could end them."""
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))
    children: list[subprocess.Popen[bytes]] = []

    def launch(*_: object, **__: object) -> dict[int, int]:
        children.extend(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2))
        signal.raise_signal(signal.SIGINT)
        return {number: child.pid for number, child in enumerate(children, start=1)}

    monkeypatch.setattr(local, "_launch", launch)
    try:
        with pytest.raises(KeyboardInterrupt):
            local.up(tmp_path / "cluster", controllers=1, brokers=1)
        found = load(tmp_path / "cluster")
        assert [node.pid for node in found.nodes] == [child.pid for child in children]
        assert not found.running
        assert [child.wait(60) for child in children] == [-signal.SIGTERM] * 2
    finally:
        for child in children:
            child.kill()
            child.wait()
