"""Hears every node of a cluster, and keeps what each one said last.

Each node has a task of its own (`ui/hear`), so that one that is silent holds up nobody. While nobody
watches, the nodes tell less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from kraftlite.local.state import LocalCluster, LocalError, LocalNode
from kraftlite.obs.faults import Fault
from kraftlite.obs.recording import LIVE, WALL, Header, Recorder
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.ui.clients import Clients
from kraftlite.ui.fold import Judge, state_of
from kraftlite.ui.follow import Record
from kraftlite.ui.hear import Hearing, now_ms
from kraftlite.ui.kept import Kept, Scribe
from kraftlite.ui.reports import OWN, add_clients
from kraftlite.ui.whom import InDirectory, Whom
from kraftlite.ui.words import NodeWords

WATCHED_MS: Final = 200
"""The time between two looks at the processes and the files of the cluster while somebody watches, and between two moments of a
recording."""
NEWS_MS: Final = 100
"""The time after which a node tells what is new, while somebody watches."""
IDLE_MS: Final = 1_000
_DOORS: Final = 16
"""Threads that ask for the states of nodes in containers, of which a frozen one keeps its thread for seconds."""


class News:
    """News that have come since one reader took the state."""

    def __init__(self) -> None:
        self.some = asyncio.Event()
        self.urgent = asyncio.Event()

    def clear(self) -> None:
        self.some.clear()
        self.urgent.clear()


class Watcher:
    """The words of all nodes, the record of what happened, and the state that follows from both."""

    def __init__(self, whom: Whom, transport: GrpcTransport) -> None:
        self.whom = whom
        self.cluster: LocalCluster = whom.look()
        self.nodes: dict[int, NodeWords] = {}
        self.record = Record()
        self.clients = Clients(whom.data_dir)
        self.faults: list[Fault] = []
        self.gone: str | None = None
        """The reason why the cluster's description cannot be read any more; None while it can."""
        self.watched = False
        self.recorder: Recorder | None = None
        """Gets all that is said and recorded from here on, and the events that are known already."""
        self._scribe = Scribe()
        self.kept: Kept | None = None
        """Keeps what was said lately, where somebody may want to save it."""
        self.late_ms = 0
        """By how much the last turn of this process came too late."""
        self.judge = Judge()
        self._transport = transport
        self._wake = asyncio.Event()
        self.readers: set[News] = set()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._doors = ThreadPoolExecutor(_DOORS, thread_name_prefix="doors")
        self._states: dict[int, Future[str]] = {}
        self._take(self.cluster)

    @property
    def every_ms(self) -> int:
        return WATCHED_MS if self.watched or self.recorder is not None else IDLE_MS

    def news_ms(self) -> int:
        """Return how often a node is to tell what is new."""
        return NEWS_MS if self.watched else self.every_ms

    def tell(self, urgent: bool = True) -> None:
        """Tell all readers that there are news; not urgent are those of offsets."""
        for reader in self.readers:
            reader.some.set()
            if urgent:
                reader.urgent.set()

    # --- the nodes and their processes

    def look(self) -> None:
        """Read the description of the cluster and the state of each process. Blocks for a moment: it is short files of /proc.
        Nodes in containers are asked on threads, as a frozen one does not answer."""
        try:
            self._take(self.whom.look())
            self.gone = None
        except LocalError as error:
            self.gone = str(error)
            for words in self.nodes.values():
                words.process = "stopped"

    def _take(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        before = {words.id: words.process for words in self.nodes.values()}
        for node in cluster.nodes:
            words = self.nodes.get(node.id)
            if words is None:
                words = self.nodes[node.id] = NodeWords(id=node.id, roles=node.roles)
            words.kafka, words.grpc = node.kafka, node.grpc
            words.process = self._knocked(node, words.process) if node.contained else node.state
        for gone in [node_id for node_id in self.nodes if all(node.id != node_id for node in cluster.nodes)]:
            del self.nodes[gone]
        if before != {words.id: words.process for words in self.nodes.values()}:
            self.tell()

    def _knocked(self, node: LocalNode, before: str) -> str:
        """The state of a node in a container when it was asked for last; it is asked for again."""
        asked = self._states.get(node.id)
        if asked is not None and not asked.done():
            return before
        self._states[node.id] = self._doors.submit(attrgetter("state"), node)
        return before if asked is None else asked.result()

    async def run(self) -> None:
        """Until it is cancelled."""
        finding = asyncio.create_task(self.whom.find(self._transport))
        try:
            while True:
                began = time.monotonic()
                self.look()
                for node_id in self.nodes:
                    if node_id not in self._tasks or self._tasks[node_id].done():  # done: it had left the cluster
                        self._tasks[node_id] = asyncio.create_task(self._hear(node_id))
                await asyncio.to_thread(self._read)
                if self.kept is not None:
                    self.kept.turn(header_of(self.cluster), self, now_ms())
                if self.recorder is not None:
                    self._scribe.write(self.recorder, self, now_ms())
                await self._pause(max(0.02, self.every_ms / 1000 - (time.monotonic() - began)))
        finally:
            tasks = [finding, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Look at once: somebody has done something."""
        self._wake.set()

    async def _pause(self, wait_s: float) -> None:
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        self._wake.clear()
        self.late_ms = max(0, round(1000 * (time.monotonic() - began - wait_s)))

    def _read(self) -> None:
        version = self.record.version
        self.record.read(self.whom.files(self.cluster))
        if self.record.version != version:
            self.faults = self.record.history().faults

    def close(self) -> None:
        self._doors.shutdown(wait=False, cancel_futures=True)
        self.record.close()

    def finish(self) -> None:
        """End the recording with what is new since the last turn."""
        if self.recorder is not None:
            self._read()
            self._scribe.write(self.recorder, self, now_ms())
            self.recorder.end(now_ms(), "stopped")

    def saved(self) -> bytes:
        """A recording of what was said lately, with the events that are known."""
        kept = self.kept or Kept()
        return kept.recording(header_of(self.cluster), self.record.since(0)[1])

    def words_of_late(self) -> bytes:
        """The same without events."""
        return (self.kept or Kept()).recording(header_of(self.cluster), [])

    async def _hear(self, node_id: int) -> None:
        hearing = Hearing(self._transport, lambda: self.nodes.get(node_id), self.news_ms)
        hearing.news, hearing.lost = self.tell, self.hurry
        await hearing.run()

    # --- the state

    def partitions(self, at_ms: int) -> dict[str, Any]:
        return self.judge.partitions(self.sorted_nodes(), at_ms)

    def sorted_nodes(self) -> list[NodeWords]:
        return [self.nodes[node_id] for node_id in sorted(self.nodes)]

    def state(self) -> dict[str, Any]:
        at_ms = now_ms()
        parts = self.partitions(at_ms)
        found = state_of(self.sorted_nodes(), parts, self.faults, at_ms, self.judge.memory)
        running = OWN if self.clients.running else None
        add_clients(found, self.clients, at_ms, running)
        found["client"] = self.clients.about()
        found["recorded"] = self.record.version
        found["gone"] = self.gone or self.whom.unheard or self.record.unread
        found["self"] = {"late_ms": self.late_ms, "every_ms": self.every_ms}
        return found


def header_of(cluster: LocalCluster) -> Header:
    """The header of a recording of a live cluster."""
    return Header(source=LIVE, clock=WALL, cluster_id=cluster.cluster_id, every_ms=WATCHED_MS, title="")


@asynccontextmanager
async def watching(whom: Whom) -> AsyncIterator[Watcher]:
    """A watcher with the connections to the nodes. Raises LocalError when there is no cluster."""
    async with whom.connect() as transport:
        watcher = Watcher(whom, transport)
        try:
            yield watcher
        finally:
            await watcher.clients.close()
            watcher.close()


async def record(data_dir: Path, write: Callable[[bytes], object], *, max_bytes: int, for_s: float | None) -> Recorder:
    """Record the cluster in a directory for a time (None: until it is cancelled), or until the recording is full."""
    async with watching(InDirectory(data_dir)) as watcher:
        recorder = watcher.recorder = Recorder(header_of(watcher.cluster), write, max_bytes=max_bytes)
        running = asyncio.create_task(watcher.run())
        try:
            async with asyncio.timeout(for_s):
                while not recorder.full and not running.done():
                    await asyncio.wait({running}, timeout=WATCHED_MS / 1000)
        except TimeoutError:
            pass
        finally:
            watcher.finish()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        return recorder
