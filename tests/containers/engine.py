"""docker-compose.yml on a real engine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftlite.local.ports import reserve

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "kraftlite-test"
PAGE_PORT = reserve(Path(tempfile.gettempdir()) / "kraftlite-compose", [28_088])[0]
"""The port of the page: the usual one may be that of a page beside processes of this machine."""
NODES = ("controller-1", "controller-2", "controller-3", "kafka-1", "kafka-2", "kafka-3")


def compose(*args: str, timeout: float = 900, secure: str = "") -> str:
    """`secure`: what KRAFTLITE_SECURE says to the compose file."""
    command = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    done = subprocess.run(
        [*command, "-p", PROJECT, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "KRAFTLITE_SECURE": secure, "KRAFTLITE_UI_PORT": str(PAGE_PORT)},
    )
    assert done.returncode == 0, f"compose {' '.join(args)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def docker(*args: str, timeout: float = 120) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"docker {' '.join(args)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def eventually(what: str, check: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}\n{compose('logs', '--tail', '30')}")
        time.sleep(0.5)  # an engine offers nothing to wait on


def healthy() -> None:
    """Wait until every node is."""
    for name in NODES:
        eventually(f"{name} healthy", lambda n=name: docker("inspect", "-f", "{{.State.Health.Status}}", n) == "healthy")


def _up(secure: str) -> None:
    """Start the nodes. A published port may be that of somebody's outgoing connection for a while: machines choose those from
    32768 on."""
    deadline = time.monotonic() + 120
    while True:
        try:
            compose("up", "-d", secure=secure)
        except AssertionError as error:
            if "address already in use" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(2)  # an engine offers nothing to wait on
        else:
            return


@contextlib.contextmanager
def cluster(secure: str = "") -> Iterator[None]:
    """The six nodes, from new images; skips where no engine answers."""
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Docker engine answers")
    compose("--profile", "spark", "--profile", "observe", "down", "-v")
    try:
        compose("build", "kafka-1")  # the others' image, too
        _up(secure)
        healthy()
        yield
    finally:
        compose("--profile", "spark", "--profile", "observe", "down", "-v", "-t", "20")
