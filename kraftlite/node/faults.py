"""The end of the way for errors that a node cannot go on with."""

from __future__ import annotations

import asyncio
import traceback

from kraftlite.model.errors import Fault, HalfChanged
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.node import NodeFaulted


class FaultSink:
    """The `Ports.fault` of a real node: the first error decides that the node stops with a non-zero status.

    `Fault` is a reason in one line; anything else is a bug and is traced with its stack, and so is what `HalfChanged` wraps.
    `reason` is None while all is well.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._tracer: Tracer | None = None
        self._faulted = asyncio.Event()

    def attach(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, error: BaseException, where: str) -> None:
        text = str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
        expected = isinstance(error, Fault) and not isinstance(error, HalfChanged)
        stack = None if expected else "".join(traceback.format_exception(error))
        if self._tracer is not None:
            self._tracer.emit(NodeFaulted(where=where, reason=text, trace=stack))
        if self.reason is None:
            self.reason = f"{where}: {text}"
            self._faulted.set()

    async def wait(self) -> str:
        await self._faulted.wait()
        assert self.reason is not None
        return self.reason
