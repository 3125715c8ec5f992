"""Runs many seeds on all cores: failures are shrunk, and what was reached is counted."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from kraftlite.sim.coverage import Coverage
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shrink import shrink


@dataclass(slots=True, kw_only=True)
class Summary:
    """A run as a worker reports it. `faults` are those of the shrunk run when it failed."""

    seed: int
    outcome: Outcome
    checker: str
    story: str
    trace: str
    shape: str
    elapsed_s: float
    virtual_ms: int
    steps: int
    counts: dict[str, int]
    coverage: Coverage
    faults: tuple[str, ...] = ()
    duration_ms: int = 0
    shrink_runs: int = 0

    @property
    def reproduce(self) -> str:
        """The line that runs it again."""
        line = f"kraftlite sim --seed {self.seed}"
        if self.duration_ms:
            line += f" --duration {self.duration_ms / 1000:g}"
        for fault in self.faults:
            line += f" --fault '{fault}'"
        return line if self.faults or not self.shrink_runs else line + " --no-faults"


@dataclass(slots=True)
class Totals:
    """The totals of all runs so far."""

    runs: int = 0
    failures: list[Summary] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    virtual_ms: int = 0
    elapsed_s: float = 0
    """Wall time of the whole swarm."""

    def add(self, summary: Summary) -> None:
        self.runs += 1
        self.counts.update(summary.counts)
        self.coverage.add(summary.coverage)
        self.virtual_ms += summary.virtual_ms
        if summary.outcome is not Outcome.OK:
            self.failures.append(summary)

    @property
    def seeds_per_minute(self) -> float:
        return 60 * self.runs / self.elapsed_s if self.elapsed_s else 0.0


def die_with_parent() -> None:
    """End this worker when the process that started it has been killed, instead of waiting for work for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def run_one(seed: int, duration_ms: int, shrink_s: float = 60) -> Summary:
    """One seed, in a worker process."""
    began = time.monotonic()
    plan = RunPlan(seed=seed, duration_ms=duration_ms)
    result = run(plan)
    faults: tuple[FaultPlan, ...] = ()
    shrink_runs, shrunk_ms = 0, duration_ms
    if result.outcome is not Outcome.OK and shrink_s > 0:
        shrunk = shrink(result, budget_s=shrink_s)
        faults, shrink_runs, shrunk_ms = shrunk.result.faults, shrunk.runs, shrunk.plan.duration_ms
        result = shrunk.result
    coverage = result.coverage
    coverage.faults.update(text.split()[0] for _, text in result.injected)
    return Summary(
        seed=seed,
        outcome=result.outcome,
        checker=result.checker,
        story=result.story,
        trace=result.trace,
        shape=str(result.shape),
        elapsed_s=time.monotonic() - began,
        virtual_ms=result.virtual_ms,
        steps=result.steps,
        counts={
            "records produced": result.produced,
            "records acknowledged": result.acked,
            "records consumed": result.consumed,
            "admin calls": result.admin_calls,
            "events": result.events,
            "partitions excused": result.excused,
        },
        coverage=coverage,
        faults=tuple(str(it) for it in faults),
        duration_ms=shrunk_ms,
        shrink_runs=shrink_runs,
    )


def swarm(
    seeds: Iterable[int],
    *,
    duration_ms: int,
    workers: int | None = None,
    budget_s: float | None = None,
    stop_at_failures: int | None = None,
    on_result: Callable[[Summary, Totals], None] = lambda summary, totals: None,
) -> Totals:
    """Run seeds until they, the time or the patience with failures are used up. `workers` None: one per core."""
    began = time.monotonic()
    totals = Totals()
    count = workers or os.cpu_count() or 1
    pending: dict[Future[Summary], int] = {}
    coming: Iterator[int] = iter(seeds)
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=die_with_parent) as pool:
        more = True
        while more or pending:
            while more and len(pending) < count + 1:
                seed = next(coming, None)
                out_of_time = budget_s is not None and time.monotonic() - began >= budget_s
                enough = stop_at_failures is not None and len(totals.failures) >= stop_at_failures
                if seed is None or out_of_time or enough:
                    more = False
                    break
                pending[pool.submit(run_one, seed, duration_ms)] = seed
            done, _ = wait(pending, return_when=FIRST_COMPLETED) if pending else ((), ())
            for future in done:
                pending.pop(future)
                summary = future.result()
                totals.elapsed_s = time.monotonic() - began
                totals.add(summary)
                on_result(summary, totals)
    totals.elapsed_s = time.monotonic() - began
    return totals
