"""The first process of a container: what it does with its node, its door, and its signals. Here it is a process like others."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlite.local import cluster as local
from kraftlite.local import door, process
from kraftlite.local.container import described
from kraftlite.local.growth import add_broker
from kraftlite.local.ledger import read_faults
from kraftlite.local.state import LocalError, load
from kraftlite.local.supervisor import ASK_S, MAX_GUESTS
from tests.harness.local import wait_for

NODE = """
import os, signal, sys, time
def end(number, frame):
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, lambda number, frame: sys.exit(8))
with open(sys.argv[1], "a") as pids:
    pids.write(f"{os.getpid()}\\n")
while True:
    time.sleep(600)
"""
"""Stands for a node: it writes its pid once it hears signals, and ends with a status of its own."""

SUPERVISOR = """
import ctypes, sys
from pathlib import Path
from kraftlite.local.state import LocalError
from kraftlite.local import supervisor
supervisor.ASK_S = float(sys.argv[3])
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to it, as to the first process of a container
try:
    sys.exit(supervisor.run(sys.argv[4:], 4, Path(sys.argv[1]), longest_pause_s=float(sys.argv[2])))
except LocalError as error:
    sys.exit(str(error))
"""


@dataclass
class Supervised:
    """A supervisor, and the node that it has."""

    process: subprocess.Popen[str]
    data_dir: Path
    pids: Path

    @property
    def door(self) -> Path:
        return self.data_dir / "node-4" / door.SOCKET_NAME

    def started(self, count: int) -> int:
        """Wait for the node that was started so many-th; returns its pid."""

        def found() -> list[str]:
            lines = self.pids.read_text().splitlines() if self.pids.exists() else []
            return lines if len(lines) >= count else []

        return int(wait_for(f"start {count}", found)[count - 1])

    def ended(self) -> int:
        return self.process.wait(60)


Make = Callable[..., Supervised]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Supervised] = []
    with contextlib.ExitStack() as stack:

        def start(
            node: str = NODE, longest_pause_s: float = 600, ask_s: float = ASK_S, directory: Path | None = None
        ) -> Supervised:
            # Below /tmp: the path of a Unix socket has at most 107 bytes.
            data_dir = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="supervisor-")))
            described(environment(data_dir))
            pids = data_dir / "pids"
            command = [sys.executable, "-c", SUPERVISOR, str(data_dir), str(longest_pause_s), str(ask_s)]
            child = subprocess.Popen([*command, sys.executable, "-c", node, str(pids)], stderr=subprocess.PIPE, text=True)
            made.append(Supervised(child, data_dir, pids))
            return made[-1]

        yield start
        for it in made:
            if it.process.poll() is None:
                door.do(it.door, "SIGKILL")
                it.process.terminate()
            it.process.wait(60)
            assert it.process.stderr is not None
            it.process.stderr.close()


def environment(data_dir: Path) -> dict[str, str]:
    return {
        "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
        "KRAFTLITE_DATA_DIR": str(data_dir),
        "KRAFTLITE_SECURE_NODES": "1@127.0.0.1:1,4@127.0.0.1:2:3:4",
    }


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 7), (signal.SIGINT, 8)])
def test_it_hands_on_what_asks_it_to_stop_and_ends_as_the_node(make: Make, number: signal.Signals, status: int) -> None:
    supervised = make()
    supervised.started(1)
    supervised.process.send_signal(number)
    assert supervised.ended() == status
    assert not supervised.door.exists()


def test_a_node_that_ends_by_itself_ends_the_container(make: Make) -> None:
    """Also by a signal from elsewhere, as when memory ran out."""
    assert make("import sys; sys.exit(3)").ended() == 3
    supervised = make()
    os.kill(supervised.started(1), signal.SIGKILL)
    assert supervised.ended() == 128 + signal.SIGKILL


def test_a_killed_node_stays_away_until_it_is_started(make: Make) -> None:
    supervised = make()
    first = supervised.started(1)
    node = load(supervised.data_dir).node(4)
    assert (node.is_supervised, node.state) == (True, process.RUNNING)
    local.kill(supervised.data_dir, 4, signal.SIGKILL)
    assert process.start_mark(first) is None and node.state == process.STOPPED
    assert supervised.process.poll() is None
    with pytest.raises(LocalError, match="node 4 is not running"):
        local.pause(supervised.data_dir, 4)
    assert door.do(supervised.door, door.START) and not door.do(supervised.door, door.START)
    assert supervised.started(2) != first and node.state == process.RUNNING
    assert [(it.kind, it.node, it.seen_ms is not None) for it in read_faults(supervised.data_dir)] == [
        ("kill", 4, True),
        ("pause", 4, False),
    ]
    supervised.process.terminate()
    assert supervised.ended() == 7, "the one that was started is as the first"


def test_a_node_that_was_told_to_stop_at_the_door_stays_away(make: Make) -> None:
    supervised = make()
    supervised.started(1)
    assert local.stop_nodes(load(supervised.data_dir).nodes[1:]) == []
    assert supervised.process.poll() is None
    supervised.process.terminate()
    assert supervised.ended() == 0, "there is no node to stop"


def test_a_paused_node_goes_on(make: Make) -> None:
    supervised = make()
    supervised.started(1)
    local.pause(supervised.data_dir, 4)
    node = load(supervised.data_dir).node(4)
    assert node.state == process.PAUSED
    local.resume(supervised.data_dir, 4)
    assert node.state == process.RUNNING
    local.pause(supervised.data_dir, 4)
    supervised.process.terminate()
    assert supervised.ended() == 7, "a paused node is stopped, too"


def test_a_pause_ends_by_itself_and_the_ledger_has_it(make: Make) -> None:
    supervised = make(longest_pause_s=0.5)
    supervised.started(1)
    local.pause(supervised.data_dir, 4)
    wait_for("it goes on", lambda: load(supervised.data_dir).node(4).state == process.RUNNING)
    (pause,) = wait_for("its end", lambda: [it for it in read_faults(supervised.data_dir) if not it.active])
    assert (pause.kind, pause.ended_how) == ("pause", "its time was over")


def test_it_reaps_the_children_of_others(make: Make) -> None:
    """A process whose parent has ended comes to the first process of the container."""
    orphan = """
import os, time
middle = os.fork()
if middle == 0:
    if os.fork() == 0:
        time.sleep(0.2)  # it outlives its parent
    os._exit(0)
os.waitpid(middle, 0)
"""
    supervised = make(orphan + NODE)
    node = supervised.started(1)

    def left() -> list[str]:
        children = Path(f"/proc/{supervised.process.pid}/task/{supervised.process.pid}/children").read_text().split()
        return [pid for pid in children if int(pid) != node]

    wait_for("no child but the node", lambda: not left())
    assert supervised.process.poll() is None


def test_who_says_nothing_or_nonsense_keeps_nobody_else_out(make: Make) -> None:
    supervised = make()
    supervised.started(1)
    with contextlib.ExitStack() as stack:

        def knock(said: bytes) -> socket.socket:
            guest = stack.enter_context(socket.socket(socket.AF_UNIX))
            guest.settimeout(60)
            guest.connect(str(supervised.door))
            with contextlib.suppress(BrokenPipeError):  # it was sent away already
                guest.sendall(said)
            return guest

        for nonsense in (b"{\n", b"[\n", b"x" * 100_000, b"\n"):
            assert _answer(knock(nonsense)) == b""
        for question in (b"[]\n", b'{"do": 1}\n', b'{"do": "SIGHUP"}\n'):
            assert _answer(knock(question)) == b'{"done": false, "state": "running"}\n'
        silent = [knock(b"") for _ in range(40)]
        assert all(_answer(guest) == b"" for guest in silent), "each is sent away in the end"
    assert door.ask(supervised.door, door.STATE) == {"done": True, "state": process.RUNNING}


def test_only_so_many_are_in_at_a_time(make: Make) -> None:
    supervised = make(ask_s=600)
    supervised.started(1)
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(MAX_GUESTS + 1)]
        for guest in guests:
            guest.settimeout(60)
            guest.connect(str(supervised.door))
        assert _answer(guests[-1]) == b"", "the last one is sent away, while all others may yet speak"
        guests[0].sendall(b'{"do": "state"}\n')
        assert _answer(guests[0]) == b'{"done": true, "state": "running"}\n'
        wait_for("there is room again", lambda: door.ask(supervised.door, door.STATE))


def _answer(guest: socket.socket) -> bytes:
    try:
        return guest.recv(1000)
    except ConnectionResetError:
        return b""


def test_the_door_is_for_its_owner(make: Make) -> None:
    supervised = make()
    supervised.started(1)
    assert stat.S_IMODE(supervised.door.stat().st_mode) == 0o600
    assert stat.S_IMODE(supervised.door.parent.stat().st_mode) == 0o700


def test_a_node_has_one_supervisor(make: Make) -> None:
    supervised = make()
    supervised.started(1)
    second = make(directory=supervised.data_dir)
    assert second.ended() == 1
    assert second.process.stderr is not None
    assert "node 4 has a supervisor already" in second.process.stderr.read()
    assert door.state(supervised.door) == process.RUNNING


def test_a_supervisor_that_is_gone_or_frozen(make: Make) -> None:
    """docker kill, and docker pause."""
    supervised = make()
    node = supervised.started(1)
    supervised.process.send_signal(signal.SIGSTOP)
    assert door.state(supervised.door) == process.PAUSED
    with pytest.raises(LocalError, match="a container that does not answer: docker compose unpause 127"):
        local.start(load(supervised.data_dir), [load(supervised.data_dir).node(4)])
    supervised.process.send_signal(signal.SIGCONT)
    assert door.state(supervised.door) == process.RUNNING
    supervised.process.kill()
    supervised.process.wait(60)
    os.kill(node, signal.SIGKILL)
    assert door.state(supervised.door) == process.STOPPED
    with pytest.raises(LocalError, match="node 4 has no container now: docker compose start 127"):
        local.start_node(supervised.data_dir, 4)


def test_containers_are_not_begun_and_ended_here(make: Make) -> None:
    supervised = make()
    supervised.started(1)
    with pytest.raises(LocalError, match="run in containers: docker compose up -d"):
        local.up(supervised.data_dir)
    with pytest.raises(LocalError, match="run in containers: docker compose down"):
        local.down(supervised.data_dir)
    with pytest.raises(LocalError, match="run in containers: docker compose up -d"):
        add_broker(supervised.data_dir)
