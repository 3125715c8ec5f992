"""Trace events as log lines: JSON for machines, coloured text on a terminal. Python's own `logging` goes the same way."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from kraftlite.model.ids import NodeId
from kraftlite.model.shown import printable
from kraftlite.runtime.lean_import import hidden
from kraftlite.runtime.trace import TraceEvent

Write = Callable[[str, dict[str, object]], None]
"""write(level, line): a line as its facts."""

_encode = json.JSONEncoder(default=str, separators=(",", ":"), ensure_ascii=False).encode


def _plain(value: Any) -> Any:
    """A fact without what a terminal acts upon: names of clients, groups and topics are whatever a client sent. Lines of a stack
    stay lines."""
    kind = type(value)
    if kind is int or kind is bool:
        return value
    if isinstance(value, str):
        return printable(value, _KEPT)
    if isinstance(value, list | tuple):
        plain = [_plain(one) for one in value]
        return value if all(new is old for new, old in zip(plain, value, strict=True)) else plain
    return value


_KEPT: Final = "\n\t"


LINES_PER_SECOND: Final = 100
"""Lines of one kind of event, where the trace file has them all: nobody reads 50,000 lines of a failover one by one, and to
write them was a fifth of what a changed replica costs. Source: docs/PERFORMANCE.md, "Many partitions"."""


class LogSink:
    """One line per event on `stream`. `log_format`: json, text, or auto (text if the stream is a terminal).

    `shorten`: of one kind of event at most `LINES_PER_SECOND` are written in a second, and then one line that says that the
    others of this second are not. Errors are always written.
    """

    def __init__(self, node_id: NodeId, stream: TextIO, log_format: str = "auto", *, shorten: bool = False) -> None:
        text = log_format == "text" or (log_format == "auto" and stream.isatty())
        self._write = _as_text(stream) if text else _as_json(stream)
        self._node_id = node_id
        self._second = -1
        self._second_text = ""
        self._broken = False
        self._shorten = shorten
        self._counted_second = -1
        self._counts: dict[str, int] = {}

    def __call__(self, wall_ms: int, event: TraceEvent, facts: dict[str, object]) -> None:
        level, kind = event.level, event.event
        if self._shorten and level != "error":
            if wall_ms // 1000 != self._counted_second:
                self._counted_second = wall_ms // 1000
                self._counts.clear()
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            if count > LINES_PER_SECOND:
                if count == LINES_PER_SECOND + 1:
                    said: dict[str, object] = {"kind": kind, "where": "the others of this second are in the trace file"}
                    self.write(wall_ms, level, "log.shortened", said)
                return
        self.write(wall_ms, level, kind, facts)

    def write(self, wall_ms: int, level: str, event: str, facts: dict[str, object]) -> None:
        """A line that is not a typed event (Python's logging). A stream that is gone stays gone: no line, no error."""
        if self._broken:
            return
        try:
            line: dict[str, object] = {"node": self._node_id, "timestamp": self._iso(wall_ms)}
            for name, value in facts.items():
                line[name] = _plain(value)
            line["event"] = _plain(event)
            self._write(level, line)
        except (OSError, ValueError):
            self._broken = True

    def _iso(self, wall_ms: int) -> str:
        """The second is made into text once: a change of many partitions is thousands of lines."""
        second = wall_ms // 1000
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{wall_ms % 1000:03d}Z"


def _as_json(stream: TextIO) -> Write:
    """Lines as structlog's JSONRenderer would write them, for a quarter of its time: a node writes one for each partition that
    changes its leader."""
    write, flush = stream.write, stream.flush

    def line(level: str, facts: dict[str, object]) -> None:
        facts["level"] = level
        write(_encode(facts) + "\n")
        flush()

    return line


def _as_text(stream: TextIO) -> Write:
    with hidden("rich"):  # 5 MiB and 50 ms of every node, for tracebacks in colour
        import structlog

    logger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=32),
        ],
        wrapper_class=structlog.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    ).bind()

    def line(level: str, facts: dict[str, object]) -> None:
        getattr(logger, level)(facts.pop("event"), **facts)

    return line


QUIET_S: Final = 10
"""So long nothing is said of a gRPC connection after something was: garbage on its port must not fill the log."""


class _LoggingHandler(logging.Handler):
    def __init__(self, sink: LogSink) -> None:
        super().__init__(logging.WARNING)
        self._sink = sink
        self._quiet_until = 0.0
        self._unsaid = 0

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, object] = {"logger": record.name}
        if _is_about_grpc(record):
            self._emit_rarely(record, facts)
            return
        if record.exc_info:
            facts["exception"] = logging.Formatter().formatException(record.exc_info)
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self._sink.write(int(record.created * 1000), level, record.getMessage(), facts)

    def _emit_rarely(self, record: logging.LogRecord, facts: dict[str, object]) -> None:
        """One line without a stack, at most every `QUIET_S`: what a stranger sends is not this node's error. What a handler does
        wrong is traced by the server, with its stack."""
        if record.created < self._quiet_until:
            self._unsaid += 1
            return
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            facts["error"] = f"{type(error).__name__}: {error}"[:500]
        if self._unsaid:
            facts["unsaid"] = self._unsaid
        self._quiet_until, self._unsaid = record.created + QUIET_S, 0
        self._sink.write(int(record.created * 1000), "warning", record.getMessage()[:500], facts)


def _is_about_grpc(record: logging.LogRecord) -> bool:
    """gRPC's own loggers, and asyncio's lines about what gRPC runs on the loop."""
    return record.name.split(".")[0] in ("grpc", "_cython") or (
        record.name == "asyncio" and ("PollerCompletionQueue" in (text := record.getMessage()) or "grpc" in text)
    )


def capture_python_logging(sink: LogSink) -> None:
    """Warnings and errors of libraries (asyncio, grpc) become lines of the same log. Once per process."""
    root = logging.getLogger()
    root.handlers[:] = [_LoggingHandler(sink)]
    root.setLevel(logging.WARNING)
