"""Clients of Kafka that only Python's garbage holds are gone when the test is over that made them.

`pytest.raises(...) as caught` ties the test's frame and its exception to a circle, with all that the frame names. A producer in
it goes on asking for its cluster until the collector comes by. By then another test's cluster may have the port; it is asked for
the coordinator of a transaction that is not its own, and makes the coordinators' topic, which its test does not expect.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

_KINDS = ("cluster", "clients")
"""The markers of tests whose clients have sockets. A full collection is a tenth of a second, which others need not pay."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Behind the teardown, which still has what the test was given by its fixtures."""
    ran = yield
    if any(item.get_closest_marker(kind) is not None for kind in _KINDS):
        gc.collect()
    return ran
