"""Node processes as the operating system sees them: identity, state, signals.

A process is signalled only if its pid still belongs to the process that was started: pids are used again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"
UNKNOWN = "unknown"
"""The process is in a container, and nobody there says."""


def own_environment() -> dict[str, str]:
    """The environment for another process of this package, which finds it where it is found here, in any directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def answer_of(command: Sequence[str], request: str, *, cwd: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program of this package to its end, in a session of its own, with `request` as its standard input.

    When it takes longer than `timeout_s` it is told so by SIGTERM and has as long again to end, so that it can clear away what it
    has begun; what it answers then counts. Only after that is it killed. Raises subprocess.TimeoutExpired then.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=own_environment(),
        start_new_session=True,
    ) as running:
        try:
            try:
                out, err = running.communicate(request, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                running.terminate()
                out, err = running.communicate(timeout=timeout_s)
        except BaseException:
            running.kill()
            raise
    return subprocess.CompletedProcess(command, running.returncode, out, err)


def start_mark(pid: int) -> str | None:
    """Return the start time, which tells this process from a later one with the same pid. None when there is no live process."""
    fields = _stat(pid)
    if fields is not None:
        return None if fields[0] in "ZX" else fields[19]
    if sys.platform.startswith("linux"):
        return None
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    words = answer.stdout.split(maxsplit=1)
    return None if len(words) < 2 or words[0].startswith("Z") else words[1].strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state on: [0] state, [19] start time."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def state_of(pid: int | None, mark: str | None) -> str:
    """running, paused or stopped."""
    if pid is None or mark is None or start_mark(pid) != mark:
        return STOPPED
    fields = _stat(pid)
    if fields is not None:
        return PAUSED if fields[0] in "Tt" else RUNNING
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return PAUSED if answer.stdout.startswith("T") else RUNNING


def send(pid: int | None, mark: str | None, number: signal.Signals) -> bool:
    """Signal the process if it is still the one, and return whether it was."""
    if pid is None or state_of(pid, mark) == STOPPED:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that end a program are taken when the block is over; they are told to the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda *signalled: taken.append(signalled))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for signalled in taken[:1]:
            handlers[signal.Signals(signalled[0])](*signalled)


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.02) -> bool:
    """Poll until the condition holds, and return whether it did before the time was up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True
