"""The real ports of a node's process, and what watches it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlite.config.server import ServerConfig
from kraftlite.host.clock import HostClock
from kraftlite.host.disk import HostDisk
from kraftlite.host.loop import host_entropy
from kraftlite.host.tasks import HostTasks
from kraftlite.node.build import Node
from kraftlite.node.faults import FaultSink
from kraftlite.obs.log import LogSink, capture_python_logging
from kraftlite.obs.tracer import HostTracer, open_tracer
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace.node import ListenerOpened

if TYPE_CHECKING:
    from kraftlite.host.loop_lag import LoopLag
    from kraftlite.obs.metrics import MetricsServer

TRACE_FILE = "kraftlite-trace.jsonl"


@dataclass(slots=True, kw_only=True)
class Host:
    """Ports over the machine, with what must be closed after the node."""

    ports: Ports
    faults: FaultSink
    disk: HostDisk
    tracer: HostTracer
    server: MetricsServer | None = None
    loop_lag: LoopLag | None = None

    async def open_metrics(self, config: ServerConfig, node: Node) -> None:
        """The Prometheus page, if `kraftlite.metrics.port` asks for one. Raises OSError when the port is taken."""
        port = config.get("kraftlite.metrics.port")
        if port is None:
            return
        from kraftlite.host.loop_lag import LoopLag
        from kraftlite.node.metrics import register_gauges
        from kraftlite.node.telemetry import offer_telemetry
        from kraftlite.node.traffic_metrics import register_loop_lag, register_traffic
        from kraftlite.obs.metrics import Metrics, MetricsServer

        metrics = Metrics({})
        register_gauges(metrics, node, config.get_int("kraftlite.metrics.partitions.max"))
        register_traffic(metrics, node)
        self.loop_lag = LoopLag()
        register_loop_lag(metrics, self.loop_lag)
        self.loop_lag.start()
        offer_telemetry(metrics, node, config)
        self.tracer.add_sink(metrics)
        self.server = MetricsServer(metrics)
        host = config.get_text("kraftlite.metrics.host")
        try:
            endpoint = await self.server.start(host, int(port))
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OSError(f"kraftlite.metrics.port={port} of {host or 'all addresses'}: {reason or error}") from None
        self.tracer.emit(ListenerOpened(listener="METRICS", endpoint=str(endpoint)))

    async def close(self) -> None:
        if self.server is not None:
            await self.server.stop()
        if self.loop_lag is not None:
            self.loop_lag.stop()
        self.disk.close()
        self.tracer.close()


def open_host(config: ServerConfig) -> Host:
    """Raises OSError when the trace file cannot be opened."""
    clock, entropy = HostClock(), host_entropy()
    disk = HostDisk()
    faults = FaultSink()
    tracer = open_tracer(
        config.node_id,
        clock,
        level=config.get_text("kraftlite.log.level"),
        log_format=config.get_text("kraftlite.log.format"),
        timeline_path=_trace_path(config, disk),
        timeline_max_bytes=config.get_int("kraftlite.trace.max.bytes"),
    )
    faults.attach(tracer)
    capture_python_logging(LogSink(config.node_id, sys.stderr, config.get_text("kraftlite.log.format")))
    transport: GrpcTransport
    if config.get_bool("kraftlite.faults.enable"):
        # The tracer keeps the right time, and its file another way to the disk: a fault does not hide what it does.
        from kraftlite.faults.clock import FaultyClock
        from kraftlite.faults.disk import FaultyDisk
        from kraftlite.faults.network import FaultyTransport

        clock, disk = FaultyClock(), FaultyDisk(config.all_log_dirs)
        transport = FaultyTransport(rng=entropy, fault=faults, tracer=tracer)
    else:
        transport = GrpcTransport(fault=faults, tracer=tracer)
    ports = Ports(
        node_id=config.node_id,
        clock=clock,
        disk=disk,
        transport=transport,
        tracer=tracer,
        tasks=HostTasks(faults),
        entropy=entropy,
        fault=faults,
    )
    return Host(ports=ports, faults=faults, disk=disk, tracer=tracer)


def _writable(path: str) -> str:
    """A file that was asked for by name must be there for whoever reads it. Raises OSError naming the key."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise OSError(f"kraftlite.trace.file={path}: {error.strerror}") from None
    return path


def _trace_path(config: ServerConfig, disk: HostDisk) -> str | None:
    """Beside the metadata log, once its directory exists: a node that is not formatted must not create it."""
    if not config.get_bool("kraftlite.trace.enable"):
        return None
    path = config.get("kraftlite.trace.file")
    if path is not None:
        return _writable(str(path))
    return f"{config.metadata_log_dir}/{TRACE_FILE}" if disk.stat(config.metadata_log_dir) is not None else None
