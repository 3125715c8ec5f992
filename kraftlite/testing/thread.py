"""The thread that a cluster's nodes run in, and the way into it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakSet

from kraftlite.simhost.real_time_loop import RealTimeLoop
from kraftlite.testing.errors import ClusterError

T = TypeVar("T")
CALL: Final = "kraftlite-cluster-call"
"""The name of tasks that somebody in another thread waits for."""
PATIENCE_S: Final = 60.0
"""The time that the caller waits for the thread to take a call."""
_LOOPS: Final = WeakSet[RealTimeLoop]()
"""Those of all clusters of this process."""


class LoopThread:
    """Runs a `RealTimeLoop` from its making until `close`. All methods are called from other threads; the caller may block."""

    def __init__(self) -> None:
        self.loop = RealTimeLoop()
        _LOOPS.add(self.loop)
        self._thread = threading.Thread(target=self._run, name="kraftlite-cluster", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` on the loop, and return what it returns, or raise what it raises."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(function())
            except BaseException as error:  # noqa: BLE001 raised in the thread that asked
                done.set_exception(error)

        if threading.current_thread() is self._thread:
            return function()
        self._check()
        self.loop.call_soon_threadsafe(run, context=contextvars.Context())
        return done.result(PATIENCE_S)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Cancelling the future cancels the work."""

        async def call() -> T:
            task = asyncio.current_task()
            assert task is not None
            task.set_name(CALL)
            return await work

        try:
            self._check()
        except ClusterError:
            work.close()
            raise
        return contextvars.Context().run(asyncio.run_coroutine_threadsafe, call(), self.loop)

    def close(self) -> None:
        """Idempotent. What still runs on the loop is not waited for."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _check(self) -> None:
        if not self._thread.is_alive():
            raise ClusterError("the cluster is not running")


def _forked() -> None:
    for loop in _LOOPS:
        loop.let_go()


if hasattr(os, "register_at_fork"):
    # A child has no thread of the nodes. With copies of their sockets it would keep a killed broker's connections and port alive.
    os.register_at_fork(after_in_child=_forked)
