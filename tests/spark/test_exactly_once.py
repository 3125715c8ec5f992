"""The sink that writes exactly once, through Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import committed, values
from tests.spark.test_sink import seed, source, start

pytestmark = [pytest.mark.spark]

EXACTLY = {"kraftlite.sink.mode": "exactly_once"}
LIMIT_S = 300


def finish(query: Any) -> Any:
    """The query, read to its end. Raises what it has failed with."""
    try:
        assert query.awaitTermination(LIMIT_S), "the query did not end"
    finally:
        query.stop()
    return query


def test_sx_01_a_stream_is_seen_once(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    out = f"{topic}-out"
    cluster.create_topic(out, 2)
    seed(cluster, topic, 40)
    rows = source(spark, cluster, topic, maxOffsetsPerTrigger="60", minPartitions="3").selectExpr("key", "value")
    query = finish(start(rows, cluster, out, tmp_path / "checkpoint", **EXACTLY))
    wanted = sorted(f"{partition}-{it:04d}" for partition in range(3) for it in range(40))
    assert values(cluster.bootstrap_servers, out) == wanted
    stamps = {it.stamp for it in committed(cluster.bootstrap_servers, out)}
    assert len(stamps) == 120 and {str(it).split("/")[0] for it in stamps} == {str(query.id)}
