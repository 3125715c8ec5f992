"""`kraftlite up` that is interrupted while its nodes start, and again with values that no node accepts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
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


def test_the_nodes_of_an_up_that_was_killed_do_not_run_unknown(tmp_path: Path) -> None:
    """Its launcher goes on without it, and finds that nobody would learn of the nodes: `up` could not start them again, and
    `down` not stop them."""
    place = tmp_path / "cluster"
    up = subprocess.Popen(command("up", "--detach", "--controllers", 1, "--brokers", 1, "--data-dir", place))
    try:
        wait_for("the launcher runs", lambda: bool(processes_in(place)))
        up.kill()
        up.wait()
        wait_for("the launcher has ended", lambda: not processes_in(place))
        again = run("up", "--detach", "--data-dir", place, "--json")
        assert again.returncode == 0, again.stderr
    finally:
        run("down", "--wipe", "--data-dir", place)
    assert processes_in(place) == []
    assert not place.exists()


def test_an_up_in_the_foreground_outlives_its_terminal_if_asked_to_and_is_stopped_at_once_by_a_second_signal(
    tmp_path: Path,
) -> None:
    place = tmp_path / "cluster"
    up = subprocess.Popen(
        ["nohup", *command("up", "--controllers", 1, "--brokers", 1, "--data-dir", place)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stderr is not None
        while "Press Ctrl-C" not in (line := up.stderr.readline()):
            assert line, "it ended"
        up.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert up.poll() is None
        # The broker does not end before it is killed: the controller that has to let it go stands still, and is not asked yet.
        assert run("pause", 1, "--data-dir", place).returncode == 0
        up.send_signal(signal.SIGTERM)
        log = place / "node-2" / "node.log"
        wait_for("the broker is told", lambda: '"event":"node.stopping"' in log.read_text())
        up.send_signal(signal.SIGTERM)
        _, said = up.communicate(timeout=PATIENCE_S)
        assert (up.returncode, "killing the nodes …" in said) == (143, True)
        assert processes_in(place) == []
    finally:
        if up.poll() is None:
            up.kill()
        run("down", "--wipe", "--data-dir", place)
    assert not place.exists()
