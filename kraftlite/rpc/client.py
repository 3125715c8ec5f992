"""The calling side: one channel per peer, unary calls, and one long-lived stream per peer and hot method."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias

from kraftlite.model.errors import ApiError, error_code
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.bounds import OutOfRange
from kraftlite.model.method import AnyMethod, Method, Req, Res
from kraftlite.rpc import codec
from kraftlite.rpc.coding import Coding
from kraftlite.rpc.options import CHANNEL_OPTIONS, ERROR_KEY, MAX_OUTSTANDING_CALLS
from kraftlite.rpc.pbmap import MalformedMessage
from kraftlite.runtime.ports import ChannelBytes, NotServed, Tracer, TransportError
from kraftlite.runtime.trace.rpc import RpcStreamLost, RpcStreamOpened

if TYPE_CHECKING:
    from kraftlite.rpc.dialler import TlsDialler

import grpc  # isort: skip  # after options, which quiet it
from grpc import aio  # isort: skip

_SETTLE_S: Final = 0.2
"""The time that a stream that is being closed is given to say so to the peer."""


Answer: TypeAlias = "asyncio.Future[codec.Frame]"
_Unary: TypeAlias = tuple[Any, codec.MessageCodec[Req], codec.MessageCodec[Res]]
"""gRPC's callable of a unary method, and the codecs of its two messages."""


class Peer:
    """Everything that goes to one endpoint. Connects on first use and again whenever it has to."""

    def __init__(
        self,
        endpoint: Endpoint,
        tracer: Tracer,
        coding: Coding,
        channel_bytes: dict[str, ChannelBytes],
        dialler: TlsDialler | None,
    ) -> None:
        """`channel_bytes`: by service, counted up here."""
        self.endpoint = endpoint
        self._bytes = channel_bytes
        self._dialler = dialler
        self._coding = coding
        self._tracer = tracer
        target = str(endpoint) if dialler is None else dialler.listen
        self._channel: Any = aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._unary: dict[AnyMethod, _Unary[Any, Any]] = {}
        self._streams: dict[AnyMethod, HotStream[Any, Any]] = {}

    async def call(self, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        if self._dialler is None:
            return await self._call(method, request, timeout_ms)
        await self._dialler.open()
        try:
            return await self._call(method, request, timeout_ms)
        except TransportError as error:
            if self._dialler.failure is None:
                raise
            raise self._why(method, error) from error

    def _why(self, method: AnyMethod, error: TransportError) -> TransportError:
        """Return the error with the reason that the dialler knows, if it knows one."""
        failure = None if self._dialler is None else self._dialler.failure
        return error if failure is None else TransportError(f"{method} to {self.endpoint}: {failure}")

    async def watch(self, method: Method[Req, Res], request: Req, timeout_ms: int) -> AsyncGenerator[Res]:
        """See `GrpcTransport.watch`."""
        if self._dialler is not None:
            await self._dialler.open()
        responses = self._coding.codec(method, method.response)
        rpc: Any = self._channel.unary_stream(codec.path(method))(self._coding.codec(method, method.request).encode(request))
        try:
            while True:
                async with asyncio.timeout(timeout_ms / 1000):
                    data = await rpc.read()
                if data is aio.EOF:  # type: ignore[attr-defined]
                    raise TransportError(f"{method} to {self.endpoint}: the peer has ended the stream")
                yield await self._coding.decode(responses, data, timeout_ms)
        except aio.AioRpcError as error:
            found = _refusal_or_failure(self.endpoint, method, error)
            raise found if isinstance(found, ApiError) else self._why(method, found) from None
        except (MalformedMessage, OutOfRange) as error:
            raise TransportError(f"{method} to {self.endpoint}: {error}") from error
        except TimeoutError:
            raise self._why(method, TransportError(f"{method} to {self.endpoint}: no answer within {timeout_ms} ms")) from None
        except (aio.UsageError, asyncio.InvalidStateError):
            raise TransportError(f"{method} to {self.endpoint}: the channel was closed") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError(f"{method} to {self.endpoint}: the channel was closed") from None
        finally:
            rpc.cancel()

    async def _call(self, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        if method.hot:
            return await self._stream(method).call(request, timeout_ms)
        found: _Unary[Req, Res] | None = self._unary.get(method)
        if found is None:
            multi = self._channel.unary_unary(codec.path(method))
            found = (multi, self._coding.codec(method, method.request), self._coding.codec(method, method.response))
            self._unary[method] = found
        multi, requests, responses = found
        try:
            data = await self._coding.encode(requests, request, timeout_ms)
            carried = self._carried(method)
            carried.sent += len(data)
            answer = await multi(data, timeout=max(1, timeout_ms) / 1000)
            carried.received += len(answer)
            return await self._coding.decode(responses, answer, timeout_ms)
        except aio.AioRpcError as error:
            raise _refusal_or_failure(self.endpoint, method, error) from None
        except (MalformedMessage, OutOfRange) as error:
            raise TransportError(f"{method} to {self.endpoint}: {error}") from error
        except TimeoutError:
            raise TransportError(f"{method} to {self.endpoint}: not encoded or decoded within {timeout_ms} ms") from None
        except aio.UsageError:
            raise TransportError(f"{method} to {self.endpoint}: the channel was closed") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError(f"{method} to {self.endpoint}: the channel was closed") from None

    def _stream(self, method: Method[Req, Res]) -> HotStream[Req, Res]:
        stream: HotStream[Req, Res] | None = self._streams.get(method)
        if stream is None or stream.ended:
            stream = HotStream(self._channel, self.endpoint, method, self._tracer, self._coding, self._carried(method))
            self._streams[method] = stream
        return stream

    def _carried(self, method: AnyMethod) -> ChannelBytes:
        return self._bytes.setdefault(method.service, ChannelBytes())

    def lose(self) -> list[Answer]:
        """Let the answers to the calls of hot methods that are under way reach nobody: for the injection of faults. Returns what
        the callers wait for."""
        return [answer for stream in self._streams.values() for answer in stream.lose()]

    async def close(self) -> None:
        for stream in self._streams.values():
            await stream.close()
        self._streams.clear()
        await self._channel.close()
        if self._dialler is not None:
            self._dialler.close()


class HotStream(Generic[Req, Res]):
    """One bidirectional stream. Calls share it and are told apart by correlation ids; when it dies, all of them fail.

    Two tasks own the gRPC call: one writes (a cancelled `write` would end the whole stream, so no caller does it), one reads.
    """

    def __init__(
        self,
        channel: Any,
        endpoint: Endpoint,
        method: Method[Req, Res],
        tracer: Tracer,
        coding: Coding,
        carried: ChannelBytes,
    ) -> None:
        self.ended = False
        self._carried = carried
        self._coding = coding
        self._encoding = asyncio.Lock()
        self._encoders = 0
        """Calls that encode or wait for their turn to: while a long request is encoded, those that come after it wait."""
        self._endpoint = endpoint
        self._method = method
        self._tracer = tracer
        self._requests = coding.codec(method, method.request)
        self._responses = coding.codec(method, method.response)
        self._waiting: dict[int, asyncio.Future[codec.Frame]] = {}
        self._next_id = 0
        self._outbox: deque[bytes] = deque()
        self._outbox_filled = asyncio.Event()
        self._opened = False
        self._rpc: Any = channel.stream_stream(codec.path(method))()
        self._reader = asyncio.create_task(self._read(), name=f"rpc-read {method} {endpoint}")
        self._writer = asyncio.create_task(self._write(), name=f"rpc-write {method} {endpoint}")

    async def call(self, request: Req, timeout_ms: int) -> Res:
        if len(self._waiting) >= MAX_OUTSTANDING_CALLS:
            raise TransportError(f"{self._method} to {self._endpoint}: {len(self._waiting)} calls are outstanding already")
        if self._encoders or self._requests.is_long(request):
            head, payload = await self._encode_in_turn(request, timeout_ms), self._requests.payload(request)
        else:
            head, payload = self._requests.split(request)
        correlation_id = self._next_id
        self._next_id += 1
        answer: asyncio.Future[codec.Frame] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        self._send(codec.encode_head_frame(correlation_id, head, payload))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                frame = await answer
        except TimeoutError:
            raise TransportError(f"{self._method} to {self._endpoint}: no answer within {timeout_ms} ms") from None
        finally:
            if self._waiting.pop(correlation_id, None) is not None and not self.ended:
                self._send(codec.encode_cancel_frame(correlation_id))
        if frame.refusal is not None:
            raise frame.refusal
        if frame.failure is not None or frame.head is None:
            raise TransportError(f"{self._method} to {self._endpoint}: {frame.failure}")
        try:
            return await self._coding.join(self._responses, frame.head, frame.payload, timeout_ms)
        except (MalformedMessage, OutOfRange) as error:
            raise TransportError(f"{self._method} to {self._endpoint}: {error}") from error
        except TimeoutError:
            raise TransportError(f"{self._method} to {self._endpoint}: not decoded within {timeout_ms} ms") from None

    async def _encode_in_turn(self, request: Req, timeout_ms: int) -> bytes:
        self._encoders += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._encoding:
                head = await self._coding.encode(self._requests, request)
        except TimeoutError:
            raise TransportError(f"{self._method} to {self._endpoint}: not encoded within {timeout_ms} ms") from None
        finally:
            self._encoders -= 1
        if self.ended:
            raise TransportError(f"{self._method} to {self._endpoint}: the stream was closed")
        return head

    def _send(self, frame: bytes) -> None:
        self._carried.sent += len(frame)
        self._outbox.append(frame)
        self._outbox_filled.set()

    async def _write(self) -> None:
        try:
            while True:
                while self._outbox:
                    await self._rpc.write(self._outbox.popleft())
                self._outbox_filled.clear()
                await self._outbox_filled.wait()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the reader learns the reason

    async def _read(self) -> None:
        reason = "the stream was closed"
        try:
            while True:
                data = await self._rpc.read()
                if data is aio.EOF:  # type: ignore[attr-defined]
                    reason = await self._end_reason()
                    break
                self._carried.received += len(data)
                if not self._opened:
                    self._opened = True
                    self._tracer.emit(RpcStreamOpened(peer=str(self._endpoint), method=str(self._method)))
                frame = codec.decode_frame(data)
                answer = self._waiting.pop(frame.correlation_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except aio.AioRpcError as error:
            reason = _describe(error)
        except MalformedMessage as error:
            reason = str(error)
        finally:
            self._end(reason)

    async def _end_reason(self) -> str:
        code, details = await self._rpc.code(), await self._rpc.details()
        return f"{code.name}: {details}" if details else str(code.name)

    def _end(self, reason: str) -> None:
        self.ended = True
        self._writer.cancel()
        self._rpc.cancel()
        waiting, self._waiting = self._waiting, {}
        if self._opened:
            self._tracer.emit(
                RpcStreamLost(peer=str(self._endpoint), method=str(self._method), outstanding=len(waiting), reason=reason)
            )
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(TransportError(f"{self._method} to {self._endpoint}: {reason}"))

    def lose(self) -> list[Answer]:
        """Forget the calls under way: see `Peer.lose`."""
        lost, self._waiting = self._waiting, {}
        return list(lost.values())

    async def close(self) -> None:
        tasks = [self._reader, self._writer]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_SETTLE_S)


def _refusal_or_failure(endpoint: Endpoint, method: AnyMethod, error: aio.AioRpcError) -> ApiError | TransportError:
    trailing: Any = error.trailing_metadata()
    for key, value in trailing or ():
        if key == ERROR_KEY and value.lstrip("-").isdecimal() and len(value) < 8:
            return ApiError(error_code(int(value)), error.details() or None)
    found = NotServed if error.code() is grpc.StatusCode.UNIMPLEMENTED else TransportError
    return found(f"{method} to {endpoint}: {_describe(error)}")


def _describe(error: aio.AioRpcError) -> str:
    code: grpc.StatusCode = error.code()
    return f"{code.name}: {error.details()}" if error.details() else code.name
