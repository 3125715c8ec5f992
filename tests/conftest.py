"""Options and fixtures for all tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]  # tests/testing_plugin and docs/PYTEST.md; pytest allows it nowhere else


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden scenarios with what the code does now")
    parser.addoption(
        "--apache-kafka", action="store_true", help="tests of clients start an Apache Kafka in the place of kraftlite"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
