"""`kraftlite ui --nodes` as a process: a page of a cluster of which it has the addresses of nodes, and nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.local import cluster as local
from kraftlite.local.secure import client_dir
from kraftlite.local.state import load
from tests.harness.local import Cluster, wait_for
from tests.harness.page_api import Page

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]

TOKEN = "abcdefghijklmnopqrstuv"


@contextmanager
def page_of(folder: Path, *arguments: str) -> Iterator[Page]:
    """It has no directory of a cluster, not even by default."""
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    command = [sys.executable, "-m", "kraftlite", "ui", "--json", "--token-file", str(token), *arguments]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=env, text=True) as child:
        try:
            assert child.stdout is not None
            links = json.loads(child.stdout.readline())
            assert set(links) == {"viewer"}
            yield Page({"operator": links["viewer"]})
        finally:
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=60)
            assert (child.returncode, errors) == (0, ""), "Ctrl-C is its proper end"


def test_a_failover_is_watched_from_outside(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """A node that is killed falls silent: of its process nothing is known. Its successor is shown, and nobody may do more."""
    cluster.create_topic(topic, replication=3)
    name, old = f"{topic}-0", cluster.leader(topic)
    addresses = ",".join(node.grpc for node in load(cluster.data_dir).nodes)
    with page_of(tmp_path, "--nodes", addresses) as page:
        assert page.token == TOKEN
        wait_for(
            "everybody is heard",
            lambda: page.row(name).get("standing") == "whole" and len(page.get("/api/v1/state")["nodes"]) == 6,
        )
        about = page.get("/api/v1/cluster")
        assert (about["read_only"], about["traces"], about["faults"]) == (True, False, [])
        assert (about["controllers"], about["brokers"], about["cluster_id"]) == (3, 3, load(cluster.data_dir).cluster_id)
        with pytest.raises(urllib.error.HTTPError) as refused:
            page.act("kill", old)
        assert refused.value.code == 403 and cluster.node(old).state == "running"
        cluster.kill(old)
        new = cluster.wait_leader(topic, not_in=(old,))
        after = wait_for("the new leader is shown", lambda: (row := page.row(name)) and row["verdict"]["leader"] == new and row)
        assert after["verdict"]["epoch"] >= 1, "beside much other work there may be a second election"
        wait_for("it is silent", lambda: (node := page.node(old))["life"] == "silent" and node["process"] == "unknown")
        cluster.restart(old)
        wait_for("it is heard again", lambda: page.node(old)["life"] == "alive" and page.row(name)["standing"] == "whole")


def test_nodes_of_a_closed_cluster_want_a_certificate(tmp_path: Path) -> None:
    data_dir = tmp_path / "c"
    local.up(data_dir, controllers=1, brokers=1, secure=True)
    try:
        addresses = ",".join(node.grpc for node in load(data_dir).nodes)
        shown = client_dir(data_dir, "admin") / "client-mtls.properties"
        with page_of(tmp_path, "--nodes", addresses, "--command-config", str(shown)) as page:
            wait_for("both are heard", lambda: [it["life"] for it in page.get("/api/v1/state")["nodes"]] == ["alive"] * 2)
        with page_of(tmp_path, "--nodes", addresses) as page:
            told = wait_for(
                "it is told", lambda: "has not answered yet: " in str((it := page.get("/api/v1/state"))["gone"]) and it
            )
            assert told["nodes"] == [] and "nobody has been heard" in told["headlines"][0]["text"]
    finally:
        local.down(data_dir)
