"""The moments and times that a board marks: faults of the ledger, and what the metadata and the nodes tell of who led. Pure.

The shape is that of Grafana's own annotations: milliseconds, a text, tags. `timeEnd` is there where it lasted and is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kraftlite.obs.explain import History
from kraftlite.ui.timeline import Span, every_span

MAX_ANNOTATIONS: Final = 400
FAULT, LEADERSHIP, FENCED, STARTED, STALLED = "fault", "leadership", "fenced", "started", "stalled"
TAGS: Final = (FAULT, LEADERSHIP, FENCED, STARTED, STALLED)
_BY_KIND: Final = {"fault": FAULT, "leads": LEADERSHIP, "fenced": FENCED, "up": STARTED, "stalled": STALLED}
_LASTING: Final = frozenset({FAULT, FENCED, STALLED})
"""The ones that a board shades. Of a leadership and of a process its beginning is what explains a curve."""


def marks(
    history: History, from_ms: int, until_ms: int, partitions: Iterable[str], tags: frozenset[str] = frozenset(TAGS)
) -> list[dict[str, Any]]:
    """Those that touch this time, by time; of too many the newest."""
    found = [it for span in every_span(history, partitions) for it in _of_span(span, from_ms, until_ms, tags)]
    found.sort(key=lambda it: it["time"])
    return found[-MAX_ANNOTATIONS:]


def _of_span(span: Span, from_ms: int, until_ms: int, tags: frozenset[str]) -> Iterator[dict[str, Any]]:
    tag = _BY_KIND.get(span.kind)
    if tag is None or tag not in tags:
        return
    lasts = tag in _LASTING
    if span.from_ms > until_ms or (span.from_ms < from_ms and not lasts):
        return
    if lasts and span.until_ms is not None and span.until_ms < from_ms:
        return
    text = span.label if tag == FAULT else f"{span.lane}: {span.label}"
    at = {"time": span.from_ms, "text": text, "tags": [tag, span.lane]}
    yield {**at, "timeEnd": span.until_ms} if lasts and span.until_ms is not None else at
