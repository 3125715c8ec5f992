"""The door of a supervisor, from the side of those who knock: a Unix socket in the directory of the cluster.

Who may open it is what the file system says: the directory and the socket belong to the user of the nodes alone, as the ledger,
and the keys of a closed cluster, which lie beside it.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any, Final

from kraftlite.local import process

SOCKET_NAME: Final = "supervisor.sock"
STATE: Final = "state"
START: Final = "start"
ANSWER_S: Final = 2.0
"""The wait for an answer, in all. A supervisor that is there and says nothing is frozen, and its node with it."""
MAX_BYTES: Final = 512
"""A question or an answer."""


def ask(path: Path, word: str) -> dict[str, Any] | None:
    """The answer to `state`, `start`, or the name of a signal. None: nobody is there. Raises TimeoutError when somebody is, and
    does not answer."""
    deadline = time.monotonic() + ANSWER_S
    found = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        try:
            door.settimeout(ANSWER_S)
            door.connect(str(path))
            door.sendall(json.dumps({"do": word}).encode() + b"\n")
            while not found.endswith(b"\n") and len(found) <= MAX_BYTES:
                door.settimeout(max(0.001, deadline - time.monotonic()))
                piece = door.recv(MAX_BYTES)
                if not piece:
                    break
                found += piece
        except TimeoutError:
            raise
        except OSError:
            return None
    try:
        answer = json.loads(found)
    except ValueError:
        return None  # it ended, or had too many to answer
    return answer if isinstance(answer, dict) else None


def state(path: Path) -> str:
    """running, paused or stopped."""
    try:
        answer = ask(path, STATE) or {}
    except TimeoutError:
        return process.PAUSED
    found = answer.get("state")
    return found if found in (process.RUNNING, process.PAUSED) else process.STOPPED


def do(path: Path, word: str) -> bool:
    """Ask for it, and return whether it was done."""
    try:
        return (ask(path, word) or {}).get("done") is True
    except TimeoutError:
        return False
