"""The data source beside Spark's own sources, in one session and one run: ratios, not figures.

Every comparison is interleaved and takes the best of `REPETITIONS`, since both sides share the cores with whatever else runs. The
brokers of the live topic run as processes on the same cores. Needs the extra `spark` and Java; Spark's Kafka connector is a peer
when Maven can get it.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.bench.cluster import BenchCluster, until
from tests.bench.failover import create, whole
from tests.bench.throughput import CLUSTER

SINGLE: Final = {**CLUSTER, "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
ROWS: Final = 5_000_000
MILLION: Final = 1_000_000
PARTITIONS: Final = 6
PAYLOAD: Final = 84
"""Bytes of a value; keys have 16."""
REPETITIONS: Final = 3
CONNECTOR_VERSION: Final = "4.2.0"
"""It runs on every Spark 4.2."""
JARS: Final = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
TRIGGERS: Final = 40


def best_s(work: Mapping[str, Callable[[], object]], repetitions: int = REPETITIONS) -> dict[str, float]:
    """Seconds of each, taken in turns."""
    best: dict[str, float] = {}
    for _ in range(repetitions):
        for name, function in work.items():
            began = time.perf_counter()
            function()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
    return best


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _fill(spark: Any, bootstrap: str, topic: str) -> None:
    rows = _random(spark, ROWS, 2 * PARTITIONS)
    rows.write.format("kraftlite").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).mode("append").save()


def _random(spark: Any, rows: int, tasks: int) -> Any:
    """Random bytes, so that nobody gets them for nothing."""
    return spark.range(0, rows, 1, tasks).selectExpr(
        "substr(unhex(sha2(cast(id as string), 256)), 1, 16) as key",
        f"substr(concat(unhex(sha2(cast(id as string), 512)), unhex(sha2(cast(-id as string), 512))), 1, {PAYLOAD}) as value",
    )


def spark() -> dict[str, Any]:
    """Ratios are above 1 where the data source is faster than what it is compared with."""
    from kraftlite.spark.session import session

    figures: dict[str, Any] = {}
    there = Path(tempfile.mkdtemp(prefix="kraftlite-bench-"))
    connector = _connector()
    config = {"spark.jars": connector} if connector else {}
    found = session("job", master="local[2]", config={**config, "spark.driver.memory": "2g"})
    try:
        with BenchCluster(controllers=1, brokers=1, combined=True, config=SINGLE) as cluster:
            _create(cluster.bootstrap, "rows")
            _fill(found, cluster.bootstrap, "rows")
            figures |= _scans(found, cluster.bootstrap, there, bool(connector))
            figures |= _segments(found, cluster.data_dir, there)
            figures |= _sink(found, cluster.bootstrap, there)
            figures |= _latency(found, cluster.bootstrap, there)
            figures |= _exactly_once(found, cluster.bootstrap)
    finally:
        found.stop()
        shutil.rmtree(there, ignore_errors=True)
    return figures


def _create(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, PARTITIONS, 1)
    until("led", lambda: whole(bootstrap, topic))


def _scans(spark: Any, bootstrap: str, there: Path, connector: bool) -> dict[str, Any]:
    def topic(kind: str) -> Any:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "rows"}
        return spark.read.format(kind).options(**options).load()

    parquet = str(there / "rows")
    topic("kraftlite").write.mode("overwrite").parquet(parquet)

    scans = {"topic": lambda: noop(topic("kraftlite")), "parquet": lambda: noop(spark.read.parquet(parquet))}
    if connector:
        scans["connector"] = lambda: noop(topic("kafka"))
    took = best_s(scans)
    figures = {
        "live topic -> noop, M rows/s": round(ROWS / took["topic"] / 1e6, 2),
        "live topic scan / Parquet scan of the same rows": round(took["parquet"] / took["topic"], 2),
    }
    if connector:
        figures["live topic scan / Spark's Kafka connector"] = round(took["connector"] / took["topic"], 2)
    took = best_s(
        {"topic": lambda: _copy(topic("kraftlite"), there), "parquet": lambda: _copy(spark.read.parquet(parquet), there)}
    )
    figures["live topic -> Parquet / Parquet -> Parquet"] = round(took["parquet"] / took["topic"], 2)
    return figures


def _copy(frame: Any, there: Path) -> None:
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(there / "copy"))


def _segments(spark: Any, data_dir: Path, there: Path) -> dict[str, Any]:
    """The files of the running broker, beside the Parquet that `_scans` has written."""

    def files(**options: str) -> Any:
        given = {"scan": "segments", "subscribe": "rows", **options}
        return spark.read.format("kraftlite").options(**given).load(str(data_dir))

    def parquet() -> Any:
        return spark.read.parquet(str(there / "rows"))

    def records() -> Any:
        return files(endAt="logEnd")  # with one broker everything is committed, though it may not be written down yet

    scans = {
        "segments": lambda: noop(records()),
        "parquet": lambda: noop(parquet()),
        "batches": lambda: noop(files(view="batches")),
    }
    took = best_s(scans) | {
        f"{name} copied": it
        for name, it in best_s({"segments": lambda: _copy(records(), there), "parquet": lambda: _copy(parquet(), there)}).items()
    }
    size = sum(path.stat().st_size for path in data_dir.rglob("rows-*/*.log"))
    return {
        "segments -> noop, M rows/s": round(ROWS / took["segments"] / 1e6, 2),
        "segments scan / Parquet scan of the same rows": round(took["parquet"] / took["segments"], 2),
        "segments -> Parquet / Parquet -> Parquet": round(took["parquet copied"] / took["segments copied"], 2),
        "segments, view=batches with CRC, GB/s": round(size / took["batches"] / 1e9, 2),
    }


def _sink(spark: Any, bootstrap: str, there: Path) -> dict[str, Any]:
    """The first run is not counted: workers, connections and compiled code are new in it."""
    _create(bootstrap, "copy")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "copy"}

    def write() -> None:
        rows = spark.read.parquet(str(there / "rows")).select("key", "value")
        rows.write.format("kraftlite").options(**options).mode("append").save()

    write()
    return {"Parquet -> topic, M rows/s": round(ROWS / best_s({"topic": write}, 2)["topic"] / 1e6, 2)}


def _latency(spark: Any, bootstrap: str, there: Path) -> dict[str, Any]:
    """Batches of 1,000 rows back to back, without anybody who asks how far they are meanwhile."""
    _create(bootstrap, "few")
    wide = spark.read.parquet(str(there / "rows")).select("key", "value").limit(TRIGGERS * 1_000)
    wide.write.format("kraftlite").options(**{"kafka.bootstrap.servers": bootstrap, "topic": "few"}).mode("append").save()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "few", "startingOffsets": "earliest"}
    figures = {}
    for sink in ("noop", "parquet"):
        rows = spark.readStream.format("kraftlite").options(**options, maxOffsetsPerTrigger="1000").load()
        writer = rows.writeStream.format(sink).option("checkpointLocation", str(there / f"checkpoint-{sink}"))
        if sink == "parquet":
            writer = writer.option("path", str(there / "small"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = [it.durationMs["triggerExecution"] for it in query.recentProgress[5:]]
        figures[f"micro-batch of 1,000 rows to {sink}, p50 ms"] = round(statistics.median(took))
    return figures


def sink_modes() -> dict[str, Any]:
    """The exactly-once sink beside the at-least-once sink alone: the last rows of `spark`, without the others."""
    from kraftlite.spark.session import session

    found = session("job", master="local[2]", config={"spark.driver.memory": "2g"})
    try:
        with BenchCluster(controllers=1, brokers=1, combined=True, config=SINGLE) as cluster:
            return _exactly_once(found, cluster.bootstrap)
    finally:
        found.stop()


def _exactly_once(spark: Any, bootstrap: str) -> dict[str, Any]:
    """Both modes in turns: batches of a million rows that are in memory, and batches of a thousand. The first of each are not
    counted."""
    _create(bootstrap, "sunk")
    jobs = count(1)

    def save(rows: Any, mode: str) -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": "sunk", "kraftlite.sink.mode": mode}
        if mode == "exactly_once":
            options["kraftlite.sink.job.id"] = f"bench-{next(jobs)}"
        rows.write.format("kraftlite").options(**options).mode("append").save()

    figures = {}
    for size, repetitions in ((MILLION, REPETITIONS), (1_000, TRIGGERS)):
        rows = _random(spark, size, 2).persist()
        rows.count()
        took: dict[str, list[float]] = {"at_least_once": [], "exactly_once": []}
        for _ in range(repetitions + 1):
            for mode, them in took.items():
                began = time.perf_counter()
                save(rows, mode)
                them.append(time.perf_counter() - began)
        figures[size] = {mode: (min(them[1:]), statistics.median(them[1:])) for mode, them in took.items()}
        rows.unpersist()
    large, small = figures[MILLION], figures[1_000]
    added_s = small["exactly_once"][1] - small["at_least_once"][1]
    return {
        "exactly-once sink, batches of 1 M rows, M rows/s": round(1 / large["exactly_once"][0], 2),
        "exactly-once sink / at-least-once sink, batches of 1 M rows": round(
            large["at_least_once"][0] / large["exactly_once"][0], 2
        ),
        "exactly-once sink, what it adds to a batch of 1,000 rows, p50 ms": round(added_s * 1000),
    }


def _connector() -> str | None:
    """The connector's jars with commas between them, resolved by Maven once; None, and why is told, when there are none."""
    pom = Path(__file__).with_name("spark-connector.pom.xml")
    folder = Path.home() / ".cache" / "kraftlite" / f"spark-connector-{CONNECTOR_VERSION}"
    if not folder.is_dir():
        if shutil.which("mvn") is None:
            print("Spark's Kafka connector is left out: mvn is not installed", file=sys.stderr)
            return None
        goal = [
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}.part",
            "-DincludeScope=runtime",
            f"-DincludeArtifactIds={JARS}",
        ]
        command = ["mvn", "-q", "-B", "-f", str(pom), f"-Dspark.version={CONNECTOR_VERSION}", *goal]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            print(f"Spark's Kafka connector is left out: {(done.stdout or done.stderr).strip()[:200]}", file=sys.stderr)
            return None
        Path(f"{folder}.part").rename(folder)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
