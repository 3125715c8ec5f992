"""Invariant 20: replicas, ISR, ELR and leader of a partition fit together, and leaders come from the ISR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ElectionType, ElectLeadersRequest
from kraftlite.model.messages.methods import ELECT_LEADERS
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import BROKER, MetadataState, completes_a_move
from kraftlite.sim.checkers.views import Entry

_UNCLEAN: Final = "unclean.leader.election.enable"
_MIN_ISR: Final = "min.insync.replicas"


class IsrAndLeader(MetadataChecker):
    """Every committed partition record is looked at, and who led and was in sync before it."""

    numbers: ClassVar[tuple[int, ...]] = (20,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked_unclean: set[tuple[str, int]] = set()
        self._asked_all = False
        self.facts.watch_call(ELECT_LEADERS, self._on_elect_leaders)

    def _on_elect_leaders(self, source: NodeId, target: NodeId, request: ElectLeadersRequest) -> None:
        if request.election_type == ElectionType.UNCLEAN:
            self._asked_all = self._asked_all or request.partitions is None
            self._asked_unclean.update((it.topic, it.partition) for it in request.partitions or ())

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if not isinstance(record, r.PartitionRecord | r.PartitionChangeRecord):
            return
        partition = after.partition(record.topic_id, record.partition)
        assert partition is not None, "the record was replayed"
        name = after.topics[record.topic_id].name
        wrong = _shape(partition) or self._elr(partition, name, after)
        old = before.partition(record.topic_id, record.partition)
        if wrong is None and old is not None:
            wrong = self._election(old, partition, name, record.partition, before)
        if wrong is not None:
            self.fail(f"offset {offset} makes {name}-{record.partition} {wrong}: {old} becomes {partition}")

    def _elr(self, partition: PartitionRegistration, topic: str, state: MetadataState) -> str | None:
        if not partition.elr:
            return None
        found = state.topic_config(topic, _MIN_ISR) or self.world.cluster.shape.config.get(_MIN_ISR, "1")
        if len(partition.isr) >= min(int(found), len(partition.replicas)):
            return "have eligible leader replicas with an ISR of the minimum size"
        return None

    def _election(
        self, old: PartitionRegistration, new: PartitionRegistration, topic: str, index: int, before: MetadataState
    ) -> str | None:
        if new.leader is None or new.leader == old.leader or new.leader in (*old.isr, *old.elr) or completes_a_move(old, new):
            return None
        if new.isr != (new.leader,) or not new.recovering:
            return "led by a replica that was not in sync, without saying so"
        if not self._unclean_allowed(topic, index, before) and old.last_known_elr != (new.leader,):
            return "led by a replica that was not in sync; an unclean election is not allowed for it"
        return None

    def _unclean_allowed(self, topic: str, index: int, state: MetadataState) -> bool:
        if self._asked_all or (topic, index) in self._asked_unclean:
            return True
        dynamic = state.topic_config(topic, _UNCLEAN)
        own = [
            values[_UNCLEAN] for (kind, name), values in state.configs.items() if kind == BROKER and name and _UNCLEAN in values
        ]
        static = self.world.cluster.shape.config.get(_UNCLEAN, "false")
        return any(value.strip().lower() == "true" for value in [dynamic if dynamic is not None else static, *own])


def _shape(partition: PartitionRegistration) -> str | None:
    replicas = partition.replicas
    if not replicas or _repeats(replicas):
        return "have no replicas, or one twice"
    parts = {
        "ISR": partition.isr,
        "ELR": partition.elr,
        "added replicas": partition.adding_replicas,
        "removed replicas": partition.removing_replicas,
    }
    for what, members in parts.items():
        if _repeats(members) or any(member not in replicas for member in members):
            return f"have {what} {members} that are not some of its replicas"
    if any(member in partition.isr for member in partition.elr):
        return "have a member of the ISR in the ELR"
    if partition.leader is not None and partition.leader not in partition.isr:
        return "have a leader that is not in the ISR"
    if partition.directories and len(partition.directories) != len(replicas):
        return "have not one directory per replica"
    return None


def _repeats(members: Sequence[NodeId]) -> bool:
    return len(set(members)) != len(members)
