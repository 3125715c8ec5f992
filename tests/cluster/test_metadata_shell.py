"""The metadata shell on a running cluster: what is committed, and nothing else, as it changes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.local.metadata import Live
from kraftlite.postmortem.commands import Shell
from tests.harness.local import CALM, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cli")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=3, brokers=1, config=CALM) as found:
        yield found


def run(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["metadata", "shell", "--data-dir", str(cluster.data_dir), *arguments])


def test_to_41_a_running_cluster_is_followed(cluster: Cluster) -> None:
    """What is looked at grows with the cluster, also over a change of the controller; no observer is registered by it."""
    cluster.create_topic("first", partitions=2, replication=1)
    live, lines = Live(cluster.state), list[str]()
    shell = Shell(live, lines.append)

    def printed(*words: str) -> list[str]:
        lines.clear()
        shell.run(words)
        return list(lines)

    try:
        assert "first" in printed("ls", "/topics/byName")
        cluster.create_topic("second", replication=1)
        wait_for("the topic in the tree", lambda: "second" in printed("ls", "/topics/byName"))
        cluster.kill(cluster.active_controller())
        cluster.wait_quorum()
        cluster.create_topic("third", replication=1)
        wait_for("the topic in the tree", lambda: "third" in printed("ls", "/topics/byName"))
        offset = live.image.offset
        before = int(printed("history", "/topics/byName/first")[0].split()[0][1:]) - 1
        assert printed("at", str(before))[0].startswith(f"offset {before},") and printed("ls", "/topics/byName") == []
        assert printed("at", "end") and live.image.offset >= offset
        assert len(printed("history", "/topics/byName/first/0")) >= 2
        observers = json.loads(cluster.quorum_status()["CurrentObservers"])
        assert [observer["id"] for observer in observers] == cluster.brokers
    finally:
        live.close()
        cluster.heal()


def test_to_41_the_command_on_a_running_and_on_a_stopped_cluster(cluster: Cluster) -> None:
    cluster.create_topic("orders", replication=1)
    wait_for("the topic in the tree", lambda: "orders" in run(cluster, "--cluster", "ls", "/topics/byName").stdout)
    for node in cluster.brokers:
        cluster.terminate(node)
        cluster.wait_stopped(node)
    alone = run(cluster, "ls", "/topics/byName")
    assert "orders" in alone.stdout.split() and "what follows may not be committed" in alone.stderr
    for node in cluster.controllers:
        cluster.terminate(node)
        cluster.wait_stopped(node)
    refused = run(cluster, "--cluster", "ls", "/")
    assert refused.exit_code == 1 and "does not answer" in refused.output
    assert "orders" in run(cluster, "ls", "/topics/byName").stdout.split()
