"""How many simulated clusters a processor gets through in a second, and what the time is spent on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.workload import Workload

SEEDS: Final = tuple(range(12))


class _Split:
    """Processor time of parts of a run. A part within another counts for both."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}

    def timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return work(*args, **named)
            finally:
                self.spent_s[part] = self.spent_s.get(part, 0.0) + time.process_time() - began

        return measured


def sim_speed() -> dict[str, Any]:
    """Seeds per second of processor time with all checkers, the share of a run that is over before its workload starts (making
    the cluster, starting its nodes), and the share that goes away when nobody checks."""
    run(RunPlan(seed=10_000, duration_ms=500))  # imports, caches
    split = _Split()
    boots: list[float] = []
    make, prepare = SimCluster.__init__, Workload.prepare

    def made(self: SimCluster, *args: Any, **named: Any) -> None:
        boots.append(-time.process_time())
        make(self, *args, **named)

    async def prepared(self: Workload) -> None:
        boots[-1] += time.process_time()
        await prepare(self)

    SimCluster.__init__, Workload.prepare = made, prepared  # type: ignore[method-assign]
    try:
        checked = split.timed("checked", _run_all)()
        split.timed("unchecked", lambda: _run_all(checkers=()))()
    finally:
        SimCluster.__init__, Workload.prepare = make, prepare  # type: ignore[method-assign]
    whole_s, plain_s = split.spent_s["checked"], split.spent_s["unchecked"]
    boot_s = sum(boots[: len(SEEDS)])
    return {
        "sim_speed.seeds_per_cpu_s": round(len(SEEDS) / whole_s, 2),
        "sim_speed.steps_per_cpu_s": round(checked / whole_s),
        "sim_speed.boot_percent": round(100 * boot_s / whole_s, 1),
        "sim_speed.checkers_percent": round(100 * (whole_s - plain_s) / whole_s, 1),
        "sim_speed.workload_and_cluster_percent": round(100 * (plain_s - boot_s) / whole_s, 1),
    }


def _run_all(checkers: tuple[CheckerFactory, ...] | None = None) -> int:
    """The callbacks of all seeds together."""
    steps = 0
    for seed in SEEDS:
        result = run(RunPlan(seed=seed), checkers)
        assert checkers is not None or result.outcome is Outcome.OK, f"seed {seed}: {result.story}"
        steps += result.steps
    return steps
