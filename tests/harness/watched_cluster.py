"""A small simulated cluster under the eyes of given checkers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from kraftlite.controller.core import ControllerCore
from kraftlite.controller.results import ControllerResult
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import CreatableTopic, CreateTopicsRequest
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.model.method import Method
from kraftlite.raft.core import RaftCore
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import Checker, CheckerFactory, Losses, World
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.cluster import CLIENT, SimCluster
from kraftlite.sim.history import History
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.shape import NAMED, Shape
from kraftlite.sim.themes import PLAIN
from kraftlite.simhost.host import SimHost

SMALL = replace(NAMED["3+3"], brokers=2)
LIMIT_MS = 60_000


class WatchedCluster:
    """Nodes 1-3 are controllers, 4 and 5 brokers. What a checker finds is raised by the next `go`, `until` or `do`."""

    def __init__(self, *factories: CheckerFactory, shape: Shape = SMALL, seed: int = 1, theme: str = PLAIN) -> None:
        self.loop = VirtualLoop(seed)
        self.cluster = SimCluster(self.loop, shape, seed, theme)
        self.world = World(cluster=self.cluster, history=History(), losses=Losses(), rng=random.Random(seed))
        self.checkers: list[Checker] = [make(self.world) for make in factories]
        self.found: BaseException | None = None
        self.failures: list[tuple[NodeId, BaseException, str]] = []
        self._by_pid: dict[int, SimHost] = {}
        self.cluster.on_event.append(lambda now, node, event: self._tell(lambda it: it.on_event(now, node, event)))
        self.cluster.on_failure.append(self._failed)
        self.cluster.network.on_call = lambda *call: self._tell(lambda it: it.on_call(*call))
        self.cluster.network.on_answer = lambda *answer: self._tell(lambda it: it.on_answer(*answer))
        self.cluster.network.on_arrival = lambda exchange: self._tell(lambda it: it.on_arrival(exchange))
        self.cluster.network.on_served = lambda *served: self._tell(lambda it: it.on_served(*served))
        self.loop.after_step = self._after_step
        for node in self.cluster.nodes.values():
            node.on_built = self._built
        self.client = self.cluster.network.transport(CLIENT, self.cluster.outside)

    def _tell(self, tell: Callable[[Checker], None]) -> None:
        if self.found is not None:
            return
        try:
            for it in self.checkers:
                tell(it)
        except Exception as error:  # noqa: BLE001 a violation, or a bug in a checker: raised by `do`
            self.found = error
            self.loop.stop()

    def _built(self, node: SimHost) -> None:
        assert node.now is not None
        self._by_pid[node.now.pid] = node
        self._tell(lambda it: it.on_boot(node))

    def _after_step(self, pid: int) -> None:
        node = self._by_pid.get(pid)
        if node is not None:
            self._tell(lambda it: it.on_step(node))

    def _failed(self, node: SimHost, error: BaseException, where: str) -> None:
        self.failures.append((node.node_id, error, where))
        self._tell(lambda it: it.on_death(node, "failed"))

    # --- time

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` to its end, or to the first violation, which is raised."""
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(work)
        try:
            self.loop.run_until_complete(task)
        except RuntimeError:
            if self.found is None:
                raise
        if self.found is not None:
            task.cancel()
            raise self.found
        return task.result()

    def go(self, ms: int) -> None:
        self.do(asyncio.sleep(ms / 1000))

    def until(self, condition: Callable[[], Any], what: str = "the condition") -> Any:
        return self.do(self.cluster.until(condition, what, LIMIT_MS))

    def start(self) -> WatchedCluster:
        async def boot() -> None:
            self.cluster.boot()

        self.do(boot())
        self.until(lambda: all(node.started for node in self.cluster.nodes.values()), "every node starts")
        self.until(lambda: self.controller().activated)
        return self

    def at_end(self) -> None:
        for it in self.checkers:
            it.at_end()

    def close(self) -> None:
        loop = self.loop
        loop.after_step = None
        self.found = None
        self.checkers = []
        for node in self.cluster.nodes.values():
            node.kill()
        with contextlib.suppress(RuntimeError):
            loop.run_until_complete(asyncio.sleep(0))  # takes the stop that was on its way when a violation was found
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=60))
        loop.close()
        asyncio.set_event_loop(None)

    # --- who is who

    def node(self, node_id: int) -> SimHost:
        return self.cluster.nodes[NodeId(node_id)]

    def core(self, node_id: int) -> RaftCore:
        node = self.node(node_id).node
        assert node is not None
        return node.raft.core

    def leader_id(self) -> int:
        """Of the quorum; 0 while there is none."""
        leads = [
            it.node_id
            for it in self.cluster.controllers
            if it.node is not None and isinstance(self.core(it.node_id).state, Leader)
        ]
        return max(leads, key=lambda it: self.core(it).epoch, default=0)

    def follower_ids(self) -> list[int]:
        leader = self.leader_id()
        return [it.node_id for it in self.cluster.controllers if it.node is not None and it.node_id != leader]

    def controller(self, node_id: int | None = None) -> ControllerCore:
        node = self.node(node_id if node_id is not None else self.leader_id() or 1).node
        assert node is not None and node.controller is not None
        return node.controller.core

    # --- doing things

    def kill(self, node_id: int) -> None:
        node = self.node(node_id)
        node.kill()
        self._tell(lambda it: it.on_death(node, "killed"))

    def boot(self, node_id: int) -> None:
        async def boot() -> None:
            self.node(node_id).boot()

        self.do(boot())
        self.until(lambda: self.node(node_id).started)

    def cut_off(self, *node_ids: int) -> None:
        """These nodes reach nobody, not even each other."""
        for node_id in node_ids:
            for other in self.cluster.nodes:
                if other != node_id:
                    self.cluster.network.cut(NodeId(node_id), other)

    def call(self, node_id: int, method: Method, request: Any, timeout_ms: int = 5_000) -> Any:
        """As a client that knows the controller's listener."""
        return self.do(self.client.call(Endpoint(f"n{node_id}", 9093), method, request, timeout_ms))

    def create_topic(self, name: str = "orders", replication: int = 2) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=replication, assignments=(), configs=())
        request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=5_000)
        self.call(self.leader_id(), CREATE_TOPICS, request)

    def write(self, *records: Any) -> None:
        """Let the active controller commit these, whatever they say."""
        self.submit(*records)
        end = self.core(self.leader_id()).log_end_offset
        self.until(lambda: (self.core(self.leader_id()).committed_offset or 0) >= end)

    def submit(self, *records: Any) -> None:
        leader = self.node(self.leader_id())
        assert leader.now is not None and leader.node is not None and leader.node.controller is not None
        driver, clock = leader.node.controller, leader.now.clock

        async def submit() -> None:
            result = ControllerResult(records=list(records), response=None, atomic=True)
            driver.core.submit("test", lambda _now: result, lambda _outcome: None, clock.now_ms())
            driver._wake()

        self.do(submit())
        self.go(50)


@contextlib.contextmanager
def watched() -> Iterator[Callable[..., WatchedCluster]]:
    """Give a function that starts a cluster under given checkers; close them all at the end."""
    made: list[WatchedCluster] = []

    def start(*factories: CheckerFactory, shape: Shape = SMALL) -> WatchedCluster:
        made.append(WatchedCluster(MetadataWatch, *factories, shape=shape))
        return made[-1].start()

    try:
        yield start
    finally:
        for cluster in made:
            cluster.close()
