"""Ports for local clusters: the usual ones when they are free, and never those of another local cluster.

A stopped cluster keeps its ports, so that its nodes find each other again when it is started: they are written down in one small
file per user, and are free again when the cluster's directory is gone.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kraftlite.client.opening import open_at_once
from kraftlite.local.state import STATE_NAME, locked

HOST = "127.0.0.1"
_MAX_BYTES = 1 << 20
"""The bound of the file of all ports: ten thousand of them. A larger one does not parse, and is as good as none."""
_STEP = 1000
_BELOW = 32_000
"""Linux hands out ports from 32768 on to outgoing connections; a listener there may find its port taken after a restart."""


def reserve(data_dir: Path, wanted: Sequence[int], keep: Sequence[int] = ()) -> list[int]:
    """A port for each wanted one: that one, or the next free one in steps of 1000, or any. `keep`: those that the cluster has
    already, in use or not; what is reserved for a directory is all that it has."""
    registry = Path(tempfile.gettempdir()) / f"kraftlite-ports-{os.getuid()}.json"
    with locked(registry.with_suffix(".lock")):
        taken = _read(registry, data_dir) | dict.fromkeys(keep, str(data_dir))
        found: list[int] = []
        for port in wanted:
            chosen = next((p for p in range(port, _BELOW, _STEP) if p not in taken and _is_free(p)), None)
            if chosen is None:
                chosen = _any_free(taken)
            taken[chosen] = str(data_dir)
            found.append(chosen)
        temporary = registry.with_suffix(".tmp")
        temporary.write_text(json.dumps(taken))
        temporary.replace(registry)
    return found


def _read(registry: Path, data_dir: Path) -> dict[int, str]:
    """The ports that other clusters hold. An entry younger than its cluster's file (a start under way) is marked by its lock."""
    try:
        with open_at_once(registry) as file:
            raw = json.loads(file.read(_MAX_BYTES))
        entries = {int(port): str(owner) for port, owner in raw.items()}
    except (OSError, ValueError, AttributeError):
        return {}
    return {
        port: owner
        for port, owner in entries.items()
        if owner != str(data_dir) and ((Path(owner) / STATE_NAME).exists() or (Path(owner) / ".starting").exists())
    }


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _any_free(taken: dict[int, str]) -> int:
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
