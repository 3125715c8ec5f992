"""The faults of an embedded cluster, at its simulated hosts: their links, disks and clocks, and the answers of brokers."""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kraftlite.model.faults import CLIENTS, MAX_FOR_MS, Injection
from kraftlite.model.ids import NodeId
from kraftlite.runtime.ports import TimerHandle
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import SimNetwork
from kraftlite.simhost.real_time_loop import RealTimeLoop
from kraftlite.testing.errors import ClusterError
from kraftlite.testing.faults import Request


class Hosts(Protocol):
    """The cluster, as far as its faults need it."""

    loop: RealTimeLoop
    network: SimNetwork
    hosts: dict[int, SimHost]
    outside: contextvars.Context

    def in_process(self, node_id: int, action: Callable[[], object]) -> None: ...


_FILLING: Final = ("pwritev", "write_file", "makedirs", "mkdir")
"""The operations that need room."""


@dataclass(slots=True)
class _Fault:
    node: int
    fault: Injection
    undo: Callable[[], None]
    timer: TimerHandle | None = None


class EmbeddedFaults:
    """All methods run on the cluster's loop. Faults of links, disks and client links outlive a node's process; those of clocks
    and APIs end with it, as on a real machine."""

    def __init__(self, nodes: Hosts) -> None:
        self._nodes = nodes
        self._next = 0
        self._active: dict[int, _Fault] = {}

    def begin(self, requests: Sequence[Request], for_ms: int | None) -> list[int]:
        """Begin all of them, or none. Raises ClusterError for a node that does not run, where its process is hit, and ValueError
        for one that takes no more faults."""
        for request in requests:
            hosted = request.fault.family in ("api", "clock")
            if hosted and self._nodes.hosts[request.node].node is None:
                raise ClusterError(f"node {request.node} is not running")
        begun: list[int] = []
        try:
            for request in requests:
                begun.append(self._next + 1)
                self._start(request, for_ms)
        except BaseException:
            self.end(begun)
            raise
        return begun

    def _start(self, request: Request, for_ms: int | None) -> None:
        self._next += 1
        number, lasts_ms = self._next, MAX_FOR_MS if for_ms is None else for_ms
        fault = replace(request.fault, id=f"embedded-{number}", for_ms=lasts_ms)
        found = self._active[number] = _Fault(request.node, fault, lambda: None)
        found.undo = self._apply(found)
        if for_ms is not None:
            found.timer = self._nodes.loop.at_us(
                self._nodes.loop.now_us() + 1000 * for_ms, lambda: self.end([number]), self._nodes.outside
            )

    def end(self, numbers: Sequence[int]) -> None:
        """Those that have ended are left alone."""
        for number in numbers:
            found = self._active.pop(number, None)
            if found is not None:
                if found.timer is not None:
                    found.timer.cancel()
                found.undo()

    def clear(self) -> None:
        self.end(list(self._active))

    def end_delays(self, pairs: Sequence[tuple[int, int]]) -> None:
        ends = {frozenset(pair) for pair in pairs}
        self.end(
            [it for it, found in self._active.items() if found.fault.kind == "slow" and {found.node, found.fault.other} in ends]
        )

    def booted(self, node_id: int) -> None:
        """A new process of the node is hit by what outlives processes, and by nothing else."""
        here = [it for it, found in self._active.items() if found.node == node_id and found.fault.family in ("api", "clock")]
        for number in here:
            found = self._active.pop(number)
            if found.timer is not None:
                found.timer.cancel()
        self._hold(node_id)

    def left(self, node_id: int) -> None:
        """End the faults of a node that is about to be forgotten, and those of the links to it."""
        self.end([it for it, found in self._active.items() if node_id in (found.node, found.fault.other)])

    def troubles(self) -> list[str]:
        clients = sorted({it.node for it in self._active.values() if it.fault.other == CLIENTS})
        found = [f"cut from clients: {', '.join(map(str, clients))}"] if clients else []
        told = (it for it in self._active.values() if it.fault.kind not in ("cut", "cut-one-way", "slow"))
        return found + [f"{it.fault.kind} of node {it.node} {it.fault.facts}".rstrip() for it in told if self._lasts(it)]

    def _lasts(self, found: _Fault) -> bool:
        """Return whether it is still there: one of an API may be used up."""
        if found.fault.other == CLIENTS:
            return False
        node = self._nodes.hosts[found.node].node
        if found.fault.family != "api" or node is None or node.injector is None:
            return found.fault.family != "api"
        return any(it.fault.id == found.fault.id for it in node.injector.states())

    # --- one fault

    def _apply(self, found: _Fault) -> Callable[[], None]:
        fault, node = found.fault, found.node
        if fault.other == CLIENTS:
            self._hold(node)
            return lambda: self._hold(node)
        if fault.family == "network":
            return self._link(found)
        return {"disk": self._disk, "clock": self._clock, "api": self._api}[fault.family](node, fault)

    def _hold(self, node_id: int) -> None:
        """Let clients of the node bear what is active now."""
        node = self._nodes.hosts[node_id].node
        if node is None:
            return
        here = [it.fault for it in self._active.values() if it.node == node_id and it.fault.other == CLIENTS]
        cuts = [it for it in here if it.kind != "refuse"]

        def hold() -> None:
            node.listeners.hold_clients(requests=any(it.incoming for it in cuts), responses=any(it.outgoing for it in cuts))
            node.listeners.refuse_clients(len(cuts) < len(here))

        self._nodes.in_process(node_id, hold)

    def _link(self, found: _Fault) -> Callable[[], None]:
        a, b = NodeId(found.node), NodeId(found.fault.other or 0)

        def look() -> None:
            self._set(a, b)
            self._set(b, a)

        look()
        if found.fault.kind == "refuse":
            self._nodes.network.reset(a, b)
        return look

    def _set(self, source: NodeId, target: NodeId) -> None:
        """The link is as the faults that are active say."""
        network = self._nodes.network
        here = [it for it in self._active.values() if _hits(it, source, target)]
        link, delay_us = network.link(source, target), max((it.fault.amount for it in here if it.fault.kind == "slow"), default=0)
        link.cut = any(it.fault.kind in ("cut", "cut-one-way") for it in here)
        link.refused = any(it.fault.kind == "refuse" for it in here)
        link.loss = max((it.fault.amount for it in here if it.fault.kind == "lossy"), default=0)
        link.min_us = delay_us or network.default.min_us
        link.max_us = delay_us or network.default.max_us

    def _disk(self, node_id: int, fault: Injection) -> Callable[[], None]:
        disk = self._nodes.hosts[node_id].disk
        if fault.kind == "disk-full":
            errors = [disk.inject(op, code=errno.ENOSPC, times=None) for op in _FILLING]

            def mend() -> None:
                for error in errors:
                    disk.errors.remove(error)

            return mend
        if fault.kind == "disk-error":
            error = disk.inject(times=None)
            return lambda: disk.errors.remove(error)
        over = asyncio.Event()

        async def wait() -> None:
            try:
                async with asyncio.timeout(None if fault.kind == "disk-stall" else fault.amount / 1_000_000):
                    await over.wait()
            except TimeoutError:
                return

        before, disk.flush_wait = disk.flush_wait, wait

        def end() -> None:
            over.set()
            if disk.flush_wait is wait:
                disk.flush_wait = before

        return end

    def _clock(self, node_id: int, fault: Injection) -> Callable[[], None]:
        here = self._nodes.hosts[node_id].now
        assert here is not None
        here.clock.jump_wall(fault.amount)
        return lambda: here.clock.jump_wall(-fault.amount)

    def _api(self, node_id: int, fault: Injection) -> Callable[[], None]:
        node = self._nodes.hosts[node_id].node
        assert node is not None
        injector = node.injector
        if injector is None:
            raise ClusterError(f"node {node_id} does not take faults: kraftlite.faults.enable is false")
        injector.inject(fault)

        def end() -> None:
            injector.end((fault.id,))

        return end


def _hits(found: _Fault, source: int, target: int) -> bool:
    fault = found.fault
    if (found.node, fault.other) == (source, target):
        return fault.outgoing
    return (fault.other, found.node) == (source, target) and fault.incoming
