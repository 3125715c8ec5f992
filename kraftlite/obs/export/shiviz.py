"""Explanations as a log for ShiViz, with vector clocks that are made of cause and effect.

The first line is ShiViz's expression for one event, the second the one that separates stories: a file with both is opened by
"Choose File". A story is an execution, a node is a host. The clock of a step counts its host's steps, and knows what the clock
of its cause knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from kraftlite.model.shown import printable
from kraftlite.obs.explain_story import Explanation, Story
from kraftlite.obs.export.steps import in_order, node_name

EVENT: Final = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
STORY: Final = r"^=== (?<trace>.*) ===$"


def render(found: Explanation) -> str:
    lines = [EVENT, STORY]
    for number, story in enumerate(found.stories, 1):
        lines.append(f"=== {number}. {printable(story.title)} ===")
        lines += _events(story, found)
    return "\n".join(lines)


def _events(story: Story, found: Explanation) -> Iterator[str]:
    """Two lines each. The words before a text that somebody else chose keep it from being taken for a clock or for a story."""
    known: dict[int, dict[str, int]] = {}
    last: dict[str, dict[str, int]] = {}
    for ms, step in in_order(story):
        host = node_name(step.node).replace(" ", "-")
        clock = dict(last.get(host, {}))
        if step.because is not None:
            for other, value in known[step.because].items():
                clock[other] = max(clock.get(other, 0), value)
        clock[host] = clock.get(host, 0) + 1
        known[step.number] = last[host] = clock
        yield f"step {step.number} at {found.clock.exact(ms)}: {printable(step.what)}"
        yield f"{host} {json.dumps(clock, sort_keys=True)}"
