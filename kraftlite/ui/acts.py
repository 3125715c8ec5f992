"""The one gate through which the page does something to a node: who may, how often, and what came of it.

Every act goes through `kraftlite.local`, so it is in the ledger of faults like that of a command.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kraftlite.local import cluster as local
from kraftlite.local import faults
from kraftlite.local.ledger import author
from kraftlite.local.state import LocalError
from kraftlite.model.faults import Injection, UnknownFault, check, failing_code
from kraftlite.obs.faults import INJECTED, Author

PROCESS: Final = ("kill", "stop", "pause", "resume", "restart", "start")
END: Final = "end"
"""Not a fault, but the end of the one that `id` names; without it, of all that the nodes cause to themselves."""
KINDS: Final = (*PROCESS, *INJECTED, END)
MAX_AT_ONCE: Final = 4
MAX_ID: Final = 64
EVERY_S: Final = 0.1
FOREIGN: Final = "this page looks at nodes by their addresses: nothing is done to them"
ANSWER_S: Final = 1.0
"""So long an answer waits for the act to fail; what takes longer shows in the ledger."""


class Refused(Exception):
    """The act is not done; `status` is that of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def check_operator(operator: bool, who_may: str = "the operator's link may do that") -> None:
    """Raises Refused."""
    if not operator:
        raise Refused(403, f"this link is for looking only: {who_may}")


class Acts:
    """The faults that may be caused on one local cluster; none without a directory."""

    def __init__(self, data_dir: Path | None) -> None:
        self._data_dir = data_dir
        self._last = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(
        self, kind: object, node: object, *, operator: bool, door: str, rest: Mapping[str, object] = MappingProxyType({})
    ) -> str:
        """Returns what was asked for, in words, as soon as it is done or has run for a second. `rest`: what a fault takes beside
        its node (`_injection`), or the `id` of the one to end. Raises Refused."""
        check_operator(operator)
        if self._data_dir is None:
            raise Refused(409, FOREIGN)
        if kind not in KINDS:
            raise Refused(400, f"kind: allowed are {', '.join(KINDS)}")
        if kind != END and (not isinstance(node, int) or isinstance(node, bool)):
            raise Refused(400, "node: allowed is the id of a node")
        if len(self._tasks) >= MAX_AT_ONCE:
            raise Refused(429, f"{MAX_AT_ONCE} others are under way")
        if time.monotonic() - self._last < EVERY_S:
            raise Refused(429, f"one every {EVERY_S:g} s")
        self._last = time.monotonic()
        act = _act_of(self._data_dir, str(kind), node, rest, author(door))
        task = asyncio.create_task(asyncio.to_thread(act))
        self._tasks.add(task)
        task.add_done_callback(self._over)
        done, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if done and (error := task.exception()) is not None:
            if isinstance(error, LocalError):
                raise Refused(409, str(error))
            raise error
        what = "the end" if kind == END else f"{kind} of node {node}"
        return f"{what} is {'done' if done else 'asked for'}"

    def _over(self, task: asyncio.Task[None]) -> None:
        """Take note of the end. A late failure is in the ledger, where the page shows it."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Wait for what is under way: a node that is being restarted is not left stopped."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=local.STOP_TIMEOUT_S)


def _act_of(data_dir: Path, kind: str, node: object, rest: Mapping[str, object], by: Author) -> Callable[[], None]:
    """Raises Refused for what has no meaning, before anything is done."""
    if kind == END:
        ids = _end_of(rest)
        return lambda: _end(data_dir, ids, by)
    assert isinstance(node, int)
    if kind not in INJECTED:
        return _act(data_dir, kind, node, by)
    fault = _injection(kind, rest)
    return lambda: _inject(data_dir, node, fault, by)


def _inject(data_dir: Path, node: int, fault: Injection, by: Author) -> None:
    faults.inject(data_dir, node, fault, by=by)


def _end(data_dir: Path, ids: list[str] | None, by: Author) -> None:
    faults.end(data_dir, ids, by=by)


def _end_of(rest: Mapping[str, object]) -> list[str] | None:
    identity = rest.get("id")
    if identity is None:
        return None
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_ID:
        raise Refused(400, "id: allowed is that of a fault, or none to end all")
    return [identity]


def _injection(kind: str, rest: Mapping[str, object]) -> Injection:
    """`for_ms`, and as the kind takes them: `other` (-1: the clients), `amount`, `path`, `api`, `error` (a name), `count`."""
    given: dict[str, Any] = {}
    for name, wanted in (("for_ms", int), ("other", int), ("amount", int), ("count", int), ("path", str), ("api", str)):
        value = rest.get(name)
        if value is None:
            continue
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise Refused(400, f"{name}: allowed is {'a whole number' if wanted is int else 'a text'}")
        given[name] = value
    error = rest.get("error")
    if error is not None and not isinstance(error, str):
        raise Refused(400, "error: allowed is a text")
    try:
        if isinstance(error, str):
            given["error"] = failing_code(error)
        fault = Injection(id="new", kind=kind, **{"for_ms": 0, **given, "incoming": kind != "cut-one-way"})
        check(fault)
    except UnknownFault as refused:
        raise Refused(400, str(refused)) from None
    return fault


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
