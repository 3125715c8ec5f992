"""Instances that commit offsets in their transactions: copiers, which write each record of their input once (KIP-98, KIP-447)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.services import groups
from kraftlite.sim.services.groups import OFFSET_FETCH, OffsetFetchAsk
from kraftlite.sim.services.transactions import ADD_OFFSETS, COMMIT, AddOffsetsAsk, TransactionalCommitAsk
from kraftlite.sim.workloads.transaction_client import TransactionClient
from kraftlite.sim.workloads.transaction_instance import ABORTABLE, DELIVERY_US, FATAL, Aborting, Ended, Instance
from kraftlite.sim.workloads.transactions_history import Tried, copy_of

REPLACED = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""Answers to who is no longer the member that it was: it aborts, and reads again from what is committed."""


class CopyingInstance(Instance):
    """Reads committed records, writes each once, and commits the offsets with them (KIP-98, KIP-447)."""

    def __init__(
        self,
        client: TransactionClient,
        number: int,
        version: int,
        targets: Sequence[TopicPartition],
        gap_us: int,
        inputs: Sequence[TopicPartition],
    ) -> None:
        super().__init__(client, number, version, targets, gap_us)
        self._inputs = inputs
        self._group_broker: NodeId | None = None
        self._positions: dict[TopicPartition, int] | None = None

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    @property
    def copier(self) -> str | None:
        return self.name

    @property
    def member(self) -> tuple[int, str, str | None]:
        """Generation, member id and instance id under which it commits."""
        return -1, "", None

    async def fill(self, tried: Tried) -> bool:
        if self._positions is None:
            self._positions = await self.committed()
        positions, self._positions = self._positions, None
        tp = self._inputs[self.rng.randrange(len(self._inputs))]
        begin = positions.get(tp, 0)
        found = await self.client.fetch_committed(tp, begin)
        if found is None or found[0] == begin:
            self._positions = positions
            return False
        end, records = found
        tried.moved[tp] = (begin, end)
        self.begin(tried)
        for offset, _ in records:
            target = self.targets[self.rng.randrange(len(self.targets))]
            await self.add((target,))
            await self.send(tried, target, [f"{copy_of(self.copier or self.name, tp, offset)}#{self._value()}"])
        if self.rng.randrange(4) == 0:  # slow work: its group may have changed by then
            await self.client.pause(self.rng.randint(1, 1_500_000))
        await self.commit_offsets(tp, end)
        return True

    async def _group_coordinator(self) -> NodeId | None:
        brokers = [node.node_id for node in self.client.cluster.brokers]
        try:
            broker = brokers[self.rng.randrange(len(brokers))]
            found = await self.client.call(broker, groups.FIND, groups.FindAsk(self.group), 1_000)
        except (TransportError, ApiError):
            return None
        self._group_broker = found.result.broker_id if found.error is ErrorCode.NONE else None
        return self._group_broker

    async def look_at_once(self) -> None:
        """Ask for the offsets of the group, stable ones, where its coordinator was last; do nothing with the answer."""
        if self._group_broker is None:
            return
        ask = OffsetFetchAsk(group_id=self.group, partitions=tuple(self._inputs), require_stable=True)
        with contextlib.suppress(TransportError, ApiError):
            await self.client.call(self._group_broker, OFFSET_FETCH, ask, 1_000)

    async def committed(self) -> dict[TopicPartition, int]:
        """The offsets of the group, when no transaction is open that moves them."""
        while not self.client.gives_up():
            broker = await self._group_coordinator()
            if broker is not None:
                ask = OffsetFetchAsk(group_id=self.group, partitions=tuple(self._inputs), require_stable=True)
                try:
                    told = await self.client.call(broker, OFFSET_FETCH, ask, 1_000)
                except (TransportError, ApiError):
                    told = None
                if told is not None and told.error is ErrorCode.NONE and all(it.error is ErrorCode.NONE for it in told.result):
                    return {it.tp: max(0, it.offset) for it in told.result}
            await self.client.backoff()
        raise Ended

    async def commit_offsets(self, tp: TopicPartition, offset: int) -> None:
        """Commit an offset in the transaction. Raises Ended, Aborting."""
        generation, member_id, instance_id = self.member
        end_us = self.client.now_us() + DELIVERY_US
        if self.version < 2:
            self._added[tp] = None
            while True:
                ask = AddOffsetsAsk(self.name, self.producer, self.group)
                told = await self.client.ask_coordinator(self.name, ADD_OFFSETS, ask)
                if told is not None and told.error is ErrorCode.NONE:
                    break
                self._check(None if told is None else told.error, end_us)
                await self.client.backoff()
        commit = TransactionalCommitAsk(
            transactional_id=self.name,
            producer=self.producer,
            version=self.version,
            group_id=self.group,
            offsets=((tp, offset),),
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
        while True:
            broker = await self._group_coordinator()
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if broker is not None:
                try:
                    answer = await self.client.call(broker, COMMIT, commit, 1_500)
                    code = answer.error if answer.error is not ErrorCode.NONE else answer.result[0]
                except (TransportError, ApiError):
                    code = ErrorCode.NETWORK_EXCEPTION
            if code is ErrorCode.NONE:
                return
            self._check(code, end_us)
            await self.client.backoff()

    def _check(self, code: ErrorCode | None, end_us: int) -> None:
        """Raises Ended or Aborting for what is not tried again."""
        if code in ABORTABLE or code in REPLACED or self.client.now_us() >= end_us:
            raise Aborting
        if code in FATAL:
            raise Ended
