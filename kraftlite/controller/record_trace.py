"""Traces the records that an operation wrote: which, where, why, and what they made of a partition."""

from __future__ import annotations

from typing import Final

from kraftlite.controller.describe import describe, record_name
from kraftlite.controller.state import ControllerState
from kraftlite.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.config_effects import TOPIC_KEYS_WITHOUT_EFFECT, is_sensitive, without_dynamic_effect
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.controller import PartitionRecordAppended, RecordAppended, RecordsAppended, SettingNotApplied

TRACED_RECORDS: Final = 32
"""Records of one batch that are traced one by one, from its beginning; and its last one: a fencing is behind its changes."""


def setting_not_applied(record: MetadataRecord) -> SettingNotApplied | None:
    """Return the event that tells an operator of a limit that was just stored: nothing enforces it (docs/DIFFERENCES.md)."""
    if not isinstance(record, ConfigRecord) or record.value is None:
        return None
    reason = None
    if record.resource_type == ConfigResourceType.BROKER:
        reason = without_dynamic_effect(record.name)
    elif record.resource_type == ConfigResourceType.TOPIC:
        reason = TOPIC_KEYS_WITHOUT_EFFECT.get(record.name)
    if reason is None:
        return None
    value = "[hidden]" if is_sensitive(record.name) else record.value
    kind = ConfigResourceType(record.resource_type).name.lower()
    return SettingNotApplied(
        setting=f"{record.name}={value}", resource=f"{kind} {record.resource_name or '<default>'}", reason=reason
    )


class RecordTrace:
    """The trace of one batch: `before` and `after` each record is replayed, `emit` once all are and raft has them."""

    def __init__(
        self, state: ControllerState, operation: str, cause: str, *, first_offset: int, base_offset: int, count: int
    ) -> None:
        """`first_offset`: of the operation, which may write several batches. `cause`: what the operation was done for."""
        self._state = state
        self._operation = operation
        self._cause = f"operation:{operation} {cause}".rstrip()
        self._first_offset = first_offset
        self._base_offset = base_offset
        self._last_offset = base_offset + count - 1
        self._old: PartitionRegistration | None = None
        self._events: list[RecordAppended | SettingNotApplied] = []

    def before(self, record: MetadataRecord, offset: int) -> None:
        """A removal names its topic while it is still there; a partition's change needs what it was."""
        if isinstance(record, RemoveTopicRecord):
            self._events.append(self._plain(record, offset))
        elif isinstance(record, PartitionRecord | PartitionChangeRecord):
            self._old = self._partition(record)

    def after(self, record: MetadataRecord, offset: int) -> None:
        if isinstance(record, RemoveTopicRecord | NoOpRecord):
            return
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            self._events.append(self._change(record, offset))
        else:
            self._events.append(self._plain(record, offset))
            if (idle := setting_not_applied(record)) is not None:
                self._events.append(idle)

    def emit(self, tracer: Tracer) -> None:
        for event in self._events:
            tracer.emit(event)
        count = self._last_offset - self._base_offset + 1
        if count > TRACED_RECORDS:
            tracer.emit(RecordsAppended(operation=self._operation, count=count, last_offset=self._last_offset, cause=self._cause))

    def tells(self, offset: int) -> bool:
        """Return whether the record there is traced; for others neither `before` nor `after` is called."""
        return offset - self._base_offset < TRACED_RECORDS or offset == self._last_offset

    def _partition(self, record: PartitionRecord | PartitionChangeRecord) -> PartitionRegistration | None:
        info = self._state.replication.topics.get(record.topic_id)
        return None if info is None else info.partitions.get(record.partition)

    def _plain(self, record: MetadataRecord, offset: int) -> RecordAppended:
        return RecordAppended(
            record=record_name(record),
            offset=offset,
            detail=describe(record, self._state.topic_name),
            first_offset=self._first_offset,
            cause=self._cause,
        )

    def _change(self, record: PartitionRecord | PartitionChangeRecord, offset: int) -> RecordAppended:
        old, new = self._old, self._partition(record)
        self._old = None
        assert new is not None, "a partition's record was replayed"
        return PartitionRecordAppended(
            record=record_name(record),
            offset=offset,
            detail=describe(record, self._state.topic_name),
            first_offset=self._first_offset,
            tp=TopicPartition(self._state.topic_name(record.topic_id), record.partition),
            old_leader=None if old is None else old.leader,
            leader=new.leader,
            old_leader_epoch=None if old is None else old.leader_epoch,
            leader_epoch=new.leader_epoch,
            old_isr=None if old is None else old.isr,
            isr=new.isr,
            old_elr=None if old is None else old.elr or None,
            elr=new.elr or None,
            unclean=_is_unclean(old, new) or None,
            partition_epoch=new.partition_epoch,
            cause=self._cause,
        )


def _is_unclean(old: PartitionRegistration | None, new: PartitionRegistration) -> bool:
    """Return whether a leader was elected that was neither in sync nor eligible."""
    if old is None or new.leader in (None, old.leader):
        return False
    return new.recovering and new.leader not in (*old.isr, *old.elr)
