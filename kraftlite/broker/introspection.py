"""The introspection service: what a node is and holds, at once or as it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.introspection import (
    GoneReplica,
    NodeStatusRequest,
    NodeStatusResponse,
    ReplicaState,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    WatchRequest,
    WatchResponse,
)
from kraftlite.model.messages.methods import NODE_STATUS, REPLICA_STATES, WATCH
from kraftlite.runtime.ports import Clock, Handlers, route, route_stream

if TYPE_CHECKING:  # a mere controller does without the data plane
    from kraftlite.replication.states import Looks

MAX_WATCHES: Final = 8
"""Streams of one node at a time."""
MIN_INTERVAL_MS: Final = 50
MAX_INTERVAL_MS: Final = 60_000
QUIET_MS: Final = 400
"""The time after which a node that has nothing new says at least that it is there."""


class Watch:
    """The answers to one who watches: each is made when the one before was taken, and nothing waits for a slow reader.
    Whatever changed in between is in the next answer once, as it is then."""

    def __init__(
        self,
        status: Callable[[], NodeStatusResponse],
        looks: Callable[[], Looks | None],
        clock: Clock,
        interval_ms: int,
        over: Callable[[], None],
    ) -> None:
        self._status = status
        self._make_looks = looks
        self._looks: Looks | None = None
        self._clock = clock
        self._interval_ms = interval_ms
        self._over: Callable[[], None] | None = over
        self._began_ms = self._looked_ms = self._said_ms = clock.now_ms()
        self._told: NodeStatusResponse | None = None

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchResponse:
        """Return the news as soon as there are any; after a while, that there are none."""
        if self._told is None:
            return self._answer()
        while True:
            now_ms = self._clock.now_ms()
            await self._clock.sleep(max(1, self._looked_ms + self._interval_ms - now_ms))
            answer = self._answer()
            if answer.status is not None or answer.changed or answer.gone or self._looked_ms - self._said_ms >= QUIET_MS:
                self._said_ms = self._looked_ms
                return answer

    async def aclose(self) -> None:
        """Give the place free. Idempotent."""
        over, self._over = self._over, None
        if over is not None:
            over()

    def _answer(self) -> WatchResponse:
        now_ms, status = self._clock.now_ms(), self._status()
        since_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        known, self._told = self._told, status
        looks = self._looks = self._looks or self._make_looks()
        changed, gone = ([], []) if looks is None else looks.look(now_ms - self._began_ms, since_ms)
        return WatchResponse(
            uptime_ms=now_ms - self._began_ms,
            status=None if status == known else status,
            changed=tuple(changed),
            gone=tuple(GoneReplica(topic=tp.topic, partition=tp.partition) for tp in gone),
            looked_ms=-1 if looks is None else looks.whole_ms,
            replica_count=0 if looks is None else looks.count,
        )


class Introspection:
    """Read-only, answered at once whatever state the node is in. A node without the broker role holds no replicas."""

    def __init__(
        self,
        status: Callable[[], NodeStatusResponse],
        replicas: Callable[[tuple[str, ...] | None], tuple[ReplicaState, ...]],
        looks: Callable[[], Looks | None],
        clock: Clock,
    ) -> None:
        self._status = status
        self._replicas = replicas
        self._looks = looks
        self._clock = clock
        self.watches = 0
        """Streams under way."""

    def handlers(self) -> Handlers:
        return dict(
            (
                route(NODE_STATUS, self._node_status),
                route(REPLICA_STATES, self._replica_states),
                route_stream(WATCH, self._watch),
            )
        )

    async def _node_status(self, request: NodeStatusRequest) -> NodeStatusResponse:
        return self._status()

    async def _replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse:
        return ReplicaStatesResponse(replicas=self._replicas(request.topics))

    async def _watch(self, request: WatchRequest) -> Watch:
        """Nobody has to be answered at once here, so there are only so many: THROTTLING_QUOTA_EXCEEDED."""
        if not MIN_INTERVAL_MS <= request.interval_ms <= MAX_INTERVAL_MS:
            message = f"interval_ms {request.interval_ms}: allowed is {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if self.watches >= MAX_WATCHES:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{MAX_WATCHES} watch this node already")
        self.watches += 1
        return Watch(self._status, self._looks, self._clock, request.interval_ms, self._left)

    def _left(self) -> None:
        self.watches -= 1
