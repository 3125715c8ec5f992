"""A simulated consumer of the classic protocol: it joins, syncs, beats, and joins again when told to (KIP-62, KIP-429)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kraftlite.coordinator.api import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    Protocol,
    SyncRequest,
)
from kraftlite.coordinator.consumer_protocol import (
    CONSUMER,
    Subscription,
    build_assignment,
    build_subscription,
    parse_assignment,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import REQUEST_TIMEOUT_MS
from kraftlite.sim.services.groups import COMMIT, HEARTBEAT, JOIN, LEAVE, SYNC
from kraftlite.sim.workloads.group_assignors import by_topic, deal
from kraftlite.sim.workloads.group_client import LOST, SimMember

EAGER: Final = (("range",), ("range", "roundrobin"), ("roundrobin", "range"))
COOPERATIVE: Final = "cooperative-sticky"
FATAL: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Answers that end a life."""


class ClassicMember(SimMember):
    """Eager: gives up everything before it joins again. Cooperative: only what the new assignment takes away."""

    async def live(self) -> None:
        rng = self.rng
        self.member_id, self.epoch = "", -1
        self.leads = False
        self._sizes: dict[str, int] = {}
        self._names = rng.choice(EAGER)
        self._fresh_ids = rng.randrange(4) > 0
        self._skips = rng.randrange(2) == 0
        beat_us = rng.choice((100_000, 200_000, self.group.session_ms * 1000 // 3))
        while not self.group.released:
            if self.epoch < 0:
                going_on = await self._join()
            else:
                going_on = await self._beat(beat_us)
            if not going_on:
                return

    # --- joining

    async def _join(self) -> bool:
        """Try to join, and return whether this life goes on."""
        if not self.group.cooperative:
            await self._give_up_all()
        request = self._request()
        result = await self.ask(JOIN, request, self.group.rebalance_ms + REQUEST_TIMEOUT_MS)
        error = None if result is None else result.error
        if result is None or error in LOST or error is ErrorCode.REBALANCE_IN_PROGRESS:
            await self.backoff()
        elif error is ErrorCode.NONE:
            self.member_id = result.member_id
            return await self._sync(result)
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.lose()
            self.member_id = ""
        elif error in FATAL:
            return False
        else:
            await self.backoff()
        return True

    async def _give_up_all(self) -> None:
        if self.owned and self.epoch >= 0:
            await self.commit({tp: at for tp, at in self.owned.items() if at is not None})
        self.owned.clear()

    def _request(self) -> JoinRequest:
        owned = by_topic(list(self.owned)) if self.group.cooperative else ()
        metadata = build_subscription(Subscription(3 if self.group.cooperative else 1, self.topics, owned))
        names = (COOPERATIVE,) if self.group.cooperative else self._names
        return JoinRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/simulated",
            session_timeout_ms=self.group.session_ms,
            rebalance_timeout_ms=self.group.rebalance_ms,
            protocol_type=CONSUMER,
            protocols=tuple(Protocol(name, metadata) for name in names),
            require_known_member_id=self._fresh_ids and self.instance_id is None,
            can_skip_assignment=self._skips,
        )

    async def _sync(self, joined: JoinResult) -> bool:
        assignments: tuple[tuple[str, bytes], ...] = ()
        self.leads = joined.leader_id == joined.member_id
        if self.leads and not joined.skip_assignment:
            await self.refresh()
            self._sizes = self.sizes()
            dealt = deal(joined.members, self._sizes, cooperative=self.group.cooperative)
            assignments = tuple((member_id, build_assignment(1, by_topic(list(mine)))) for member_id, mine in dealt.items())
        elif self.leads:
            self._sizes = self.sizes()
        request = SyncRequest(
            group_id=self.group.name,
            generation=joined.generation,
            member_id=joined.member_id,
            instance_id=self.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        result = await self.ask(SYNC, request, self.group.rebalance_ms + REQUEST_TIMEOUT_MS)
        error = None if result is None else result.error
        if result is not None and error is ErrorCode.NONE:
            self.epoch = joined.generation
            self._take(result.assignment)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID or error is ErrorCode.ILLEGAL_GENERATION:
            self.lose()
            self.member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
        elif error in FATAL:
            return False
        else:
            await self.backoff()
        return True

    def _take(self, data: bytes) -> None:
        """Take an assignment over; a cooperative member that loses something by it joins again."""
        found = parse_assignment(data)
        assert found is not None, "leaders and coordinators write readable assignments"
        mine = [TopicPartition(topic, index) for topic, indexes in found.topics for index in indexes]
        revoked = [tp for tp in self.owned if tp not in mine]
        self.owned = {tp: self.owned.get(tp) for tp in mine}
        if revoked and self.group.cooperative:
            self.epoch = -1

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for tp in () if self.known is None else self.known.leaders:
            found[tp.topic] = found.get(tp.topic, 0) + 1
        return found

    # --- being a member

    async def _beat(self, beat_us: int) -> bool:
        await self.pause(self.rng.randint(beat_us // 2, beat_us))
        if self.group.released:
            return True
        if not self.stopping and self.rng.randrange(12) == 0:
            going_on = await self._do_something()
            if not going_on or self.epoch < 0:
                return going_on
        if self.leads and await self._topics_changed():
            self.epoch = -1
            return True
        request = HeartbeatRequest(
            group_id=self.group.name, generation=self.epoch, member_id=self.member_id, instance_id=self.instance_id
        )
        told = await self.ask(HEARTBEAT, request, 1_000)
        error = None if told is None else told.error
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            if not self.group.cooperative:
                await self._give_up_all()
            self.epoch = -1
        elif error is ErrorCode.UNKNOWN_MEMBER_ID or error is ErrorCode.ILLEGAL_GENERATION:
            self.lose()
            self.member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
        return error not in FATAL

    async def _topics_changed(self) -> bool:
        """A leader looks for partitions that nobody has been assigned, or that are gone."""
        if self.rng.randrange(4) == 0:
            await self.refresh()
        subscribed = {topic for it in self.group.live() for topic in it.topics}
        now = self.sizes()
        return any(now.get(topic, 0) != self._sizes.get(topic, 0) for topic in sorted(subscribed))

    async def _do_something(self) -> bool:
        """Do one of the things that members do beside reading, and return whether this life goes on."""
        at = self.rng.randrange(10)
        if at == 0:
            await self._leave()
            return False
        if at == 1:
            return False  # without a word
        if at == 2:
            await self.rest(self.group.session_ms * self.rng.choice((300, 1_500)))
        elif at == 3:
            self.topics = self.rng.choice(
                (self.group.topics, self.group.topics[:1], (*self.group.topics, f"{self.group.name}-x"))
            )
            self.epoch = -1
        else:
            await self._be_odd()
        return True

    async def _leave(self) -> None:
        """Static members are removed by an administrator, who knows their instance id only."""
        await self._give_up_all()
        static = self.instance_id is not None
        member_id = "" if static and self.rng.randrange(2) else self.member_id
        leaving = LeavingMember(member_id, self.instance_id, self.rng.choice((None, "simulated")))
        await self.ask(LEAVE, LeaveRequest(group_id=self.group.name, members=(leaving,)), 1_000)

    async def _be_odd(self) -> None:
        """Requests of the past, of others, and of nobody."""
        rng, name = self.rng, self.group.name
        stranger = f"{self.name}-{self.new_id()}"
        at = rng.randrange(11)
        if at == 0:
            ask = HeartbeatRequest(
                group_id=name, generation=self.epoch - 1, member_id=self.member_id, instance_id=self.instance_id
            )
            await self.ask(HEARTBEAT, ask, 1_000)
        elif at == 1:
            await self.ask(
                HEARTBEAT, HeartbeatRequest(group_id=name, generation=self.epoch, member_id=stranger, instance_id=None), 1_000
            )
        elif at == 2:
            await self.commit(self.some_positions(), epoch=self.epoch - 1)
        elif at == 3:
            await self.commit(self.some_positions(), as_member=stranger)
        elif at == 4:
            self.later(self.send_late(COMMIT, self.commit_ask(self.some_positions(), self.member_id, self.epoch)))
        elif at == 5:
            self.later(self.send_late(JOIN, self._request()))
        elif at == 6:
            leaving = (LeavingMember(stranger, None), LeavingMember("", "nobody"))
            await self.ask(LEAVE, LeaveRequest(group_id=name, members=leaving), 1_000)
        elif at == 7:
            odd = rng.choice(({"protocol_type": "connect"}, {"session_timeout_ms": 1}, {"protocols": ()}, {"group_id": ""}))
            await self.ask(JOIN, replace(self._request(), member_id="", instance_id=None, **odd), 1_000)
        elif at in (8, 9):
            await self._take_an_id()
        else:
            request = SyncRequest(
                group_id=name,
                generation=self.epoch - rng.randrange(2),
                member_id=self.member_id,
                instance_id=self.instance_id,
                protocol_type=rng.choice((None, CONSUMER, "connect")),
                protocol_name=rng.choice((None, "other")),
                assignments=(),
            )
            await self.ask(SYNC, request, 1_000)

    async def _take_an_id(self) -> None:
        """Have an id given out for one more member, who never joins: it says that it leaves, or the id is forgotten by itself."""
        request = replace(self._request(), member_id="", instance_id=None, require_known_member_id=True)
        result = await self.ask(JOIN, request, 1_000)
        if result is not None and result.error is ErrorCode.MEMBER_ID_REQUIRED and self.rng.randrange(2):
            leaving = (LeavingMember(result.member_id, None),)
            await self.ask(LEAVE, LeaveRequest(group_id=self.group.name, members=leaving), 1_000)
