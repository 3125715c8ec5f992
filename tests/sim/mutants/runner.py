"""Seeds for mutants, in worker processes, until each is caught."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from kraftlite.sim import run as simulation
from kraftlite.sim import schedule, shape
from kraftlite.sim.run import Outcome, RunPlan, RunResult, run
from kraftlite.sim.swarm import begin_worker
from tests.sim.mutants.catalog import Mutant, mutants
from tests.sim.mutants.patching import Patch

PATIENCE_MS: Final = 45_000
"""A cluster that has not converged so long after the last fault never will. `kraftlite sim` waits almost three times as long:
most of the time of a mutant that keeps clusters from converging. A seed that is as slow without the mutant counts for none."""
RUN_LIMIT_S: Final = 90
"""A run that takes more processor time than this never ends: a mutant can make the simulation turn on the spot."""


class _TooLong(KeyboardInterrupt):
    """The one kind of error that neither production nor the event loop keeps to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One seed of one mutant. `by` is empty when all checks held, and when the seed fails without the mutant, too. `seconds` of
    processor time."""

    mutant: str
    seed: int
    by: str = ""
    story: str = ""
    seconds: float = 0.0
    fails_anyway: bool = False


@dataclass(slots=True, kw_only=True)
class Record:
    """What became of one mutant. `first` is the attempt with the lowest seed that caught it. `known` is the seed that caught it
    last time: it is tried before all others, and when it catches the mutant again, no other is."""

    mutant: Mutant
    known: int | None = None
    tried: dict[int, Attempt] = field(default_factory=dict)
    next_seed: int = 0
    in_flight: int = 0

    @property
    def first(self) -> Attempt | None:
        caught = [it for it in self.tried.values() if it.by]
        return min(caught, key=lambda it: it.seed, default=None)

    def take(self) -> int:
        """The seed to try next."""
        if self.known is not None and self.known not in self.tried:
            seed = self.known
        else:
            while self.next_seed == self.known:
                self.next_seed += 1
            seed = self.next_seed
            self.next_seed += 1
        self.in_flight += 1
        return seed

    @property
    def waits_for_known(self) -> bool:
        return self.known is not None and self.known not in self.tried

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
    """The run of a seed; of a mutant with a hint, in its shape and theme, and with the faults of its scene."""
    if mutant is None:
        return RunPlan(seed=seed)
    plan = RunPlan(seed=seed, theme=mutant.theme, shape=None if mutant.shape is None else shape.NAMED[mutant.shape])
    if mutant.scene is None:
        return plan
    drawn, _ = plan.drawn()
    return replace(plan, faults=schedule.play(plan.theme, mutant.scene, seed, drawn, plan.duration_ms))


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
        _prepare(mutant, patch)
        mutant.change(patch)
        return run(plan)


def run_without(mutant: Mutant, plan: RunPlan) -> RunResult:
    """The same run, without the mutant."""
    with Patch() as patch:
        _prepare(mutant, patch)
        return run(plan)


def _prepare(mutant: Mutant, patch: Patch) -> None:
    """What both runs have."""
    patch.set(simulation, "CONVERGE_LIMIT_MS", PATIENCE_MS)
    if mutant.lens is not None:
        mutant.lens(patch)


def attempt(name: str, seed: int) -> Attempt:
    """One seed, in a worker process."""
    mutant = mutants()[name]
    plan = plan_of(mutant, seed)
    began = time.process_time()
    by, story = _limited(lambda: run_mutant(mutant, plan))
    return Attempt(mutant=name, seed=seed, by=by, story=story, seconds=time.process_time() - began)


def fails_without(name: str, seed: int) -> bool:
    """Return whether the seed fails without the mutant, too; in a worker process."""
    mutant = mutants()[name]
    return bool(_limited(lambda: run_without(mutant, plan_of(mutant, seed)))[0])


def _limited(work: Callable[[], RunResult]) -> tuple[str, str]:
    def late(_signal: int, _frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, RUN_LIMIT_S)
    try:
        result = work()
    except _TooLong:
        asyncio.set_event_loop(None)
        return "liveness: no end", f"the run had not ended after {RUN_LIMIT_S} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return caught_by(result), result.story


_Plain: TypeAlias = tuple[int, str, str | None, Any, str | None]
"""A run without any mutant: seed, theme, shape, lens, scene. Mutants that have these in common share it."""


class Hunt:
    """The attempts that are made, and the runs without a mutant that tell which of them count: each of those is run once."""

    def __init__(self, pool: Executor, on_attempt: Callable[[Record, Attempt], None]) -> None:
        self.pool = pool
        self.pending: dict[Future[Any], Callable[[Any], list[Record]]] = {}
        """What becomes of each result: the records that are an attempt further then."""
        self._on_attempt = on_attempt
        self._plain: dict[_Plain, bool] = {}
        self._asking: dict[_Plain, deque[tuple[Record, Attempt]]] = {}

    def attempt(self, record: Record) -> None:
        future = self.pool.submit(attempt, record.mutant.name, record.take())
        self.pending[future] = lambda tried: self._tried(record, tried)

    def finish(self, future: Future[Any]) -> list[Record]:
        return self.pending.pop(future)(future.result())

    def _tried(self, record: Record, tried: Attempt) -> list[Record]:
        plain = (tried.seed, record.mutant.theme, record.mutant.shape, record.mutant.lens, record.mutant.scene)
        if not tried.by or plain in self._plain:
            return [self._judge(record, tried, fails_anyway=bool(tried.by) and self._plain[plain])]
        asking = self._asking.get(plain)
        if asking is None:
            asking = self._asking[plain] = deque()
            future = self.pool.submit(fails_without, record.mutant.name, tried.seed)
            self.pending[future] = lambda fails: self._know(plain, fails)
        asking.append((record, tried))
        return []

    def _know(self, plain: _Plain, fails: bool) -> list[Record]:
        self._plain[plain] = fails
        return [self._judge(record, tried, fails_anyway=fails) for record, tried in self._asking.pop(plain)]

    def _judge(self, record: Record, tried: Attempt, *, fails_anyway: bool) -> Record:
        if fails_anyway:
            tried = replace(tried, by="", fails_anyway=True)
        record.tried[tried.seed] = tried
        record.in_flight -= 1
        self._on_attempt(record, tried)
        return record


def hunt(
    wanted: Sequence[Mutant],
    *,
    seeds: int,
    workers: int,
    known: Mapping[str, int] | None = None,
    on_done: Callable[[Record], None] = lambda record: None,
    on_attempt: Callable[[Record, Attempt], None] = lambda record, tried: None,
    pool: Executor | None = None,
) -> list[Record]:
    """Run the known seed of each mutant, and seeds 0, 1, … when that does not catch it, or none is known. As many mutants at a
    time as there are workers; with fewer mutants left than workers, several seeds of one. Which seed counts does not depend on
    the timing. The workers are forked from this process, in which everything is imported."""
    records = [Record(mutant=it, known=(known or {}).get(it.name)) for it in wanted]
    coming = iter(records)
    active: list[Record] = []
    with pool or ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), partial(begin_worker, code=False, parent=os.getpid())
    ) as executor:
        state = Hunt(executor, on_attempt)
        while True:
            while len(state.pending) < workers and (record := _next(active, coming, seeds)) is not None:
                state.attempt(record)
            if not state.pending:
                return records
            done, _ = wait(state.pending, return_when=FIRST_COMPLETED)
            for record in [it for future in done for it in state.finish(future)]:
                if not record.in_flight and (record.first is not None or record.next_seed >= seeds):
                    active.remove(record)
                    on_done(record)


def _next(active: list[Record], coming: Iterator[Record], seeds: int) -> Record | None:
    """Whose seed is next: a mutant that waits, else a new one, else the one with the fewest seeds under way. Of one whose known
    seed is under way no other is tried yet."""
    open_ones = [it for it in active if it.first is None and it.next_seed < seeds]
    idle = next((it for it in open_ones if not it.in_flight), None)
    if idle is not None:
        return idle
    fresh = next(coming, None)
    if fresh is not None:
        active.append(fresh)
        return fresh
    return min((it for it in open_ones if not it.waits_for_known), key=lambda it: it.in_flight, default=None)
