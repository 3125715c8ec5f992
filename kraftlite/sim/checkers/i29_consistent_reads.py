"""Invariant 29: what was consumed at an offset stays there."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.log.batch import check_crc, iter_batches
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.replication.api import FetchResult
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import Batch, Truth
from kraftlite.sim.service import FETCH, FetchAsk


class ConsistentReads(ReplicaChecker):
    """Every batch that a consumer is given was committed before it arrived, and is what is committed at its offset (RP-13,
    RP-43); nothing of it is above the HW that came with it. Without what `h_consumed` checks: who read what when."""

    numbers: ClassVar[tuple[int, ...]] = (29,)
    only_methods = (FETCH,)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if method is not FETCH:
            return
        assert isinstance(request, FetchAsk) and isinstance(response, FetchResult)
        if response.error is not ErrorCode.NONE or not response.records or request.tp in self.world.losses.excused:
            return
        truths = [truth for truth in self.facts.truths.values() if truth.tp == request.tp]
        where = f"{request.tp} at node {target}"
        for header, raw in iter_batches(bytes(response.records)):
            batch = Batch.of(header)
            if batch.next_offset > response.hw:
                self.fail(f"{where}: {batch} was given to a consumer with the HW {response.hw}")
            if not check_crc(raw, header):
                self.fail(f"{where}: the CRC of {batch}, given to a consumer, is wrong")
            if not any(_has(truth, batch) for truth in truths):
                known = [truth.by_base.get(batch.base_offset) for truth in truths]
                self.fail(f"{where}: {batch} was given to a consumer, committed is {known}, up to {[it.hw for it in truths]}")


def _has(truth: Truth, batch: Batch) -> bool:
    if batch.next_offset > truth.hw:
        return False
    known = truth.by_base.get(batch.base_offset)
    return batch.base_offset < truth.begin or known == batch or (truth.compacted and known is not None and known.alike(batch))
