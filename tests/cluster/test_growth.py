"""A cluster of processes that grows and shrinks while it runs. More of it is in tests/embedded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.local import cluster as local
from kraftlite.local import growth
from kraftlite.local.client import controllers_at, quorum_of
from kraftlite.local.layout import plan
from kraftlite.local.secure import certificate_security
from kraftlite.local.state import LocalCluster, LocalError, load
from tests.harness.local import FAST, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("growth")]


def run(data_dir: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(cli, [*arguments, "--data-dir", str(data_dir), "--json"])
    assert done.exit_code == 0, f"{arguments}: {done.output}"
    return json.loads(done.stdout)


def voters(data_dir: Path) -> list[int]:
    state = load(data_dir)
    addresses = ",".join(str(node.controller) for node in state.nodes if node.controller and node.state == "running")
    with controllers_at(addresses, certificate_security(state)) as client:
        return [voter["id"] for voter in quorum_of(client)["voters"]]


def test_dq_30_dq_33_dq_44_every_first_node_can_be_replaced_by_another_one() -> None:
    with running(controllers=1, brokers=1) as cluster:
        cluster.create_topic("orders", partitions=3, replication=1)
        for partition in range(3):
            assert cluster.produce("orders", [f"{partition}-{number}" for number in range(50)], partition=partition) == []
        assert run(cluster.data_dir, "add-broker")["id"] == 3
        for node_id in (4, 5):
            assert run(cluster.data_dir, "add-controller")["id"] == node_id
        assert voters(cluster.data_dir) == [1, 4, 5]
        cluster.kill(4)
        shutil.rmtree(cluster.node(4).data_dir)
        with pytest.raises(LocalError, match="controller 4 has lost its disk"):
            cluster.restart(4)
        with pytest.raises(LocalError, match=r"controller 1 cannot leave: of the voters 4, 5 only 1 run"):
            growth.remove_controller(cluster.data_dir, 1)
        run(cluster.data_dir, "remove-controller", "4")
        assert run(cluster.data_dir, "add-controller")["id"] == 6
        run(cluster.data_dir, "remove-controller", "1")
        assert voters(cluster.data_dir) == [5, 6]
        run(cluster.data_dir, "remove-broker", "2")
        assert [node.id for node in cluster.state.nodes] == [3, 5, 6]
        assert not (cluster.data_dir / "node-2").exists()
        cluster.wait_brokers()
        for partition in range(3):
            cluster.wait_isr("orders", {3}, partition)
            assert cluster.consume("orders", partition=partition, at_least=50) == [f"{partition}-{n}" for n in range(50)]
        local.down(cluster.data_dir)
        local.up(cluster.data_dir)
        assert cluster.produce("orders", ["after"], partition=0) == []


@pytest.mark.slow
def test_dq_30_a_secure_cluster_grows_and_shrinks(tmp_path: Path) -> None:
    """`pytest tests/cluster/test_growth.py -m slow`"""
    data_dir = tmp_path / "closed"
    try:
        local.up(data_dir, controllers=1, brokers=1, secure=True, extra=FAST)
        env = {"KRAFTLITE_DATA_DIR": str(data_dir), "KRAFTLITE_BOOTSTRAP_SERVER": "", "KRAFTLITE_COMMAND_CONFIG": ""}
        made = CliRunner().invoke(cli, ["create-topic", "orders", "--partitions", "3"], env=env)
        assert made.exit_code == 0, made.output
        broker, controller = run(data_dir, "add-broker")["id"], run(data_dir, "add-controller")["id"]
        assert voters(data_dir) == [1, controller]
        run(data_dir, "remove-controller", "1")
        run(data_dir, "remove-broker", "2")
        assert voters(data_dir) == [controller]
        described = CliRunner().invoke(cli, ["describe", "orders"], env=env)
        assert described.output.count(f"Leader: {broker}") == 3, described.output
        listed = CliRunner().invoke(cli, ["acl", "list"], env=env)
        assert f"node-{broker}" in listed.output and f"node-{controller}" in listed.output
    finally:
        if (data_dir / "cluster.json").exists():
            local.down(data_dir, wipe=True)


@pytest.mark.slow
def test_dq_40_a_cluster_of_configured_voters_grows_once_it_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pytest tests/cluster/test_growth.py -m slow`. As earlier versions made them."""

    def planned(*arguments: Any, **more: Any) -> LocalCluster:
        made = plan(*arguments, **more)
        return replace(made, dynamic=False, nodes=tuple(replace(node, directory_id=None) for node in made.nodes))

    data_dir = tmp_path / "old"
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr(local, "plan", planned)
            local.up(data_dir, controllers=1, brokers=1, extra=FAST)
        with pytest.raises(LocalError, match=r"the voters .* are configured, and cannot be changed before: kraftlite feature"):
            growth.add_controller(data_dir)
        assert run(data_dir, "add-broker")["id"] == 3
        servers = load(data_dir).bootstrap_servers
        upgrade = ["feature", "upgrade", "--feature", "kraft.version=1", "--bootstrap-server", servers]
        wait_for("the upgrade", lambda: CliRunner().invoke(cli, upgrade).exit_code == 0)
        assert run(data_dir, "add-controller")["id"] == 4
        assert voters(data_dir) == [1, 4] and load(data_dir).dynamic
        local.down(data_dir)
        local.up(data_dir)
        run(data_dir, "remove-controller", "1")
        assert voters(data_dir) == [4]
    finally:
        if (data_dir / "cluster.json").exists():
            local.down(data_dir, wipe=True)
