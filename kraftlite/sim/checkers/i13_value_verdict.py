"""Invariant 13: a submitted write is acknowledged or failed, never both, and acknowledged only for what is in the log."""

from __future__ import annotations

from typing import Any, ClassVar

from kraftlite.controller.describe import record_name
from kraftlite.metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord
from kraftlite.runtime.trace.controller import PartitionRecordAppended, RecordAppended
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView


class ValueVerdict(MetadataChecker):
    """Follows every answer that waits in an active controller: while it stays active, an answer leaves the queue only when the
    record that it waits for is committed, in the controller's own epoch. What a controller says it wrote at an offset is what is
    committed there, if anything of its epoch is."""

    numbers: ClassVar[tuple[int, ...]] = (13,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waiting: dict[Any, tuple[int | None, tuple[tuple[int, Any], ...]]] = {}
        self._written: dict[tuple[int, int], RecordAppended] = {}
        self._epochs: dict[int, int] = {}
        """The epoch of each committed record's offset."""
        self.facts.watch(RecordAppended, self._on_written)
        self.facts.watch(PartitionRecordAppended, self._on_written)

    def _on_written(self, view: NodeView, event: RecordAppended) -> None:
        epoch = view.active_controller.claim_epoch
        if epoch is None:
            self.fail(f"node {view.node_id} writes {event.record} at {event.offset} and is not the active controller")
            return
        known = self._written.setdefault((epoch, event.offset), event)
        if known is not event:
            self.fail(f"offset {event.offset} of epoch {epoch} was {known} and is {event}")

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        self._epochs[offset] = entry.epoch
        written = self._written.pop((entry.epoch, offset), None)
        if written is None:
            return
        same = record_name(record) == written.record
        if same and isinstance(written, PartitionRecordAppended):
            assert isinstance(record, PartitionRecord | PartitionChangeRecord), "they have the same name"
            now = after.partition(record.topic_id, record.partition)
            assert now is not None, "the record was replayed"
            told = (written.leader, written.leader_epoch, written.isr, written.partition_epoch)
            same = told == (now.leader, now.leader_epoch, now.isr, now.partition_epoch)
        if not same:
            self.fail(f"offset {offset} of epoch {entry.epoch} was written as {written}, committed is {record}")

    def on_controller(self, view: NodeView) -> None:
        controller = view.active_controller
        now = tuple(controller.deferred.waiting)
        claim, before = self._waiting.get(view.author, (None, ()))
        self._waiting[view.author] = (controller.claim_epoch, now)
        stable = controller.offsets.stable_offset
        for offset, _ in now:
            if offset <= stable:
                self.fail(f"controller {view.node_id}: an answer waits for {offset}, stable is {stable}")
        if claim is None or claim != controller.claim_epoch or controller.queue.closed:
            return  # those that waited were failed: they may be committed yet, and nobody was told that they were
        still = {id(parked) for _, parked in now}
        for offset, parked in before:
            if id(parked) not in still and self._epochs.get(offset) != claim:
                self.fail(
                    f"controller {view.node_id} answered what waits for {offset} in epoch {claim}; "
                    f"at this offset is committed {self._committed(offset)}"
                )

    def _committed(self, offset: int) -> str:
        epoch = self._epochs.get(offset)
        return f"a record of epoch {epoch}" if epoch is not None else f"nothing: [0,{self.facts.committed_end}) is"
