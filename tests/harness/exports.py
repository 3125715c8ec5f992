"""Readers of the formats of `kraftlite explain --format`, as strict as their tools: they return (story, step, its cause) of each
step, and fail on what a tool would refuse. Stories and steps are numbers from 1 on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

Steps = set[tuple[int, int, int | None]]


def read_perfetto(text: str) -> Steps:
    """The trace event format: slices that do not overlap, and arrows that go forward from slice to slice."""
    value = json.loads(text)
    assert set(value) == {"displayTimeUnit", "otherData", "traceEvents"} and value["displayTimeUnit"] == "ms"
    named: set[tuple[str, int, int]] = set()
    slices: dict[tuple[int, int, int], dict[str, Any]] = {}
    arrows: dict[int, list[dict[str, Any]]] = {}
    for event in value["traceEvents"]:
        assert type(event["pid"]) is int and type(event["tid"]) is int and event["pid"] > 0 and isinstance(event["name"], str)
        if event["ph"] == "M":
            named.add((event["name"], event["pid"], event["tid"]))
            assert isinstance(event["args"]["name"], str)
            continue
        assert type(event["ts"]) is int and 0 <= event["ts"] < 1 << 53
        place = event["pid"], event["tid"], event["ts"]
        if event["ph"] == "X":
            assert place not in slices and type(event["dur"]) is int and 0 < event["dur"] <= 1000
            slices[place] = event
        else:
            assert event["ph"] == ("f" if event["id"] in arrows else "s") and (event["ph"] == "s" or event["bp"] == "e")
            arrows.setdefault(event["id"], []).append(event)
    assert {("process_name", pid, 0) for pid, _, _ in slices} | {("thread_name", p, t) for p, t, _ in slices} == named
    causes: dict[tuple[int, int], int] = {}
    for begin, end in arrows.values():
        cause, effect = (slices[it["pid"], it["tid"], it["ts"]] for it in (begin, end))
        assert cause["tid"] == effect["tid"] and cause["ts"] < effect["ts"]
        causes[effect["tid"], effect["args"]["step"]] = cause["args"]["step"]
    ends: dict[tuple[int, int], int] = {}
    for (pid, tid, ts), event in sorted(slices.items()):
        assert ts >= ends.get((pid, tid), 0)
        ends[pid, tid] = ts + event["dur"]
    found = [(it["tid"], it["args"]["step"]) for it in slices.values()]
    assert all(it["args"].get("because") == causes.get((it["tid"], it["args"]["step"])) for it in slices.values())
    return {(story, step, causes.get((story, step))) for story, step in found}


def read_shiviz(text: str) -> Steps:
    """Two lines of expressions, then executions. A host's clock goes up by one from 1 on, and knows nothing that has not been."""
    event, story, log = text.split("\n", 2)
    assert (event, story) == (r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})", "^=== (?<trace>.*) ===$")
    before, *executions = re.split(r"^=== .* ===$", log, flags=re.MULTILINE)
    assert not before.strip() and len(executions) == len(set(re.findall(r"^=== (.*) ===$", log, re.MULTILINE)))
    found: Steps = set()
    for number, execution in enumerate(executions, 1):
        clocks: dict[int, dict[str, int]] = {}
        last: dict[str, int] = {}
        pairs = re.findall(r"(.*)\n(\S*) (\{.*\})", execution)
        assert len(pairs) * 2 == len(execution.strip().split("\n"))
        for words, host, written in pairs:
            clock = json.loads(written)
            assert clock[host] == last.get(host, 0) + 1
            last[host] = clock[host]
            assert all(type(value) is int and 0 < value <= last[other] for other, value in clock.items())
            told = re.match(r"step (\d+) at \S+( s)?: ", words)
            assert told is not None
            clocks[int(told[1])] = clock
        found |= {(number, step, None) for step in clocks}
    return found


_MESSAGE: Final = re.compile(r"    (n\d+|none)(-->>|->>)(n\d+|none): (\d+)\. (.*)")
_TEXT: Final = re.compile(r"(?:[A-Za-z0-9 ._\-,=()@/+→▸?]|#\d{2,7};)*")


def read_mermaid(text: str) -> Steps:
    """The grammar of the lines that we use. A text may have nothing that begins anything else."""
    first, *lines = text.split("\n")
    assert first == "sequenceDiagram"
    known: set[str] = set()
    found: Steps = set()
    story, inside, titles = 0, False, 0
    for line in lines:
        if named := re.fullmatch(r"  participant (n\d+|none) as (node \d+|no node)", line):
            assert not story and named[1] not in known
            known.add(named[1])
        elif line == "  rect rgb(128, 128, 128, 0.1)":
            assert not inside
            story, inside = story + 1, True
        elif line == "  end":
            assert inside
            inside = False
        elif note := re.fullmatch(r"    Note over (n\d+|none): (.*)", line):
            assert inside and note[1] in known and _TEXT.fullmatch(note[2])
            titles += 1
        else:
            message = _MESSAGE.fullmatch(line)
            assert message is not None and inside and titles == story, line
            assert {message[1], message[3]} <= known and _TEXT.fullmatch(message[5])
            assert message[2] == "->>" or message[1] == message[3]
            found.add((story, int(message[4]), None))
    assert not inside
    return found


def read_otlp(text: str) -> Steps:
    """ExportTraceServiceRequest in OTLP's JSON: ids of 16 and 8 bytes, times as texts, one resource a node."""
    (resources,) = json.loads(text).values()
    spans: dict[tuple[str, str], dict[str, Any]] = {}
    instances = []
    for resource in resources:
        attributes = _attributes(resource["resource"]["attributes"])
        assert attributes["service.name"] == "kraftlite"
        instances.append(attributes["service.instance.id"])
        (scope,) = resource["scopeSpans"]
        assert scope["scope"]["name"] == "kraftlite.explain" and scope["scope"]["version"]
        for span in scope["spans"]:
            assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
            assert int(span["traceId"], 16) and int(span["spanId"], 16) and span["kind"] == 1
            for time in (span["startTimeUnixNano"], span["endTimeUnixNano"]):
                assert isinstance(time, str) and 0 <= int(time) < 1 << 63
            assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) and span["name"].isprintable()
            assert (span["traceId"], span["spanId"]) not in spans
            spans[span["traceId"], span["spanId"]] = _attributes(span["attributes"]) | span
    assert len(instances) == len(set(instances))
    traces = {trace: number for number, trace in enumerate(dict.fromkeys(trace for trace, _ in spans), 1)}
    found: Steps = set()
    for (trace, _), span in spans.items():
        parent = spans[trace, span["parentSpanId"]] if "parentSpanId" in span else None
        cause = None if parent is None else int(parent["kraftlite.step"])
        assert str(span.get("kraftlite.because", cause)) == str(cause)
        found.add((traces[trace], int(span["kraftlite.step"]), cause))
    return found


def _attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        assert set(pair) == {"key", "value"} and len(pair["value"]) == 1 and pair["key"] not in found
        ((kind, value),) = pair["value"].items()
        assert (
            kind in ("stringValue", "intValue") and isinstance(value, str) and (kind == "stringValue" or int(value) is not None)
        )
        found[pair["key"]] = value
    return found


READERS: Final[dict[str, Callable[[str], Steps]]] = {
    "perfetto": read_perfetto,
    "shiviz": read_shiviz,
    "mermaid": read_mermaid,
    "otlp": read_otlp,
}
