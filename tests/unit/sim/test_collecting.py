"""How often Python looks for cyclic garbage while a simulated cluster runs."""

from __future__ import annotations

import gc
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.collecting import collecting_rarely
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.sim.swarm import begin_worker
from kraftlite.simhost.host import SimHost


def test_a_run_asks_the_collector_rarely_and_leaves_it_as_it_was() -> None:
    before = gc.get_threshold()
    seen: set[int] = set()

    def look(_now_us: int, _node: SimHost, _event: TraceEvent) -> None:
        seen.add(gc.get_threshold()[0])

    run(RunPlan(seed=1, shape=NAMED["1+1"], faults=(), duration_ms=100), (), sink=look)
    assert seen == {100_000}
    assert gc.get_threshold() == before


def test_the_thresholds_come_back_behind_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), collecting_rarely():
        1 / 0  # noqa: B018 what raises
    assert gc.get_threshold() == before


def test_a_worker_of_a_swarm_leaves_out_what_it_has_imported() -> None:
    assert not gc.get_freeze_count()
    begin = partial(begin_worker, code=False, parent=os.getpid())
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), begin) as worker:
        assert worker.submit(gc.get_freeze_count).result(timeout=120) > 20_000
