"""The page as a process beside the nodes of a local cluster: `kraftlite up --ui` starts it, `kraftlite down` stops it.

`<data-dir>/ui.json` says which process it is and where it serves; its tokens are in no file.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraftlite.local import process
from kraftlite.local.state import PAGE_LOG, PAGE_NAME, LocalError

START_S: Final = 120.0
"""A loaded machine can take a minute to start a Python process that serves a page; one that ends is seen at once."""
STOP_S: Final = 10.0
_MAX_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The process of a page, alive or not."""

    pid: int
    mark: str
    address: str

    @property
    def state(self) -> str:
        return process.state_of(self.pid, self.mark)


def find(data_dir: Path) -> Beside | None:
    """The page that runs beside the cluster in this directory; None when none does, or its file says nothing of use."""
    try:
        raw: Any = json.loads((data_dir / PAGE_NAME).read_bytes()[:_MAX_BYTES])
        found = Beside(pid=int(raw["pid"]), mark=str(raw["mark"]), address=str(raw["address"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return None if found.state == process.STOPPED else found


def start(data_dir: Path) -> dict[str, str]:
    """Start it, and return its links (`operator`, `viewer`). Raises LocalError with the reason when it does not serve."""
    stop(data_dir)
    log = data_dir / PAGE_LOG
    command = [sys.executable, "-m", "kraftlite", "ui", "--data-dir", str(data_dir), "--json"]
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            cwd=data_dir,
            env=process.own_environment(),
        )
    assert child.stdout is not None
    try:
        ready, _, _ = select.select([child.stdout], [], [], START_S)
        line = child.stdout.readline(_MAX_BYTES) if ready else b""
    except BaseException:  # an interruption, before anybody could find the process
        child.kill()
        child.wait()
        raise
    child.stdout.close()
    try:
        links = {name: str(link) for name, link in json.loads(line).items()}
        address = links["operator"].partition("#")[0]
    except (ValueError, KeyError, AttributeError):
        child.kill()
        child.wait()
        words = log.read_text("utf-8", "replace")[-_MAX_BYTES:].strip().splitlines()
        silence = "it ended without a word" if ready else f"it said nothing within {START_S:.0f} s"
        raise LocalError(f"the page did not start: {words[-1] if words else silence}") from None
    mark = process.start_mark(child.pid) or "gone"
    (data_dir / PAGE_NAME).write_text(json.dumps({"pid": child.pid, "mark": mark, "address": address}) + "\n")
    return links


def stop(data_dir: Path) -> bool:
    """Stop the page beside this cluster; returns whether there was one."""
    found = find(data_dir)
    (data_dir / PAGE_NAME).unlink(missing_ok=True)
    if found is None:
        return False
    process.send(found.pid, found.mark, signal.SIGTERM)
    if not process.wait_until(lambda: found.state == process.STOPPED, STOP_S):
        process.send(found.pid, found.mark, signal.SIGKILL)
    return True
