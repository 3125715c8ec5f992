"""One cluster for all clients, and a capability that each of them is put through.

The cluster runs in this process: what a client says and hears is the same. Those tests that are about bytes on the wire, and a
few others, use `processes`, whose nodes run on uvloop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.harness.embedded import embedded
from tests.harness.local import CALM, Cluster, running

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with embedded(controllers=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def processes() -> Iterator[Cluster]:
    with running(controllers=1, brokers=3, config=CALM) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"
