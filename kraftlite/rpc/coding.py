"""Messages that take long to encode or decode: on a thread, so that the loop goes on.

Source: docs/ROBUSTNESS.md. A thread of Python shares the interpreter with the loop in turns of a millisecond
(`host/loop.tune_threads`). One message at a time: several threads would slow the loop down further, and end no sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kraftlite.model.limits import RPC_LONG_BYTES
from kraftlite.runtime.ports import TransportError

if TYPE_CHECKING:
    from kraftlite.model.method import AnyMethod
    from kraftlite.rpc.codec import M, MessageCodec  # protobuf is imported late

T = TypeVar("T")


class Coding:
    """The codecs of one transport and their thread, started with the first long message. First come, first served."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def codec(self, method: AnyMethod, cls: type[M]) -> MessageCodec[M]:
        """Make the codec of one message class of one method."""
        from kraftlite.rpc.codec import MessageCodec

        return MessageCodec(method, cls)

    async def encode(self, codec: MessageCodec[M], message: M, timeout_ms: int | None = None) -> bytes:
        """The message without a payload that travels beside it. Raises TimeoutError."""
        if codec.is_long(message):
            return await self.run(partial(codec.encode_long, message), timeout_ms)
        return codec.encode(message)

    async def decode(self, codec: MessageCodec[M], data: bytes, timeout_ms: int | None = None) -> M:
        """Raises MalformedMessage, OutOfRange, TimeoutError."""
        return await self.run(partial(codec.decode, data), timeout_ms) if len(data) > RPC_LONG_BYTES else codec.decode(data)

    async def join(self, codec: MessageCodec[M], head: bytes, payload: bytes | memoryview, timeout_ms: int | None = None) -> M:
        """Do as `decode` does, for a message whose payload travels behind it."""
        if len(head) > RPC_LONG_BYTES:
            return await self.run(partial(codec.join, head, payload), timeout_ms)
        return codec.join(head, payload)

    async def run(self, work: Callable[[], T], timeout_ms: int | None = None) -> T:
        """Raises TimeoutError, TransportError once this is closed, and what `work` does. Work that has begun goes on when whoever
        asked for it gives up."""
        if self._closed:
            raise TransportError("the transport is closed")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="rpc-coding")
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError("the transport was closed") from None

    def close(self) -> None:
        """Take no further work; work that has not begun fails."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
