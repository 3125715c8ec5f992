"""The client that the page runs, and those that report to it, as a test does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlite.local.process import own_environment
from kraftlite.local.workload import MAX_RATE
from kraftlite.model.shown import printable
from kraftlite.ui.acts import FOREIGN, Refused, check_operator
from kraftlite.ui.reports import OWN, Reports

_STOP_S: Final = 15.0
_MAX_LINE: Final = 256 << 10


class Clients(Reports):
    """The reports of all, and the process of the one that the page runs."""

    def __init__(self, data_dir: Path | None) -> None:
        super().__init__()
        self._data_dir = data_dir
        self._child: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._why: str | None = None
        """The reason why the page's client ended by itself."""

    def report(self, value: Mapping[str, object], *, operator: bool) -> None:
        """Take the report of a client of somebody else. Raises Refused."""
        check_operator(operator)
        if value.get("client") == OWN:
            raise Refused(400, f"client: {OWN} is the page's own")
        try:
            self.take(value)
        except ValueError as error:
            raise Refused(400, str(error)) from None

    def about(self) -> dict[str, Any]:
        """Return what the page's own client does."""
        return {"running": self.running, "why": self._why}

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    async def start(self, topic: object, rate: object, *, operator: bool) -> None:
        """Raises Refused."""
        check_operator(operator)
        if self._data_dir is None:
            raise Refused(409, FOREIGN)
        if not isinstance(topic, str) or not 0 < len(topic) <= 249 or topic.startswith("-"):
            raise Refused(400, "topic: allowed is the name of a topic")
        if not isinstance(rate, int) or isinstance(rate, bool) or not 1 <= rate <= MAX_RATE:
            raise Refused(400, f"rate: allowed is a whole number from 1 to {MAX_RATE}")
        if self.running:
            raise Refused(409, "the page's client runs already: stop it first")
        await self.close()
        self.forget(OWN)
        self._why = None
        command = ["-m", "kraftlite.local.workload", "--data-dir", str(self._data_dir), "--topic", topic, "--rate", str(rate)]
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--client",
            OWN,
            "--until-eof",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE,
            env=own_environment(),
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(self._child))

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None and child.stderr is not None
        errors = asyncio.create_task(child.stderr.read(_MAX_LINE))
        while line := await child.stdout.readline():
            self.take(json.loads(line))
        said = (await errors).decode(errors="replace").strip().splitlines()
        if await child.wait():
            self._why = printable(said[-1].removeprefix("Error: ")[:300]) if said else "it ended without a word"

    async def stop(self, *, operator: bool) -> None:
        """Raises Refused."""
        check_operator(operator)
        if not self.running:
            raise Refused(409, "the page's client does not run")
        assert self._child is not None and self._child.stdin is not None
        self._child.stdin.close()

    async def close(self) -> None:
        """End the client: what it has under way gets some seconds."""
        child, reading = self._child, self._reading
        if child is None or reading is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        done, _ = await asyncio.wait({reading}, timeout=_STOP_S)
        if not done:
            child.kill()
            await asyncio.wait({reading})
        self._child = self._reading = None
        reading.result()
