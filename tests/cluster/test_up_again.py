"""`kraftlite up` that is interrupted while its nodes start, and again with values that no node accepts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.harness.local import PATIENCE_S, wait_for


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kraftlite", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)


def processes_in(place: Path) -> list[str]:
    """The nodes of a cluster, whoever knows of them: they run in its directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == place:
                found.append((entry / "comm").read_text().strip())
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def test_an_up_that_is_interrupted_leaves_no_nodes_and_can_be_repeated(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    up = subprocess.Popen(
        command("up", "--detach", "--controllers", 1, "--brokers", 1, "--data-dir", place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for("a node is launched", lambda: bool([*place.glob("node-*/node.log")]))
        os.killpg(up.pid, signal.SIGINT)  # as a terminal does
        _, said = up.communicate(timeout=4 * PATIENCE_S)
        assert (up.returncode, said.splitlines()[-1]) == (130, "interrupted")
        assert processes_in(place) == []
        wrong = run("up", "--detach", "--data-dir", place, "--config", "log.retention.hours=abc")
        assert wrong.returncode == 1
        assert "log.retention.hours=abc: allowed is" in wrong.stderr
        again = run("up", "--detach", "--data-dir", place, "--json")
        assert again.returncode == 0, again.stderr
        assert {node["state"] for node in json.loads(again.stdout)["nodes"]} == {"running"}
    finally:
        if up.poll() is None:
            up.kill()
        run("down", "--wipe", "--data-dir", place)
    assert not place.exists()


def test_an_up_and_a_down_at_once_leave_all_nodes_or_none(tmp_path: Path) -> None:
    """The `down` comes while the nodes of the second `up` are launched: it stops what that `up` has started, too."""
    place = tmp_path / "cluster"
    first = run("up", "--detach", "--controllers", 1, "--brokers", 1, "--data-dir", place, "--json")
    up = None
    try:
        assert first.returncode == 0, first.stderr
        assert run("kill", 2, "--data-dir", place).returncode == 0
        log = place / "node-2" / "node.log"
        written = log.stat().st_size
        up = subprocess.Popen(command("up", "--detach", "--data-dir", place), stderr=subprocess.PIPE, text=True)
        wait_for("the node is launched again", lambda: log.stat().st_size > written)
        down = run("down", "--data-dir", place)
        assert down.returncode == 0, down.stderr
        up.communicate(timeout=4 * PATIENCE_S)
        assert processes_in(place) == []
        nodes = json.loads(run("ps", "--data-dir", place, "--json").stdout)["nodes"]
        assert {node["state"] for node in nodes} == {"stopped"}
    finally:
        if up is not None and up.poll() is None:
            up.kill()
        run("down", "--wipe", "--data-dir", place)
