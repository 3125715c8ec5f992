"""The reach of runs: events by the state they happened in, what followed what, the answers of clients, faults that happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field

from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.raft import StateChanged
from kraftlite.sim.checkers.base import Checker
from kraftlite.sim.checkers.transaction_races import RaceWatch
from kraftlite.simhost.host import SimHost


@dataclass(eq=False, slots=True)
class Coverage:
    """`raft`: (from state, to state) of quorum members. `events`: (raft state of the node, event name). `follows`: (event, next
    event) of one partition or one component of a node. `answers`: (API, error code) that a client was told. `faults` by kind.
    `checkers`: (checker, what it counts, the number of bits of how many there were). `races` by name."""

    raft: Counter[tuple[str, str]] = field(default_factory=Counter)
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    follows: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    checkers: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    races: Counter[str] = field(default_factory=Counter)
    _states: dict[tuple[int, int], str] = field(default_factory=dict)
    _before: dict[tuple[int, object], str] = field(default_factory=dict)

    def event(self, node: SimHost, event: TraceEvent) -> None:
        key = (node.node_id, node.boots)
        state = self._states.get(key, "booting")
        name = event.event
        if isinstance(event, StateChanged):
            self.raft[(state, event.state)] += 1
            self._states[key] = event.state
        self.events[(state, name)] += 1
        subject = (node.node_id, getattr(event, "tp", None) or name.partition(".")[0])
        before = self._before.get(subject)
        if before is not None:
            self.follows[(before, name)] += 1
        self._before[subject] = name

    def look(self, checkers: Iterable[Checker]) -> None:
        """Note what each checker keeps and counts, in powers of two."""
        for it in checkers:
            if isinstance(it, RaceWatch):
                self.races.update({name: count for name, count in it.met.items() if count})
            for name, value in vars(it).items():
                size = value if type(value) is int else len(value) if isinstance(value, Sized) else 0
                if size > 0:
                    self.checkers[(type(it).__name__, name, size.bit_length())] += 1

    def add(self, other: Coverage) -> None:
        for mine, more in zip(self._counters(), other._counters(), strict=True):
            mine.update(more)

    def _counters(self) -> tuple[Counter[object], ...]:
        return (self.raft, self.events, self.follows, self.answers, self.faults, self.checkers, self.races)  # type: ignore[return-value]

    @property
    def pairs(self) -> int:
        """(event, state) pairs and transitions of states."""
        return len(self.raft) + len(self.events)

    def features(self) -> Iterator[tuple[str, object]]:
        """Everything that was reached, each once."""
        kinds = ("raft", "events", "follows", "answers", "faults", "checkers", "races")
        for kind, counter in zip(kinds, self._counters(), strict=True):
            for what in counter:
                yield kind, what
