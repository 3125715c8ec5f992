"""The example of docs/TRANSACTIONS.md is run as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraftlite.testing import SyncCluster
from tests.harness.embedded import produce

PAGE = Path(__file__).resolve().parents[3] / "docs" / "TRANSACTIONS.md"


def test_the_example_copies_exactly_once() -> None:
    code = PAGE.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    with SyncCluster(controllers=1, brokers=3) as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic, 2)
        servers = cluster.bootstrap_servers
        for partition in (0, 1):
            produce(cluster, "orders", [f"v{n}" for n in range(700)], partition=partition)
        assert names["copy"](servers, "orders", "copies", "copier") == 1400
        assert cluster.wait_for_transaction("copier", state="CompleteCommit").partitions == ()
        assert names["copy"](servers, "orders", "copies", "copier") == 0, "its successor goes on where it ended"
        produce(cluster, "orders", ["last"])
        assert names["copy"](servers, "orders", "copies", "copier") == 1
