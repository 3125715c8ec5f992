"""One node in this process, shared by the tests of a module as long as nothing has harmed it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fuzz.run import Session
from tests.fuzz.targets import Target, opened

CPU_LIMIT_S = 1.0
"""Of the loop's processor time for one step: ten times what is promised, because the tests of a whole suite run beside it."""


class Nodes:
    """Gives out a session; a node that has failed is not used again."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: Session | None = None

    def session(self) -> Session:
        if self._session is None:
            self._session = Session(self._open(), loop_limit_s=CPU_LIMIT_S)
        return self._session

    def _open(self) -> Target:
        return self._stack.enter_context(opened("embedded"))

    def give_up(self) -> None:
        self._session = None
        self._stack.close()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    found = Nodes()
    try:
        yield found
    finally:
        found.close()
