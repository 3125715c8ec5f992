"""The table of all series of a metrics page, which `kraftlite metrics list` shows; `--write` writes it anew."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from kraftlite.host.loop_lag import LoopLag
from kraftlite.node.metrics import register_gauges, register_tls
from kraftlite.node.telemetry import offer_telemetry
from kraftlite.node.traffic_metrics import register_loop_lag, register_traffic
from kraftlite.obs.metrics import Described, Metrics
from tests.harness.node_cluster import MemCluster

TABLE: Final = Path(__file__).parents[2] / "kraftlite" / "obs" / "series.json"
_CONFIG: Final = {
    "kraftlite.faults.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""What makes parts of a node that have series of their own."""


async def _registered() -> dict[Described, set[str]]:
    """Each series, with the roles of the nodes that have it."""
    found: dict[Described, set[str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        cluster = MemCluster(Path(directory), controllers=1, brokers=1, **_CONFIG)
        await cluster.up()
        for host in cluster.nodes.values():
            node = host.node
            assert node is not None and node.gate is not None and node.injector is not None
            metrics = Metrics({})
            register_gauges(metrics, node, most_partitions=1)
            register_tls(metrics, node)
            register_traffic(metrics, node)
            register_loop_lag(metrics, LoopLag())
            offer_telemetry(metrics, node, host.config)
            role = "controller" if node.broker is None else "broker"
            for series in metrics.described():
                found.setdefault(series, set()).add(role)
        for host in cluster.nodes.values():
            await host.stop()
    return found


def table() -> str:
    rows = [
        {"name": it.name, "type": it.kind, "labels": list(it.labels), "nodes": sorted(roles), "help": it.doc}
        for it, roles in sorted(asyncio.run(_registered()).items())
    ]
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        TABLE.write_text(table())
    elif TABLE.read_text() != table():
        sys.exit(f"{TABLE} is not what nodes have: python -m tests.tidy.series --write")
