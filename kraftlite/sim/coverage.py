"""The coverage of runs: events by the state they happened in, faults that were carried out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.raft import StateChanged
from kraftlite.simhost.host import SimHost


@dataclass(eq=False, slots=True)
class Coverage:
    """`raft`: (from state, to state) of quorum members; `events`: (raft state of the node, event name); `faults` by kind."""

    raft: Counter[tuple[str, str]] = field(default_factory=Counter)
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    _states: dict[tuple[int, int], str] = field(default_factory=dict)

    def event(self, node: SimHost, event: TraceEvent) -> None:
        key = (node.node_id, node.boots)
        state = self._states.get(key, "booting")
        if isinstance(event, StateChanged):
            self.raft[(state, event.state)] += 1
            self._states[key] = event.state
        self.events[(state, event.event)] += 1

    def add(self, other: Coverage) -> None:
        self.raft.update(other.raft)
        self.events.update(other.events)
        self.faults.update(other.faults)
