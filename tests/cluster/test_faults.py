"""`kraftlite fault` on real processes: what a node does to itself, who is told, and what becomes of it when its author dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.local import faults as local_faults
from kraftlite.local.ledger import read_faults
from kraftlite.testing import ProcessFaults
from kraftlite.ui import beside
from tests.harness.local import Cluster, described_by, running, wait_for
from tests.harness.page_api import Page

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("faulty-cluster")]


@pytest.fixture(scope="module")
def faulty() -> Iterator[Cluster]:
    with running(controllers=1, brokers=2, config={"kraftlite.faults.enable": "true"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(faulty: Cluster) -> Iterator[Cluster]:
    yield faulty
    faulty.heal()
    local_faults.end(faulty.data_dir)


def fault(cluster: Cluster, *arguments: str, command: str = "fault") -> Result:
    return CliRunner().invoke(cli, [command, *arguments, "--data-dir", str(cluster.data_dir)])


def listed(cluster: Cluster) -> list[dict[str, Any]]:
    done = fault(cluster, "list", "--json")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["faults"]
    return found


def _leader_at(cluster: Cluster, broker: int, topic: str) -> int | None:
    view = described_by(str(cluster.node(broker).kafka), topic)
    return None if view is None or not view.topics.get(topic) else view.topics[topic][0].leader


def test_a_cut_separates_two_nodes_is_the_told_cause_and_ends(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, replication=2)
    old = cluster.leader(topic)
    other = next(it for it in cluster.brokers if it != old)
    done = fault(cluster, "cut", str(old), "controller", "--for", "10m", "--json")
    assert done.exit_code == 0, done.stderr
    identity = json.loads(done.stdout)["faults"][0]["id"]
    assert {(it["id"], it["node"], it["kind"]) for it in listed(cluster)} == {(identity, 1, "cut"), (identity, old, "cut")}
    wait_for("the broker that is cut off is fenced", lambda: _leader_at(cluster, other, topic) == other)
    told = fault(cluster, "partition", f"{topic}-0", "--json", command="explain")
    changed = [story for story in json.loads(told.stdout)["stories"] if story["kind"] == "leader_changed"]
    assert f"node {old} cut off from node 1 by " in changed[0]["chain"], changed[0]["chain"]
    assert fault(cluster, "end", identity).exit_code == 0
    assert listed(cluster) == []
    cluster.wait_isr(topic, {old, other})
    found = next(it for it in read_faults(cluster.data_dir) if it.id == identity)
    assert (found.kind, found.node, found.other, found.by.door) == ("cut", old, 1, "cli")
    assert None not in (found.seen_ms, found.ended_ms)
    again = fault(cluster, "end", identity)
    assert again.exit_code == 1 and f"no node has a fault {identity}" in again.stderr


def test_a_fault_whose_author_is_killed_ends_by_itself_and_the_ledger_says_so(cluster: Cluster) -> None:
    author = subprocess.Popen(
        [sys.executable, "-m", "kraftlite", "fault", "disk", "2", "slow", "1ms", "--data-dir", str(cluster.data_dir)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert author.stdout is not None
    line = author.stdout.readline()
    assert line.endswith("until Ctrl-C\n"), line
    assert [it["kind"] for it in listed(cluster)] == ["disk-slow"]
    os.kill(author.pid, signal.SIGKILL)
    author.wait(30)
    author.stdout.close()
    wait_for("it has ended", lambda: not listed(cluster))
    found = next(it for it in read_faults(cluster.data_dir) if line.startswith(it.id))
    assert (found.ended_how, str(found.ended_by)) == ("its time was over", "node 2 (node)")


def test_the_page_heals_all_at_once_and_what_it_began_ends_also_when_it_is_killed(cluster: Cluster) -> None:
    """Each node is asked. Faults by command, by a test and by the page are in one ledger, with who."""
    pytest.importorskip("uvicorn")
    page = Page(beside.start(cluster.data_dir))
    try:
        assert fault(cluster, "cut", "2", "controller", "--for", "10m").exit_code == 0
        ProcessFaults(cluster.data_dir).slow_disk(1, 1)
        page.act("cut", 2, other=3, for_ms=600_000)
        page.act("api-slow", 3, amount=1_000, for_ms=600_000)
        wanted = [(1, "cut"), (1, "disk-slow"), (2, "cut"), (2, "cut"), (3, "api-slow"), (3, "cut")]
        assert sorted((it["node"], it["kind"]) for it in listed(cluster)) == wanted
        wait_for("the pace allows it", lambda: _healed(page))
        assert listed(cluster) == []
        ledger = [it for it in read_faults(cluster.data_dir) if it.ended_by is not None and it.ended_by.door == "api"]
        assert {it.by.door for it in ledger[-4:]} == {"cli", "testing", "api"}
        assert all(it.ended_ms is not None and it.by.who for it in ledger[-4:])
        page.act("disk-slow", 2, amount=1_000, for_ms=3_000)
        assert [it["kind"] for it in listed(cluster)] == ["disk-slow"]
        process = beside.find(cluster.data_dir)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        wait_for("it has ended", lambda: not listed(cluster))
        wait_for("its node says so", lambda: read_faults(cluster.data_dir)[-1].ended_how == "its time was over")
    finally:
        beside.stop(cluster.data_dir)


def _healed(page: Page) -> bool:
    try:
        return bool(page.heal())
    except urllib.error.HTTPError as error:
        assert error.code == 429
        return False


def test_a_client_is_refused_so_many_times_by_the_calls_of_a_test(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, replication=2)
    faults = ProcessFaults(cluster.data_dir)
    with faults.fail_api("Produce", error="TOPIC_AUTHORIZATION_FAILED", count=1, nodes=[cluster.leader(topic)]):
        assert cluster.produce(topic, ["refused"])
        assert not cluster.produce(topic, ["taken"])
    assert listed(cluster) == []
    written = [it for it in read_faults(cluster.data_dir) if it.kind == "api-error"]
    assert (written[-1].by.door, written[-1].ended_how) == ("testing", "it was used up")
    with faults.refuse(2, "clients"), pytest.raises(ValueError, match="there is no node 9"):
        faults.cut(9, 1)
    with faults.delay(2, 3, 5), faults.delay(3, 2, 10):
        assert {it["what"] for it in listed(cluster)} == {"2 10 ms later", "3 10 ms later"}
    assert listed(cluster) == []


def test_a_restart_leaves_no_half_of_a_cut_behind(cluster: Cluster) -> None:
    assert fault(cluster, "cut", "2", "3", "--for", "10m").exit_code == 0
    cluster.kill(2)
    assert [it["node"] for it in listed(cluster)] == [3]
    cluster.restart(2)
    assert listed(cluster) == []
    assert not [it for it in read_faults(cluster.data_dir) if it.active]


def test_what_cannot_be_done_is_said_in_one_line(cluster: Cluster) -> None:
    for arguments, why in (
        (("cut", "2", "2", "--for", "1s"), "no link to itself"),
        (("cut", "1", "clients", "--for", "1s"), "not a broker"),
        (("slow", "2", "3", "1us", "--for", "1s"), "allowed is 1000"),
        (("api", "Prodce", "--error", "6", "--for", "1s"), "allowed are"),
        (("disk", "2", "full", "--dir", "/nowhere", "--for", "1s"), "allowed are"),
        (("cut", "2", "3", "--for", "11m"), "allowed is 1ms to 10m"),
        (("cut", "2", "3", "--for", "5"), "allowed is a number and a unit"),
    ):
        done = fault(cluster, *arguments)
        assert done.exit_code in (1, 2) and why in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert listed(cluster) == []


def test_nodes_that_do_not_allow_faults_refuse_them(shared_cluster: Cluster) -> None:
    done = fault(shared_cluster, "cut", "4", "1", "--for", "1s")
    assert done.exit_code == 1
    assert "kraftlite.faults.enable is false (kraftlite up --faults sets it)" in done.stderr
    refused = read_faults(shared_cluster.data_dir)[-1]
    assert (refused.kind, refused.seen_ms) == ("cut", None) and "does not take faults" in str(refused.failed)
