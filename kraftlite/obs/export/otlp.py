"""Explanations as traces of OpenTelemetry: an ExportTraceServiceRequest in OTLP's JSON.

A story is a trace, a step is a span whose parent is the step that it follows from, a node is a resource. A step is a moment, so
its span ends when it starts. A story that is exported again has the same ids. Source: OTLP 1.x, "JSON Protobuf Encoding": ids in
hexadecimal, integers of 64 bits as texts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import kraftlite
from kraftlite.model.shown import printable
from kraftlite.obs.explain_story import Explanation, Step, Story
from kraftlite.obs.export.steps import facts_of, name_of, node_name, recorded_ms, to_json

_MS_NS: Final = 1_000_000
_INTERNAL: Final = 1
"""SPAN_KIND_INTERNAL."""


def render(found: Explanation) -> str:
    spans: dict[int, list[dict[str, Any]]] = {}
    told: Counter[str] = Counter()
    for story in found.stories:
        told[said := _identity(story)] += 1
        trace = _id(f"{said} {told[said]}", 16)
        for step in story.steps:
            spans.setdefault(step.node, []).append(_span(story, step, trace))
    return to_json({"resourceSpans": [_resource(node, spans[node]) for node in sorted(spans)]})


def _identity(story: Story) -> str:
    """The words by which a story is known again, also when it has gone on meanwhile."""
    first = story.steps[0] if story.steps else None
    began = "" if first is None else f"{first.ms} {first.node} {first.what}"
    return f"{story.kind} {story.at_ms} {story.facts.get('record')} {story.facts.get('partition')} {began}"


def _id(text: str, length: int) -> str:
    """`length` bytes."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:length].hex()


def _span(story: Story, step: Step, trace: str) -> dict[str, Any]:
    at_ns = str(recorded_ms(step.ms) * _MS_NS)
    told = {"story": printable(story.title), "story.kind": story.kind, **facts_of(step)}
    return {
        "traceId": trace,
        "spanId": _id(f"{trace} {step.number}", 8),
        **({} if step.because is None else {"parentSpanId": _id(f"{trace} {step.because}", 8)}),
        "name": name_of(step),
        "kind": _INTERNAL,
        "startTimeUnixNano": at_ns,
        "endTimeUnixNano": at_ns,
        "attributes": _attributes({f"kraftlite.{name}": value for name, value in told.items()}),
    }


def _resource(node: int, spans: list[dict[str, Any]]) -> dict[str, Any]:
    named = {"service.name": "kraftlite", "service.instance.id": node_name(node)}
    scope = {"name": "kraftlite.explain", "version": kraftlite.__version__}
    return {"resource": {"attributes": _attributes(named)}, "scopeSpans": [{"scope": scope, "spans": spans}]}


def _attributes(values: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]
