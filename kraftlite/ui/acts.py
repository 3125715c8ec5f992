"""The one gate through which the page does something to a node: who may, how often, and what came of it.

Every act goes through `kraftlite.local`, so it is in the ledger of faults like that of a command.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraftlite.local import cluster as local
from kraftlite.local.ledger import author
from kraftlite.local.state import LocalError
from kraftlite.obs.faults import Author

KINDS: Final = ("kill", "stop", "pause", "resume", "restart", "start")
MAX_AT_ONCE: Final = 4
EVERY_S: Final = 0.1
ANSWER_S: Final = 1.0
"""So long an answer waits for the act to fail; what takes longer shows in the ledger."""


class Refused(Exception):
    """The act is not done; `status` is that of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Acts:
    """The faults that may be caused on one local cluster."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._last = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(self, kind: object, node: object, *, operator: bool, door: str) -> str:
        """Returns what was asked for, in words, as soon as it is done or has run for a second. Raises Refused."""
        if not operator:
            raise Refused(403, "this link is for looking only: the operator's link may do that")
        if kind not in KINDS:
            raise Refused(400, f"kind: allowed are {', '.join(KINDS)}")
        if not isinstance(node, int) or isinstance(node, bool):
            raise Refused(400, "node: allowed is the id of a node")
        if len(self._tasks) >= MAX_AT_ONCE:
            raise Refused(429, f"{MAX_AT_ONCE} others are under way")
        if time.monotonic() - self._last < EVERY_S:
            raise Refused(429, f"one every {EVERY_S:g} s")
        self._last = time.monotonic()
        act = _act(self._data_dir, str(kind), node, author(door))
        task = asyncio.create_task(asyncio.to_thread(act))
        self._tasks.add(task)
        task.add_done_callback(self._over)
        done, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if done and (error := task.exception()) is not None:
            if isinstance(error, LocalError):
                raise Refused(409, str(error))
            raise error
        return f"{kind} of node {node} is {'done' if done else 'asked for'}"

    def _over(self, task: asyncio.Task[None]) -> None:
        """Take note of the end. A late failure is in the ledger, where the page shows it."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Wait for what is under way: a node that is being restarted is not left stopped."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=local.STOP_TIMEOUT_S)


def _act(data_dir: Path, kind: str, node: int, by: Author) -> Callable[[], None]:
    def act() -> None:
        if kind in ("kill", "stop"):
            local.kill(data_dir, node, signal.SIGKILL if kind == "kill" else signal.SIGTERM, by=by)
        elif kind == "pause":
            local.pause(data_dir, node, by=by)
        elif kind == "resume":
            local.resume(data_dir, node, by=by)
        elif kind == "restart":
            local.restart(data_dir, node, by=by)
        else:
            local.start_node(data_dir, node, by=by)

    return act
