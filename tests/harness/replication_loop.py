"""The step cluster with its drivers running: an asyncio loop, an in-memory network, a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.method import Method
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult
from kraftlite.replication.consume import may_wait
from kraftlite.replication.manager import ReplicaManager
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Tasks, Transport
from tests.harness.clock import FakeClock
from tests.harness.replication_cluster import StepCluster
from tests.harness.transport import MemNetwork, MemTransport


async def consume(manager: ReplicaManager, params: FetchParams, entries: Sequence[FetchEntry]) -> list[FetchResult]:
    """What a client gets: looked for at once, and again whenever there is news, until there is enough or its time is over."""
    results = manager.fetch_now(params, entries)
    woken = asyncio.Event()
    waiting = manager.fetch_wait(params, woken.set)
    try:
        while not waiting.expired and may_wait(params, results):
            woken.clear()
            waiting.watch(entries)
            await woken.wait()
            results = manager.fetch_now(params, entries)
    finally:
        waiting.cancel()
    return results


class LoopTasks:
    """`Tasks` on the running loop. An unexpected end is kept in `faults`."""

    def __init__(self, faults: list[tuple[BaseException, str]]) -> None:
        self._faults = faults
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._faults.append((error, task.get_name()))

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        return function()

    async def cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ModelChannel:
    """`ControllerChannel` to the model controller. `down`: nobody answers. `held`: requests wait until it is cleared."""

    def __init__(self, cluster: LoopCluster) -> None:
        self._cluster = cluster
        self.calls: list[Any] = []
        self.down = False
        self.held: asyncio.Event | None = None

    async def call(self, method: Method, request: Any, timeout_ms: int) -> Any:
        self.calls.append(request)
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        if self.down:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return self._cluster.controller.alter_partition(request)


class LoopCluster(StepCluster):
    """`async with LoopCluster() as c`: all managers started and listening."""

    trace_hot = False

    def __init__(self, count: int = 3, **options: Any) -> None:
        self._transports: dict[NodeId, MemTransport] = {}
        self._tasks: dict[NodeId, LoopTasks] = {}
        self.channels: dict[NodeId, ModelChannel] = {}
        self._network: MemNetwork | None = None
        super().__init__(count, **options)

    @property
    def network(self) -> MemNetwork:
        if self._network is None:
            self._network = MemNetwork(self.clock)
        return self._network

    def transport_for(self, broker_id: NodeId) -> Transport:
        found = self._transports[broker_id] = self.network.transport(f"b{broker_id}")
        return found

    def tasks_for(self, broker_id: NodeId) -> Tasks:
        found = self._tasks[broker_id] = LoopTasks(self.faults)
        return found

    def channel_for(self, broker_id: NodeId) -> ControllerChannel:
        found = self.channels[broker_id] = ModelChannel(self)
        return found

    async def serve(self, broker_id: int) -> None:
        node = self[broker_id]
        node.manager.start()
        await self._transports[node.id].serve(Endpoint(f"b{broker_id}", 9192), node.manager.handlers())

    async def kill(self, broker_id: int) -> None:
        """The process dies; its disk stays as it is."""
        node = self[broker_id]
        self.network.kill(f"b{broker_id}")
        await self._tasks[node.id].cancel_all()
        node.crash(lose_page_cache=False)

    async def __aenter__(self) -> LoopCluster:
        for broker_id in self.nodes:
            await self.serve(int(broker_id))
        return self

    async def __aexit__(self, *_error: object) -> None:
        for node in self.nodes.values():
            if node.up:
                await node.manager.stop()
        for tasks in self._tasks.values():
            await tasks.cancel_all()
        assert not self.faults, self.faults

    async def settle(self) -> None:
        await FakeClock.settle(60)

    async def until(self, condition: Callable[[], object], *, within_ms: int = 60_000, step_ms: int = 20) -> int:
        """Let time pass until the condition holds; how much it took. AssertionError when it does not come true."""
        start = self.clock.now_ms()
        await self.settle()
        while not condition():
            assert self.clock.now_ms() - start < within_ms, "did not come true"
            await self.clock.run_for(step_ms, settle=30)
        return self.clock.now_ms() - start
