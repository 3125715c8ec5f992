"""The common part of the checks of the clients' history. They run at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.facts import NOTE as METADATA_NOTE
from kraftlite.sim.checkers.facts import Facts
from kraftlite.sim.checkers.replica_facts import may_forget_producers, replica_facts
from kraftlite.sim.history import Consumed, Produce, Strange


class HistoryChecker(Checker):
    """Records belong to one incarnation of a topic: `incarnation` tells which, by topic id where the client knew it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.history = world.history

    @property
    def metadata(self) -> Facts | None:
        """None where nobody followed the metadata log."""
        found = self.world.notes.get(METADATA_NOTE)
        return found if isinstance(found, Facts) else None

    def current_id(self, topic: str) -> str | None:
        """The id of the topic that has this name at the end."""
        metadata = self.metadata
        found = None if metadata is None else metadata.history.latest.topic_named(topic)
        return None if found is None else str(found[0])

    def is_current(self, tp: TopicPartition, topic_id: str | None) -> bool:
        """Return whether an act of a client concerns the partition that is there at the end. Without an id it may, if the name
        did not belong to other topics before."""
        current = self.current_id(tp.topic)
        if topic_id is None:
            return len(self.ids_of(tp.topic)) <= 1
        return current is None or topic_id == current

    def ids_of(self, topic: str) -> set[str]:
        """All topic ids that clients saw under a name."""
        known = self.history.ids_told_of(topic)
        current = self.current_id(topic)
        return known | {current} if current is not None else known

    def is_excused(self, tp: TopicPartition, topic_id: str | None = None) -> bool:
        """Return whether records of it may be missing or replaced."""
        if tp in self.world.losses.excused:
            return True
        excuses = replica_facts(self.world).excuses
        if topic_id is not None:
            return TopicIdPartition(UUID(topic_id), tp.partition) in excuses
        return any(key.partition == tp.partition and str(key.topic_id) in self.ids_of(tp.topic) for key in excuses)

    def may_be_welcome(self, it: Strange) -> bool:
        """Return whether the leader may know nothing any more of the producer that a stranger's batch names."""
        return may_forget_producers(self.world) or self.is_excused(it.tp, it.topic_id)

    def judged(self, produces: Iterable[Produce]) -> list[Produce]:
        """Those whose partition is there at the end, was read to its end, and lost nothing that it was allowed to lose."""
        return [
            it
            for it in produces
            if it.tp in self.history.final_logs and self.is_current(it.tp, it.topic_id) and not self.is_excused(it.tp)
        ]

    def final_values(self) -> dict[TopicPartition, dict[str, list[int]]]:
        """Partition → value → its offsets."""
        found: dict[TopicPartition, dict[str, list[int]]] = {}
        for tp, records in self.history.final_logs.items():
            offsets = found[tp] = defaultdict(list)
            for offset, value in records:
                offsets[value].append(offset)
        return found

    def log_start(self, tp: TopicPartition) -> int:
        """The first offset that is still there at the end; 0 for a log without any."""
        records = self.history.final_logs.get(tp, ())
        return records[0][0] if records else 0

    def consumed(self) -> list[Consumed]:
        """List the records that were read of partitions that lost nothing that they were allowed to lose."""
        return [it for it in self.history.consumed if not self.is_excused(it.tp, it.topic_id)]
