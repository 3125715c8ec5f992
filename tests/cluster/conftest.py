"""One cluster of three controllers and three brokers for all tests that put back what they broke."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.harness.local import Cluster, running, wait_for

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster with every node running, before and after."""
    yield shared_cluster
    state = shared_cluster.state
    shared_cluster.resume(*[node.id for node in state.nodes if node.state == "paused"])
    stopped = [node.id for node in state.nodes if node.state == "stopped"]
    if stopped:
        shared_cluster.restart(*stopped)
    wait_for(
        "all brokers are back", lambda: len(shared_cluster.admin().list_topics(timeout=10).brokers) == len(shared_cluster.brokers)
    )


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"
