"""Records an embedded cluster in memory, as a live one is recorded into a file."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.obs.explain_history import HOT
from kraftlite.obs.recording import EMBEDDED, WALL, Header, Recorder
from kraftlite.runtime.trace import TraceEvent
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.real_time_loop import RealTimeLoop
from kraftlite.simhost.recorder import EVERY_MS, HostRecorder

MAX_BYTES: Final = 16 << 20
MAX_EVENTS: Final = 3_000
"""Events from before the recording that are in it, too: who led when it began."""


class ClusterRecorder:
    """All methods run on the cluster's loop. `begin` starts a recording, and may be called again."""

    def __init__(
        self,
        loop: RealTimeLoop,
        outside: contextvars.Context,
        hosts: Mapping[int, SimHost],
        cluster_id: str,
        wall_ms: Callable[[], int],
    ) -> None:
        """`outside`: the context of what is no node's."""
        self._loop, self._outside, self._all = loop, outside, hosts
        self._cluster_id, self._now_ms = cluster_id, wall_ms
        self._before: deque[tuple[int, SimHost, TraceEvent]] = deque(maxlen=MAX_EVENTS)
        self._lines: list[bytes] = []
        self._hosts: HostRecorder | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False

    def begin(self) -> None:
        lines: list[bytes] = []
        self._lines = lines
        header = Header(source=EMBEDDED, clock=WALL, cluster_id=self._cluster_id, every_ms=EVERY_MS)
        self._hosts = HostRecorder(Recorder(header, lines.append, max_bytes=MAX_BYTES))
        for ms, node, event in self._before:
            self._hosts.event(ms, node, event)
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    def event(self, node: SimHost, event: TraceEvent) -> None:
        ms = self._now_ms()
        if event.event not in HOT:
            self._before.append((ms, node, event))
        if self._hosts is None:
            return
        self._hosts.event(ms, node, event)
        if self._hosts.pending and not self._soon:
            self._soon = True
            self._loop.call_soon(self._step, context=self._outside)

    def made(self) -> bytes:
        """The recording so far, with how the cluster is now."""
        assert self._hosts is not None
        self._hosts.look(self._now_ms(), self._all.values())
        return b"".join(self._lines)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._hosts = None

    def _step(self) -> None:
        self._soon = False
        if self._hosts is not None:
            self._hosts.step(self._now_ms(), self._all.values())

    def _tick(self) -> None:
        if self._hosts is not None:
            self._hosts.look(self._now_ms(), self._all.values())
            self._timer = self._loop.call_later(EVERY_MS / 1000, self._tick, context=self._outside)
