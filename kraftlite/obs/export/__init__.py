"""Explanations in the formats of other tools: each step of each story is there once, with its cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlite.obs.explain_story import Explanation
from kraftlite.obs.export import mermaid, otlp, perfetto, shiviz

FORMATS: Final[dict[str, Callable[[Explanation], str]]] = {
    "perfetto": perfetto.render,
    "shiviz": shiviz.render,
    "mermaid": mermaid.render,
    "otlp": otlp.render,
}
"""By the name that `kraftlite explain --format` takes. A function takes an explanation with at least one story."""
