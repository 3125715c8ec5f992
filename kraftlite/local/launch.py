"""Starts node processes by forking: `python -m kraftlite.local.launch`, with the nodes to start as JSON on standard input.

Everything that a node needs is imported once, and the directories are formatted, before any thread or gRPC channel exists;
then each node is a forked child with a session of its own, its output in its log file, and init as its parent. Six nodes cost
one import instead of six, which on a small machine is most of their start-up time.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One node to start."""

    id: int
    config: str
    log: str
    voters: str | None = None
    """The voters with which its directories are formatted: see `format_node`."""
    directory_id: str | None = None
    format: bool = False
    """Its directories that are not formatted are formatted before."""


def main() -> int:
    request: dict[str, Any] = json.loads(sys.stdin.read())
    orders = [Order(**order) for order in request["nodes"]]
    for name in [name for name in os.environ if name.startswith("KAFKA_") or name == "CLUSTER_ID"]:
        del os.environ[name]
    os.environ["CLUSTER_ID"] = request["cluster_id"]  # a node refuses directories of another cluster at once
    from kraftlite.config.server import ConfigError
    from kraftlite.local.format import format_node
    from kraftlite.node import serve
    from kraftlite.node.forming import FormingError
    from kraftlite.node.storage import StorageError

    serve.preload()
    try:
        for order in orders:
            if order.format:
                format_node(order.config, request["cluster_id"], order.voters, order.directory_id, request["add_scram"])
    except (StorageError, ConfigError, FormingError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'the data directory'}: {error.strerror or error}\n")
        return 1
    gc.collect()
    gc.freeze()
    return _start(orders, serve.run)


def _start(orders: Sequence[Order], run: Any) -> int:
    """Start all nodes and tell their pids, or none: a process whose pid nobody knows could not be stopped.

    So SIGTERM, by which the command says that it waits no longer, is heeded between the steps only.
    """
    pids: dict[int, int] = {}
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        if _is_deserted():
            raise BrokenPipeError(errno.EPIPE, "the command that started them has ended")
        for order in orders:
            pids[order.id] = _fork(order, run)
            if signal.SIGTERM in signal.sigpending():
                raise TimeoutError(errno.ETIMEDOUT, "the command that started them waits no longer")
        os.write(1, json.dumps({"pids": pids}).encode() + b"\n")
    except OSError as error:
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{error.strerror or error}\n")
            sys.stderr.flush()
        return 1
    return 0


def _is_deserted() -> bool:
    """Nobody will read the pids."""
    poll = select.poll()
    poll.register(1, 0)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))


def _fork(order: Order, run: Any) -> int:
    """Fork twice, so that init reaps the node; returns the node's pid. Raises OSError when the system has no process for it."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        os.setsid()
        try:
            pid = os.fork()
        except OSError:
            os._exit(1)
        if pid:
            os.write(writing, str(pid).encode())
            os._exit(0)
        os.close(writing)
        _become(order, run)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(middle, 0)
    if not text:
        raise OSError(errno.EAGAIN, "no process can be made for a node: the limit of processes or of memory is reached")
    return int(text)


def _become(order: Order, run: Any) -> None:
    status = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.close(null)
        _name_process(f"kraftlite-{order.id}")
        status = run(order.config, {})
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        # The end of a process that must not run on into the launcher's code: nobody is above to print the error.
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _name_process(name: str) -> None:
    """Set the name that `top` and `ps -o comm` show (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    sys.exit(main())
