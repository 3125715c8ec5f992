"""What the page knows of the processes of nodes that run in containers: what their supervisors say, and nothing else."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlite.local import container
from kraftlite.ui.watch import Watcher
from kraftlite.ui.whom import InDirectory
from tests.harness.local import wait_for

LISTED = "1@controller-1:9093,4@kafka-1:9192:29092:29093"


class Door:
    """A supervisor's socket, which answers when it is let."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(16)
        self.says = "running"
        self.answers = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                guest, _ = self._socket.accept()
            except OSError:
                return
            self.answers.wait()
            with guest, contextlib.suppress(OSError):  # who has waited for too long is gone
                guest.recv(512)
                guest.sendall(json.dumps({"done": True, "state": self.says}).encode() + b"\n")

    def close(self) -> None:
        self.answers.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    container.described(
        {
            "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
            "KRAFTLITE_SECURE_NODES": LISTED,
            "KRAFTLITE_DATA_DIR": str(tmp_path / "c"),
        }
    )
    found = Watcher(InDirectory(tmp_path / "c"), None)  # type: ignore[arg-type]
    yield found
    found.close()


def process(watcher: Watcher, node: int) -> str:
    watcher.look()
    return watcher.nodes[node].process


def test_what_nobody_says_is_unknown(watcher: Watcher) -> None:
    for _ in range(20):
        assert process(watcher, 1) == process(watcher, 4) == "unknown"


def test_a_supervisor_is_believed_and_a_silent_one_holds_up_nobody(watcher: Watcher) -> None:
    door = Door(watcher.cluster.node(4).door_path)
    try:
        assert process(watcher, 4) == "unknown", "nobody waits for it"
        wait_for("who is there and says nothing is frozen", lambda: process(watcher, 4) == "paused")
        door.answers.set()
        wait_for("it runs", lambda: process(watcher, 4) == "running")
        for state in ("paused", "stopped", "running"):
            door.says = state
            wait_for(state, lambda wanted=state: process(watcher, 4) == wanted)  # type: ignore[misc]
    finally:
        door.close()
    wait_for("it is gone, and its node with it", lambda: process(watcher, 4) == "stopped")
    assert process(watcher, 1) == "unknown"
