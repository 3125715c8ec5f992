"""A broker that has a metrics page asks its clients for their metrics, and shows them there. Source: KIP-714; TM-01, TM-04."""

from __future__ import annotations

from kraftlite.broker.telemetry import ClientTelemetry
from kraftlite.config.server import ServerConfig
from kraftlite.node.build import Node
from kraftlite.obs.client_metrics import ClientMetrics, register_client_metrics
from kraftlite.obs.metrics import Metrics


def offer_telemetry(metrics: Metrics, node: Node, config: ServerConfig) -> None:
    """Before the node starts: its listeners offer the APIs of telemetry then. Nothing for a node that is no broker."""
    if node.broker is None:
        return
    context, now_ms = node.broker.context, node.ports.clock.now_ms
    clients = ClientMetrics(most_series=config.get_int("kraftlite.metrics.client.series.max"), now_ms=now_ms)
    context.telemetry = ClientTelemetry(
        lambda: context.metadata.image.configs,
        clients,
        max_bytes=config.get_int("telemetry.max.bytes"),
        now_ms=now_ms,
        entropy=node.ports.entropy,
    )
    register_client_metrics(metrics, context.telemetry, clients)
