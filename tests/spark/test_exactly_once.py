"""The sink that writes exactly once, through Spark: streams, batches with a name, `foreachBatch`, and tasks that fail.

The table of deaths is in tests/embedded/test_exactly_once.py, without Spark. Source: SX-01, SX-03, SX-05.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import committed, values
from tests.spark.conftest import NOT_CONNECTED
from tests.spark.test_sink import save, seed, source, start

pytestmark = [pytest.mark.spark]

EXACTLY = {"kraftlite.sink.mode": "exactly_once"}
LIMIT_S = 300
ATTEMPTS = 6
SENT = sorted(f"{partition}-{it:04d}" for partition in range(3) for it in range(20))


def finished(begin: Callable[[], Any]) -> Any:
    """The query, read to its end. Raises what it has failed with. On a machine with a load of many times its cores Spark gives up
    on its Python processes; then the query begins once more where its checkpoint says."""
    for attempt in range(ATTEMPTS):
        query = begin()
        try:
            assert query.awaitTermination(LIMIT_S), "the query did not end"
            return query
        except Exception as error:
            if NOT_CONNECTED not in str(error) or attempt == ATTEMPTS - 1:
                raise
        finally:
            query.stop()
    raise AssertionError("unreachable")


@pytest.fixture
def out(cluster: SyncCluster, topic: str) -> str:
    """Beside `topic`, which has 20 records in each of three partitions."""
    name = f"{topic}-out"
    cluster.create_topic(name, 2)
    seed(cluster, topic, 20)
    return name


def test_sx_01_a_stream_is_seen_once(spark: Any, cluster: SyncCluster, topic: str, out: str, tmp_path: Path) -> None:
    """A task of the second batch fails when others have staged; then the commit log of the last batch is lost. Every row has one
    stamp, and the reader sees it once; nothing of the batch that failed is seen before it has run again."""
    checkpoint = tmp_path / "checkpoint"

    def run(value: str = "value") -> str:
        rows = source(spark, cluster, topic, maxOffsetsPerTrigger="30", minPartitions="3").selectExpr("key", value)
        return str(finished(lambda: start(rows, cluster, out, checkpoint, **EXACTLY)).id)

    with pytest.raises(Exception, match="broken in the middle"):
        run("if(value = cast('2-0015' as binary), raise_error('broken in the middle'), value) as value")
    assert values(cluster.bootstrap_servers, out) == [it for it in SENT if it[2:] < "0010"]
    query = run()
    assert values(cluster.bootstrap_servers, out) == SENT
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    assert run() == query, "the query is another one"
    found = committed(cluster.bootstrap_servers, out)
    assert sorted((it.value or b"").decode() for it in found) == SENT
    wanted = {f"{query}/{batch}/{task}/{index}" for batch in range(2) for task in range(3) for index in range(10)}
    assert {it.stamp for it in found} == wanted and len(found) == len(wanted)


def test_sx_05_a_batch_has_a_name(spark: Any, cluster: SyncCluster, out: str) -> None:
    """Written again by the same name it is there once; with other rows it is refused; without a name nothing is written."""
    frame = spark.range(0, 60, 1, 3).selectExpr("cast(id as string) as value")
    named = {**EXACTLY, "kraftlite.sink.job.id": f"job-of-{out}"}
    wanted = sorted(str(it) for it in range(60))
    for _ in range(2):
        save(frame, cluster, out, **named)
        assert values(cluster.bootstrap_servers, out) == wanted
    with pytest.raises(Exception, match="is at least partly written, and its rows are others now, or split"):
        save(frame.selectExpr("concat(value, 'x') as value"), cluster, out, **named)
    with pytest.raises(Exception, match=r"by which name is this output known .* kraftlite.sink.job.id tells it"):
        save(frame, cluster, out, **EXACTLY)
    assert values(cluster.bootstrap_servers, out) == wanted


def test_sx_05_for_each_batch_is_known_by_its_query(
    spark: Any, cluster: SyncCluster, topic: str, out: str, tmp_path: Path
) -> None:
    """Two outputs of each batch, told apart by the name of the second one; the batch fails between them once, and runs again."""
    failures = [RuntimeError("between the outputs")]

    def write(batch: Any, _number: int) -> None:
        save(batch.selectExpr("value"), cluster, out, **EXACTLY)
        if failures:
            raise failures.pop()
        second = {**EXACTLY, "kraftlite.sink.job.id": "second"}
        save(batch.selectExpr("concat('second-', cast(value as string)) as value"), cluster, out, **second)

    def run() -> None:
        rows = source(spark, cluster, topic, minPartitions="3")
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        finished(lambda: writer.trigger(availableNow=True).start())

    with pytest.raises(Exception, match="between the outputs"):
        run()
    assert values(cluster.bootstrap_servers, out) == SENT
    run()
    assert values(cluster.bootstrap_servers, out) == sorted([*SENT, *(f"second-{it}" for it in SENT)])
