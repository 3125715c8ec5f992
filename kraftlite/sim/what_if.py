"""Two runs that differ in a fault, or in the seed: where they part, and how they end. A what-if is a new run, never a splice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.controller import ControllerClaimed, ControllerRenounced
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.plans import pinned
from kraftlite.sim.recorded import run_recorded
from kraftlite.sim.run import RunPlan, RunResult, run
from kraftlite.simhost.host import SimHost

_ENDS: Final = frozenset(("node.starting", "node.stopped"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One run: its result, every event (virtual microseconds and words), and how long two nodes were active controllers at
    once."""

    result: RunResult
    events: tuple[tuple[int, str], ...]
    two_active_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first event that is not in both runs. `same`: so many are before it. None: that run has no more events."""

    at_us: int
    same: int
    first: str | None
    second: str | None


def changed(plan: RunPlan, changes: Mapping[int, FaultPlan | None], seed: int | None = None) -> RunPlan:
    """The plan with its faults by number (from 1) replaced, or left out (None); one more than there are adds a fault. With
    `seed`, the same cluster and faults under another seed, which decides the clients, the delays and all other chance. Raises
    ValueError for another number."""
    _, faults = plan.drawn()
    found: list[FaultPlan | None] = [*faults]
    for number, fault in sorted(changes.items()):
        if number == len(found) + 1 and fault is not None:
            found.append(fault)
        elif 1 <= number <= len(found):
            found[number - 1] = fault
        else:
            raise ValueError(f"fault {number}: the run has {len(faults)} faults; allowed is a number from 1 to {len(faults) + 1}")
    kept = tuple(fault for fault in found if fault is not None)
    return replace(pinned(plan), faults=kept, seed=plan.seed if seed is None else seed)


def observe(plan: RunPlan, write: Callable[[bytes], object] | None = None) -> Observed:
    """Run it, and give every line of its recording to `write`. Raises UnknownNode as `run` does."""
    events: list[tuple[int, str]] = []
    active: set[int] = set()
    since_us, both_us = 0, 0

    def see(now_us: int, node: SimHost, event: TraceEvent) -> None:
        nonlocal since_us, both_us
        words = " ".join(f"{name}={value}" for name, value in event.facts().items())
        events.append((now_us, f"n{node.node_id}.{node.boots} {event.event} {words}"))
        node_id, before = int(node.node_id), len(active)
        if isinstance(event, ControllerClaimed):
            active.add(node_id)
        elif isinstance(event, ControllerRenounced) or event.event in _ENDS:
            active.discard(node_id)
        if len(active) != before:
            both_us += now_us - since_us if before > 1 else 0
            since_us = now_us

    result = run(plan, sink=see) if write is None else run_recorded(plan, write, sink=see)
    return Observed(result=result, events=tuple(events), two_active_us=both_us)


def part(first: Observed, second: Observed) -> Parting | None:
    """None when both runs are the same."""
    for same, (one, other) in enumerate(zip_longest(first.events, second.events)):
        if one != other:
            at_us = min(it[0] for it in (one, other) if it is not None)
            return Parting(
                at_us=at_us,
                same=same,
                first=None if one is None else _shown(one),
                second=None if other is None else _shown(other),
            )
    return None


def _shown(event: tuple[int, str]) -> str:
    return f"{event[0] / 1_000_000:.6f} s {event[1]}"
