"""Runs many seeds on all cores: failures are shrunk, and what was reached is counted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from kraftlite.sim.code_reach import Arcs, Tracer, merge
from kraftlite.sim.collecting import leave_out_what_lives
from kraftlite.sim.corpus import Discovery, Origin, Plans
from kraftlite.sim.coverage import Coverage
from kraftlite.sim.fault_plan import FaultPlan, parse
from kraftlite.sim.plans import text_of
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shrink import shrink
from kraftlite.sim.themes import PLAIN


@dataclass(slots=True, kw_only=True)
class Summary:
    """A run as a worker reports it. `faults` are those of the shrunk run when it failed."""

    plan: RunPlan
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
    arcs: Arcs = field(default_factory=dict)
    """The code that this worker had not reached before."""

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def failing(self) -> RunPlan:
        """The shortest plan that still fails."""
        if not self.shrink_runs:
            return self.plan
        return replace(self.plan, faults=tuple(map(parse, self.faults)), duration_ms=self.duration_ms)

    @property
    def reproduce(self) -> str:
        """The line that runs it again."""
        plan = self.failing
        if plan != RunPlan(seed=plan.seed, theme=plan.theme, faults=plan.faults, duration_ms=plan.duration_ms):
            return f"kraftlite sim --plan '{text_of(plan)}'"
        line = f"kraftlite sim --seed {self.seed}"
        if plan.theme != PLAIN:
            line += f" --theme {plan.theme}"
        if plan.duration_ms != RunPlan(seed=0).duration_ms:
            line += f" --duration {plan.duration_ms / 1000:g}"
        for fault in plan.faults or ():
            line += f" --fault '{fault}'"
        return f"{line} --no-faults" if plan.faults == () else line


@dataclass(slots=True)
class Totals:
    """The totals of all runs so far."""

    runs: int = 0
    failures: list[Summary] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    discovery: Discovery = field(default_factory=Discovery)
    arcs: Arcs = field(default_factory=dict)
    """The code that was reached; empty when it was not measured."""
    virtual_ms: int = 0
    elapsed_s: float = 0
    """Wall time of the whole swarm."""

    def add(self, summary: Summary, origin: Origin = "seed") -> int:
        """Count a run, and return how much it reached that no other had."""
        self.runs += 1
        self.counts.update(summary.counts)
        self.coverage.add(summary.coverage)
        self.virtual_ms += summary.virtual_ms
        if summary.outcome is not Outcome.OK:
            self.failures.append(summary)
        return self.discovery.add(origin, summary.coverage.features(), merge(self.arcs, summary.arcs))

    @property
    def seeds_per_minute(self) -> float:
        return 60 * self.runs / self.elapsed_s if self.elapsed_s else 0.0


def die_with(parent: int) -> None:
    """End this worker when the process that started it has been killed, instead of waiting for work for ever. Who that was is
    told: it may be gone before this worker has come so far."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


_tracers: list[Tracer] = []
"""The tracer of this worker process, when it measures the code that runs reach."""


def begin_worker(*, code: bool, parent: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with(parent)
    if code:
        _tracers.append(Tracer())
        _tracers[0].start()
    import kraftlite.sim.checkers.catalog  # noqa: F401 what every run needs

    leave_out_what_lives()


def run_one(plan: RunPlan, shrink_s: float = 60) -> Summary:
    """One plan, in a worker process."""
    began = time.monotonic()
    result = run(plan)
    arcs = _tracers[0].news() if _tracers else {}
    faults: tuple[FaultPlan, ...] = ()
    shrink_runs, shrunk_ms = 0, plan.duration_ms
    if result.outcome is not Outcome.OK and shrink_s > 0:
        shrunk = shrink(result, budget_s=shrink_s)
        faults, shrink_runs, shrunk_ms = shrunk.result.faults, shrunk.runs, shrunk.plan.duration_ms
        result = shrunk.result
    coverage = result.coverage
    coverage.faults.update(text.split()[0] for _, text in result.injected)
    return Summary(
        plan=plan,
        arcs=arcs,
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


@contextmanager
def _ended_with(pool: ProcessPoolExecutor) -> Iterator[None]:
    """End the workers amid their runs, which would be waited for, when this process ends early."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Keep SIGINT waiting, in the processes that are started meanwhile until they begin to work."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def swarm(
    plans: Plans,
    *,
    code: bool = False,
    workers: int | None = None,
    budget_s: float | None = None,
    stop_at_failures: int | None = None,
    on_result: Callable[[Summary, Totals], None] = lambda summary, totals: None,
) -> Totals:
    """Run plans until they, the time or the patience with failures are used up. `code`: measure what of the code they reach.
    `workers` None: one per core."""
    began = time.monotonic()
    totals = Totals()
    count = workers or os.cpu_count() or 1
    pending: dict[Future[Summary], Origin] = {}
    begin = partial(begin_worker, code=code, parent=os.getpid())
    with (
        ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=begin) as pool,
        _ended_with(pool),
    ):
        more = True
        while more or pending:
            while more and len(pending) < count + 1:
                out_of_time = budget_s is not None and time.monotonic() - began >= budget_s
                enough = stop_at_failures is not None and len(totals.failures) >= stop_at_failures
                coming = None if out_of_time or enough else plans.next()
                if coming is None:
                    more = False
                    break
                origin, plan = coming
                with _interruptions_held():  # a worker that still imports has nothing to say to Ctrl-C
                    pending[pool.submit(run_one, plan)] = origin
            done, _ = wait(pending, return_when=FIRST_COMPLETED) if pending else ((), ())
            for future in done:
                origin, summary = pending.pop(future), future.result()
                totals.elapsed_s = time.monotonic() - began
                plans.learn(summary.plan, totals.add(summary, origin))
                on_result(summary, totals)
    totals.elapsed_s = time.monotonic() - began
    return totals
