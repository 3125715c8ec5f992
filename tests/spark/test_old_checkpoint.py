"""A streaming query that an earlier version began goes on from its checkpoint, wherever the source and the sink are now."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.testing import SyncCluster
from tests.compat_dirs.make_checkpoint import PARTITIONS, PER_BATCH, RECORDS, SINK, SOURCE, fill, run, written

pytestmark = pytest.mark.spark

OLD = Path(__file__).resolve().parents[1] / "compat_dirs" / "0.1.0-spark"
"""Made when source and sink were one module each, and everything beside them had other names."""


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A cluster with the records that the old query had read; of what it had written the test knows."""
    with SyncCluster(controllers=1, brokers=1) as cluster:
        for topic in (SOURCE, SINK):
            cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        fill(cluster.bootstrap_servers, 0, RECORDS)
        yield cluster.bootstrap_servers


def unpack(folder: Path) -> Path:
    with tarfile.open(OLD / "checkpoint.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "checkpoint"


@pytest.mark.parametrize("cut_short", [False, True], ids=["stopped", "killed before its last commit"])
def test_a_query_goes_on_without_loss_or_repetition(spark: Any, bootstrap: str, tmp_path: Path, cut_short: bool) -> None:
    checkpoint = unpack(tmp_path)
    old = [tuple(row) for row in json.loads((OLD / "written.json").read_text())]
    batches = (RECORDS + PER_BATCH - 1) // PER_BATCH
    assert len(old) == RECORDS and len(list((checkpoint / "commits").iterdir())) == batches
    again = RECORDS % PER_BATCH if cut_short else 0
    if cut_short:
        (checkpoint / "commits" / str(batches - 1)).unlink()
    fill(bootstrap, RECORDS, RECORDS + 5)

    run(spark, bootstrap, checkpoint)

    new = [tuple(row) for row in written(bootstrap, again + 5)]
    assert len(new) == again + 5
    repeated = [row for row in new if row in old]
    assert len(repeated) == again, "what is written again has the batch header that it had, and readers drop it"
    query = old[0][2].split("/")[0]
    assert {row[2].split("/")[0] for row in new} == {query}, "it is the same query"
    seen = {row[2]: row[:2] for row in (*old, *new)}
    assert sorted(seen.values()) == sorted((f"k{it}", f"v{it}") for it in range(RECORDS + 5))
