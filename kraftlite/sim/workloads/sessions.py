"""A consumer that reads every partition of the shape over one fetch session with each leader (KIP-227), as real consumers do.

It names what has changed and is told what has changed. Nothing that is there may be kept from it: when the faults are over it
must come to the end of every partition. A third of the seeds of the theme have one.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kraftlite.broker.handlers.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionKey, next_epoch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchResult
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.checkers.base import LivenessViolation
from kraftlite.sim.client import SimClient, records_of
from kraftlite.sim.history import Consumed, History
from kraftlite.sim.service import OFFSETS, OffsetAsk
from kraftlite.sim.services.sessions import SESSION_FETCH, SessionAnswer, SessionAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 220
ONE_SEED_IN: Final = 3
END_LIMIT_US: Final = 30_000_000
LATEST: Final = -1
EARLIEST: Final = -2


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


class SessionConsumer(SimClient):
    """Reads at the leaders, up to the HW. Now and then it begins a session anew, or names an epoch of it that is not its turn."""

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        """LivenessViolation when it does not come to the end of every partition."""
        self._positions = dict.fromkeys(partitions, 0)
        self._sessions: dict[NodeId, _Session] = {}
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            leader = await self.leader(partitions[self.rng.randrange(len(partitions))])
            await (self.refresh() if leader is None else self._poll(leader))
        end_us = self.now_us() + END_LIMIT_US
        while behind := await self._behind():
            if self.now_us() > end_us:
                raise LivenessViolation("sessions", f"{self.name} is at {behind}: still so {END_LIMIT_US} us after all was well")
            await self.refresh()
            for tp in behind:
                leader = await self.leader(tp)
                if leader is not None:
                    await self._poll(leader)
            await self.pause(100_000)

    async def _behind(self) -> dict[TopicPartition, int]:
        """The partitions, with the position, whose end it has not reached or does not know."""
        found = {}
        for tp, position in self._positions.items():
            leader = await self.leader(tp)
            try:
                last = None if leader is None else await self.call(leader, OFFSETS, OffsetAsk(tp, LATEST))
            except (TransportError, ApiError):
                last = None
            if last is None or ErrorCode(last.error) is not ErrorCode.NONE or position < last.offset:
                found[tp] = position
        return found

    # --- one fetch

    async def _poll(self, broker: NodeId) -> None:
        rng = self.rng
        session = self._sessions.get(broker)
        if session is None or rng.randrange(40) == 0:
            session = self._sessions[broker] = _Session(
                rng.randrange(2) == 0, NO_SESSION if session is None else session.session_id
            )
        wanted = {}
        for tp, position in self._positions.items():
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
                self._read(broker, result)
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[result.tp] = await self._earliest(broker, result.tp)
                lost = True
            else:
                lost = True
        if lost:
            await self.backoff()
            await self.refresh()

    async def _earliest(self, broker: NodeId, tp: TopicPartition) -> int:
        """The beginning of a partition; 0 when the broker does not say."""
        try:
            told = await self.call(broker, OFFSETS, OffsetAsk(tp, EARLIEST))
        except (TransportError, ApiError):
            return 0
        return told.offset if ErrorCode(told.error) is ErrorCode.NONE else 0

    def _read(self, broker: NodeId, result: FetchResult) -> None:
        tp = result.tp
        found = records_of(bytes(result.records), self._positions[tp])
        if not found:
            return
        self._positions[tp] = found[-1][0] + 1
        self.history.consumed.append(
            Consumed(
                client=self.name,
                tp=tp,
                topic_id=self.topic_id(tp),
                broker=broker,
                at_us=self.now_us(),
                hw=result.hw,
                records=found,
            )
        )
