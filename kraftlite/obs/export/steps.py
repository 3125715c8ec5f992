"""The parts that all formats share: the order of steps, their times and their words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kraftlite.model.shown import printable, shown
from kraftlite.obs.explain_story import Step, Story

MAX_MS: Final = (1 << 52) // 1_000
"""The last millisecond since 1970 within which JavaScript's numbers tell half microseconds; in the year 2112."""


def recorded_ms(ms: int) -> int:
    """A time as the tools take it. A damaged trace, and a metadata log in which a batch has no time, have others."""
    return min(max(ms, 0), MAX_MS)


def in_order(story: Story) -> list[tuple[int, Step]]:
    """The steps by time, none before its cause: one that a wrong clock puts there is shown at the time of its cause. Steps of
    the same millisecond stay in the order of the story, which is causal."""
    at: dict[int, int] = {}
    for step in story.steps:
        cause_ms = 0 if step.because is None else at[step.because]
        at[step.number] = max(recorded_ms(step.ms), cause_ms)
    return sorted(((at[step.number], step) for step in story.steps), key=lambda found: (found[0], found[1].number))


def node_name(node: int) -> str:
    """`node 4`; what belongs to no node has none."""
    return f"node {node}" if node >= 0 else "no node"


def name_of(step: Step) -> str:
    """A few words for the step."""
    return printable(shown(step.brief or step.what))


def facts_of(step: Step) -> dict[str, str | int]:
    """The facts of a step by the keys of `--json`, without those that it does not have."""
    facts = {name: value for name, value in step.to_dict().items() if value is not None}
    return {name: value if isinstance(value, int) else printable(str(value)) for name, value in facts.items()}


def to_json(value: Mapping[str, object]) -> str:
    """ASCII: nothing in it acts upon a terminal."""
    return json.dumps(value, indent=1)
