"""Options and fixtures for all tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a job in the background of a shell is started; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("kraftlite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For all tests: how long an example takes to draw and to run says more about the load of the machine than about the code."""
settings.register_profile("long", parent=settings.get_profile("kraftlite"), max_examples=3000)
"""`pytest --hypothesis-profile=long tests/unit tests/spec`: what one run in thirty would find."""
settings.load_profile("kraftlite")

# pytester is for tests/testing_plugin and docs/PYTEST.md. pytest allows this nowhere else.
pytest_plugins = ["pytester", "tests.harness.file_times", "tests.harness.left_clients", "tests.harness.nearest"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden scenarios with what the code does now")
    parser.addoption(
        "--apache-kafka", action="store_true", help="tests of clients start an Apache Kafka in the place of kraftlite"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture
def uncollected() -> Iterator[None]:
    """For tests that count CPU time: a node collects garbage by its own rules (`host/memory`), and looks at nothing that other
    tests have left."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def signals_of_a_terminal() -> Iterator[None]:
    """For tests that end processes by signals: those inherit what is ignored, and whoever runs the tests may be one who ignores
    SIGHUP, as nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
