"""A run as a recording, in virtual milliseconds since its start: what the page and its export are made of.

The recorder is told what checkers are told, and finds nothing wrong. It changes nothing of the run: the digest of its events is
the same with and without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlite.model.method import AnyMethod
from kraftlite.obs.recording import MAX_BYTES, SIMULATED, VIRTUAL, Header, Recorder
from kraftlite.obs.recording_checks import MAX_TEXT
from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.checkers.base import Checker, CheckerFactory, World
from kraftlite.sim.cluster import CLUSTER_ID
from kraftlite.sim.ledger import ALL_END, entries
from kraftlite.sim.plans import text_of
from kraftlite.sim.run import RunPlan, RunResult, TraceSink, run
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.recorder import EVERY_MS, HostRecorder

_LASTS: Final = re.compile(r" for (\d+) ms$")


class Records(Checker):
    """Hands on what the recorder looks at."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        super().__init__(world)
        self._hosts = HostRecorder(recorder)

    def minds_method(self, method: AnyMethod) -> bool:
        return False

    def _now_ms(self) -> int:
        return self.world.cluster.loop.now_us() // 1000

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        self._hosts.event(now_us // 1000, node, event)

    def on_step(self, node: SimHost) -> None:
        self._hosts.step(self._now_ms(), self.world.nodes.values())

    def on_death(self, node: SimHost, how: str) -> None:
        self._hosts.look(self._now_ms(), self.world.nodes.values())


def run_recorded(
    plan: RunPlan,
    write: Callable[[bytes], object],
    *,
    checkers: Sequence[CheckerFactory] | None = None,
    sink: TraceSink | None = None,
    max_bytes: int = MAX_BYTES,
) -> RunResult:
    """`run`, with every line of the recording given to `write`. Raises as `run` does."""
    if checkers is None:
        from kraftlite.sim.checkers.catalog import ALL

        checkers = ALL
    shape, _ = plan.drawn()
    header = Header(
        source=SIMULATED,
        clock=VIRTUAL,
        cluster_id=CLUSTER_ID,
        every_ms=EVERY_MS,
        title=f"seed {plan.seed}, {shape}"[:1000],
        plan=_text(plan),
    )
    recorder = Recorder(header, write, max_bytes=max_bytes)
    result = run(plan, [*checkers, lambda world: Records(world, recorder)], sink=sink)
    ledger, rest = entries(plan.seed, result.injected)
    for entry in ledger:
        recorder.event(entry.ms, entry.node, entry.event, entry.facts)
    for ts, text, until_ms in notes(rest):
        recorder.note(ts, text, until_ms)
    recorder.end(result.virtual_ms, result.outcome.name, f"{result.checker}: {result.story}" if result.story else "")
    return result


def _text(plan: RunPlan) -> str:
    """The plan for the header; empty for one that cannot be written down."""
    try:
        text = text_of(plan)
    except ValueError:
        return ""  # its shape has no name: a test made it
    return text if len(text) <= MAX_TEXT else ""


def notes(injected: Sequence[tuple[int, str]]) -> list[tuple[int, str, int | None]]:
    """The deeds of the injector: when, what, and until when where it says so. Nothing outlasts the end of all faults."""
    over_ms = next((at_us // 1000 for at_us, text in injected if text == ALL_END), None)
    found = []
    for at_us, text in injected:
        lasts = _LASTS.search(text)
        until_ms: Any = None if lasts is None else at_us // 1000 + int(lasts[1])
        if until_ms is not None and over_ms is not None:
            until_ms = min(until_ms, over_ms)
        found.append((at_us // 1000, text, until_ms))
    return found
