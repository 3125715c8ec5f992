"""The faults of one node: begins them, bounds them in time, ends them, and says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kraftlite.faults.active import Active, Part
from kraftlite.model.faults import CLIENTS, MAX_ACTIVE, FaultState, Injection, UnknownFault, check
from kraftlite.model.ids import NodeId
from kraftlite.runtime.ports import Clock, Tracer
from kraftlite.runtime.trace.node import FaultInjected, InjectedFaultEnded

TIME = "its time was over"
USED_UP = "it was used up"
ASKED = "it was ended"
STOPPED = "the node stopped"


class Injector:
    """All methods run on the node's loop. `parts` are the families that this node can be hit by; `clients` is the way to its
    clients, which is hit by faults of the network. `record(id, how)` is told of each end."""

    def __init__(
        self,
        node_id: NodeId,
        clock: Clock,
        tracer: Tracer,
        parts: Mapping[str, Part],
        clients: Part,
        record: Callable[[str, str], None] = lambda identity, how: None,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._tracer = tracer
        self._parts = parts
        self._clients = clients
        self._record = record
        self._active: dict[str, Active] = {}

    def inject(self, fault: Injection) -> None:
        """Begin a fault, or prolong the one of that id: it ends `for_ms` from now. Raises UnknownFault."""
        check(fault)
        before = self._active.get(fault.id)
        if before is not None:
            if replace(before.fault, for_ms=fault.for_ms) != fault:
                raise UnknownFault(f"id {fault.id} is that of another fault: {before.fault}")
            before.fault = fault
            self._arm(before)
            return
        if len(self._active) >= MAX_ACTIVE:
            raise UnknownFault(f"node {self._node_id} has {MAX_ACTIVE} faults already, which is the most")
        active = Active(fault, 0, lambda: self._used_up(fault.id))
        active.undo = self._part(fault).begin(active)
        self._active[fault.id] = active
        self._arm(active)
        self._tracer.emit(FaultInjected(id=fault.id, kind=fault.kind, what=str(fault), for_ms=fault.for_ms))

    def end(self, ids: Sequence[str] | None = None, how: str = ASKED) -> tuple[str, ...]:
        """End these, None: all. Returns those that there were."""
        found = [it for it in (list(self._active) if ids is None else ids) if it in self._active]
        for identity in found:
            self._end(identity, how)
        return tuple(found)

    def states(self) -> tuple[FaultState, ...]:
        now_ms = self._clock.now_ms()
        return tuple(
            FaultState(fault=it.fault, left_ms=max(0, it.ends_ms - now_ms), hits=it.hits) for it in self._active.values()
        )

    def close(self) -> None:
        """The node stops."""
        self.end(how=STOPPED)

    def _part(self, fault: Injection) -> Part:
        if fault.other == self._node_id:
            raise UnknownFault(f"node {self._node_id} has no link to itself")
        part = self._clients if fault.other == CLIENTS else self._parts.get(fault.family)
        if part is None:
            raise UnknownFault(f"{fault.kind}: this node runs where only {', '.join(sorted(self._parts))} faults are possible")
        return part

    def _arm(self, active: Active) -> None:
        if active.timer is not None:
            active.timer.cancel()
        active.ends_ms = self._clock.now_ms() + active.fault.for_ms
        active.timer = self._clock.call_later(active.fault.for_ms, lambda: self._end(active.fault.id, TIME))

    def _used_up(self, identity: str) -> None:
        """Not in the call that used it up."""
        self._clock.call_later(0, lambda: self._end(identity, USED_UP))

    def _end(self, identity: str, how: str) -> None:
        active = self._active.pop(identity, None)
        if active is None:
            return
        if active.timer is not None:
            active.timer.cancel()
        assert active.undo is not None
        active.undo()
        self._tracer.emit(InjectedFaultEnded(id=identity, kind=active.fault.kind, how=how, hits=active.hits))
        self._record(identity, how)
