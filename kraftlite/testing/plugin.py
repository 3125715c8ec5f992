"""The pytest plugin: a Kafka cluster as a fixture, and its failures. docs/PYTEST.md shows how to use it.

Loaded in every pytest run of an environment that has kraftlite: it imports neither the nodes nor a client before a test asks for
one of its fixtures. Each worker of pytest-xdist has a cluster of its own.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

from kraftlite import require_assertions
from kraftlite.testing.marker import TopicSpec, topic_spec

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from kraftlite.testing.backends import Backend
    from kraftlite.testing.chaos import Chaos
    from kraftlite.testing.cluster import SyncCluster
    from kraftlite.testing.factory import ClusterFactory
    from kraftlite.testing.watch import Watch

SHARED: Final = ("kafka_cluster", "kafka_bootstrap_servers", "kafka_topic", "kafka_admin", "kafka_chaos")
"""Fixtures of the session's cluster."""
WATCHED: Final = "_kafka_watch"
_PACKAGE: Final = "kraftlite.testing"
_ASYNC_MARKERS: Final = ("asyncio", "anyio", "trio")
WATCH: Final = pytest.StashKey["Watch"]()
PAGES: Final = "--kraftlite-ui"
PAGES_PLUGIN: Final = "kraftlite.ui.pytest_pages"
"""Loaded by its name: it lies above this package, which works without it."""
MAX_NAME: Final = 150
"""Characters of a test's name that its topic gets; Kafka allows 249 in all."""
ADMIN_CONFIG: Final[Mapping[str, str | int]] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
}
"""The configuration of clients of an embedded cluster: librdkafka waits for seconds between its attempts, and logs every
broker that dies."""


def _nodes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a whole number of at least 1")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka (kraftlite)")
    group.addoption(
        "--kafka-nodes",
        type=_nodes,
        default=3,
        metavar="N",
        help="brokers of the cluster that tests get; from 3 on with three controllers beside them, else one node is both (3)",
    )
    group.addoption(
        "--kafka-external",
        metavar="BOOTSTRAP",
        help="use this cluster instead of starting one (host:port,…); tests that break nodes are skipped",
    )

    group.addoption(
        "--kraftlite-ui",
        choices=("on-failure", "always"),
        metavar="WHEN",
        help="on-failure, always: write what a test did to its embedded cluster as a page in one file (docs/PYTEST.md)",
    )
    group.addoption(
        "--kraftlite-ui-dir",
        metavar="DIR",
        help="where these pages go; by default kraftlite-ui, beside the file of --junitxml or else in the root directory",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(PAGES) is not None:
        config.pluginmanager.import_plugin(PAGES_PLUGIN)
    config.addinivalue_line(
        "markers", "kafka(partitions=1, replication_factor=None, config=None): what the topic of the fixture kafka_topic is like"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of the session's cluster are watched from before their other fixtures to after them."""
    names: list[str] | None = getattr(item, "fixturenames", None)
    if names is not None and WATCHED not in names and any(it in names for it in SHARED):
        names.insert(0, WATCHED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _spec(item)  # a wrong marker is an error even of a test without a topic


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test of a module that uses `kraftlite.testing` where no plugin for asyncio has taken it in hand.

    pytest itself refuses such tests, and pytest-asyncio runs only those that are marked, unless its mode is auto.
    """
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function) or any(pyfuncitem.get_closest_marker(name) for name in _ASYNC_MARKERS):
        return None
    if not any(_is_ours(value) for value in vars(pyfuncitem.module).values()):
        return None
    import asyncio

    names = inspect.signature(function).parameters
    asyncio.run(function(**{name: value for name, value in pyfuncitem.funcargs.items() if name in names}))
    return True


def _is_ours(value: object) -> bool:
    name = getattr(value, "__name__" if inspect.ismodule(value) else "__module__", None)
    return isinstance(name, str) and (name == _PACKAGE or name.startswith(f"{_PACKAGE}."))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    watch = item.stash.get(WATCH, None)
    if watch is not None and report.failed and call.when != "teardown" and (told := watch.report()):
        report.sections.append(("kafka", told))
    return report


def _spec(item: pytest.Item) -> TopicSpec:
    marks = [(it.args, it.kwargs) for it in item.iter_markers("kafka")]
    try:
        return topic_spec(reversed(marks))
    except ValueError as error:
        pytest.fail(f"{item.nodeid}: {error}", pytrace=False)


def _external(config: pytest.Config) -> str | None:
    found: str | None = config.getoption("--kafka-external")
    return found


# --- of the session


@pytest.fixture(scope="session")
def _kafka_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    from kraftlite.testing import backends, cluster

    external = _external(request.config)
    if external is not None:
        yield backends.External(external)
        return
    brokers: int = request.config.getoption("--kafka-nodes")
    small = brokers < 3
    record = request.config.getoption(PAGES) is not None
    with cluster.SyncCluster(controllers=1 if small else 3, brokers=brokers, combined=small, record=record) as found:
        yield backends.Embedded(found)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> SyncCluster:
    """The `kraftlite.testing.SyncCluster` that all tests of the session share. With `--kafka-external` the test is skipped."""
    if _external(request.config) is not None:
        pytest.skip("--kafka-external: there is no cluster in this process")
    found: SyncCluster = request.getfixturevalue("_kafka_backend").cluster
    return found


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(_kafka_backend: Backend) -> str:
    """The value for the `bootstrap.servers` of any client."""
    return _kafka_backend.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_admin(request: pytest.FixtureRequest, kafka_bootstrap_servers: str) -> AdminClient:
    """A `confluent_kafka.admin.AdminClient` of the cluster."""
    from confluent_kafka.admin import AdminClient

    quick = {} if _external(request.config) is not None else ADMIN_CONFIG
    return AdminClient({"bootstrap.servers": kafka_bootstrap_servers, **quick})


@pytest.fixture(scope="session")
def _kafka_topic_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test, worker or, on a cluster that stays, run has."""
    parts = [getattr(request.config, "workerinput", {}).get("workerid", "")]
    if _external(request.config) is not None:
        from secrets import token_hex

        parts.append(token_hex(4))
    suffix, numbers = "-".join(it for it in parts if it), count(1)

    def name(test: str) -> str:
        readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", test)[:MAX_NAME].strip("-.") or "topic"
        return "-".join(it for it in (readable, suffix, str(next(numbers))) if it)

    return name


# --- of a test


@pytest.fixture
def _kafka_watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    try:
        require_assertions()
    except ImportError as error:
        pytest.fail(str(error), pytrace=False)
    from kraftlite.testing.watch import Watch

    watch = request.node.stash[WATCH] = Watch(record=request.config.getoption(PAGES) is not None)
    if any(it in request.fixturenames for it in SHARED):
        watch.attach(request.getfixturevalue("_kafka_backend"))
    yield watch
    leak = watch.leaks()
    if leak is not None:
        pytest.fail(leak, pytrace=False)


@pytest.fixture
def kafka_topic(
    request: pytest.FixtureRequest, _kafka_watch: Watch, _kafka_backend: Backend, _kafka_topic_name: Callable[[str], str]
) -> Iterator[str]:
    """The name of a new topic, led and known to every broker; `@pytest.mark.kafka(…)` says what it is like.

    On a cluster of `--kafka-external` it is deleted after the test.
    """
    from kraftlite.testing.backends import External

    name = _kafka_topic_name(request.node.name)
    _kafka_watch.attach(_kafka_backend)
    _kafka_watch.add_topic(name)
    _kafka_backend.create_topic(name, _spec(request.node))
    yield name
    if isinstance(_kafka_backend, External) and name in _kafka_backend.topics():
        _kafka_backend.delete_topic(name)


@pytest.fixture
def kafka_chaos(request: pytest.FixtureRequest, _kafka_watch: Watch) -> Chaos:
    """Breaks the session's cluster: `kill`, `pause`, `cut`, `with kafka_chaos.killed(4):` … (`kraftlite.testing.Chaos`).

    What is still broken when the test ends is healed, and an error of the test. With `--kafka-external` the test is skipped.
    """
    if _external(request.config) is not None:
        pytest.skip("--kafka-external: the nodes of that cluster are not this test's to break")
    from kraftlite.testing.chaos import Chaos

    backend = request.getfixturevalue("_kafka_backend")
    _kafka_watch.attach(backend)
    return Chaos(backend.cluster)


@pytest.fixture
def kafka_cluster_factory(_kafka_watch: Watch) -> Iterator[ClusterFactory]:
    """`kafka_cluster_factory(controllers=3, brokers=3, combined=False, config=None, secure=False)`: a cluster of the test's own.

    Started when the call returns, gone when the test ends; never one of `--kafka-external`. Raises as `SyncCluster` does.
    """
    from kraftlite.testing.cluster import SyncCluster

    with ExitStack() as stack:

        def make(
            *,
            controllers: int = 3,
            brokers: int = 3,
            combined: bool = False,
            config: Mapping[str, object] | None = None,
            secure: bool = False,
        ) -> SyncCluster:
            found = SyncCluster(controllers=controllers, brokers=brokers, combined=combined, config=config, secure=secure)
            stack.enter_context(found)
            _kafka_watch.add_cluster(found)
            return found

        yield make
