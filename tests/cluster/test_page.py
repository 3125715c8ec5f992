"""The page on real processes: the leader is killed through its API, and state, ledger and explanation say so."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.local.ledger import read_faults
from kraftlite.ui import beside
from tests.harness.local import Cluster, wait_for
from tests.harness.page_api import Page

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]


@pytest.fixture
def page(cluster: Cluster) -> Iterator[Page]:
    yield Page(beside.start(cluster.data_dir))
    beside.stop(cluster.data_dir)


def test_the_leader_is_killed_by_the_page(cluster: Cluster, topic: str, page: Page) -> None:
    cluster.create_topic(topic, replication=3)
    assert not cluster.produce(topic, ["one", "two"])
    name = f"{topic}-0"
    old = cluster.leader(topic)

    def whole() -> dict[str, Any] | None:
        row = page.row(name)
        return row if row and row["standing"] == "whole" and {it["leo"] for it in row["replicas"]} == {2} else None

    assert wait_for("everybody agrees", whole)["verdict"]["leader"] == old
    assert page.act("kill", old)["done"] == f"kill of node {old} is done"
    gone = wait_for("its end is shown", lambda: (node := page.node(old))["life"] == "dead" and node["fault"] and node)
    assert (gone["life"], gone["fault"]["kind"], gone["fault"]["door"]) == ("dead", "kill", "api")
    assert gone["status"]["broker_state"] == "RUNNING", "its last words stay"
    new = cluster.wait_leader(topic, not_in=(old,))
    after = wait_for("the new leader is shown", lambda: (row := page.row(name)) and row["verdict"]["leader"] == new and row)
    assert (after["verdict"]["epoch"], sorted(after["isr"])) == (1, sorted({4, 5, 6} - {old}))
    mine = next(it for it in after["replicas"] if it["node"] == old)
    assert (mine["says"], mine["fresh"], mine["leo"]) == ("leader", False, 2), "not merged: what it said last is told as that"
    fault = read_faults(cluster.data_dir)[-1]
    assert (fault.kind, fault.node, fault.by.door, fault.active) == ("kill", old, "api", True) and fault.seen_ms is not None
    chain = wait_for("the story is told", lambda: _chain(page, name))
    assert chain.startswith(f"node {old} killed by {fault.by} ") and f"leader {old}→{new}" in chain
    told = subprocess.run(
        [sys.executable, "-m", "kraftlite", "explain", "partition", name, "--data-dir", str(cluster.data_dir)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"node {old} killed by {fault.by}" in told.stdout and "paused or cut" not in told.stdout
    lanes = page.get(f"/api/v1/timeline?partition={name}")["spans"]
    leads = [span["label"] for span in lanes if span["lane"] == name]
    assert leads == [f"{old} leads, epoch 0", f"{new} leads, epoch 1"]
    page.act("start", old)
    wait_for("it is in sync again", lambda: page.row(name)["standing"] == "whole")
    ended = next(it for it in read_faults(cluster.data_dir) if it.id == fault.id)
    assert ended.ended_how == "start" and not ended.active


def _chain(page: Page, name: str) -> str:
    stories = page.get(f"/api/v1/stories?kind=partition&name={name}")["stories"]
    return next((story["chain"] for story in stories if story["kind"] == "leader_changed"), "")


def test_the_views_of_a_client_and_of_the_cluster_on_an_outage(cluster: Cluster, topic: str, page: Page) -> None:
    """What the page's client had acknowledged is found; its outage stands beside that of the cluster."""
    cluster.create_topic(topic, replication=3)
    old, name = cluster.leader(topic), f"{topic}-0"

    def own() -> dict[str, Any]:
        return next((it for it in page.get("/api/v1/state")["clients"] if it["client"] == "page"), {})

    assert page.client({"kind": "start", "topic": topic, "rate": 200}) == {"done": True}
    wait_for("it is acknowledged", lambda: own().get("acked", 0) > 20)
    page.act("kill", old)
    wait_for("it misses it", lambda: any("the client page has no" in it["text"] for it in page.get("/api/v1/state")["headlines"]))
    new = cluster.wait_leader(topic, not_in=(old,))
    before = own()["acked"]
    wait_for("it goes on", lambda: own()["acked"] > before + 20)

    def both() -> Any:
        found = [it for it in page.get("/api/v1/outages")["outages"] if it["name"] == name and it["until"] is not None]
        return next((it for it in found if it["cluster"]), None)

    outage = wait_for("both views of it are told", both)
    assert outage["until"] - outage["from"] > 1_000
    cluster_view = outage["cluster"][0]
    assert cluster_view["from"] < outage["until"] and cluster_view["until"] > outage["from"]
    lanes = page.get("/api/v1/timeline")
    assert lanes["lanes"][:2] == ["faults", "clients"]
    assert any(it["label"] == f"page: no ack from {name}" for it in lanes["spans"])
    page.client({"kind": "stop"})
    wait_for("it has ended", lambda: not page.get("/api/v1/state")["client"]["running"])
    last = own()
    assert (last["outstanding"], last["in_doubt"], last["refused"]) == (0, 0, 0) and last["acked"] == last["sent"]
    found = cluster.consume(topic, at_least=last["acked"])
    assert len(found) == last["acked"] and new != old


def test_a_pause_by_command_is_on_the_page(cluster: Cluster, page: Page) -> None:
    """What is done by command and what is done by the page are in one ledger; a second pause of a dead node is refused."""
    victim = cluster.brokers[-1]
    command = [sys.executable, "-m", "kraftlite", "pause", str(victim), "--data-dir", str(cluster.data_dir)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    paused = wait_for("it is paused", lambda: (node := page.node(victim))["life"] == "paused" and node["fault"] and node)
    assert paused["fault"]["door"] == "cli"
    page.act("resume", victim)
    wait_for("it goes on", lambda: page.node(victim)["life"] == "alive")
    page.act("kill", victim)
    with pytest.raises(urllib.error.HTTPError) as refused:
        page.act("pause", victim)
    assert refused.value.code == 409 and "is not running" in json.load(refused.value)["error"]


def test_the_page_is_listed_and_ends_with_its_process_alone(cluster: Cluster, page: Page) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "kraftlite", "ps", "--json", "--data-dir", str(cluster.data_dir)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(listed.stdout)["ui"]["address"] == page.base + "/"
    assert page.token not in (cluster.data_dir / "ui.json").read_text()
    assert beside.stop(cluster.data_dir) and beside.find(cluster.data_dir) is None
    assert all(node.state == "running" for node in cluster.state.nodes)


def kraftlite(directory: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "kraftlite", *arguments, "--data-dir", str(directory), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout)


def test_up_starts_the_page_beside_the_nodes_and_down_stops_it(tmp_path: Path) -> None:
    """It also works when every node is dead: what was recorded is told, and what nobody says is not made up."""
    directory = tmp_path / "c"
    try:
        page = Page(kraftlite(directory, "up", "--controllers", "1", "--brokers", "1", "--detach", "--ui")["ui"])
        wait_for("both are heard", lambda: all(node["life"] == "alive" for node in page.get("/api/v1/state")["nodes"]))
        page.act("kill", 2)
        page.act("kill", 1)
        dead = wait_for("both are dead", lambda: _all_dead(page))
        assert dead["quorum"]["verdict"]["kind"] == "silent" and dead["partitions"]["answering"] == 0
        assert all(node["heard_ms"] and node["status"] and node["fault"]["kind"] == "kill" for node in dead["nodes"])
        assert {story["kind"] for story in page.get("/api/v1/stories")["stories"]} >= {"started", "fault"}
        found = beside.find(directory)
        assert found is not None
    finally:
        kraftlite(directory, "down", "--wipe")
    wait_for("the page has ended", lambda: found.state == "stopped")
    assert not directory.exists()


def _all_dead(page: Page) -> dict[str, Any] | None:
    state = page.get("/api/v1/state")
    return state if all(node["life"] == "dead" and node["fault"] for node in state["nodes"]) else None
