"""Connections between nodes. Single calls are not traced: they are the hot path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcListening(TraceEvent):
    event: ClassVar[str] = "rpc.listening"
    endpoint: str
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcStreamOpened(TraceEvent):
    event: ClassVar[str] = "rpc.stream_opened"
    level: ClassVar[str] = "debug"
    peer: str
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcStreamLost(TraceEvent):
    """`outstanding` calls ended with an error."""

    event: ClassVar[str] = "rpc.stream_lost"
    peer: str
    method: str
    outstanding: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequestFailed(TraceEvent):
    """A handler broke on one request; its caller was told so. The node goes on: no state was touched (ADR 5)."""

    event: ClassVar[str] = "rpc.request_failed"
    level: ClassVar[str] = "error"
    method: str
    error: str
    trace: str
