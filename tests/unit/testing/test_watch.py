"""What the report of a failed test says of a cluster that says nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraftlite.testing.errors import ClusterError
from kraftlite.testing.marker import TopicSpec
from kraftlite.testing.watch import Watch


class Mute:
    """A cluster whose thread stops answering after it was attached."""

    bootstrap_servers = "127.0.0.1:1"

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = None
        self._later = error

    def topics(self) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        self.error = self._later
        return ()

    def create_topic(self, name: str, spec: TopicSpec) -> None:
        raise AssertionError("nobody asks for it")

    def describe(self, topics: Sequence[str]) -> list[str]:
        assert self.error is not None
        raise self.error


@pytest.mark.parametrize("error", [ClusterError("no node runs"), TimeoutError("nobody answers")])
def test_a_report_of_a_cluster_that_is_mute_says_so(error: Exception) -> None:
    watch = Watch()
    watch.attach(Mute(error))
    assert watch.report() == f"the cluster does not tell how it is: {type(error).__name__}: {error}"
