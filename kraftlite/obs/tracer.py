"""The tracer of a node's process: stamps each typed event and hands it to the log, the timeline file and the counters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from kraftlite.model.ids import NodeId
from kraftlite.obs.log import LogSink
from kraftlite.obs.log_levels import LEVELS, LogLevels
from kraftlite.obs.timeline import TimelineFile
from kraftlite.runtime.ports import Clock, Tracer
from kraftlite.runtime.trace import TraceEvent

Sink = Callable[[int, TraceEvent, dict[str, object]], None]
"""sink(wall_ms, event, facts). Must not raise and must not block."""


class HostTracer(Tracer):
    """Bound to one node. Events below `level` are dropped before their facts are collected, unless `levels` lets them through.

    Implements `HasLoggers` by `levels`, which is about the log alone; what else hears events does so from `level` on.
    """

    def __init__(
        self, node_id: NodeId, clock: Clock, sinks: Sequence[Sink], level: str = "info", levels: LogLevels | None = None
    ) -> None:
        self.node_id = node_id
        self._clock = clock
        self._sinks = list(sinks)
        self._least = LEVELS[level]
        self._levels = LogLevels(level) if levels is None else levels

    def emit(self, event: TraceEvent) -> None:
        if LEVELS[event.level] < self._least and not (self._levels.changed and self._levels.allow(event)):
            return
        wall_ms = self._clock.wall_ms()
        facts = event.facts()
        for sink in self._sinks:
            sink(wall_ms, event, facts)

    def hears(self, kind: type[TraceEvent]) -> bool:
        return LEVELS[kind.level] >= self._least or self._levels.allow(kind)

    def loggers(self) -> Mapping[str, str]:
        return self._levels.loggers()

    def set_level(self, logger: str, level: str | None) -> None:
        self._levels.set_level(logger, level)

    def add_sink(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def close(self) -> None:
        for sink in self._sinks:
            close = getattr(sink, "close", None)
            if close is not None:
                close()


def open_tracer(
    node_id: NodeId,
    clock: Clock,
    *,
    level: str = "info",
    log_format: str = "auto",
    stream: TextIO | None = None,
    timeline_path: str | None = None,
    timeline_max_bytes: int = 32 << 20,
) -> HostTracer:
    """The usual tracer: log lines on `stream` (standard error) and, with a path, the timeline file.

    The file has everything from `info` on, however quiet the log is: what happened must be explainable afterwards. With it the
    log leaves out what comes by the hundreds a second (`LogSink`).
    Source: `kraftlite.log.level`, `kraftlite.log.format`, `kraftlite.trace.file`, `kraftlite.trace.max.bytes`.
    """
    log = LogSink(node_id, stream or sys.stderr, log_format, shorten=timeline_path is not None)
    levels = LogLevels(level)
    least = level if timeline_path is None else min(level, "info", key=LEVELS.__getitem__)
    sinks: list[Sink] = [_only(log, levels, asked=least != level)]
    if timeline_path is not None:
        sinks.append(TimelineFile(timeline_path, node_id, timeline_max_bytes))
    return HostTracer(node_id, clock, sinks, least, levels)


def _only(sink: Sink, levels: LogLevels, *, asked: bool) -> Sink:
    """Events below their logger's level do not reach `sink`. `asked`: the tracer lets more through than the log wants, so that
    `levels` are asked about each event, and not only after one of them has changed."""

    def filtered(wall_ms: int, event: TraceEvent, facts: dict[str, object]) -> None:
        if not (asked or levels.changed) or levels.allow(event):
            sink(wall_ms, event, facts)

    return filtered
