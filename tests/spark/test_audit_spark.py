"""The audit and the failover report on Spark find what they find in one process; all else is in tests/unit/spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from kraftlite.spark.jobs.audit import audit
from kraftlite.spark.jobs.failover_report import AuditInputError, HistoryError, failover_report
from tests.harness.audit_cluster import END, acked_lines, flip, make_cluster

pytestmark = [pytest.mark.spark]


def test_spark_finds_what_one_process_finds(spark: Any, tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    flip(cluster["b2"].segments[1], 400)
    for broker in cluster.values():
        broker.rewrite(2, lambda batches: [*batches[:-1], bytes(batches[-1])])
    cluster["b3"].rewrite(1, lambda batches: [*batches[:3], batches[4], batches[3], *batches[5:]])
    history = tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in [*acked_lines(END), *acked_lines(END + 1)[-1:]]))
    dirs = {name: [broker.path] for name, broker in cluster.items()}
    said: list[str] = []
    found = audit(dirs, history=[str(history)], spark=spark, on_progress=lambda what, done, total: said.append(what))
    here = audit(dirs, history=[str(history)], engine="local")
    assert found.findings == here.findings and found.partitions == here.partitions
    assert sorted(finding.kind for finding in found.findings) == ["acked_lost", "bad_crc", "swapped_batches"]
    assert found.engine == "spark" and said[0] == "starting Spark"


def test_a_history_that_cannot_be_read_is_refused_as_it_is_here(spark: Any, tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, brokers=1)
    (tmp_path / "h.jsonl").write_text("{}\n")
    with pytest.raises(HistoryError, match=r"h\.jsonl:1: neither a record"):
        audit({"b1": [cluster["b1"].path]}, history=[str(tmp_path / "*.jsonl")], spark=spark)


def test_spark_reports_failovers_as_one_process_does(spark: Any, tmp_path: Path) -> None:
    from tests.unit.spark.test_failover_report import KILLED, whole_run

    paths = []
    for number in range(3):
        run = whole_run(tmp_path / f"run-{number}")
        run.line(event="kill", node=4, time_ms=KILLED + number * 100)
        run.acks(0, (10_000, 19_990), (29_300, 80_000))
        paths.append(run.write())
    found = failover_report(paths, out=tmp_path / "spark", spark=spark)
    here = failover_report(paths, out=tmp_path / "local", engine="local")
    assert found.runs == here.runs and found.percentiles == here.percentiles
    for table in ("failures", "outages", "isr", "percentiles"):
        rows = [pq.read_table(tmp_path / engine / table).to_pylist() for engine in ("spark", "local")]
        assert rows[0] == rows[1] and rows[0]
    assert (tmp_path / "spark" / "report.html").read_text() == (tmp_path / "local" / "report.html").read_text()
    with pytest.raises(AuditInputError, match="there is no such directory"):
        failover_report([tmp_path / "nowhere"], spark=spark)
