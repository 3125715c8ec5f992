"""A node as a process: configuration, signals, exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftlite.config.server import ConfigError, ServerConfig, load
from kraftlite.model.errors import Fault
from kraftlite.node.storage import StorageError

if TYPE_CHECKING:
    from kraftlite.node.build import Node
    from kraftlite.node.faults import FaultSink

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
FAULT_STOP_MS: Final = 5_000
"""The time that a node that has faulted may take to close what it can."""


def run(config_path: str | None, overrides: Mapping[str, str] | None = None) -> int:
    """Run one node until it is told to stop. Returns the process's exit status; user errors print one line, no stack."""
    try:
        config = load(config_path, os.environ, overrides)
    except ConfigError as error:
        for problem in error.problems:
            _complain(f"configuration: {problem}")
        return EXIT_FAILED
    if config.get_bool("kraftlite.malloc.tuning"):
        from kraftlite.host.memory import tune_malloc

        tune_malloc()
    from kraftlite.host.limits import raise_file_limit
    from kraftlite.host.loop import new_event_loop

    raise_file_limit()
    loop = new_event_loop(config.get_text("kraftlite.event.loop"))
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(_Process(config).run())
    except (StorageError, Fault, OSError, ValueError) as error:
        _complain(str(error))
        return EXIT_FAILED
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def preload() -> None:
    """Import everything that nodes import late, for a process that is about to fork into several of them."""
    import kraftlite.broker.server
    import kraftlite.node.host
    import kraftlite.rpc.client
    import kraftlite.rpc.server  # noqa: F401
    from kraftlite.node.listeners import import_client_side

    import_client_side()


class _Process:
    """The node, its host ports, and the signals. SIGTERM, SIGINT or SIGHUP stops gracefully, the second one at once;
    what somebody had it ignore, as nohup does, it ignores."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._signals = 0
        self._asked = asyncio.Event()

    async def run(self) -> int:
        from kraftlite.node.host import open_host

        host = open_host(self._config)
        try:
            from kraftlite.host.loop import tune_threads
            from kraftlite.host.memory import tune_gc
            from kraftlite.node.build import build_node

            node = build_node(self._config, host.ports)
            tune_gc()
            tune_threads()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self._on_signal)
            await host.open_metrics(self._config, node)
            starting = loop.create_task(node.start(), name="start")
            asked = loop.create_task(self._asked.wait(), name="signals")
            faulted = loop.create_task(host.faults.wait(), name="faults")
            try:
                await asyncio.wait((starting, asked, faulted), return_when=asyncio.FIRST_COMPLETED)
                if starting.done() and starting.exception() is None and host.faults.reason is None:
                    self._announce()
                    await asyncio.wait((asked, faulted), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (starting, asked, faulted):
                    task.cancel()
                await asyncio.wait((starting, asked, faulted))
            failure = None if starting.cancelled() else starting.exception()
            if failure is not None and host.faults.reason is None:
                # The usual reason is an address that is in use: a user's error, told without a stack.
                host.faults(Fault(str(failure)) if isinstance(failure, OSError) else failure, "start")
            return await self._end(node, host.faults)
        finally:
            await host.close()

    async def _end(self, node: Node, faults: FaultSink) -> int:
        """Stop the node: gracefully if all is well, and with little patience once it has faulted."""
        graceful = faults.reason is None
        if faults.reason is not None:
            _complain(faults.reason)
        loop = asyncio.get_running_loop()
        stopping = loop.create_task(node.stop(graceful=graceful, reason=faults.reason or "signal"), name="stop")
        faulted = loop.create_task(faults.wait(), name="faults")
        try:
            if graceful:
                await asyncio.wait((stopping, faulted), return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                await asyncio.wait((stopping,), timeout=FAULT_STOP_MS / 1000)
        finally:
            faulted.cancel()
        if graceful and faults.reason is not None:
            _complain(faults.reason)
        if not stopping.done():
            _complain(f"the node did not stop within {FAULT_STOP_MS} ms of its fault")
            stopping.cancel()
            await asyncio.wait((stopping,))
        elif stopping.exception() is not None and faults.reason is None:
            stopping.result()
        return EXIT_OK if faults.reason is None else EXIT_FAILED

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EXIT_INTERRUPTED)
        self._asked.set()

    def _announce(self) -> None:
        """The lines that tools which start Kafka wait for."""
        node_id = self._config.node_id
        lines = (
            [f"[KafkaServer id={node_id}] started"] if self._config.is_broker else [f"[ControllerServer id={node_id}] started"]
        )
        lines.append(f"[KafkaRaftServer nodeId={node_id}] Kafka Server started")
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"kraftlite: {text}\n")
    sys.stderr.flush()
