"""Invariant 85: levels of features change as they may, and nothing is written that the levels of its time do not have (FV-02 to
FV-08)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.messages.controller import FeatureRange
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry

VERSION: Final = "metadata.version"
ELR: Final = "eligible.leader.replicas.version"
CHANGING: Final = (7, 8, 11, 13, 14, 15, 17, 23, 30)
"""Levels of `metadata.version` that change what metadata there is: no downgrade crosses one (Kafka's `MetadataVersion`)."""
_SCRAM, _NO_BUMP, _TRANSACTIONS, _CONTROLLERS, _DIRECTORIES, _ELR = 11, 12, 13, 15, 17, 23


class FeatureLevels(MetadataChecker):
    """Written from Kafka's table of levels. A level is one that every node of its time has; `metadata.version` goes down only
    where nothing can be lost; what a level needs of another is there at the end of each batch. Records and their fields come with
    the level that introduces them, and a shrinking ISR raises the leader epoch exactly before 3.6-IV0."""

    numbers: ClassVar[tuple[int, ...]] = (85,)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        level = before.features.get(VERSION)
        if isinstance(record, r.FeatureLevelRecord):
            if before.brokers or before.controllers:
                self._check_level(entry, offset, record, before)
            return
        if level is None:
            return
        needed = self._needed(record)
        if level < needed:
            self.fail(f"offset {offset}: {record} needs {VERSION} {needed}, and the level is {level}")
        if isinstance(record, r.RegisterBrokerRecord):
            self._check_broker(offset, record, before)
        if isinstance(record, r.PartitionChangeRecord):
            old, new = before.partition(record.topic_id, record.partition), after.partition(record.topic_id, record.partition)
            assert old is not None and new is not None, "the record was replayed"
            self._check_epoch(offset, level, old, new)

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        level = after.features.get(VERSION, 0)
        if after.features.get(ELR, 0) > 0 and level < _ELR and VERSION in after.features:
            self.fail(f"offset {entry.base_offset}: {ELR} is finalized at {VERSION} {level}, and needs {_ELR}")

    # --- levels

    def _check_level(self, entry: Entry, offset: int, record: r.FeatureLevelRecord, state: MetadataState) -> None:
        name, level, now = record.name, record.level, state.features.get(record.name, 0)
        if name == VERSION and (lost := [it for it in CHANGING if level < it <= now]):
            self.fail(f"offset {offset}: {VERSION} goes from {now} to {level}, which loses what came with {lost}")
        nodes = [(f"broker {id_}", it.features) for id_, it in state.brokers.items()]
        nodes += [(f"controller {id_}", it.features) for id_, it in state.controllers.items()]
        for node, ranges in nodes:
            least, most = _range(name, ranges)
            if not least <= level <= most:
                self.fail(f"offset {offset}: {name} is set to {level}, and {node} has {least} to {most}")
        author = self.facts.elected.get(entry.epoch)
        if state.features.get(VERSION, 0) >= _CONTROLLERS and author is not None:
            missing = [it for it in self.facts.voters if it not in state.controllers and it != author[0]]
            if missing:
                self.fail(f"offset {offset}: {name} is set to {level} while nobody knows what controllers {missing} have")

    def _check_broker(self, offset: int, record: r.RegisterBrokerRecord, state: MetadataState) -> None:
        for name, level in state.features.items():
            least, most = _range(name, record.features)
            if not least <= level <= most:
                offered = f"{name} {least} to {most}"
                self.fail(f"offset {offset}: broker {record.broker_id} is registered with {offered}; the level is {level}")

    # --- records

    @staticmethod
    def _needed(record: r.MetadataRecord) -> int:
        """Return the level of `metadata.version` from which on there is such a record, with such fields."""
        match record:
            case r.UserScramCredentialRecord() | r.RemoveUserScramCredentialRecord():
                return _SCRAM
            case r.BeginTransactionRecord() | r.EndTransactionRecord() | r.AbortTransactionRecord():
                return _TRANSACTIONS
            case r.RegisterControllerRecord():
                return _CONTROLLERS
            case r.RegisterBrokerRecord() if record.log_dirs:
                return _DIRECTORIES
            case r.PartitionRecord() | r.PartitionChangeRecord():
                if isinstance(record.elr, tuple) and record.elr:
                    return _ELR
                return _DIRECTORIES if isinstance(record.directories, tuple) and record.directories else 0
            case _:
                return 0

    def _check_epoch(self, offset: int, level: int, old: PartitionRegistration, new: PartitionRegistration) -> None:
        """CM-26: a shrinking ISR raises the leader epoch below 3.6-IV0, and not by itself since."""
        shrunk = any(member not in new.isr for member in old.isr)
        raised = new.leader_epoch > old.leader_epoch
        if level < _NO_BUMP and shrunk and not raised:
            self.fail(f"offset {offset}: at {VERSION} {level} the ISR shrinks, and the leader epoch stays: {old} becomes {new}")
        left = any(replica not in new.replicas for replica in old.replicas)
        if level >= _NO_BUMP and shrunk and raised and new.leader == old.leader and not left:
            self.fail(f"offset {offset}: at {VERSION} {level} a shrinking ISR raises the leader epoch: {old} becomes {new}")


def _range(name: str, ranges: Iterable[FeatureRange]) -> tuple[int, int]:
    """Return the levels that a node offers; one that does not know a feature has level 0 of it."""
    return next(((it.min_level, it.max_level) for it in ranges if it.name == name), (0, 0))
