"""The examples of docs/SPARK.md and of the README are run as they stand there but for where they write, and do what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlite.testing import SyncCluster
from tests.harness import embedded
from tests.harness.audit_cluster import make_cluster
from tests.harness.exactly_once import values

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "SPARK.md"
README = DOCUMENT.parents[1] / "README.md"
COUNT = 1_000

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_examples_of_the_document(
    spark: Any, cluster: SyncCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    examples = [it.split("```", 1)[0] for it in DOCUMENT.read_text().split("```python\n")[1:]]
    assert len(examples) == 12
    for topic in ("orders", "copies", "exact-copies"):
        cluster.create_topic(topic, 3)
    for partition in range(3):
        embedded.produce(cluster, "orders", [str(it) for it in range(partition, COUNT, 3)], partition=partition)
    monkeypatch.setenv("KRAFTLITE_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    brokers = make_cluster(tmp_path)
    names: dict[str, Any] = {}
    for number, code in enumerate(examples):
        code = code.replace('"lake/', f'"{tmp_path}/lake/')  # Spark's directory is where its JVM was started
        code = code.replace("~/.kraftlite/local", ",".join(f"{name}={it.path}" for name, it in brokers.items()))
        exec(compile(code, f"{DOCUMENT.name}, example {number + 1}", "exec"), names)
    assert names["spark"] is spark
    assert names["places"].columns == ["partition", "offset"]
    assert names["batches"].count() == len(brokers) * sum(len(brokers["b1"].batches(it)) for it in range(3))
    assert names["late"].count() == COUNT // 3 - 100
    assert spark.read.parquet(f"{tmp_path}/lake/orders").distinct().count() == COUNT
    copies = names["copies"].collect()
    assert len(copies) == names["once"].count() == COUNT + 3, "a thousand of the stream, three of the update mode"
    stamps = [header.value for row in copies for header in row.headers or () if header.key == "kraftlite.batch"]
    assert len(stamps) == COUNT
    seen = values(cluster.bootstrap_servers, "exact-copies")
    assert len(seen) == COUNT + 3 + 3, "a thousand of the stream, three of the update mode, three of the job"
    first_time = names["Once"]()
    before, after = b"1b/6/0/9", b"1b/8/0/0"
    assert [first_time(it) for it in (before, *stamps[:2], *stamps[:2], after, before, after)] == [
        *(True, True, True, False, False, True, False, False)
    ]
    assert "sum(number)" in capfd.readouterr().out
    code = README.read_text().split("### On Spark", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    exec(compile(code.replace("localhost:29092", cluster.bootstrap_servers), README.name, "exec"), names)
    assert names["orders"].count() == COUNT
