"""One cluster for all clients, and a capability that each of them is put through."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.harness.local import Cluster, running

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"
