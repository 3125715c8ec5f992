"""What the tests on Spark share: one session and one cluster for all of them, a topic for each.

Tests marked `spark` are skipped, with the reason, where there is no pyspark or no Java. They wait for queries that end by
themselves or for conditions, and run in one process: Spark allows one session in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from kraftlite.testing import SyncCluster
from tests.harness import spark_runs

NOT_CONNECTED = "Python worker failed to connect back"
"""Spark starts a Python process for each plan of a data source, waits ten seconds for it (a constant), and ends the query. On a
machine with a load of many times its cores that is too short; what the test is about has not begun then, and it runs again."""

_NUMBERS = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [it for it in items if it.get_closest_marker("spark") is not None]
    reason = spark_runs.why_not() if marked else None
    for it in marked:
        it.add_marker(
            pytest.mark.flaky(reruns=2, only_rerun=[NOT_CONNECTED]) if reason is None else pytest.mark.skip(reason=reason)
        )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from kraftlite.spark.session import session

    found = session("test", master="local[2]")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=3) as found:
        yield found


@pytest.fixture
def topic(cluster: SyncCluster) -> str:
    """Three partitions of three replicas, empty."""
    name = f"topic-{next(_NUMBERS)}"
    spark_runs.create(cluster, name)
    return name


@pytest.fixture
def faults(cluster: SyncCluster) -> Iterator[SyncCluster]:
    """The cluster, for a test that breaks it: everything runs again afterwards."""
    yield cluster
    spark_runs.run_all_again(cluster)
