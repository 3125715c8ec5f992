"""The common part of all members of simulated groups: they find their coordinator, read what they own, commit, and get lost.

A member goes through lives: each begins with a join and ends with a leave, a crash that tells nobody, or a refusal for good.
"""

from __future__ import annotations

import abc
import asyncio
import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kraftlite.broker.handlers.group_offsets import NOBODY, GroupMember, PartitionCommit, TopicRef
from kraftlite.coordinator.api import CommitRequest, FetchedOffset
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import REQUEST_TIMEOUT_MS, SimConsumer
from kraftlite.sim.history import History
from kraftlite.sim.services.groups import COMMIT, FIND, OFFSET_FETCH, CommitAsk, FindAsk, OffsetFetchAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

LOST: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Answers after which a client looks for the coordinator again."""
RETRIED: Final = LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR}
LATE_US: Final = 3_000_000


def stamp(member_id: str, generation: int, number: int) -> str:
    """The metadata of a commit: who committed, in which generation or member epoch; `number` makes it unique."""
    return f"{member_id}|{generation}|{number}"


@dataclass(eq=False, slots=True, kw_only=True)
class SimGroup:
    """A group, as its members and its director know it. `cooperative`: of its classic members."""

    name: str
    topics: tuple[str, ...]
    cooperative: bool
    session_ms: int
    rebalance_ms: int
    members: list[SimMember] = field(default_factory=list)
    released: bool = False
    """Everybody may go: the run is over."""

    def live(self) -> list[SimMember]:
        return [it for it in self.members if it.alive]


class SimMember(SimConsumer, abc.ABC):
    """A member of a group. `owned`: what it reads, with its positions; `alive`: it is, or wants to be, a member."""

    def __init__(self, cluster: SimCluster, number: int, history: History, group: SimGroup, instance_id: str | None) -> None:
        super().__init__(cluster, number, f"{group.name}-{number}", history)
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = -1
        """Generation or member epoch; -1 while it is in none."""
        self.topics = group.topics
        self.regex: str | None = None
        self.owned: dict[TopicPartition, int | None] = {}
        """Position None: not known yet."""
        self.alive = False
        self._coordinator: NodeId | None = None
        self._commits = 0
        self._extra: list[asyncio.Task[None]] = []

    # --- life

    async def run_lives(self, gap_us: int) -> None:
        """Until the group is released. After `stopping` no new life begins."""
        reading = asyncio.get_running_loop().create_task(self._read(gap_us), context=self.cluster.outside)
        await self.pause(self.rng.randint(0, 2_000_000))
        while not self.group.released:
            self.alive = True
            await self.live()
            self.alive = False
            self.lose()
            if self.stopping:
                break
            await self.rest(self.rng.choice((50_000, 500_000, 3_000_000)))
        await asyncio.gather(reading, *self._extra)

    @abc.abstractmethod
    async def live(self) -> None:
        """One life, from joining to its end; returns soon after the group is released."""

    def lose(self) -> None:
        """It owns nothing any more, and says nothing about it."""
        self.owned.clear()
        self.epoch = -1

    async def rest(self, us: int) -> None:
        """A pause that the end of the run cuts short."""
        while us > 0 and not self.group.released:
            some = min(us, 500_000)
            await self.pause(some)
            us -= some
            if self.stopping:
                return

    def subscribed(self, name: str) -> bool:
        return name in self.topics or (bool(self.regex) and name.startswith((self.regex or "").removesuffix(".*")))

    # --- the coordinator

    async def ask(self, method: Method[Req, Res], request: Req, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Res | None:
        """The answer of the coordinator; None when there is none."""
        coordinator = await self.find()
        if coordinator is None:
            return None
        try:
            answer = await self.call(coordinator, method, request, timeout_ms)
        except (TransportError, ApiError):
            self._coordinator = None
            return None
        if getattr(answer, "error", ErrorCode.NONE) in LOST:
            self._coordinator = None
        return answer

    async def find(self) -> NodeId | None:
        if self._coordinator is None:
            brokers = [node.node_id for node in self.cluster.brokers]
            try:
                found = await self.call(brokers[self.rng.randrange(len(brokers))], FIND, FindAsk(self.group.name), 1_000)
            except (TransportError, ApiError):
                return None
            self._coordinator = found.result.broker_id if found.error is ErrorCode.NONE else None
        return self._coordinator

    # --- reading and committing

    async def _read(self, gap_us: int) -> None:
        """Fetch from what is owned, and commit now and then, also while heartbeats are under way."""
        while not self.group.released:
            await self.pause(self.rng.randint(1, 2 * gap_us))
            owned = list(self.owned)
            if not owned or self.epoch < 0:
                continue
            tp = owned[self.rng.randrange(len(owned))]
            position = self.owned.get(tp)
            if position is None:
                await self.fetch_positions([tp])
                continue
            position = await self._poll(tp, position)
            if tp in self.owned:
                self.owned[tp] = position
            if self.rng.randrange(3) == 0:
                await self.commit({it: at for it, at in self.owned.items() if at is not None})

    async def fetch_positions(self, partitions: Iterable[TopicPartition]) -> None:
        ask = OffsetFetchAsk(group_id=self.group.name, partitions=tuple(partitions), member=self.identity())
        told = await self.ask(OFFSET_FETCH, ask, 1_000)
        if told is None or told.error is not ErrorCode.NONE:
            return
        fetched: Sequence[FetchedOffset] = told.result
        for it in fetched:
            if it.tp in self.owned and it.error is ErrorCode.NONE:
                self.owned[it.tp] = max(it.offset, 0)

    def identity(self) -> GroupMember:
        """The name under which it fetches offsets."""
        return NOBODY

    async def commit(
        self, positions: Mapping[TopicPartition, int], *, as_member: str | None = None, epoch: int | None = None
    ) -> Any:
        """Commit as itself, or, being confused, as another or in another generation. Returns the errors, None for no answer."""
        if not positions:
            return None
        member_id = self.member_id if as_member is None else as_member
        generation = self.epoch if epoch is None else epoch
        ask = self.commit_ask(positions, member_id, generation)
        told = await self.ask(COMMIT, ask, 2_000)
        errors = None if told is None else told.result
        if errors is not None and any(it in LOST for it in errors):
            self._coordinator = None
        return errors

    def commit_ask(self, positions: Mapping[TopicPartition, int], member_id: str, generation: int) -> CommitAsk:
        self._commits += 1
        base = CommitRequest(
            group_id=self.group.name, generation=generation, member_id=member_id, instance_id=self.instance_id, offsets=()
        )
        metadata = stamp(member_id, generation, self._commits)
        commits = tuple(
            PartitionCommit(TopicRef(tp.topic, None), tp.partition, offset, self.leader_epoch(tp), metadata)
            for tp, offset in positions.items()
        )
        return CommitAsk(base=base, commits=commits)

    def some_positions(self) -> dict[TopicPartition, int]:
        """Positions of what it owns; when it owns nothing, of a partition that exists."""
        found = {tp: at for tp, at in self.owned.items() if at is not None}
        return found or {TopicPartition(self.group.topics[0], 0): 0}

    async def send_late(self, method: Method[Req, Res], request: Req) -> None:
        """Send a request again, seconds after its time."""
        await self.pause(self.rng.randint(1, LATE_US))
        await self.ask(method, request, 1_000)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else."""
        self._extra.append(asyncio.get_running_loop().create_task(work, context=self.cluster.outside))

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
