"""Asking for transactions: before a batch begins a transaction in a partition, its coordinator must know of it. Source: TP-03."""

from __future__ import annotations

from typing import NamedTuple

from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.ports import TransactionGate


class Identity(NamedTuple):
    """Who asks: a producer, under its transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Enroller:
    """The questions of one broker to transaction coordinators. `gate` None: there is no way to a coordinator yet."""

    def __init__(self) -> None:
        self.gate: TransactionGate | None = None

    async def enrol(self, identity: Identity, tp: TopicPartition, *, version: int) -> TransactionTerms | None:
        """Ask about a coordinator's own batch, without a sequence, for one partition that is led here (TG-01). Raises ApiError
        with the coordinator's own code."""
        if self.gate is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no way to a transaction coordinator yet")
        answers = await self.gate.ask(*identity, (tp,), add=version >= 2)
        code = answers.get(tp, ErrorCode.NETWORK_EXCEPTION)
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"transaction of {identity.transactional_id}: {tp} is not part of it ({code.name})")
        return None
