"""The run of a recording once more, with a change, in a process that is bounded in time, in memory and in what it writes.

The process is `kraftlite sim --plan … --what-if …`, so that what the page does is a command, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import kraftlite
from kraftlite.local.process import own_environment
from kraftlite.obs.recording_reader import RecordingError, read
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.plans import MAX_SEED, parse_plan
from kraftlite.ui.acts import Refused, check_operator
from kraftlite.ui.replay import tape_of

RUN_S: Final = 300.0
"""So long both runs may take together."""
MAX_MEMORY: Final = 1 << 30
"""Bytes of memory that the process may have; where Linux tells, which is asked every quarter of a second."""
_ADDRESSES: Final = 4
"""So many times as much may be reserved. The system refuses more, so that nothing is taken between two looks."""
_LOOK_S: Final = 0.25
MAX_CHANGES: Final = 50
MAX_FAULT: Final = 200
"""Characters of a fault."""
MAX_TOLD: Final = 1 << 20
"""Bytes of what the process tells of both runs."""
_RECORDING: Final = "run.kljsonl"


class NoRerun(Exception):
    """The run of a recording cannot be run again: why."""


class Reruns:
    """The run of one recording, and what may be changed of it. One at a time is run."""

    def __init__(self, text: str, made_by: str, *, patience_s: float = RUN_S, max_memory: int = MAX_MEMORY) -> None:
        """`text`: the plan of the run, made by this version of kraftlite, as its recording has both. Raises NoRerun."""
        if not text:
            raise NoRerun("the recording does not say what decides its run")
        try:
            plan = parse_plan(text)
            _, faults = plan.drawn()
        except ValueError as error:  # so is a ConfigError
            raise NoRerun(str(error)) from None
        self._plan = text
        self._faults = len(faults)
        self._patience_s = patience_s
        self._max_memory = max_memory
        self._busy = False
        self.about: dict[str, Any] = {
            "seed": plan.seed,
            "faults": [str(it) for it in faults],
            "command": shlex.join(["kraftlite", "sim", "--plan", text]),
            "made_by": made_by,
            "run_by": kraftlite.__version__,
        }

    async def run(self, given: Mapping[str, object], *, operator: bool) -> dict[str, Any]:
        """`seed`: another one, or none. `changes`: pairs of a number of a fault (one more than there are: a new one) and its
        line, or null without it. Returns what `kraftlite sim --what-if -o json` tells, and the `tape` of the changed run. Raises
        Refused."""
        check_operator(operator, "the other link may run it again")
        options = self._options(given)
        if self._busy:
            raise Refused(429, "another run is under way")
        self._busy = True
        try:
            with tempfile.TemporaryDirectory(prefix="kraftlite-what-if-") as folder:
                told = await self._child(Path(folder), options)
                tape = await asyncio.to_thread(_tape, Path(folder) / _RECORDING)
        finally:
            self._busy = False
        return {**told, "tape": tape}

    def _options(self, given: Mapping[str, object]) -> list[str]:
        """The options of the command. Raises Refused for what it would not take."""
        changes, seed = given.get("changes", []), given.get("seed")
        found: list[str] = []
        if seed is not None:
            if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= MAX_SEED:
                raise Refused(400, f"seed: allowed is a whole number from 0 to {MAX_SEED}")
            found.append(f"seed={seed}")
        if not isinstance(changes, list) or len(changes) > MAX_CHANGES:
            raise Refused(400, f"changes: allowed is a list of at most {MAX_CHANGES}")
        numbers = set[int]()
        for change in changes:
            number, line = change if isinstance(change, list) and len(change) == 2 else (None, None)
            if type(number) is not int or number in numbers or not (line is None or isinstance(line, str)):
                raise Refused(400, "changes: allowed are pairs of the number of a fault, each once, and a line or null")
            if line is not None and (len(line) > MAX_FAULT or not line.strip()):
                raise Refused(400, f"fault {number}: allowed is a line of at most {MAX_FAULT} characters")
            try:
                found.append(f"{number}={'' if line is None else parse(line)}")
            except ValueError as error:
                raise Refused(400, str(error)) from None
            numbers.add(number)
        if not found:
            raise Refused(400, "nothing is changed: the run would be the same")
        return [word for it in found for word in ("--what-if", it)]

    async def _child(self, folder: Path, options: list[str]) -> dict[str, Any]:
        told, why = folder / "told.json", folder / "why"
        command = [
            "-m",
            "kraftlite",
            "sim",
            "--plan",
            self._plan,
            *options,
            "--record",
            str(folder / _RECORDING),
            "-o",
            "json",
        ]
        with told.open("wb") as out, why.open("wb") as err:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=own_environment(),
                start_new_session=True,
            )
            try:
                bound_addresses(child.pid, _ADDRESSES * self._max_memory)
                async with asyncio.timeout(self._patience_s):
                    await self._ended(child)
            except TimeoutError:
                raise Refused(409, f"both runs took longer than {self._patience_s:g} s: it was ended") from None
            finally:
                if child.returncode is None:
                    child.kill()
                    await child.wait()
        try:
            found: dict[str, Any] = json.loads(_head(told))
        except ValueError:
            said = _head(why).decode(errors="replace")
            if "MemoryError" in said:
                raise self._too_large() from None
            raise Refused(409, _reason(said)) from None
        return found

    async def _ended(self, child: asyncio.subprocess.Process) -> None:
        """Until it has. Raises Refused when it has more memory than it may."""
        ending = asyncio.create_task(child.wait())
        try:
            while not (await asyncio.wait({ending}, timeout=_LOOK_S))[0]:
                used = memory_of(child.pid)
                if used is not None and used > self._max_memory:
                    raise self._too_large()
        finally:
            ending.cancel()

    def _too_large(self) -> Refused:
        bound = f"{self._max_memory >> 20} MiB of memory"
        return Refused(409, f"both runs took more than {bound}: it was ended; a shorter run, or one with fewer nodes, takes less")


def memory_of(pid: int) -> int | None:
    """Return the bytes of memory that a process has; None where the system does not tell, or the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return None


def bound_addresses(pid: int, most: int) -> None:
    """Let the system refuse a process more than this, where it can: on Linux."""
    prlimit = getattr(resource, "prlimit", None)
    if prlimit is not None:
        with contextlib.suppress(ProcessLookupError):
            prlimit(pid, resource.RLIMIT_AS, (most, most))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_TOLD)


def _reason(text: str) -> str:
    """The last line of what a command says when it fails."""
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error: ")[:500] if lines else "the run ended without a word"


def _tape(path: Path) -> dict[str, Any]:
    """Raises Refused."""
    try:
        return tape_of(lambda: read(path))
    except RecordingError as error:
        raise Refused(409, str(error)) from None
