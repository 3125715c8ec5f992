"""Shrinks a failing run to the shortest fault schedule that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.run import Outcome, RunPlan, RunResult, run

Runner = Callable[[RunPlan], RunResult]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """`runs` that it took. `plan` has its shape and its faults spelled out; `result` is the last failure."""

    plan: RunPlan
    result: RunResult
    runs: int


def shrink(
    failed: RunResult,
    *,
    budget_s: float | None = 60,
    max_runs: int = 200,
    runner: Runner = run,
    clock: Callable[[], float] = time.monotonic,
) -> Shrunk:
    """Leave out faults as long as the run fails in the same way (same outcome, same checker), then shorten the safety phase.

    Delta debugging: halves first, then smaller and smaller parts, then single faults. Ends when nothing can be left out, or with
    the budget: `budget_s` None leaves it to `max_runs`, so that the outcome is the same on every machine.
    """
    assert failed.outcome is not Outcome.OK
    best = failed
    plan = replace(failed.plan, shape=failed.shape, knobs=None, faults=failed.faults)
    runs = 0
    deadline = None if budget_s is None else clock() + budget_s

    def still_fails(candidate: RunPlan) -> RunResult | None:
        nonlocal runs
        if runs >= max_runs or (deadline is not None and clock() >= deadline):
            return None
        runs += 1
        found = runner(candidate)
        same = found.outcome is failed.outcome and found.checker.split("[")[0] == failed.checker.split("[")[0]
        return found if same else None

    faults: Sequence[FaultPlan] = failed.faults
    parts = 2
    while faults and parts <= 2 * len(faults):
        size = max(1, len(faults) // parts)
        for start in range(0, len(faults), size):
            candidate = tuple(faults[:start]) + tuple(faults[start + size :])
            found = still_fails(replace(plan, faults=candidate))
            if found is not None:
                faults, best = candidate, found
                plan = replace(plan, faults=candidate)
                parts = max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts *= 2
    for duration_ms in (plan.duration_ms // 8, plan.duration_ms // 4, plan.duration_ms // 2):
        found = still_fails(replace(plan, duration_ms=duration_ms))
        if found is not None:
            plan, best = replace(plan, duration_ms=duration_ms), found
            break
    return Shrunk(plan, best, runs)
