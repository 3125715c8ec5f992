"""The wait until a node that was started is ready, by what it writes into its log, and the last words of one that is not."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftlite.local import process
from kraftlite.local.state import LocalError, LocalNode, load

READY_TIMEOUT_S = 60.0
"""The wait for a node's next sign of life while it starts; it may take PATIENCE times that in all, as on a busy machine."""
PATIENCE = 3
_LITTLE_SPACE = 1 << 20
"""Bytes of free disk below which a node cannot even say what is wrong."""
_LOOKED_AT_BYTES = 1 << 20
"""The part, at its end, of what a node has said that is looked at."""


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def wait_ready(nodes: Sequence[LocalNode], offsets: Mapping[int, int]) -> None:
    waiting = {node.id: node for node in nodes}
    sizes = dict(offsets)

    def settled() -> bool:
        for node in list(waiting.values()):
            if _says_started(node, offsets[node.id]):
                del waiting[node.id]
            elif node.state == process.STOPPED:
                raise LocalError(
                    f"node {node.id} ended while starting: {_last_line(node, offsets[node.id])} (see {node.log_path})"
                )
        return not waiting

    for _ in range(PATIENCE):
        if process.wait_until(settled, READY_TIMEOUT_S):
            return
        grown = {node.id: size_of(node.log_path) for node in waiting.values()}
        if all(grown[node_id] == sizes[node_id] for node_id in grown):
            break
        sizes.update(grown)
    first = next(iter(waiting.values()))
    why = _without_controllers(Path(first.directory).parent) or f"; its last words: {_last_line(first, offsets[first.id])}"
    names = ", ".join(str(node_id) for node_id in waiting)
    raise LocalError(f"node {names} runs and is not ready yet{why} (see {first.log_path}, and kraftlite ps)")


def _without_controllers(data_dir: Path) -> str:
    """The usual reason why a node waits: nobody elects a leader. Empty when that is not it."""
    controllers = [node for node in load(data_dir).nodes if node.is_controller]
    running = sum(node.state == process.RUNNING for node in controllers)
    if running > len(controllers) // 2:
        return ""
    return f"; only {running} of {len(controllers)} controllers run, which is no majority"


def _says_started(node: LocalNode, offset: int) -> bool:
    """The line that testcontainers waits for, too."""
    return "Kafka Server started" in _log_since(node, offset)


def _log_since(node: LocalNode, offset: int) -> str:
    try:
        with node.log_path.open("rb") as log:
            log.seek(max(offset, log.seek(0, os.SEEK_END) - _LOOKED_AT_BYTES))
            return log.read(_LOOKED_AT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _last_line(node: LocalNode, offset: int) -> str:
    lines = [line for line in _log_since(node, offset).splitlines() if line.strip()]
    reasons = [line.removeprefix("kraftlite: ") for line in lines if line.startswith("kraftlite: ")]
    if lines:
        return ("; ".join(reasons) or lines[-1])[:1000]
    with contextlib.suppress(OSError):
        if shutil.disk_usage(node.directory).free < _LITTLE_SPACE:
            return "it said nothing; the disk is full"
    return "it said nothing"
