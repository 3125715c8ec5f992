"""Explanations as a trace that ui.perfetto.dev and chrome://tracing open: JSON in the trace event format.

A node is a process, a story is one of its threads, a step is a slice of at most a millisecond, and an arrow goes to it from the
step that it follows from. Times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import Any, Final

from kraftlite.model.shown import printable
from kraftlite.obs.explain_story import Explanation, Step, Story
from kraftlite.obs.export.steps import facts_of, in_order, name_of, node_name, to_json

_MS_US: Final = 1_000
_PIDS: Final = 1 << 31
"""Process numbers from here on are those of nodes whose ids are none: 0 is the kernel's."""


def render(found: Explanation) -> str:
    pids = _pids(step.node for story in found.stories for step in story.steps)
    events = [_meta("process_name", pid, 0, printable(node_name(node))) for node, pid in pids.items()]
    arrows = count(1)
    for tid, story in enumerate(found.stories, 1):
        nodes = dict.fromkeys(step.node for step in story.steps)
        events += [_meta("thread_name", pids[node], tid, printable(story.title)) for node in nodes]
        events += _events(story, tid, pids, arrows)
    about = {"subject": printable(found.subject), "standing": printable(found.standing)}
    return to_json({"displayTimeUnit": "ms", "otherData": about, "traceEvents": events})


def _pids(nodes: Iterable[int]) -> dict[int, int]:
    spare = count(_PIDS)
    return {node: node if 0 < node < _PIDS else next(spare) for node in sorted(set(nodes))}


def _meta(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _events(story: Story, tid: int, pids: dict[int, int], arrows: Iterator[int]) -> Iterator[dict[str, Any]]:
    """The steps of one millisecond share it, so that slices stand beside each other and arrows go forward. Times are whole
    microseconds: a time of today has no room for their parts in a number of JavaScript. More than a thousand steps of one
    millisecond go on into the next."""
    placed: dict[int, dict[str, Any]] = {}
    ts = 0
    for ms, group in groupby(in_order(story), key=lambda found: found[0]):
        steps = [step for _, step in group]
        length = max(1, _MS_US // len(steps))
        ts = max(ts, ms * _MS_US)
        for step in steps:
            slot = placed[step.number] = {"pid": pids[step.node], "tid": tid, "ts": ts}
            yield {"ph": "X", "name": name_of(step), "cat": story.kind, **slot, "dur": length, "args": facts_of(step)}
            if step.because is not None:
                yield from _arrow(step, placed[step.because], slot, next(arrows))
            ts += length


def _arrow(step: Step, cause: dict[str, Any], slot: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    both = {"cat": "because", "name": f"step {step.because} to step {step.number}", "id": number}
    yield {"ph": "s", **both, **cause}
    yield {"ph": "f", "bp": "e", **both, **slot}
