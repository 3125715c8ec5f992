"""Recorded events of many nodes, in one shape, whether they come from trace files, from a simulation or from a test.

Pure: nothing here reads files or clocks. A time is milliseconds since whatever epoch the recorder used; all nodes share it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.obs.timeline import LAST_MS
from kraftlite.runtime.trace import TraceEvent

_WORD: Final = re.compile(r"(?<!\S)([^\s=]+)=(\(.*?\)|\S*)")
"""Only where a word begins: a long one without `=` would be looked through from each of its letters."""
_RECORD: Final = "record@"
_OPERATION: Final = "operation:"
_OFFSET_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """One event: when and where it was recorded, its name, its facts (without the cause) and its cause."""

    ms: int
    node: int
    event: str
    facts: Mapping[str, Any]
    cause: str | None = None

    def get(self, name: str, default: Any = None) -> Any:
        return self.facts.get(name, default)

    @property
    def told(self) -> dict[str, Any]:
        """The facts as its line has them: with the cause, if there is one."""
        return {**self.facts, **({} if self.cause is None else {"cause": self.cause})}

    @property
    def partition(self) -> str | None:
        """`orders-0`, for an event of a partition, a log, or a record of a partition."""
        tp = self.facts.get("tp")
        if tp is not None:
            topic, index = tp
            return f"{topic}-{index}"
        found = self.facts.get("partition")
        return found if isinstance(found, str) else None

    @property
    def caused_by_record(self) -> int | None:
        """The offset of the metadata record that made it happen, if one did."""
        cause = self.cause
        if cause is None or not cause.startswith(_RECORD):
            return None
        offset = cause[len(_RECORD) :]
        return int(offset) if len(offset) < _OFFSET_DIGITS and offset.isdecimal() else None

    @property
    def operation(self) -> str | None:
        """The controller's operation that wrote this record."""
        cause = self.cause
        return cause[len(_OPERATION) :].partition(" ")[0] if cause is not None and cause.startswith(_OPERATION) else None

    @property
    def reasons(self) -> dict[str, Any]:
        """The words of the cause: `operation:alter_partition broker=1` gives broker 1."""
        return words(self.cause or "")

    @property
    def detail(self) -> dict[str, Any]:
        """The words of a record's detail: what it sets."""
        return words(self.facts.get("detail", ""))


def from_trace(ms: int, node_id: int, event: TraceEvent) -> Recorded:
    """Make an event of a typed one, as a tracer gets it: the simulator's trace, a test's ListTracer."""
    facts = event.facts()
    cause = facts.pop("cause", None)
    return Recorded(ms=ms, node=int(node_id), event=event.event, facts=facts, cause=cause)


def from_line(line: Mapping[str, Any]) -> Recorded | None:
    """Make an event of a line of a trace file (`obs/timeline`). None for a line that is not an event of a node."""
    try:
        ms, node, event = int(line["ts"]), int(line["node"]), str(line["event"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    cause = line.get("cause")
    if not 0 <= ms < LAST_MS or not isinstance(cause, str | None):
        return None
    facts = {name: value for name, value in line.items() if name not in ("ts", "node", "event", "cause") and value is not None}
    return Recorded(ms=ms, node=node, event=event, facts=facts, cause=cause)


def words(text: str) -> dict[str, Any]:
    """`broker_id=1 isr=(1,2) fenced=true rack=none` as values. Other words are left out."""
    return {name: _value(value) for name, value in _WORD.findall(text)}


def _value(text: str) -> Any:
    if text.startswith("("):
        inner = text[1:-1]
        return tuple(_value(part) for part in inner.split(",")) if inner else ()
    if text in ("true", "false"):
        return text == "true"
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError:
        return text
