"""Runs of pytest inside of pytest, in this process: what such a run were the first to import the next one would import anew."""

from __future__ import annotations

import pytest

import kraftlite.testing.backends
import kraftlite.testing.chaos
import kraftlite.testing.nodes
import kraftlite.testing.secure
import kraftlite.testing.views
import kraftlite.testing.watch  # noqa: F401

OPTIONS = ("-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function", "--strict-markers")


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """In this process: a fraction of a second."""
    return pytester.runpytest_inprocess(*args, *OPTIONS)


def run_apart(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """In a process of its own, without the plugins that take long to import: seconds."""
    lean = ("-p", "no:asyncio", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    return pytester.runpytest_subprocess(*lean, *args, "--strict-markers", timeout=120)
