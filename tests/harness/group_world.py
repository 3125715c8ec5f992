"""A shard of groups with a clock moved by hand and a log in memory: what members ask, and what they are answered."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from kraftlite.coordinator.api import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    EndRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    OffsetToCommit,
    Protocol,
    Request,
    SyncRequest,
)
from kraftlite.coordinator.classic.group import Group
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.effects import Append, Output
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.coordinator.core.shards import GoOn, Late
from kraftlite.coordinator.shard_core import Asked, Event, GroupShard, Tick, TopicsDeleted, Written
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.runtime.trace import ListTracer

DEFAULTS = GroupConfig.from_values({})


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription v0 without user data."""
    parts = [len(topics).to_bytes(4, "big")]
    for topic in topics:
        raw = topic.encode()
        parts.append(len(raw).to_bytes(2, "big") + raw)
    return b"\x00\x00" + b"".join(parts) + b"\xff\xff\xff\xff"


MARKER = b"end of a transaction"
"""In the log of a `GroupWorld`; its value is None for an abort."""


class GroupWorld:
    """`ask` returns a request's id; `answers[id]` is there once it is answered (an ApiError when it is refused).

    Appends are committed at once, unless `hold` is set: then `commit_held` or `fail_held` decide. `fail_over` loads another
    shard from what is committed.
    """

    def __init__(self, seed: int = 0, **config: Any) -> None:
        self.config = replace(DEFAULTS, **config)
        self.seed = seed
        self.now_ms = 0
        self.wall_ms = 1_700_000_000_000
        self.tracer = ListTracer()
        self.log: list[tuple[bytes, bytes | None, int | None]] = []
        self.answers: dict[int, Any] = {}
        self.hold = False
        self.goes_on = True
        """The shard is told to go on with what a step leaves."""
        self.held: list[Append] = []
        self._ids = count(1)
        self._last_id = 0
        self.shard = self._load()

    def _load(self) -> GroupShard:
        self.seed += 1
        shard = GroupShard(self.config, self.tracer, random.Random(self.seed))
        for key, value, producer_id in self.log:
            if key == MARKER:
                assert producer_id is not None
                shard.replay_end(producer_id, committed=value is not None)
                continue
            shard.replay(key, value, producer_id=producer_id, wall_ms=self.wall_ms)
        list(shard.settle(self.now_ms, self.wall_ms))
        self._take(shard.loaded(self.now_ms, self.wall_ms))
        return shard

    def fail_over(self) -> None:
        """Another broker takes over, from what is committed."""
        self._take(self.shard.resign())
        self.held.clear()
        self.shard = self._load()

    # --- time and log -------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        output = self.shard.step(event, self.now_ms, self.wall_ms)
        self.shard.check(assignments=True)
        self._take(output)

    def _take(self, output: Output) -> None:
        for request_id, result in output.answers:
            assert request_id not in self.answers, f"request {request_id} is answered twice"
            self.answers[request_id] = result
        self.held.extend(output.appends)
        if not self.hold:
            self.commit_held()
        self.more = output.more
        if output.more and self.goes_on:
            self.step(GoOn())

    def commit_held(self) -> None:
        while self.held:
            append = self.held.pop(0)
            if append.marker is not None:
                self.log.append((MARKER, b"" if append.marker.commit else None, append.marker.producer_id))
            producer_id = None if append.producer is None else append.producer.producer_id
            self.log.extend((record.key, record.value, producer_id) for record in append.records)
            self.step(Written(token=append.token, error=ErrorCode.NONE))

    def be_late(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Nothing that is held is committed in time; it may be later."""
        for append in list(self.held):
            self.step(Late(token=append.token, error=error))

    def fail_held(self, error: ErrorCode) -> None:
        held, self.held = self.held, []
        for append in held:
            self.step(Written(token=append.token, error=error))

    def advance(self, delta_ms: int) -> None:
        """Step at each deadline on the way."""
        end = self.now_ms + delta_ms
        while (due := self.shard.next_deadline_ms()) is not None and due <= end:
            self._move(max(due, self.now_ms))
            self.step(Tick())
        self._move(end)

    def _move(self, now_ms: int) -> None:
        self.wall_ms += now_ms - self.now_ms
        self.now_ms = now_ms

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> int:
        self._last_id = request_id = next(self._ids)
        self.step(Asked(request_id=request_id, request=request))
        return request_id

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        client_id: str = "c",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: Mapping[str, bytes] | None = None,
        require_id: bool = False,
        can_skip: bool = True,
    ) -> int:
        chosen = {"range": subscription("t")} if protocols is None else protocols
        return self.ask(
            JoinRequest(
                group_id=group_id,
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host="/127.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=tuple(Protocol(name, metadata) for name, metadata in chosen.items()),
                require_known_member_id=require_id,
                can_skip_assignment=can_skip,
            )
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        return self.ask(
            SyncRequest(
                group_id=group_id,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=tuple((assignments or {}).items()),
            )
        )

    def heartbeat(self, member_id: str, generation: int, *, group_id: str = "g", instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(group_id=group_id, generation=generation, member_id=member_id, instance_id=instance_id)
        return self.error(self.ask(request))

    def leave(self, *members: str | LeavingMember, group_id: str = "g") -> list[ErrorCode]:
        leaving = tuple(LeavingMember(member, None) if isinstance(member, str) else member for member in members)
        answer = self.answers[self.ask(LeaveRequest(group_id=group_id, members=leaving))]
        return [error for _, error in answer]

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        group_id: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str = "",
        retention_ms: int | None = None,
        producer: Producer | None = None,
    ) -> int:
        return self.ask(
            CommitRequest(
                group_id=group_id,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                offsets=tuple(OffsetToCommit(TopicPartition(*tp), offset, 7, metadata) for tp, offset in offsets.items()),
                retention_ms=retention_ms,
                producer=producer,
            )
        )

    def delete_group(self, group_id: str = "g") -> int:
        return self.ask(DeleteGroupRequest(group_id=group_id))

    def delete_offsets(self, *partitions: tuple[str, int], group_id: str = "g") -> int:
        return self.ask(DeleteOffsetsRequest(group_id=group_id, partitions=tuple(TopicPartition(*tp) for tp in partitions)))

    def delete_topics(self, *topics: str) -> None:
        self.step(TopicsDeleted(topics=frozenset(topics)))

    def end_transaction(self, producer_id: int, *, committed: bool, epoch: int = 0) -> int:
        marker = MarkerEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            commit=committed,
            version=0,
            tp=TopicPartition(OFFSETS_TOPIC, 0),
        )
        return self.ask(EndRequest(marker=marker))

    def unanswered(self) -> list[int]:
        return [request_id for request_id in range(1, self._last_id + 1) if request_id not in self.answers]

    # --- looking ------------------------------------------------------------------------------------------------------

    def error(self, request_id: int) -> Any:
        """Of an answer of whatever kind."""
        answer = self.answers[request_id]
        if isinstance(answer, ApiError):
            return answer.code
        return getattr(answer, "error", answer)

    def offset(self, topic: str, partition: int, group_id: str = "g", *, stable: bool = False) -> tuple[int, ErrorCode]:
        (found,) = self.shard.fetch_offsets(group_id, [TopicPartition(topic, partition)], require_stable=stable)
        return found.offset, found.error

    def group(self, group_id: str = "g") -> Group:
        return self.shard.groups.by_id[group_id]

    def state(self, group_id: str = "g") -> str:
        return self.group(group_id).state.value

    def stable(self, size: int = 2, *, group_id: str = "g", **join: Any) -> list[str]:
        """A stable group of so many members; the ids, the leader's first. Their assignments are their indexes."""
        requests = [self.join(group_id=group_id, client_id=f"c{index}", **join) for index in range(size)]
        self.advance(self.config.initial_rebalance_delay_ms * (size + 1))
        results = [self.answers[request] for request in requests]
        leader = results[0].leader_id
        ids = sorted((result.member_id for result in results), key=lambda member: (member != leader, member))
        self.sync_all(ids, group_id=group_id)
        return ids

    def sync_all(self, ids: Iterable[str], *, group_id: str = "g") -> None:
        """All members sync; the leader assigns everybody their index."""
        ids = list(ids)
        generation = self.group(group_id).generation
        assignments = {member: str(index).encode() for index, member in enumerate(ids)}
        for member in ids:
            leads = self.group(group_id).is_leader(member)
            instance = self.group(group_id).members[member].instance_id
            self.sync(member, generation, assignments if leads else None, group_id=group_id, instance_id=instance)
        assert self.state(group_id) == "Stable", self.state(group_id)
