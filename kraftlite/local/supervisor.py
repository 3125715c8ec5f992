"""The first process of a container whose node allows faults: it starts the node, and kills, pauses and starts it when asked.

The first process of a container can neither kill nor stop itself, and without it nothing else in the container goes on: so the
node is its child. It hands on SIGTERM and SIGINT, reaps what else ends in the container, and ends with the exit status of the
node, unless the node was killed or stopped through its door (`local/door`): then it waits for what it is asked next.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kraftlite.local import process
from kraftlite.local.door import MAX_BYTES, SOCKET_NAME, START, STATE
from kraftlite.local.ledger import Ledger
from kraftlite.local.state import LocalError
from kraftlite.model.faults import MAX_FOR_MS
from kraftlite.obs.faults import Author

ASK_S: Final = 2.0
"""The time in which who knocks has to say what they want."""
MAX_GUESTS: Final = 16
"""Those who are in at a time; others are sent away."""
_SIGNALS: Final = {it.name: it for it in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT)}
_ENDING: Final = (signal.SIGKILL, signal.SIGTERM)
_TIME: Final = "its time was over"


def run(command: Sequence[str], node_id: int, data_dir: Path, *, longest_pause_s: float = MAX_FOR_MS / 1000) -> int:
    """Supervise one node until it ends by itself, or until SIGTERM or SIGINT has ended it; returns the exit status, 128 and the
    number more for a signal, as shells have it.

    `command`: what starts the node; `data_dir`: that of the cluster, which all its containers share. A pause ends by itself
    after `longest_pause_s`. Raises LocalError when the door cannot be made, or when the node has a supervisor already.
    """
    directory = data_dir / f"node-{node_id}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(directory / ".supervisor.lock", node_id):
            return asyncio.run(_Supervisor(command, node_id, data_dir, longest_pause_s).run(directory / SOCKET_NAME))
    except OSError as error:
        raise LocalError(f"the supervisor of node {node_id} cannot work in {directory}: {error.strerror or error}") from None


@contextlib.contextmanager
def _alone(path: Path, node_id: int) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalError(f"node {node_id} has a supervisor already, which holds {path}") from None
        yield
    finally:
        os.close(fd)


class _Supervisor:
    """All of it runs on one loop. `_pid` is None while there is no node."""

    def __init__(self, command: Sequence[str], node_id: int, data_dir: Path, longest_pause_s: float) -> None:
        self._command = command
        self._node_id = node_id
        self._data_dir = data_dir
        self._longest_pause_s = longest_pause_s
        self._pid: int | None = None
        self._by_door = False
        """The end of the node, if it comes, is one that was asked for at the door."""
        self._leaving = False
        self._status = 0
        self._over = asyncio.Event()
        self._guests = 0
        self._pause: asyncio.TimerHandle | None = None

    async def run(self, path: Path) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave, number)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        server = await asyncio.start_unix_server(self._receive, path, limit=MAX_BYTES)
        path.chmod(0o600)
        try:
            self._start()
            await self._over.wait()
        finally:
            server.close()
            path.unlink(missing_ok=True)
        return self._status

    # --- the node

    def _start(self) -> None:
        # A session of its own: Ctrl-C at a terminal comes to the node once, from here.
        self._pid = os.posix_spawn(self._command[0], list(self._command), os.environ, setsid=True)
        self._by_door = False

    def _started(self) -> bool:
        """A machine that has no room for a process now may have it later."""
        try:
            self._start()
        except OSError as error:
            sys.stderr.write(f"kraftlite: node {self._node_id} cannot be started: {error.strerror or error}\n")
            return False
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._ended(os.waitstatus_to_exitcode(status))

    def _ended(self, code: int) -> None:
        self._pid = None
        self._end_pause()
        if self._leaving or not self._by_door:
            self._status = code if code >= 0 else 128 - code
            self._over.set()

    def _leave(self, number: signal.Signals) -> None:
        self._leaving = True
        if self._pid is None:
            self._over.set()
            return
        os.kill(self._pid, number)
        os.kill(self._pid, signal.SIGCONT)  # a node that is paused hears nothing else

    def _state(self) -> str:
        """A node that has ended runs until it is reaped, since before there cannot be another one."""
        if self._pid is None:
            return process.STOPPED
        paused = process.state_of(self._pid, process.start_mark(self._pid)) == process.PAUSED
        return process.PAUSED if paused else process.RUNNING

    # --- the door

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests += 1
        try:
            if self._guests <= MAX_GUESTS:
                async with asyncio.timeout(ASK_S):
                    answer = self._answer(await reader.readline())
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except (OSError, ValueError):  # gone, silent (a TimeoutError is an OSError), or more than a question has
            pass
        finally:
            self._guests -= 1
            writer.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        """Raises ValueError for what is no question."""
        asked = json.loads(line)
        word = asked.get("do") if isinstance(asked, dict) else None
        done = word == STATE
        if word == START:
            done = self._pid is None and not self._leaving and self._started()
        elif word in _SIGNALS:
            done = self._pid is not None
            if done:
                self._signal(_SIGNALS[word])
        return {"done": done, "state": self._state()}

    def _signal(self, number: signal.Signals) -> None:
        """Only this process reaps the node, so that its pid is nobody else's before."""
        assert self._pid is not None
        os.kill(self._pid, number)
        self._by_door |= number in _ENDING
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self._end_pause()
        if number == signal.SIGSTOP:
            self._pause = asyncio.get_running_loop().call_later(self._longest_pause_s, self._pause_over)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _pause_over(self) -> None:
        self._pause = None
        if self._pid is not None:
            os.kill(self._pid, signal.SIGCONT)
            Ledger(self._data_dir, Author(who=f"node {self._node_id}", door="node")).end(self._node_id, _TIME, ("pause",))
