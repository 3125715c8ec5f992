"""A simulated consumer of the consumer protocol (KIP-848): one heartbeat says what it wants, has and gives up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from kraftlite.broker.handlers.group_offsets import GroupMember
from kraftlite.coordinator.api import ConsumerHeartbeatRequest, ConsumerHeartbeatResult
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.services.groups import BEAT, COMMIT, OFFSET_FETCH, OffsetFetchAsk
from kraftlite.sim.workloads.group_client import LOST, SimMember

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
AGAIN: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Answers after which a member gives everything up and joins anew."""
FATAL: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    }
)


class ConsumerMember(SimMember):
    """The coordinator assigns. `_aim`: the assignment that it was told last; it owns that but for what it cannot name yet."""

    async def live(self) -> None:
        rng = self.rng
        self.member_id, self.epoch = self.new_id(), -1
        self._aim: tuple[tuple[UUID, tuple[int, ...]], ...] = ()
        self._interval_ms = 200
        self._full = True
        self._changed = False
        self._lazy_us = 0
        """The time that it takes to give partitions up, this time."""
        self._assignor = rng.choice((None, None, "uniform", "range"))
        self.regex = rng.choice((None, None, None, "t.*", f"{self.group.name}.*"))
        going_on = True
        while going_on and not self.group.released:
            if self.epoch >= 0:
                await self.pause(1_000 if self._changed else self._interval_ms * 1000)
            if self.group.released:
                return
            if self.epoch > 0 and not self.stopping and rng.randrange(12) == 0 and not await self._do_something():
                return
            going_on = await self._beat()

    def identity(self) -> GroupMember:
        return GroupMember(self.member_id, self.epoch)

    # --- heartbeats

    def _request(self, epoch: int) -> ConsumerHeartbeatRequest:
        full = self._full or epoch == JOIN_EPOCH
        return ConsumerHeartbeatRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=self.group.rebalance_ms if full else None,
            topics=self.topics if full else None,
            regex=(self.regex or "") if full else None,
            server_assignor=self._assignor if full else None,
            owned=self._owned() if full or self._changed else None,
            client_id=self.name,
            client_host="/simulated",
        )

    def _owned(self) -> tuple[tuple[UUID, tuple[int, ...]], ...]:
        found: dict[str, list[int]] = {}
        for tp in sorted(self.owned):
            topic_id = self._ids.get(tp.topic)
            if topic_id is not None:
                found.setdefault(topic_id, []).append(tp.partition)
        return tuple((UUID(topic_id), tuple(indexes)) for topic_id, indexes in found.items())

    @property
    def _ids(self) -> Mapping[str, str]:
        return {} if self.known is None else self.known.topic_ids

    async def _beat(self) -> bool:
        """One heartbeat. Returns whether this life goes on."""
        epoch = max(self.epoch, JOIN_EPOCH)
        told = await self.ask(BEAT, self._request(epoch), 1_000)
        error = None if told is None else told.error
        self._changed = False
        if told is None or error in LOST:
            self._full = True
            await self.backoff()
        elif error is ErrorCode.NONE:
            self._full = False
            await self._take(told.result)
        elif error in AGAIN:
            self.lose()
            self._full = True
        elif error in FATAL:
            return False
        else:
            self._full = True
            await self.backoff()
        return True

    async def _take(self, result: ConsumerHeartbeatResult) -> None:
        self.epoch = result.member_epoch
        self._interval_ms = result.heartbeat_interval_ms
        if result.assignment is not None:
            self._aim = result.assignment
        names = {topic_id: name for name, topic_id in self._ids.items()}
        if any(str(topic_id) not in names for topic_id, _ in self._aim):
            await self.refresh()
            names = {topic_id: name for name, topic_id in self._ids.items()}
        mine = [
            TopicPartition(names[str(topic_id)], index)
            for topic_id, indexes in self._aim
            for index in indexes
            if str(topic_id) in names
        ]
        revoked = [tp for tp in self.owned if tp not in mine]
        gained = [tp for tp in mine if tp not in self.owned]
        if revoked:
            if self._lazy_us > 0:
                self._lazy_us -= self._interval_ms * 1000
                return
            await self.commit({tp: at for tp in revoked if (at := self.owned.get(tp)) is not None})
        if revoked or gained:
            self.owned = {tp: self.owned.get(tp) for tp in mine}
            self._changed = True

    # --- being a member

    async def _do_something(self) -> bool:
        at = self.rng.randrange(12)
        if at == 0:
            await self._leave(LEAVE_EPOCH)
            return False
        if at == 1:
            if self.instance_id is not None and self.rng.randrange(2):
                await self._leave(STATIC_LEAVE_EPOCH)
            return False  # else without a word
        if at == 2:
            await self.rest(self.group.session_ms * self.rng.choice((300, 1_500)))
        elif at in (3, 5):
            changing = f"{self.group.name}-x"
            self.topics = self.rng.choice((self.group.topics, (*self.group.topics[:1], changing), (*self.group.topics, changing)))
            self.regex = self.rng.choice((None, "t.*"))
            self._full = True
        elif at == 4:
            self._lazy_us = self.group.rebalance_ms * self.rng.choice((300, 1_500))
        else:
            await self._be_odd()
        return True

    async def _leave(self, epoch: int) -> None:
        if self.owned:
            await self.commit({tp: at for tp, at in self.owned.items() if at is not None})
        self.owned.clear()
        self._full = self._changed = False
        await self.ask(BEAT, self._request(epoch), 1_000)

    async def _be_odd(self) -> None:
        """Requests of the past, of others, and of nobody."""
        rng = self.rng
        at = rng.randrange(7)
        if at == 0:
            await self.commit(self.some_positions(), epoch=self.epoch - 1)
        elif at == 1:
            await self.commit(self.some_positions(), as_member=self.new_id())
        elif at == 2:
            self.later(self.send_late(COMMIT, self.commit_ask(self.some_positions(), self.member_id, self.epoch)))
        elif at == 3:
            late = replace(self._request(self.epoch), member_epoch=self.epoch, owned=None)
            self.later(self.send_late(BEAT, late))
        elif at == 4:
            member = GroupMember(rng.choice((self.member_id, self.new_id())), self.epoch + rng.choice((-1, 1)))
            ask = OffsetFetchAsk(group_id=self.group.name, partitions=tuple(self.some_positions()), member=member)
            await self.ask(OFFSET_FETCH, ask, 1_000)
        else:
            odd: dict[str, Any] = rng.choice(
                (
                    {"member_id": ""},
                    {"member_epoch": -3},
                    {"member_epoch": self.epoch + 1},
                    {"member_id": self.new_id()},
                    {"server_assignor": "no-such"},
                    {"instance_id": "nobody"},
                    {"member_epoch": JOIN_EPOCH, "member_id": self.new_id(), "instance_id": None, "regex": "("},
                    {"member_epoch": JOIN_EPOCH, "member_id": self.new_id(), "rebalance_timeout_ms": None},
                )
            )
            await self.ask(BEAT, replace(self._request(self.epoch), **odd), 1_000)
