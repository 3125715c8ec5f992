"""The nodes of an embedded cluster, on the thread of their own: what can be done to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import kraftlite.broker.server  # noqa: F401 what nodes import late must not stop a cluster that is running
from kraftlite.config.server import ServerConfig
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.node.forming import Formation, formation
from kraftlite.node.listeners import import_client_side
from kraftlite.node.storage import format_directories
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.controller import ControllerActivated, RecordAppended, RecordsAppended
from kraftlite.simhost.disk import MemDisk
from kraftlite.simhost.disk_faults import InjectedError
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import Link, SimNetwork
from kraftlite.simhost.process import OUTSIDE, context_of
from kraftlite.simhost.real_time_loop import RealTimeLoop
from kraftlite.testing.embedded_faults import EmbeddedFaults
from kraftlite.testing.errors import ClusterError
from kraftlite.testing.layout import HOST, HeldPort, NodePlan, random_cluster_id, server_config
from kraftlite.testing.recorded import ClusterRecorder
from kraftlite.testing.thread import CALL

if TYPE_CHECKING:
    from kraftlite.testing.secure import Secrets

import_client_side()

POLL_S: Final = 0.002
STOP_LIMIT_S: Final = 30.0
RECORDS_KEPT: Final = 200
LINGER_LIMIT_S: Final = 5.0
"""The time that the tasks of killed nodes may take to end."""
SOCKET_TURNS: Final = 8
"""Turns of the loop after which an aborted connection is closed, even one that was being accepted: no task waits for that."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Nodes:
    """All methods run on the cluster's loop, outside of every node's process. Node ids are known to be valid.

    Raises ClusterError when a node is not in the state that a call is for.
    """

    def __init__(
        self, loop: RealTimeLoop, plans: tuple[NodePlan, ...], config: Mapping[str, str], secrets: Secrets | None = None
    ) -> None:
        self.loop = loop
        self._secrets = secrets
        self.plans = plans
        self.outside = context_of(OUTSIDE)
        self.rng = random.Random()
        self.network = SimNetwork(loop, self.rng, self.outside)
        self.network.default = Link(0, 0)
        self.failures: dict[int, str] = {}
        """Nodes that ended themselves and were not started since, and why."""
        self.bugs: list[str] = []
        """Errors that reached nobody but the loop."""
        self.records: deque[str] = deque(maxlen=RECORDS_KEPT)
        """The latest metadata records as the controllers that were active appended them, and who became active; a line each."""
        self.faults = EmbeddedFaults(self)
        self.markers_held = False
        """No broker sends markers of transactions, nor one that starts."""
        self.failing: dict[tuple[int, str], InjectedError] = {}
        """The log directories that fail, by node id and path."""
        self.lost: dict[int, set[str]] = {}
        """By node id, those that have failed since it was started: it does not use them before it is started again."""
        self.recorder: ClusterRecorder | None = None
        self.ports = {it.node_id: HeldPort() for it in plans if it.is_broker}
        self.directories = {it.node_id: random_uuid(self.rng) for it in plans if it.is_controller}
        """The metadata directories by which the voters know the controllers."""
        self._config = config
        self._own: dict[int, Mapping[str, str]] = {}
        self.hosts: dict[int, SimHost] = {}
        loop.set_exception_handler(self._on_loop_error)
        self.cluster_id = random_cluster_id()
        try:
            for plan in plans:
                self._add(plan, self._first_voters())
        except BaseException:
            self.release_ports()
            raise

    def _configured(self, plan: NodePlan) -> ServerConfig:
        port, secrets = self.ports.get(plan.node_id), self._secrets
        if plan.node_id not in self._own:
            self._own[plan.node_id] = {} if secrets is None else secrets.node_config()
        given = {**self._own[plan.node_id], **self._config}
        listener = "PLAINTEXT" if secrets is None else "SASL_SSL"
        return server_config(plan, self.plans, None if port is None else port.number, given, listener)

    def _first_voters(self) -> str:
        """The controllers as `format --initial-controllers` takes them."""
        return ",".join(f"{node_id}@n{node_id}:9093:{uuid_to_str(it)}" for node_id, it in self.directories.items())

    def _add(self, plan: NodePlan, voters: str) -> None:
        """`voters`: with which the quorum begins; empty: the node comes to one that is there."""
        secrets = self._secrets
        node = SimHost(
            loop=self.loop,
            network=self.network,
            config=self._configured(plan),
            wall_ms=wall_ms,
            disk=MemDisk(wall_ms=wall_ms),
            serve_clients=True,
            on_failure=self._on_failure,
            on_event=self._on_event,
            seed=self.rng.getrandbits(64),
        )
        self.hosts[plan.node_id] = node
        format_directories(
            node.disk,
            node.config,
            self.cluster_id,
            wall_ms=wall_ms(),
            entropy=self.rng,
            forming=formation(node.config, initial_controllers=voters, entropy=self.rng)
            if voters
            else Formation(directory_id=self.directories.get(plan.node_id)),
            add_scram=() if secrets is None else secrets.credentials,
        )

    def join(self, plan: NodePlan) -> None:
        """Boot a node that was not there before."""
        self.plans = (*self.plans, plan)
        if plan.is_broker:
            self.ports[plan.node_id] = HeldPort()
        if plan.is_controller:
            self.directories[plan.node_id] = random_uuid(self.rng)
        self._add(plan, "")
        self._shape_changed()
        self.boot(plan.node_id)

    def leave(self, node_id: int) -> None:
        """Forget a node; one that still runs is killed."""
        self.faults.left(node_id)
        host = self.hosts.pop(node_id)
        if host.running:
            host.kill()
        if node_id in self.ports:
            self.ports.pop(node_id).release()
        for known in (self.directories, self.failures, self.lost, self._own):
            known.pop(node_id, None)
        self.failing = {key: error for key, error in self.failing.items() if key[0] != node_id}
        self.plans = tuple(it for it in self.plans if it.node_id != node_id)
        self._shape_changed()

    def _shape_changed(self) -> None:
        """Whoever is started from now on is told where the controllers are."""
        for it in self.plans:
            self.hosts[it.node_id].config = self._configured(it)

    def _on_failure(self, node: SimHost, error: BaseException, where: str) -> None:
        self.failures[node.node_id] = f"{where}: {type(error).__name__}: {error}"

    def _on_event(self, node: SimHost, event: TraceEvent) -> None:
        if self.recorder is not None:
            self.recorder.event(node, event)
        match event:
            case RecordAppended():
                line = f"@{event.offset} {event.record} {event.detail}"
            case RecordsAppended():
                line = f"@{event.last_offset} the last of {event.count} records of {event.operation}"
            case ControllerActivated():
                line = f"active in epoch {event.raft_epoch}"
            case _:
                return
        ms = wall_ms()
        clock = time.strftime("%H:%M:%S", time.localtime(ms // 1000))
        self.records.append(f"{clock}.{ms % 1000:03} controller {node.node_id} {line}".rstrip())

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        error = context.get("exception")
        self.bugs.append(f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message")))

    # --- one node

    def address(self, node_id: int) -> str | None:
        port = self.ports.get(node_id)
        return None if port is None else f"{HOST}:{port.number}"

    def state(self, node_id: int) -> str:
        node = self.hosts[node_id]
        if node.paused:
            return "paused"
        if node.running:
            return "running" if node.started else "starting"
        return "failed" if node_id in self.failures else "stopped"

    def boot(self, node_id: int) -> None:
        self.failures.pop(node_id, None)
        self.lost[node_id] = {path for failing, path in self.failing if failing == node_id}
        node = self.hosts[node_id]
        node.boot()
        self.faults.booted(node_id)
        self._hold_markers(node_id)

    def _running(self, node_id: int) -> SimHost:
        node = self.hosts[node_id]
        if not node.running:
            why = f": it ended itself ({self.failures[node_id]})" if node_id in self.failures else ""
            raise ClusterError(f"node {node_id} is not running{why}")
        return node

    def kill(self, node_ids: Sequence[int]) -> None:
        for node in [self._running(it) for it in node_ids]:
            node.kill()

    def power_cut(self, node_ids: Sequence[int]) -> None:
        for node in [self._running(it) for it in node_ids]:
            node.power_cut()

    def pause(self, node_ids: Sequence[int]) -> None:
        found = [self._running(it) for it in node_ids]
        for node in found:
            if node.paused:
                raise ClusterError(f"node {node.node_id} is paused already")
        for node in found:
            node.pause()

    def resume(self, node_ids: Sequence[int]) -> None:
        found = [self._running(it) for it in node_ids]
        for node in found:
            if not node.paused:
                raise ClusterError(f"node {node.node_id} is not paused")
        for node in found:
            node.resume()

    async def stop(self, node_ids: Sequence[int]) -> None:
        found = [self._running(it) for it in node_ids]
        before = [node.now for node in found]
        for node in found:
            node.resume()
            node.stop()

        def lasting() -> list[int]:
            return [int(node.node_id) for node, it in zip(found, before, strict=True) if node.now is it]

        await self._until(lambda: not lasting(), STOP_LIMIT_S, lambda: f"still running: {lasting()}{self.troubles()}")
        for node_id in node_ids:
            if node_id in self.failures:
                raise ClusterError(f"node {node_id} failed while it stopped: {self.failures[node_id]}")

    async def restart(self, node_ids: Sequence[int], limit_s: float) -> None:
        running = [it for it in node_ids if self.hosts[it].running]
        if running:
            await self.stop(running)
        for node_id in node_ids:
            self.boot(node_id)
        await self.ready(node_ids, limit_s)

    async def ready(self, node_ids: Iterable[int], limit_s: float) -> None:
        """Until they have started. Raises ClusterError at once when one ends itself."""
        waiting = list(node_ids)

        def settled() -> bool:
            for node_id in list(waiting):
                if self.hosts[node_id].started:
                    waiting.remove(node_id)
                elif not self.hosts[node_id].running:
                    raise ClusterError(f"node {node_id} did not start: {self.failures.get(node_id, 'it was stopped')}")
            return not waiting

        await self._until(settled, limit_s, lambda: self._not_ready(waiting))

    def _not_ready(self, waiting: list[int]) -> str:
        states = ", ".join(f"node {it.node_id} {self.state(it.node_id)}" for it in self.plans)
        return f"not ready: node {', '.join(str(it) for it in waiting)} ({states}{self.troubles()})"

    async def _until(self, condition: Callable[[], bool], limit_s: float, what: Callable[[], str]) -> None:
        end_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end_s:
                raise ClusterError(f"after {limit_s:g} s {what()}")
            await asyncio.sleep(POLL_S)

    # --- log directories

    def fail_directory(self, node_id: int, path: str) -> None:
        if (node_id, path) in self.failing:
            raise ClusterError(f"{path} of node {node_id} fails already")
        self.failing[node_id, path] = self.hosts[node_id].disk.inject(path=path, times=None)
        self.lost.setdefault(node_id, set()).add(path)

    def mend_directory(self, node_id: int, path: str) -> None:
        error = self.failing.pop((node_id, path), None)
        if error is None:
            raise ClusterError(f"{path} of node {node_id} does not fail")
        self.hosts[node_id].disk.errors.remove(error)

    # --- the network

    def hold_markers(self, held: bool) -> None:
        self.markers_held = held
        for node_id in self.hosts:
            self._hold_markers(node_id)

    def _hold_markers(self, node_id: int) -> None:
        node, held = self.hosts[node_id].node, self.markers_held
        broker = None if node is None else node.broker
        if broker is not None:
            self.in_process(node_id, lambda: broker.transactions.markers.hold(held))

    def in_process(self, node_id: int, action: Callable[[], object]) -> None:
        """Run a function in the node's process. Callbacks of sockets must be registered there: they are paused with it, and
        gone with it."""
        here = self.hosts[node_id].now
        if here is not None:
            self.loop.call_soon(action, context=context_of(here.pid))

    def heal(self) -> None:
        self.faults.clear()
        self.hold_markers(False)
        for node_id, path in list(self.failing):
            self.mend_directory(node_id, path)

    def troubles(self) -> str:
        """Everything that is not as in a healthy cluster, for messages."""
        return "".join(f"; {it}" for it in self.trouble_list())

    def trouble_list(self) -> list[str]:
        found = [f"node {it.node_id} is {self.state(it.node_id)}" for it in self.plans if self.state(it.node_id) != "running"]
        found += [f"node {node_id} ended itself: {why}" for node_id, why in self.failures.items()]
        cuts = self.network.cuts()
        found += [f"cut: {', '.join(f'{source} to {target}' for source, target in cuts)}"] if cuts else []
        delays = self.network.delays()
        found += [f"delayed: {', '.join(f'{source} to {target}' for source, target in delays)}"] if delays else []
        found += self.faults.troubles()
        found += ["the markers of transactions are held"] if self.markers_held else []
        found += [f"{path} of node {node_id} fails" for node_id, path in self.failing]
        lost = [(node_id, path) for node_id, paths in self.lost.items() for path in sorted(paths)]
        mended = [it for it in lost if it not in self.failing]
        found += [f"{path} of node {node_id} failed, and it was not started again" for node_id, path in mended]
        return found

    # --- the end

    def record(self) -> None:
        """Begin a recording; the one before is over."""
        if self.recorder is None:
            self.recorder = ClusterRecorder(self.loop, self.outside, self.hosts, self.cluster_id, wall_ms)
        self.recorder.begin()

    async def close(self) -> None:
        """Kill all, and see that nothing is left. Raises ClusterError when a task of theirs does not end."""
        if self.recorder is not None:
            self.recorder.close()
        for node in self.hosts.values():
            node.kill()
        self.release_ports()
        current = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not current]
        for task in left:
            if task.get_name() == CALL:
                task.cancel()
        if left:
            _done, lasting = await asyncio.wait(left, timeout=LINGER_LIMIT_S)
            if lasting:
                raise ClusterError(f"still running after the end: {sorted(repr(task) for task in lasting)}")
        for _ in range(SOCKET_TURNS):
            await asyncio.sleep(0)

    def release_ports(self) -> None:
        for port in self.ports.values():
            port.release()
