"""Invariant 30: what was committed is never lost, and what was acknowledged by all was committed."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.log.batch import parse_header
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.replication.api import ProduceResult
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import Batch, Truth
from kraftlite.sim.service import PRODUCE, ProduceAsk


class NothingLost(ReplicaChecker):
    """An acks=all produce is answered when its batch is below the HW (RP-01), with the offset where it is (RP-07). When all is
    well again every leader has everything that was ever below a HW."""

    numbers: ClassVar[tuple[int, ...]] = (30,)
    only_methods = (PRODUCE,)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if method is not PRODUCE:
            return
        assert isinstance(request, ProduceAsk) and isinstance(response, ProduceResult)
        if request.acks != -1 or response.error is not ErrorCode.NONE or request.tp in self.world.losses.excused:
            return
        sent = Batch.of(parse_header(request.batch))
        first, last = response.base_offset, response.base_offset + sent.next_offset - sent.base_offset - 1
        truths = [truth for truth in self.facts.truths.values() if truth.tp == request.tp]
        if not any(last < truth.hw for truth in truths):
            self.fail(
                f"{request.tp}: node {target} acknowledged [{first},{last + 1}) for all, committed is {[it.hw for it in truths]}"
            )
        restamped = self.facts.is_restamped(request.tp.topic)
        if not any(_has(truth, first, sent, restamped=restamped) for truth in truths):
            found = [truth.by_base.get(first) for truth in truths]
            self.fail(f"{request.tp}: node {target} acknowledged {sent} at {first}, but there is {found}")

    def at_end(self) -> None:
        for truth in self.facts.truths.values():
            registration = self.facts.registration(truth.key)
            if registration is None or registration.leader is None or not truth.hw:
                continue
            view = self.facts.views.get(truth.key, {}).get(registration.leader)
            if view is None:
                self.fail(f"{truth.tp}: {truth.hw} offsets were committed, its leader {registration.leader} has no log now")
                return
            missing = self.facts.lacks(view, truth)
            if missing is not None:
                self.fail(f"{view.text} is what is left, but {missing}")


def _has(truth: Truth, offset: int, sent: Batch, *, restamped: bool) -> bool:
    """Idempotent producers are known by their sequence: a batch that was sent again may differ in its timestamps.

    `restamped`: the leader may have changed the bytes."""
    found = truth.by_base.get(offset)
    if found is None:
        return offset < truth.begin
    if sent.producer_id >= 0:
        return (found.producer_id, found.producer_epoch, found.first_sequence, found.last_sequence) == (
            sent.producer_id, sent.producer_epoch, sent.first_sequence, sent.last_sequence,
        )  # fmt: skip
    if restamped:
        return found.next_offset - found.base_offset == sent.next_offset - sent.base_offset
    return found.crc == sent.crc
