"""One simulated host: the production node on ports that can be killed, paused and starved, over all its incarnations."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kraftlite.config.server import ServerConfig
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import FeatureRange
from kraftlite.model.tuning import Tuning
from kraftlite.node.build import Node, build_node
from kraftlite.node.listeners import NodeListeners
from kraftlite.runtime.ports import Handlers, Ports
from kraftlite.runtime.trace import TraceEvent
from kraftlite.simhost.clock import SimHostClock
from kraftlite.simhost.disk import MemDisk
from kraftlite.simhost.network import SimHostTransport, SimNetwork
from kraftlite.simhost.process import ProcessLoop, context_of
from kraftlite.simhost.tasks import SimHostTasks

_PIDS = itertools.count(1)
OnEvent = Callable[["SimHost", TraceEvent], None]


@dataclass(eq=False, kw_only=True)
class Incarnation:
    """One run of a node, from boot to its end. `failure`: what it ended itself with."""

    number: int
    pid: int
    node: Node
    clock: SimHostClock
    tasks: SimHostTasks
    transport: SimHostTransport
    starting: asyncio.Task[None] | None = None
    stopping: asyncio.Task[None] | None = None
    closing: asyncio.Task[None] | None = None
    """The node's own part of `stopping`."""
    failure: tuple[BaseException, str] | None = None
    dead: bool = False
    stopped: bool = False
    """It ended in order, by itself: nobody killed it meanwhile."""
    paused: bool = False

    @property
    def started(self) -> bool:
        return self.starting is not None and self.starting.done() and not self.starting.cancelled() and not self.dead


@dataclass(eq=False, kw_only=True)
class SimHost:
    """Disk and configuration stay; everything else is new at each `boot`.

    `on_event` gets every trace event of the running incarnation, `on_failure` is called when a node ends itself (a Fault, a
    failed assertion, a disk that cannot be written): as in production the process is gone then.
    """

    loop: ProcessLoop
    network: SimNetwork
    config: ServerConfig
    wall_ms: Callable[[], int]
    disk: MemDisk = field(default_factory=MemDisk)
    serve_clients: bool = False
    clients: Callable[[Node], Handlers] | None = None
    """The methods that simulated clients may call at the node's first client listener once it has started."""
    on_event: OnEvent = lambda node, event: None
    on_failure: Callable[[SimHost, BaseException, str], None] = lambda node, error, where: None
    on_built: Callable[[SimHost], None] = lambda node: None
    """Called before an incarnation starts."""
    blocking_wait: Callable[[], Awaitable[None]] | None = None
    """Awaited by each `Tasks.run_blocking`: how long the work takes. With it the node has no thread for foreign code either."""
    tuning: Tuning = field(default_factory=Tuning)
    trace_hot: bool = False
    seed: int = 0
    rate_ppm: int = 0
    offers: tuple[FeatureRange, ...] | None = None
    """The levels of features that its broker says it has; None: those of this software."""
    boots: int = 0
    ended: int = 0
    """The number of the last incarnation that has ended: nobody hears of it any more."""
    stood_still_us: tuple[int, int] = (0, 0)
    """Beginning and end of the last pause that is over."""
    _paused_us: int = 0
    _rates: tuple[int, int] = (0, 0)
    now: Incarnation | None = None
    node_id: NodeId = field(init=False)

    def __post_init__(self) -> None:
        self.node_id = NodeId(self.config.node_id)

    @property
    def node(self) -> Node | None:
        """The running node; None while there is none."""
        return None if self.now is None else self.now.node

    @property
    def running(self) -> bool:
        return self.now is not None

    @property
    def started(self) -> bool:
        return self.now is not None and self.now.started

    @property
    def paused(self) -> bool:
        return self.now is not None and self.now.paused

    def boot(self) -> None:
        """Start an incarnation. A directory that is refused (BL-14) counts as a node that ended itself."""
        assert self.now is None, f"node {self.node_id} runs already"
        self.boots += 1
        pid = next(_PIDS)
        context = context_of(pid)
        clock = SimHostClock(self.loop, context, wall_ms=self.wall_ms(), rate_ppm=self.rate_ppm)
        boot = self.boots

        def fault(error: BaseException, where: str) -> None:
            if self.boots == boot:  # what a dead incarnation says on its way out is not its successor's
                self._fault(error, where)

        tasks = SimHostTasks(context, fault, self.blocking_wait)
        transport = self.network.transport(self.node_id, context)
        transport.broken = fault
        ports = Ports(
            node_id=self.node_id,
            clock=clock,
            disk=self.disk.mount(),
            transport=transport,
            tracer=_Tracer(self, self.boots),
            tasks=tasks,
            entropy=random.Random(f"{self.seed}/{self.node_id}/{self.boots}"),
            fault=fault,
            trace_hot=self.trace_hot,
            tuning=self.tuning,
            aside=None if self.blocking_wait is None else tasks.aside,
        )
        try:
            node = context.run(build_node, self.config, ports, serve_clients=self.serve_clients)
        except Exception as error:  # noqa: BLE001 what production's `serve` reports before it exits
            self._fault_at_build(error)
            return
        if self.offers is not None and node.broker is not None:
            node.broker.features = self.offers
        here = self.now = Incarnation(number=self.boots, pid=pid, node=node, clock=clock, tasks=tasks, transport=transport)
        self.on_built(self)
        here.starting = asyncio.get_running_loop().create_task(self._start(here), context=context)

    async def _start(self, here: Incarnation) -> None:
        try:
            await here.node.start()
            if self.clients is not None and here.node.broker is not None:
                await here.transport.serve(self.client_endpoint, self.clients(here.node))
                self._close_with(here, here.node.listeners)
        except Exception as error:  # noqa: BLE001 as production's `serve`: whatever start raises ends the node
            if not here.dead:
                self._fault(error, "node start")

    def _close_with(self, here: Incarnation, listeners: NodeListeners) -> None:
        """Simulated clients lose their broker where others do: a record that came behind would miss the flush of a clean end."""
        close = listeners.close_clients

        async def close_clients(grace_ms: int) -> None:
            await close(grace_ms)
            await here.transport.unserve(self.client_endpoint, grace_ms)

        listeners.close_clients = close_clients  # type: ignore[method-assign]

    @property
    def client_endpoint(self) -> Endpoint:
        listener = next(it for it in self.config.listeners if it.name == "PLAINTEXT")
        return Endpoint(listener.host, listener.port)

    # --- what can happen to it

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more; what it wrote stays in the page cache."""
        if self.now is not None:
            self._end()
            self.disk.kill()

    def power_cut(self, rng: random.Random | None = None) -> list[str]:
        """The machine dies: what was not synced is gone, or torn as `rng` decides. Returns the paths that lost something."""
        if self.now is not None:
            self._end()
        return self.disk.crash(rng)

    def set_rate(self, rate_ppm: int) -> None:
        """The monotonic clock runs at another speed from now on, until the next boot or the next call."""
        if self.now is not None:
            self.now.clock.set_rate(rate_ppm)
            self._rates = (min(self.slowest_ppm, rate_ppm), max(self.fastest_ppm, rate_ppm))

    @property
    def slowest_ppm(self) -> int:
        """The slowest that the monotonic clock has ever run."""
        return min(self.rate_ppm, self._rates[0])

    def longest_us(self, ms: int) -> int:
        """Return the time in microseconds that has passed at most when this monotonic clock has counted so many milliseconds."""
        return ms * 1_000_000_000 // (1_000_000 + self.slowest_ppm)

    @property
    def fastest_ppm(self) -> int:
        return max(self.rate_ppm, self._rates[1])

    def pause(self) -> None:
        """Stop-the-world, as by SIGSTOP: its time goes on, nothing of it runs."""
        if self.now is not None and not self.now.paused:
            self.now.paused = True
            self._paused_us = self.loop.now_us()
            self.loop.pause(self.now.pid)

    def resume(self) -> None:
        if self.now is not None and self.now.paused:
            self.now.paused = False
            self.stood_still_us = self._paused_us, self.loop.now_us()
            self.loop.resume(self.now.pid)

    def stop(self) -> Awaitable[None] | None:
        """SIGTERM: leaderships are handed over, logs closed. The task that does it; None when nothing runs."""
        here = self.now
        if here is None:
            return None
        if here.stopping is None:
            here.stopping = asyncio.get_running_loop().create_task(self._stop(here))
        return here.stopping

    async def _stop(self, here: Incarnation) -> None:
        loop = asyncio.get_running_loop()
        here.closing = loop.create_task(here.node.stop(graceful=True), context=context_of(here.pid))
        try:
            await here.closing
        except Exception as error:  # noqa: BLE001 a stop that fails ends the process with an error, as in production
            if not here.dead:
                self._fault(error, "node stop")
            return
        except asyncio.CancelledError:
            if not here.dead:
                raise
            return  # killed meanwhile
        if self.now is here and not here.dead:
            here.stopped = True
            self._end()
            self.disk.kill()

    def _fault(self, error: BaseException, where: str) -> None:
        here = self.now
        if here is None or here.dead:
            return
        here.failure = (error, where)
        self._end()
        self.disk.kill()
        self.on_failure(self, error, where)

    def _fault_at_build(self, error: Exception) -> None:
        self.disk.kill()
        self.on_failure(self, error, "node build")

    def _end(self) -> None:
        here = self.now
        assert here is not None
        self.now = None
        here.dead = True
        self.ended = here.number
        self.resume_process(here)
        here.clock.stop()
        here.node.listeners.abort()
        here.transport.drop()
        here.tasks.abandon()
        for task in (here.starting, here.closing):
            if task is not None and not task.done():
                task.cancel()

    def resume_process(self, here: Incarnation) -> None:
        """Let what a dead incarnation left behind run out: it reaches neither disk nor network nor trace."""
        if here.paused:
            here.paused = False
            self.loop.resume(here.pid)


class _Tracer:
    """The `Tracer` port of one incarnation."""

    def __init__(self, node: SimHost, boot: int) -> None:
        self._node = node
        self._boot = boot

    def emit(self, event: TraceEvent) -> None:
        node = self._node
        if node.ended < self._boot == node.boots:
            node.on_event(node, event)
