"""Ports for tests of one broker or node: a clock moved by hand, a disk in memory, tasks that report their faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.method import Method
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.ports import Ports, TransportError
from kraftlite.runtime.trace import ListTracer
from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk

T = TypeVar("T")


class LoopTasks:
    """`Tasks` on the running loop; `run_blocking` runs inline. A task's exception goes to `fault`."""

    def __init__(self, fault: Callable[[BaseException, str], None]) -> None:
        self._fault = fault
        self.running: set[asyncio.Task[Any]] = set()

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault(error, task.get_name())

    async def run_blocking(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return function()

    async def cancel_all(self) -> None:
        while pending := [task for task in self.running if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)


class ScriptedTransport:
    """`Transport` whose answers a function makes: `answer(peer, method, request)` returns or raises. Counts the calls."""

    def __init__(self, answer: Callable[[Endpoint, Method, Any], Any] | None = None) -> None:
        self.answer = answer
        self.calls: list[tuple[Endpoint, Method, Any]] = []
        self.pending = 0
        self.most_pending = 0

    async def call(self, peer: Endpoint, method: Method, request: Any, timeout_ms: int) -> Any:
        self.calls.append((peer, method, request))
        self.pending += 1
        self.most_pending = max(self.pending, self.most_pending)
        try:
            await asyncio.sleep(0)
            if self.answer is None:
                raise TransportError("connection refused")
            answer = self.answer(peer, method, request)
            if asyncio.isfuture(answer):
                answer = await answer
            return answer
        finally:
            self.pending -= 1

    async def reserve(self, listen: Endpoint) -> None:
        pass

    async def serve(self, listen: Endpoint, handlers: Any) -> Endpoint:
        return listen

    async def close(self, grace_ms: int = 0) -> None:
        return None


class KnownLeader:
    """The part of `RaftClient` that says who leads."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self.endpoint = endpoint

    def leader_endpoint(self) -> Endpoint | None:
        return self.endpoint

    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(leader_id=None if self.endpoint is None else NodeId(self.endpoint.port), epoch=1)


class TestBed:
    """One node's ports and what happened through them."""

    __test__ = False

    def __init__(
        self,
        *,
        seed: int = 1,
        transport: Any = None,
        disk: MemDisk | None = None,
        node_id: int = 1,
        clock: FakeClock | None = None,
        tracer: ListTracer | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.disk = disk or MemDisk()
        self.tracer = tracer or ListTracer()
        self.faults: list[tuple[BaseException, str]] = []
        self.tasks = LoopTasks(lambda error, where: self.faults.append((error, where)))
        self.transport = transport or ScriptedTransport()
        self.ports = Ports(
            node_id=NodeId(node_id),
            clock=self.clock,
            disk=self.disk,
            transport=self.transport,
            tracer=self.tracer,
            tasks=self.tasks,
            entropy=random.Random(seed),
            fault=lambda error, where: self.faults.append((error, where)),
        )

    def events(self, name: str) -> list[Any]:
        return [event for event in self.tracer.events if event.event == name]
