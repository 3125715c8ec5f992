"""One run: a seed becomes a cluster, a workload and faults, and ends with a verdict.

Invariant 15, and with it 33: when the faults are over, the cluster converges and every call gets its verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.storage import StorageError
from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim import elr_scenes, log_dir_faults, policies, quorum_scenes, schedule, slow_publishers, variations
from kraftlite.sim.checkers.base import Checker, CheckerFactory, LivenessViolation, Losses, Violation, World
from kraftlite.sim.checkers.told import Told
from kraftlite.sim.client import records_of
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.collecting import collecting_rarely
from kraftlite.sim.coverage import Coverage
from kraftlite.sim.fault_plan import FaultPlan, UnknownNode
from kraftlite.sim.history import History
from kraftlite.sim.injection.ambushes import ARRIVED, CALLED, SERVED
from kraftlite.sim.injection.catalog import HANDLERS
from kraftlite.sim.injector import Injector
from kraftlite.sim.knobs import draw as draw_knobs
from kraftlite.sim.knobs import turned
from kraftlite.sim.loop import SimulationIdle, VirtualLoop
from kraftlite.sim.shape import Shape
from kraftlite.sim.shape import draw as draw_shape
from kraftlite.sim.stranded import Rescue
from kraftlite.sim.themes import ADMIN, DIRECTORIES, KNOBS, LOGS, MEMBERSHIP, PLAIN, SECURITY, SINK, TRANSACTIONS, TROUBLES
from kraftlite.sim.workload import Workload
from kraftlite.sim.workloads import levels, logs, membership_settings, security_settings, transaction_settings
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

START_LIMIT_MS: Final = 60_000
CONVERGE_LIMIT_MS: Final = 120_000
VERDICT_LIMIT_MS: Final = 60_000
OPERATOR_LIMIT_MS: Final = 10_000
"""The time without a verdict after which the operator looks for brokers that a late wish of an administrator has taken out."""
AFTERGLOW_MS: Final = 1_500
"""The time for which the workload goes on when everything is healed and converged."""


class Outcome(IntEnum):
    """Also the exit status of `kraftlite sim`."""

    OK = 0
    CRASH = 3
    SAFETY = 4
    LIVENESS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything that decides a run. `duration_ms` of the safety phase.

    The seed decides what is None: `shape` and `knobs` (the values of other keys, for a shape that is drawn), `faults`. With
    `shape_seed`, `knobs_seed` and `faults_seed` another one decides that part, and `seed` the rest.
    """

    seed: int
    theme: str = PLAIN
    shape: Shape | None = None
    knobs: Mapping[str, str] | None = None
    faults: tuple[FaultPlan, ...] | None = None
    duration_ms: int = 15_000
    shape_seed: int | None = None
    knobs_seed: int | None = None
    faults_seed: int | None = None

    def drawn(self) -> tuple[Shape, tuple[FaultPlan, ...]]:
        """The shape, with its knobs, and the faults."""
        shape, knobs = self.shape, self.knobs
        if shape is None:
            seed = _either(self.shape_seed, self.seed)
            shape = draw_shape(random.Random(f"shape/{seed}"))
            if self.theme in _THEMED:
                shape = _THEMED[self.theme](shape, seed)
            shape = slow_publishers.vary(shape, seed, self.theme)
            shape = elr_scenes.with_feature(shape, seed)
            shape = levels.with_beginning(shape, seed, self.theme)
            shape = quorum_scenes.with_short_log(shape, seed, self.theme)
            if knobs is None and (self.theme == KNOBS or self.knobs_seed is not None):
                knobs = draw_knobs(_either(self.knobs_seed, self.seed), shape.config, shape.max_delay_us)
        shape = turned(shape, knobs or {})
        faults = self.faults
        if faults is None:
            faults = schedule.draw_all(_either(self.faults_seed, self.seed), shape, self.duration_ms, self.theme)
        return shape, faults


_THEMED: Final = {
    LOGS: logs.with_periods,
    ADMIN: policies.with_policies,
    TROUBLES: variations.vary,
    DIRECTORIES: log_dir_faults.several,
    TRANSACTIONS: transaction_settings.vary,
    SINK: transaction_settings.vary,
    MEMBERSHIP: membership_settings.vary,
    SECURITY: security_settings.vary,
}
"""The change that a theme makes to a shape that is drawn."""


def _either(given: int | None, seed: int) -> int:
    return seed if given is None else given


@dataclass(eq=False, slots=True, kw_only=True)
class RunResult:
    """The result of a run. `produced`, `acked` (with an offset) and `consumed` count records."""

    plan: RunPlan
    shape: Shape
    faults: tuple[FaultPlan, ...]
    outcome: Outcome = Outcome.OK
    checker: str = ""
    story: str = ""
    """The description of what is wrong; empty when nothing is."""
    trace: str = ""
    """Digest of all events: two runs of one plan have the same."""
    steps: int = 0
    virtual_ms: int = 0
    events: int = 0
    produced: int = 0
    acked: int = 0
    consumed: int = 0
    admin_calls: int = 0
    excused: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    injected: list[tuple[int, str]] = field(default_factory=list)
    history: History = field(default_factory=History)


TraceSink = Callable[[int, SimHost, TraceEvent], None]


def run(
    plan: RunPlan,
    checkers: Sequence[CheckerFactory] | None = None,
    *,
    sink: TraceSink | None = None,
) -> RunResult:
    """Run a plan to its end. Never raises for what the run finds: that is the result's `outcome`.

    Raises UnknownNode when a fault of the plan names a node that the cluster does not have.
    """
    if checkers is None:
        from kraftlite.sim.checkers.catalog import ALL

        checkers = ALL
    with collecting_rarely():
        return _Run(plan, checkers, sink).go()


class _Run:
    def __init__(self, plan: RunPlan, checkers: Sequence[CheckerFactory], sink: TraceSink | None) -> None:
        self.plan = plan
        seed = plan.seed
        shape, faults = plan.drawn()
        self.result = RunResult(plan=plan, shape=shape, faults=faults)
        self.loop = VirtualLoop(seed)
        self.cluster = SimCluster(self.loop, shape, seed, plan.theme)
        self.losses = Losses()
        self.world = World(
            cluster=self.cluster, history=self.result.history, losses=self.losses, rng=random.Random(f"checkers/{seed}")
        )
        power_losses: dict[NodeId, list[str]] = {}
        self.world.notes["power_losses"] = power_losses
        self.checkers: list[Checker] = [make(self.world) for make in checkers]
        self.workload = Workload(self.cluster, self.result.history, random.Random(f"workload/{seed}"))
        self.rescue = Rescue(self.cluster, self.result.history)
        self.injector = Injector(
            self.cluster,
            HANDLERS,
            on_death=self._on_death,
            power_losses=power_losses,
            wiped=self.losses.wiped,
            damaged=self.losses.damaged,
            forgetful=self.losses.forgetful,
            on_churn=self.workload.churn,
            on_loss=self._on_loss,
        )
        try:
            self.injector.check(faults)
        except UnknownNode:
            self.loop.close()
            raise
        self._digest = hashlib.sha256()
        self._sink = sink
        self._found: BaseException | None = None
        self._by_pid: dict[int, SimHost] = {}
        self._over = False
        self._wire_up()

    def _wire_up(self) -> None:
        cluster = self.cluster
        cluster.on_event.append(self._on_event)
        cluster.on_failure.append(self._on_failure)
        for node in cluster.nodes.values():
            node.on_built = self._on_built
        cluster.network.on_call = self._on_call
        cluster.network.on_answer = self._on_answer
        cluster.network.on_arrival = self._on_arrival
        cluster.network.on_served = self._on_served
        self.loop.after_step = self._after_step
        self.loop.set_exception_handler(self._on_loop_error)
        self._told = Told(self.checkers)

    # --- what the checkers are told; the first violation ends the run

    def _take_fault(self, error: BaseException) -> None:
        """The first thing found ends the run."""
        if self._found is None:
            self._found = error
            self.loop.stop()

    def _tell(self, hooks: Sequence[Callable[..., None]], *args: object) -> None:
        if self._found is not None:
            return
        try:
            for tell in hooks:
                tell(*args)
        except Exception as error:  # noqa: BLE001 a violation, or a bug in a checker
            self._take_fault(error)

    def _on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if self._over:
            return
        self.result.events += 1
        self._digest.update(f"{now_us} {node.node_id}.{node.boots} {event.event} {event.facts()}\n".encode())
        self.result.coverage.event(node, event)
        if self._sink is not None:
            self._sink(now_us, node, event)
        if hooks := self._told.events.of(type(event)):
            self._tell(hooks, now_us, node, event)

    def _after_step(self, pid: int) -> None:
        node = self._by_pid.get(pid)
        if node is None or self._found is not None:
            return
        try:
            for step in self._told.steps:
                step(node)
        except Exception as error:  # noqa: BLE001 as in _tell, without a call for each
            self._take_fault(error)

    def _on_built(self, node: SimHost) -> None:
        assert node.now is not None
        self._by_pid[node.now.pid] = node
        self._tell(self._told.boots, node)

    def _on_death(self, node: SimHost, how: str) -> None:
        self._tell(self._told.deaths, node, how)

    def _on_loss(self, node: SimHost, paths: Sequence[str]) -> None:
        self._tell(self._told.losses, node, paths)

    def _on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if hooks := self._told.calls.of(method):
            self._tell(hooks, source, target, method, request)
        if self.injector.ambushes:
            self.injector.meet(CALLED, method, source, target)

    def _on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if hooks := self._told.answers.of(method):
            self._tell(hooks, source, target, method, request, response)

    def _on_arrival(self, exchange: AnyExchange) -> None:
        if hooks := self._told.arrivals.of(exchange.method):
            self._tell(hooks, exchange)
        if self.injector.ambushes:
            self.injector.meet(ARRIVED, exchange.method, exchange.source, exchange.target)

    def _on_served(self, exchange: AnyExchange, response: object) -> None:
        if hooks := self._told.served.of(exchange.method):
            self._tell(hooks, exchange, response)
        if self.injector.ambushes:
            self.injector.meet(SERVED, exchange.method, exchange.source, exchange.target)

    def _on_failure(self, node: SimHost, error: BaseException, where: str) -> None:
        """A node ended itself. Allowed are disks that failed it, and what production gives up on by design."""
        if self._over:
            return
        self._digest.update(f"{self.loop.now_us()} {node.node_id} failed {where} {error}\n".encode())
        self._on_death(node, "failed")
        self.injector.log.append((self.loop.now_us(), f"node {node.node_id} ended itself in {where}: {error}"))
        if isinstance(error, Fault | StorageError) and self.injector.refused(node, error):
            return
        if isinstance(error, Fault | OSError | StorageError) and node.node_id in self.injector.disk_victims:
            return
        self._take_fault(_Crash(node.node_id, where, error))

    # --- the run

    def go(self) -> RunResult:
        result = self.result
        asyncio.set_event_loop(self.loop)
        try:
            try:
                self.loop.run_until_complete(self._phases())
            except RuntimeError as error:
                if self._found is None or "Event loop stopped" not in str(error):
                    raise
            if self._found is not None:
                raise self._found
        except LivenessViolation as error:
            self._blame(Outcome.LIVENESS, error.checker, error.text)
        except Violation as error:
            self._blame(Outcome.SAFETY, error.checker, error.text)
        except _Crash as error:
            self._blame(Outcome.CRASH, f"node {error.node_id}", str(error))
        except SimulationIdle as error:
            self._blame(Outcome.LIVENESS, "loop", str(error))
        except Exception as fault:  # noqa: BLE001 a bug of the simulator or of a checker is a result, too
            self._blame(Outcome.CRASH, "simulator", "".join(traceback.format_exception(fault)))
        result.trace = self._digest.hexdigest()[:16]
        result.steps, result.virtual_ms = self.loop.steps, self.loop.now_us() // 1000
        self._clear_up()
        asyncio.set_event_loop(None)
        history = result.history
        result.produced = len(history.produces)
        result.acked = sum(it.offset >= 0 for it in history.produces)
        result.consumed = sum(len(it.records) for it in history.consumed)
        result.admin_calls = len(history.admins)
        result.excused = len(self.losses.excused)
        result.injected = self.injector.log
        result.coverage.answers = history.answers
        result.coverage.look(self.checkers)
        return result

    def _clear_up(self) -> None:
        """Power everything off and let what is left of the tasks run out, unseen."""
        loop = self.loop
        self._over = True
        loop.after_step = None
        loop.set_exception_handler(lambda _loop, _context: None)
        self.injector.over = True
        for node in self.cluster.nodes.values():
            node.kill()
        left = sorted(asyncio.all_tasks(loop), key=lambda it: it.get_name())
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(SimulationIdle):
                loop.run_until_complete(asyncio.wait(left, timeout=60))
        loop.close()

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: nothing of ours may. (What a task raised is its owner's to see.)"""
        error = context.get("exception")
        if "handle" in context and error is not None:
            self._take_fault(error)

    def _blame(self, outcome: Outcome, checker: str, story: str) -> None:
        self.result.outcome, self.result.checker, self.result.story = outcome, checker, story

    async def _phases(self) -> None:
        cluster = self.cluster
        cluster.boot()
        self.injector.begin_at_boot(self.result.faults)
        await self._demand(lambda: all(it.started for it in cluster.nodes.values()), "every node starts", START_LIMIT_MS)
        await asyncio.wait_for(self.workload.prepare(), START_LIMIT_MS / 1000)
        self.workload.start()
        self.injector.schedule(self.result.faults)
        await asyncio.sleep(self.plan.duration_ms / 1000)
        self.injector.heal()
        self.world.faults_over = cluster.quorum.leader_stays = cluster.replicas_stay = True
        await self._converge()
        await asyncio.sleep(AFTERGLOW_MS / 1000)
        stuck = await self.workload.finish(OPERATOR_LIMIT_MS)
        if stuck is not None:
            self.injector.revive()
            stuck = await self.workload.finish(VERDICT_LIMIT_MS)
        if stuck is not None:
            raise LivenessViolation("verdicts", f"no verdict {VERDICT_LIMIT_MS} ms after all was well: {stuck}")
        await self._demand(self._replicated, "every replica has everything", CONVERGE_LIMIT_MS)
        await self._settle()
        self._read_logs()
        for it in self.checkers:
            it.at_end()

    async def _demand(self, condition: Callable[[], object], what: str, limit_ms: int) -> None:
        try:
            await self.cluster.until(condition, what, limit_ms, every_ms=50)
        except TimeoutError:
            raise LivenessViolation("liveness", f"{what}: not within {limit_ms} ms; {self._situation()}") from None

    async def _settle(self) -> None:
        """Until no checker waits for anything any more."""
        waiting: list[tuple[Checker, str]] = []

        def settled() -> bool:
            self.rescue.look()
            waiting[:] = [(it, left) for it in self._told.settlers if (left := it.unsettled()) is not None]
            return not waiting

        try:
            await self.cluster.until(settled, "the cluster settles", CONVERGE_LIMIT_MS, every_ms=50)
        except TimeoutError:
            checker, left = waiting[0]
            raise LivenessViolation(checker.name, f"{left}: still so after {CONVERGE_LIMIT_MS} ms without faults") from None

    async def _converge(self) -> None:
        def whole() -> bool:
            self.injector.revive()
            self.rescue.look()
            return (
                not self.injector.stopping
                and all(it.started for it in self.cluster.nodes.values())
                and self.injector.active_controller() is not None
                and all(self._is_whole(tp) for tp in self.workload.partitions)
            )

        await self._demand(whole, "nodes run, a controller is active, every ISR is whole", CONVERGE_LIMIT_MS)

    def _is_whole(self, tp: TopicPartition) -> bool:
        leader = self.injector.leader(tp)
        if leader is None or leader.node is None or leader.node.broker is None:
            return False
        found = leader.node.broker.cache.partition(tp.topic, tp.partition)
        return found is not None and set(found.isr) == set(found.replicas) and found.leader == leader.node_id

    def _replicated(self) -> bool:
        self.injector.revive()
        for tp in self.workload.partitions:
            ends = set()
            for node in self.cluster.brokers:
                broker = None if node.node is None else node.node.broker
                partition = None if broker is None else broker.replicas.partition(tp)
                if partition is not None and partition.log is not None:
                    ends |= {partition.log.leo, partition.log.hw}
            if len(ends) != 1 or self.injector.leader(tp) is None:
                return False
        return True

    def _situation(self) -> str:
        """Tell which nodes are up and which partitions each leads, for a reader of the failure."""
        nodes = ", ".join(
            f"n{it.node_id} {'started' if it.started else 'starting' if it.running else 'down'}"
            for it in self.cluster.nodes.values()
        )
        active = self.injector.active_controller()
        views = []
        for tp in self.workload.partitions:
            leader = self.injector.leader(tp)
            broker = None if leader is None or leader.node is None else leader.node.broker
            found = None if broker is None else broker.cache.partition(tp.topic, tp.partition)
            isr = () if found is None else found.isr
            views.append(f"{tp} leader {None if leader is None else leader.node_id} isr {tuple(isr)}")
        return f"{nodes}; active controller {None if active is None else active.node_id}; {'; '.join(views)}"

    def _read_logs(self) -> None:
        for tp in self.workload.partitions:
            leader = self.injector.leader(tp)
            assert leader is not None and leader.node is not None and leader.node.broker is not None
            partition = leader.node.broker.replicas.partition(tp)
            assert partition is not None and partition.log is not None
            log, offset = partition.log, partition.log.log_start_offset
            found: list[tuple[int, str]] = []
            while offset < log.hw:
                part = records_of(bytes(log.read(offset, 1 << 20, up_to=log.hw)), offset)
                assert part, f"{tp}: nothing to read at {offset} below the HW {log.hw}"
                found.extend(part)
                offset = part[-1][0] + 1
            self.result.history.final_logs[tp] = tuple(found)


class _Crash(Exception):
    """A node ended itself although nothing entitled it to."""

    def __init__(self, node_id: NodeId, where: str, error: BaseException) -> None:
        stack = "" if isinstance(error, Fault) else "\n" + "".join(traceback.format_exception(error))
        super().__init__(f"node {node_id} ended itself in {where}: {type(error).__name__}: {error}{stack}")
        self.node_id = node_id
