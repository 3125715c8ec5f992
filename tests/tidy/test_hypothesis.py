"""Hypothesis has one profile for all tests (`tests/conftest.py`)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def test_no_example_fails_because_the_machine_is_slow() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
