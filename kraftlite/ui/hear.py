"""Hears one node: by the stream of its `Introspection.Watch`, and where it has none, by asking again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from kraftlite.model.errors import ApiError
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.introspection import (
    NodeStatusRequest,
    NodeStatusResponse,
    ReplicaStatesRequest,
    WatchRequest,
    WatchResponse,
)
from kraftlite.model.messages.methods import NODE_STATUS, REPLICA_STATES, WATCH
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import NotServed, TransportError
from kraftlite.ui.words import NodeWords

TIMEOUT_MS: Final = 1_000
"""A node that says nothing for so long, beyond the time that it was given, is silent."""
LIFE_S: Final = 600.0
"""A stream is opened anew after so long: two clocks drift apart."""
OLD_S: Final = 30.0
"""The time after which a node that had no Watch is asked whether it has one: another version may have been started."""
FULL_S: Final = 2.0
REPLICAS_A_SECOND: Final = 2_000
"""A broker without Watch that has many replicas is asked for them less often: that costs it a hundredth of a core."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Delay:
    """By how much an answer comes later than the quickest one of its stream: who reads late does not take old words for new."""

    def __init__(self) -> None:
        self._least_ms: int | None = None

    def of(self, uptime_ms: int, here_ms: int) -> int:
        """`here_ms`: the monotonic time at which it came."""
        behind = here_ms - uptime_ms
        self._least_ms = behind if self._least_ms is None else min(self._least_ms, behind)
        return behind - self._least_ms


class Hearing:
    """The task that hears one node for as long as it has words."""

    def __init__(self, transport: GrpcTransport, find: Callable[[], NodeWords | None], every_ms: Callable[[], int]) -> None:
        self._transport = transport
        self._find = find
        self._every_ms = every_ms
        self._watch_at = 0.0
        self._replicas_at = 0.0
        self.full_s = FULL_S
        """The time after which a node that has no room for another who watches is asked again whether it has."""
        self.news: Callable[[bool], None] = lambda urgent: None
        """Told whenever the node has said something, and whether it cannot wait."""
        self.lost: Callable[[], None] = lambda: None
        """Told when a stream has ended by itself: perhaps the process has."""

    async def run(self) -> None:
        """Until the node has left the cluster."""
        while (words := self._find()) is not None:
            words.every_ms = self._every_ms()
            if words.process == "stopped" or not words.grpc:
                words.error = words.polled = None
                self._watch_at = 0.0
            else:
                host, _, port = words.grpc.rpartition(":")
                await self._hear(words, Endpoint(host, int(port)))
            await asyncio.sleep(self._every_ms() / 1000)

    async def _hear(self, words: NodeWords, peer: Endpoint) -> None:
        try:
            if time.monotonic() < self._watch_at:
                await self._ask(words, peer)
                return
            try:
                await self._watch(words, peer)
            except NotServed:
                self._without(words, "it is of a version without Introspection.Watch", OLD_S)
            except ApiError as error:
                self._without(words, str(error)[:200], self.full_s)
        except (TransportError, ApiError) as error:
            urgent = words.error is None
            words.fail(str(error)[:300])
            self.lost()
            self.news(urgent)

    def _without(self, words: NodeWords, why: str, for_s: float) -> None:
        words.polled, self._watch_at = why, time.monotonic() + for_s

    # --- the stream

    async def _watch(self, words: NodeWords, peer: Endpoint) -> None:
        """Until it has lasted long enough, or the node is to be heard more or less often. Raises TransportError, ApiError."""
        every_ms, began, delay, rtt_ms = self._every_ms(), time.monotonic(), Delay(), None
        request = WatchRequest(interval_ms=every_ms)
        words.begin()
        async with aclosing(self._transport.watch(peer, WATCH, request, TIMEOUT_MS + every_ms)) as answers:
            async for answer in answers:
                here_s = time.monotonic()
                rtt_ms = round(1000 * (here_s - began)) if rtt_ms is None else rtt_ms
                words.polled = None
                self.news(_take(words, answer, now_ms() - delay.of(answer.uptime_ms, round(1000 * here_s)), rtt_ms))
                moved = words.grpc != f"{peer.host}:{peer.port}" or self._find() is not words
                if moved or self._every_ms() != every_ms or here_s - began > LIFE_S:
                    return

    # --- without one

    async def _ask(self, words: NodeWords, peer: Endpoint) -> None:
        began = time.monotonic()
        status = await self._transport.call(peer, NODE_STATUS, NodeStatusRequest(), TIMEOUT_MS)
        _check(words, status)
        words.hear_status(status, now_ms(), round(1000 * (time.monotonic() - began)))
        if "broker" in words.roles and time.monotonic() >= self._replicas_at:
            answer = await self._transport.call(peer, REPLICA_STATES, ReplicaStatesRequest(topics=None), TIMEOUT_MS)
            words.hear_replicas(answer.replicas, now_ms())
            self._replicas_at = time.monotonic() + max(0.0, len(answer.replicas) / REPLICAS_A_SECOND)
        self.news(True)


def _check(words: NodeWords, status: NodeStatusResponse) -> None:
    """Another node may listen at the address by now: its words are not those of this one. Raises TransportError."""
    if status.node_id != words.id:
        raise TransportError(f"node {status.node_id} answers there")


def _take(words: NodeWords, answer: WatchResponse, at_ms: int, rtt_ms: int) -> bool:
    status, urgent = answer.status or words.status, False
    if status is not None:
        _check(words, status)
        urgent = words.hear_status(status, at_ms, rtt_ms)
    if "broker" in words.roles:
        looked_ms = None if answer.looked_ms < 0 else at_ms - (answer.uptime_ms - answer.looked_ms)
        urgent = words.hear_news(answer.changed, answer.gone, looked_ms, answer.replica_count) or urgent
    return urgent
