"""The answering side: generic handlers without gRPC's own (de)serializers: one answer, many, or a stream of requests."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic

from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import Endpoint
from kraftlite.model.limits import (
    RPC_MAX_MESSAGE_BYTES,
    RPC_MAX_REQUESTS_PER_STREAM,
    RPC_MAX_UNREAD_BYTES,
    RPC_MAX_UNREAD_BYTES_PER_STREAM,
    RPC_STALLED_MS,
)
from kraftlite.model.messages.bounds import OutOfRange
from kraftlite.model.method import AnyMethod, Method, Req, Res
from kraftlite.model.shown import shown
from kraftlite.rpc import codec
from kraftlite.rpc.addresses import resolve, why_not
from kraftlite.rpc.coding import Coding
from kraftlite.rpc.options import ERROR_KEY, MAX_WORDS, SERVER_OPTIONS
from kraftlite.rpc.pbmap import MalformedMessage
from kraftlite.rpc.relay import Relay
from kraftlite.runtime.caller import CALLER
from kraftlite.runtime.ports import Handler, Handlers, StreamHandler, Tracer
from kraftlite.runtime.trace.rpc import RpcRequestFailed

import grpc  # isort: skip  # after options, which quiet it
from grpc import aio  # isort: skip

FaultHandler = Callable[[BaseException, str], None]
_POLL_S: Final = 0.02
"""The interval at which a closing server looks whether its handlers are done."""


class RpcServer:
    """One listener. A handler's ApiError goes to the caller. Any other exception costs that request: it is traced with its stack,
    and the caller gets a TransportError because nobody knows what the handler had done. Only a Fault is one of this node: who
    owns state raises it when an exception may have left that state half changed (ADR 5)."""

    def __init__(self, handlers: Handlers, fault: FaultHandler, tracer: Tracer, coding: Coding) -> None:
        self.coding = coding
        self._relay: Relay | None = None
        """The part that knows who calls; None: everybody may."""
        self._handlers = handlers
        self._fault = fault
        self._tracer = tracer
        self.unread_bytes = 0
        """Answers of all streams that their peers have not taken."""
        self._server = aio.server(options=SERVER_OPTIONS)
        self._in_flight = 0
        self._closing = False
        by_service: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
        for method, handler in handlers.items():
            make = self._shared if method.hot else self._streamed if method.streamed else self._unary
            entry = make(method, handler)
            by_service.setdefault(f"kraftlite.v1.{method.service}", {})[method.name] = entry
        for service, methods in by_service.items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))

    async def start(self, listen: Endpoint) -> Endpoint:
        """Raises OSError naming the endpoint when it can not be bound."""
        address = await resolve(listen)
        try:
            port = self._server.add_insecure_port(str(address))
        except RuntimeError:
            number = why_not(address)
            raise OSError(number, f"cannot listen on {listen}: {os.strerror(number)}") from None
        await self._server.start()
        return Endpoint(listen.host, port)

    async def start_behind(self, relay: Relay) -> None:
        """Serve what `relay` carries, and no address that peers could reach."""
        self._relay = relay if relay.authenticates else None
        self._server.add_insecure_port(relay.listen)
        await self._server.start()

    async def close(self, grace_ms: int) -> None:
        """Refuse new requests, let those under way finish for `grace_ms`, then cut the rest off."""
        self._closing = True
        waited = 0.0
        while self._in_flight and waited * 1000 < grace_ms:
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
        await self._server.stop(None)

    # --- unary --------------------------------------------------------------------------------------------------------

    def _unary(self, method: Method[Req, Res], handler: Handler[Req, Res]) -> grpc.RpcMethodHandler[Any, Any]:
        requests, responses = self.coding.codec(method, method.request), self.coding.codec(method, method.response)

        async def serve(data: bytes, context: aio.ServicerContext[Any, Any]) -> bytes:
            if self._closing:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the node is shutting down")
            if self._relay is not None:
                await self._identify(self._relay, context)
            self._in_flight += 1
            try:
                async with self._refusing(method, context):
                    request = await self.coding.decode(requests, data)
                    return await self.coding.encode(responses, await handler(request))
            finally:
                self._in_flight -= 1
            raise AssertionError("context.abort raises")

        return grpc.unary_unary_rpc_method_handler(serve)

    @asynccontextmanager
    async def _refusing(self, method: AnyMethod, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """End the call with the status that fits what is raised inside."""
        try:
            yield
        except ApiError as error:
            trailing = ((ERROR_KEY, str(error.code.value)),)
            text = error.message or ""
            words = shown(text, MAX_WORDS if text.isascii() else MAX_WORDS // 4)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, words, trailing_metadata=trailing)
        except MalformedMessage as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of a request's task
            await context.abort(grpc.StatusCode.INTERNAL, self.fault_or_failure(method, error))

    # --- one request, many answers ------------------------------------------------------------------------------------

    def _streamed(self, method: Method[Req, Res], handler: StreamHandler[Req, Res]) -> grpc.RpcMethodHandler[Any, Any]:
        """An answer is made when gRPC has taken the one before: a caller that does not read has one that waits, and no more."""
        requests, responses = self.coding.codec(method, method.request), self.coding.codec(method, method.response)

        async def serve(data: bytes, context: aio.ServicerContext[Any, Any]) -> None:
            if self._relay is not None:
                await self._identify(self._relay, context)
            async with self._refusing(method, context):
                request = await self.coding.decode(requests, data)
                if self.unread_bytes > RPC_MAX_UNREAD_BYTES:
                    raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many answers are not read")
                answers, stuck = await handler(request), None
                try:
                    while stuck is None and not self._closing:
                        answer = await self.coding.encode(responses, await anext(answers))
                        stuck = await self._hand_over(answer, context)
                finally:
                    await answers.aclose()
                if stuck is not None:
                    await stuck  # gRPC sends no status while an answer is being written
            why = "the node is shutting down" if stuck is None else f"no answer was read for {RPC_STALLED_MS} ms"
            code = grpc.StatusCode.UNAVAILABLE if stuck is None else grpc.StatusCode.RESOURCE_EXHAUSTED
            await context.abort(code, why)

        return grpc.unary_stream_rpc_method_handler(serve)

    async def _hand_over(self, data: bytes, context: aio.ServicerContext[Any, Any]) -> asyncio.Task[None] | None:
        """Returns when gRPC has taken the answer; or what still tries to give it to a caller that has taken none for too long."""
        self.unread_bytes += len(data)
        writing = asyncio.ensure_future(context.write(data))
        writing.add_done_callback(lambda _: self._taken(len(data)))
        try:
            await asyncio.wait({writing}, timeout=RPC_STALLED_MS / 1000)
        except asyncio.CancelledError:
            writing.cancel()  # the caller is gone
            raise
        if not writing.done():
            return writing
        writing.result()
        return None

    def _taken(self, size: int) -> None:
        self.unread_bytes -= size

    # --- a stream of requests and answers -----------------------------------------------------------------------------

    def _shared(self, method: Method[Req, Res], handler: Handler[Req, Res]) -> grpc.RpcMethodHandler[Any, Any]:
        requests, responses = self.coding.codec(method, method.request), self.coding.codec(method, method.response)

        async def serve(_: Any, context: aio.ServicerContext[Any, Any]) -> None:
            if self._relay is not None:
                await self._identify(self._relay, context)
            stream = _ServerStream(self, method, handler, requests, responses, context)
            await stream.run()

        return grpc.stream_stream_rpc_method_handler(serve)

    @staticmethod
    async def _identify(relay: Relay, context: aio.ServicerContext[Any, Any]) -> None:
        """Tell the handler who calls (`runtime/caller`). Somebody on this machine who has found the relay's address is nobody."""
        principal = relay.caller_at(context.peer())
        if principal is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this connection has shown no certificate")
        CALLER.set(principal)

    async def answer(self, method: Method[Req, Res], handler: Handler[Req, Res], request: Req) -> Res | ApiError | str:
        """The response, an ApiError, or a text: the handler failed."""
        if self._closing:
            return "the node is shutting down"
        self._in_flight += 1
        try:
            return await handler(request)
        except ApiError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the top of a request's task
            return self.fault_or_failure(method, error)
        finally:
            self._in_flight -= 1

    def too_large(self, method: AnyMethod, size: int) -> str:
        """Return what the caller is told of an answer that no message holds."""
        told = f"the answer has {size} bytes, and a message {RPC_MAX_MESSAGE_BYTES} at most"
        self._tracer.emit(RpcRequestFailed(method=str(method), error=told, trace=""))
        return told

    def fault_or_failure(self, method: AnyMethod, error: Exception) -> str:
        """Return what the caller is told of a handler that broke."""
        if isinstance(error, Fault):
            self._fault(error, f"rpc {method}")
        else:
            stack = "".join(traceback.format_exception(error))
            self._tracer.emit(RpcRequestFailed(method=str(method), error=f"{type(error).__name__}: {error}", trace=stack))
        return f"the handler failed: {type(error).__name__}"


class _ServerStream(Generic[Req, Res]):
    """One stream of one caller: a task per request, so that a long poll holds up nobody; one writer in order of completion.

    A peer that does not read its answers is given no more of them: requests wait while it has too many, and the stream ends when
    it takes none for `RPC_STALLED_MS`.
    """

    def __init__(
        self,
        server: RpcServer,
        method: Method[Req, Res],
        handler: Handler[Req, Res],
        requests: codec.MessageCodec[Req],
        responses: codec.MessageCodec[Res],
        context: aio.ServicerContext[Any, Any],
    ) -> None:
        self._server = server
        self._method = method
        self._handler = handler
        self._requests = requests
        self._responses = responses
        self._context = context
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._outbox: deque[bytes] = deque()
        self._outbox_filled = asyncio.Event()
        self._taken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._unread_bytes = 0
        self._reader: asyncio.Task[object] | None = None
        self._stalled = False

    async def run(self) -> None:
        self._reader = asyncio.current_task()
        writer = asyncio.create_task(self._write(), name=f"rpc-answers {self._method}")
        try:
            while (data := await self._context.read()) is not aio.EOF:  # type: ignore[attr-defined]
                await self._receive(data)
        except MalformedMessage as error:
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            if not self._stalled or self._reader is None or self._reader.uncancel() > 0:
                raise
            self._drop_answers()
            await self._idle.wait()  # gRPC sends no status while an answer is being written
            await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"no answer was read for {RPC_STALLED_MS} ms")
        finally:
            writer.cancel()
            for task in list(self._tasks.values()):
                task.cancel()
            self._server.unread_bytes -= self._unread_bytes
            self._unread_bytes = 0

    async def _receive(self, data: bytes) -> None:
        """Returns when the request has been decoded: the next one begins after it."""
        frame = codec.decode_frame(data)
        number = frame.correlation_id
        if frame.cancel:
            task = self._tasks.get(number)
            if task is not None:
                task.cancel()
        elif frame.head is not None:
            if number in self._tasks:
                raise MalformedMessage(f"request {number} is under way already")
            if len(self._tasks) >= RPC_MAX_REQUESTS_PER_STREAM:
                raise MalformedMessage(f"{len(self._tasks)} requests are under way already")
            try:
                request = await self._server.coding.join(self._requests, frame.head, frame.payload)
            except OutOfRange as error:
                if not self._has_room():
                    raise MalformedMessage(f"{error}, and no answer is read") from error
                self._send(codec.encode_refusal_frame(number, error))
                return
            task = asyncio.create_task(self._answer(number, request), name=f"rpc {self._method}")
            self._tasks[number] = task
            task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, correlation_id: int, request: Req) -> None:
        if not self._has_room():
            await self._room()
        result = await self._server.answer(self._method, self._handler, request)
        if isinstance(result, ApiError):
            frame = codec.encode_refusal_frame(correlation_id, result)
        elif isinstance(result, str):
            frame = codec.encode_failure_frame(correlation_id, result)
        else:
            frame = await self._encode(correlation_id, result)
        if len(frame) > RPC_MAX_MESSAGE_BYTES:  # gRPC would refuse it, and answer nobody on this stream any more
            told = self._server.too_large(self._method, len(frame))
            frame = codec.encode_failure_frame(correlation_id, told)
        self._send(frame)

    async def _encode(self, correlation_id: int, response: Res) -> bytes:
        """Return the frame of the response; that of a failure, where the handler made one that no message can express."""
        try:
            head = await self._server.coding.encode(self._responses, response)
            return codec.encode_head_frame(correlation_id, head, self._responses.payload(response))
        except Exception as error:  # noqa: BLE001 - the top of a request's task
            return codec.encode_failure_frame(correlation_id, self._server.fault_or_failure(self._method, error))

    def _has_room(self) -> bool:
        own = self._unread_bytes
        return own == 0 or (own <= RPC_MAX_UNREAD_BYTES_PER_STREAM and self._server.unread_bytes <= RPC_MAX_UNREAD_BYTES)

    async def _room(self) -> None:
        """Until the peer has taken some of its answers. Ends the stream when it takes none in time."""
        while not self._has_room():
            self._taken.clear()
            try:
                async with asyncio.timeout(RPC_STALLED_MS / 1000):
                    await self._taken.wait()
            except TimeoutError:
                if not self._stalled and self._reader is not None:
                    self._stalled = True
                    self._reader.cancel()

    def _drop_answers(self) -> None:
        """All but the one that is being written."""
        for task in list(self._tasks.values()):
            task.cancel()
        dropped = sum(map(len, self._outbox))
        self._outbox.clear()
        self._unread_bytes -= dropped
        self._server.unread_bytes -= dropped

    def _send(self, frame: bytes) -> None:
        self._outbox.append(frame)
        self._unread_bytes += len(frame)
        self._server.unread_bytes += len(frame)
        self._outbox_filled.set()

    async def _write(self) -> None:
        while True:
            while self._outbox:
                frame = self._outbox.popleft()
                self._idle.clear()
                try:
                    await self._context.write(frame)
                except (aio.UsageError, grpc.RpcError, asyncio.InvalidStateError):
                    return  # the caller is gone; its reader ends the stream
                finally:
                    self._idle.set()
                self._unread_bytes -= len(frame)
                self._server.unread_bytes -= len(frame)
                self._taken.set()
            self._outbox_filled.clear()
            await self._outbox_filled.wait()
