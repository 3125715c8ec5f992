"""A consumer that reads every partition of the shape over one fetch session with each leader (KIP-227), as real consumers do.

It names what has changed and is told what has changed. Nothing that is there may be kept from it: when the faults are over it
must come to the end of every partition. A third of the seeds of the theme have one.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final
from uuid import UUID

from kraftlite.broker.handlers.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionKey, next_epoch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.sessions import SESSION_FETCH, SessionAnswer, SessionAsk
from kraftlite.sim.workloads.reading import EndReader

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 220
ONE_SEED_IN: Final = 3


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    rng = random.Random(f"sessions/{cluster.seed}")
    if rng.randrange(ONE_SEED_IN) == 0:
        it = SessionConsumer(cluster, NUMBER, "sessions", history)
        yield it, it.run(partitions, rng.choice((60_000, 200_000)))


@dataclass(slots=True)
class _Session:
    """A session as its broker was told of it. `by_id`: partitions go by topic id."""

    by_id: bool
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    told: dict[SessionKey, tuple[int, int]] = field(default_factory=dict)
    """Key → (leader epoch, offset)."""


class SessionConsumer(EndReader):
    """Reads at the leaders, up to the HW. Now and then it begins a session anew, or names an epoch of it that is not its turn."""

    kind: ClassVar[str] = "sessions"

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self._sessions: dict[NodeId, _Session] = {}

    # --- one fetch

    async def poll(self, tp: TopicPartition, leader: NodeId) -> None:
        await self._fetch(leader)

    async def _fetch(self, broker: NodeId) -> None:
        rng = self.rng
        session = self._sessions.get(broker)
        if session is None or rng.randrange(40) == 0:
            session = self._sessions[broker] = _Session(
                rng.randrange(2) == 0, NO_SESSION if session is None else session.session_id
            )
        wanted = {}
        for tp, position in self.positions.items():
            key = self._key(tp, broker, session)
            if key is not None:
                wanted[key] = self._at(tp, position)
        changed = tuple((key, *at) for key, at in wanted.items() if session.told.get(key) != at)
        forgotten = tuple(key for key in session.told if key not in wanted)
        ask = SessionAsk(
            session_id=session.session_id,
            session_epoch=session.epoch if rng.randrange(40) else rng.choice((FINAL_EPOCH, session.epoch + 1, 7)),
            by_id=session.by_id if rng.randrange(40) else not session.by_id,
            wanted=changed,
            forgotten=forgotten,
            max_wait_ms=rng.choice((0, 100, 500)),
            max_bytes=1 << 20 if self.stopping else rng.choice((300, 3_000, 1 << 20)),
            slow_ms=0 if self.stopping else rng.choice((0, 0, 0, 20, 1_000)),
        )
        try:
            told = await self.call(broker, SESSION_FETCH, ask)
        except (TransportError, ApiError):
            del self._sessions[broker]
            await self.refresh()
            return
        if ask.session_epoch != session.epoch or told.error is not ErrorCode.NONE or told.session_id == NO_SESSION:
            del self._sessions[broker]
        else:
            session.session_id, session.epoch = told.session_id, next_epoch(session.epoch)
            session.told = wanted
        await self._take(broker, told)

    def _key(self, tp: TopicPartition, broker: NodeId, session: _Session) -> SessionKey | None:
        """The name that a partition which the broker leads has in the session; None for others."""
        known = None if self.known is None else self.known.leaders.get(tp)
        if known is None or known[0] != broker:
            return None
        topic_id = self.topic_id(tp)
        if not session.by_id or topic_id is None:
            return SessionKey(tp.topic, None, tp.partition)
        return SessionKey(None, UUID(topic_id), tp.partition)

    def _at(self, tp: TopicPartition, position: int) -> tuple[int, int]:
        epoch = self.leader_epoch(tp)
        return -1 if epoch is None else epoch, position

    async def _take(self, broker: NodeId, told: SessionAnswer) -> None:
        lost = False
        for _key, result in told.items:
            code = ErrorCode(result.error)
            if code is ErrorCode.NONE:
                self.take(broker, result)
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self.positions[result.tp] = await self.earliest(broker, result.tp)
                lost = True
            else:
                lost = True
        if lost:
            await self.backoff()
            await self.refresh()
