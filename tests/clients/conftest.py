"""One cluster for the tests of a file, and a capability that each client is put through.

The cluster runs in this process: what a client says and hears is the same. Those tests that are about bytes on the wire, and a
few others, use `processes`, whose nodes run on uvloop. With `--kafka-external BOOTSTRAP` it is that cluster, and what needs nodes
of its own is skipped: `scripts/apache-kafka --nodes 3 -- …` runs these tests against a real Apache Kafka. With `--apache-kafka`
each cluster that a test would start is an Apache Kafka, also one whose brokers are killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Literal

import pytest

from tests.clients.closed import Closed, closed
from tests.clients.clusters import Start, started
from tests.harness.external import External
from tests.harness.local import CALM, Cluster, running

pytest.register_assert_rewrite(
    "tests.clients.capabilities",
    "tests.clients.programs",
    "tests.clients.raw",
    "tests.clients.security",
    "tests.clients.transactions",
)
_NUMBERS = count(1)


def _external(config: pytest.Config) -> str | None:
    found: str | None = config.getoption("--kafka-external")
    return found


@pytest.fixture(autouse=True)
def _own_nodes(request: pytest.FixtureRequest) -> None:
    if _external(request.config) is not None and {"processes", "breakable", "closed_node"} & set(request.fixturenames):
        pytest.skip("--kafka-external: this needs nodes of its own")


@pytest.fixture(scope="session")
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a cluster of one controller and three brokers with the settings that it is given."""
    return partial(started, apache=bool(request.config.getoption("--apache-kafka")))


def _life(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    """That of a cluster. One of kraftlite starts within a second, and costs while nobody uses it; Apache Kafka starts slowly."""
    return "session" if _external(config) is not None or config.getoption("--apache-kafka") else "module"


@pytest.fixture(scope=_life)
def cluster(request: pytest.FixtureRequest, start: Start) -> Iterator[Cluster]:
    external = _external(request.config)
    if external is not None:
        yield External(external)
        return
    # A machine that stands still for a second must not cause a failover.
    calm = {"broker.session.timeout.ms": "6000", "replica.lag.time.max.ms": "10000"}
    calm["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "200"
    with start(calm) as cluster:
        yield cluster


@pytest.fixture(scope=_life)
def processes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.config.getoption("--apache-kafka"):
        pytest.skip("--apache-kafka: this is about kraftlite's processes")
    with running(controllers=1, brokers=3, config=CALM) as cluster:
        yield cluster


@pytest.fixture(scope=_life)
def closed_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    apache = bool(request.config.getoption("--apache-kafka"))
    with closed(tmp_path_factory.mktemp("closed"), apache=apache) as found:
        yield found


@pytest.fixture(scope="session")
def _run_name(request: pytest.FixtureRequest) -> str:
    """Tells the topics of one run from those of others, on a cluster that stays."""
    return "topic" if _external(request.config) is None else f"topic-{token_hex(4)}"


@pytest.fixture
def topic(_run_name: str) -> str:
    return f"{_run_name}-{next(_NUMBERS)}"
