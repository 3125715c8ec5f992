"""Options and fixtures for all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("kraftlite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For all tests: how long an example takes to draw and to run says more about the load of the machine than about the code."""
settings.load_profile("kraftlite")

pytest_plugins = ["pytester"]  # tests/testing_plugin and docs/PYTEST.md; pytest allows it nowhere else


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden scenarios with what the code does now")
    parser.addoption(
        "--apache-kafka", action="store_true", help="tests of clients start an Apache Kafka in the place of kraftlite"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
