"""Tables of what breaks a watched cluster, and of the checker that must say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from kraftlite.sim.checkers.base import CheckerFactory, Violation
from tests.harness.watched_cluster import WatchedCluster

C = TypeVar("C", bound=WatchedCluster)


class Cases(list[tuple[CheckerFactory, Callable[[C], Any], str]], Generic[C]):
    """The cases of a module: (checker, what breaks a started cluster, what the checker says of it)."""

    def breaks(self, checker: CheckerFactory, words: str) -> Callable[[Callable[[C], Any]], Callable[[C], Any]]:
        """The decorated function makes a started cluster violate what `checker` checks, which says so in these `words`."""

        def note(function: Callable[[C], Any]) -> Callable[[C], Any]:
            self.append((checker, function, words))
            return function

        return note

    @property
    def ids(self) -> list[str]:
        return [f"{checker.__name__}-{violate.__name__}" for checker, violate, _ in self]  # type: ignore[attr-defined]


def assert_found(cluster: C, checker: CheckerFactory, violate: Callable[[C], Any], words: str) -> None:
    """Break the cluster, which `checker` watches, and demand that this checker says so."""
    with pytest.raises(Violation, match=words) as caught:
        violate(cluster)
    assert caught.value.checker.startswith(checker.__name__)  # type: ignore[attr-defined]
