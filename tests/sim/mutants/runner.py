"""Seeds for mutants, in worker processes, until each is caught."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from kraftlite.sim import shape
from kraftlite.sim.run import Outcome, RunPlan, RunResult, run
from kraftlite.sim.swarm import die_with_parent
from tests.sim.mutants.catalog import Mutant, mutants
from tests.sim.mutants.patching import Patch

RUN_LIMIT_S: Final = 90
"""A run that is longer than this never ends: a mutant can make the simulation turn on the spot."""


class _TooLong(KeyboardInterrupt):
    """The one kind of error that neither production nor the event loop keeps to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One seed of one mutant. `by` is empty when all checks held, and when the seed fails without the mutant, too."""

    mutant: str
    seed: int
    by: str = ""
    story: str = ""
    seconds: float = 0.0
    fails_anyway: bool = False


@dataclass(slots=True, kw_only=True)
class Record:
    """What became of one mutant. `first` is the attempt with the lowest seed that caught it."""

    mutant: Mutant
    tried: dict[int, Attempt] = field(default_factory=dict)
    next_seed: int = 0
    in_flight: int = 0

    @property
    def first(self) -> Attempt | None:
        caught = [it for it in self.tried.values() if it.by]
        return min(caught, key=lambda it: it.seed, default=None)

    @property
    def seconds(self) -> float:
        return sum(it.seconds for it in self.tried.values())

    @property
    def as_expected(self) -> bool:
        """Whether one of those caught it who should have."""
        found = self.first
        return found is not None and any(matches(found.by, expected) for expected in self.mutant.expects)


def matches(by: str, expected: str) -> bool:
    """`by` is "Name[numbers]", "liveness: …", "crash: …"; `expected` an invariant's number, or the beginning of `by`."""
    if expected.isdecimal():
        return expected in by.partition("[")[2].partition("]")[0].split(",")
    return by.startswith(expected)


def plan_of(mutant: Mutant | None, seed: int) -> RunPlan:
    """The run of a seed; of a mutant with a hint, in its shape."""
    return RunPlan(seed=seed, shape=shape.NAMED[mutant.shape] if mutant is not None and mutant.shape is not None else None)


def caught_by(result: RunResult) -> str:
    """Who found fault with a run; empty when nobody did."""
    if result.outcome is Outcome.OK:
        return ""
    if result.outcome is Outcome.CRASH:
        return f"crash: {result.checker}"
    if result.outcome is Outcome.LIVENESS:
        return f"liveness: {result.checker}"
    return result.checker


def run_mutant(mutant: Mutant, plan: RunPlan) -> RunResult:
    """A run with the mutant in place."""
    with Patch() as patch:
        if mutant.lens is not None:
            mutant.lens(patch)
        mutant.change(patch)
        return run(plan)


def run_without(mutant: Mutant, plan: RunPlan) -> RunResult:
    """The same run, without the mutant."""
    with Patch() as patch:
        if mutant.lens is not None:
            mutant.lens(patch)
        return run(plan)


def attempt(name: str, seed: int) -> Attempt:
    """One seed, in a worker process; a second run without the mutant when the first one fails."""
    mutant = mutants()[name]
    plan = plan_of(mutant, seed)
    began = time.monotonic()
    by, story = _limited(lambda: run_mutant(mutant, plan))
    fails_anyway = bool(by) and bool(_limited(lambda: run_without(mutant, plan))[0])
    seconds = time.monotonic() - began
    if fails_anyway:
        return Attempt(mutant=name, seed=seed, story=story, seconds=seconds, fails_anyway=True)
    return Attempt(mutant=name, seed=seed, by=by, story=story, seconds=seconds)


def _limited(work: Callable[[], RunResult]) -> tuple[str, str]:
    def late(_signal: int, _frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(RUN_LIMIT_S)
    try:
        result = work()
    except _TooLong:
        asyncio.set_event_loop(None)
        return "liveness: no end", f"the run had not ended after {RUN_LIMIT_S} s"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return caught_by(result), result.story


def hunt(
    wanted: Sequence[Mutant],
    *,
    seeds: int,
    workers: int,
    on_done: Callable[[Record], None] = lambda record: None,
    on_attempt: Callable[[Record, Attempt], None] = lambda record, tried: None,
) -> list[Record]:
    """Run seeds 0, 1, … of each mutant until one catches it. As many mutants at a time as there are workers; with fewer mutants
    left than workers, several seeds of one. Which seed counts does not depend on the timing."""
    records = [Record(mutant=it) for it in wanted]
    coming = iter(records)
    active: list[Record] = []
    pending: dict[Future[Attempt], Record] = {}
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=die_with_parent) as pool:
        while True:
            while len(pending) < workers and (record := _next(active, coming, seeds)) is not None:
                pending[pool.submit(attempt, record.mutant.name, record.next_seed)] = record
                record.next_seed += 1
                record.in_flight += 1
            if not pending:
                return records
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                record = pending.pop(future)
                tried = future.result()
                record.tried[tried.seed] = tried
                record.in_flight -= 1
                on_attempt(record, tried)
                if not record.in_flight and (record.first is not None or record.next_seed >= seeds):
                    active.remove(record)
                    on_done(record)


def _next(active: list[Record], coming: Iterator[Record], seeds: int) -> Record | None:
    """Whose seed is next: a mutant that waits, else a new one, else the one with the fewest seeds under way."""
    open_ones = [it for it in active if it.first is None and it.next_seed < seeds]
    idle = next((it for it in open_ones if not it.in_flight), None)
    if idle is not None:
        return idle
    fresh = next(coming, None)
    if fresh is not None:
        active.append(fresh)
        return fresh
    return min(open_ones, key=lambda it: it.in_flight, default=None)
