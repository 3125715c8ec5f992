"""Explanations as a Mermaid sequence diagram: nodes are participants, a step is a message from the node of its cause.

A step that follows from nothing is a dotted message of its node to itself. Each story is a rectangle, with its title above.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlite.obs.explain_story import Explanation, Step, Story
from kraftlite.obs.export.steps import in_order, node_name

MOST: Final = 50_000
"""Characters that Mermaid draws unless its `maxTextSize` says more."""
_PLAIN: Final = frozenset(" ._-,=()@/+→▸")
_SHADE: Final = "rgb(128, 128, 128, 0.1)"


def render(found: Explanation) -> str:
    nodes = sorted({step.node for story in found.stories for step in story.steps})
    lines = ["sequenceDiagram", *(f"  participant {_id(node)} as {node_name(node)}" for node in nodes)]
    for story in found.stories:
        lines += _story(story, found)
    return "\n".join(lines)


def _id(node: int) -> str:
    return f"n{node}" if node >= 0 else "none"


def _story(story: Story, found: Explanation) -> Iterator[str]:
    where: dict[int, int] = {}
    yield f"  rect {_SHADE}"
    for ms, step in in_order(story):
        if not where:
            yield f"    Note over {_id(step.node)}: {_escaped(story.title)}"
        where[step.number] = step.node
        text = f"{step.number}. {found.clock.exact(ms)} {step.what}"
        yield f"    {_arrow(step, where)}: {_escaped(text)}"
    yield "  end"


def _arrow(step: Step, where: dict[int, int]) -> str:
    to = _id(step.node)
    return f"{to}-->>{to}" if step.because is None else f"{_id(where[step.because])}->>{to}"


def _escaped(text: str) -> str:
    """Letters, digits and a few marks stay; all else, which may be the beginning of a statement, a comment, a setting or HTML,
    becomes an entity. What cannot be printed becomes a question mark."""
    return "".join(_mark(one) for one in text)


def _mark(one: str) -> str:
    if (one.isascii() and one.isalnum()) or one in _PLAIN:
        return one
    return f"#{ord(one)};" if one.isprintable() else "?"
