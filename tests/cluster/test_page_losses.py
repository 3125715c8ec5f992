"""An unclean election on real processes: the page says which committed records are lost, and the segments on disk agree."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.ui import beside
from tests.harness.local import Cluster, wait_for
from tests.harness.page_api import Page

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]
CONFIG = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


def test_an_unclean_election_loses_what_the_page_says(cluster: Cluster, topic: str) -> None:
    page = Page(beside.start(cluster.data_dir))
    try:
        cluster.create_topic(topic, replication=3, config=CONFIG)
        old, name = cluster.leader(topic), f"{topic}-0"
        others = [node for node in cluster.brokers if node != old]

        def row() -> dict[str, Any]:
            rows = page.get(f"/api/v1/state?q={topic}")["rows"]
            return next((it for it in rows if it["name"] == name), {})

        cluster.produce(topic, [f"kept {it}" for it in range(10)])
        for node in others:
            page.act("pause", node)
        wait_for("the leader is alone in sync", lambda: row().get("isr") == [old])
        cluster.produce(topic, [f"lost {it}" for it in range(10)])
        wait_for("the page has heard of all of them", lambda: any(it["hw"] == 20 for it in row()["replicas"]))
        page.act("kill", old)
        for node in others:
            page.act("resume", node)
        lost = wait_for("the loss is told", lambda: row().get("lost"))
        new = cluster.leader(topic)
        assert (lost["first"], lost["last"], lost["count"], lost["leader"]) == (10, 19, 10, new) and new != old
        texts = [it["text"] for it in page.get("/api/v1/state")["headlines"] if it["level"] == "alarm"]
        words = f"broker {new} leads epoch {lost['epoch']} without them"
        assert f"{name} lost 10 committed records, offsets 10 to 19: {words}" in texts
        had, has = _offsets(cluster, old, name), _offsets(cluster, new, name)
        assert sorted(had - has) == list(range(10, 20)), "the segments on disk say the same"
        page.act("start", old)
        wait_for("all are in sync again", lambda: len(row().get("isr", ())) == 3)
        assert row()["lost"] == lost

        def titles() -> str:
            return "\n".join(it["title"] for it in page.get(f"/api/v1/stories?kind=partition&name={name}")["stories"])

        wait_for("its story tells the loss", lambda: "offsets 10 to 19 were committed: 10 records are lost" in titles())
    finally:
        beside.stop(cluster.data_dir)


def _offsets(cluster: Cluster, node: int, name: str) -> set[int]:
    """The offsets of the records in the segments of a broker."""
    [segment] = (cluster.data_dir / f"node-{node}").rglob(f"{name}/*.log")
    command = [sys.executable, "-m", "kraftlite", "log", "dump", str(segment), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["offset"] for line in lines if "offset" in line}
