"""Invariant 54: a topic that was deleted and created again has nothing of its former self."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final
from uuid import UUID

from kraftlite.log.log import Log
from kraftlite.metadata import records as r
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.partition import Partition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.sim.client import records_of
from kraftlite.sim.history import UNANSWERED, TenantWrite
from kraftlite.sim.workloads.admin_topics import NAMES
from kraftlite.simhost.host import SimHost

Writes = Mapping[str, TenantWrite]
REFUSED: Final = "INVALID_RECORD"


class RebornTopics(MetadataChecker):
    """The records that the tenant (`workloads/admin`) was given, and those that are in the logs at the end, may all belong to one
    incarnation of the topic: they were sent to its id or to its name, and their writing did not end before it was created. A
    record that was refused is none of them; only one without a key is refused as INVALID_RECORD."""

    numbers: ClassVar[tuple[int, ...]] = (54,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._created: dict[str, dict[UUID, int]] = {}
        """The times, in microseconds, at which the topics of a name were committed, by id."""

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.TopicRecord):
            self._created.setdefault(record.name, {})[record.topic_id] = self.world.cluster.loop.now_us()

    def at_end(self) -> None:
        history = self.world.history
        writes = {it.value: it for it in history.tenant_writes}
        for it in history.tenant_writes:
            if it.error == REFUSED and it.keyed:
                self.fail(f"{it.value} has a key, and {it.tp} took it for no record")
        for read in history.tenant_reads:
            values = [value for _, value in read.records]
            if not any(self._may_have(it, read.tp, values, writes) for it in self._incarnations(read.tp, read.topic_id)):
                by = "name" if read.topic_id is None else f"id {read.topic_id}"
                where = f"{read.tp}, asked for by {by} at node {read.broker} at {read.invoked_us} us"
                self.fail(f"{where}, has {values}: {self._told(values, writes)}")
        for node in self.world.cluster.brokers:
            if node.node is not None and node.node.broker is not None:
                for replica in node.node.broker.replicas.partitions():
                    if replica.tp.topic in NAMES and replica.log is not None:
                        self._check_log(node, replica, replica.log, writes)

    def _check_log(self, node: SimHost, replica: Partition, log: Log, writes: Writes) -> None:
        with node.disk.undisturbed():
            data = bytes(log.read(log.log_start_offset, 1 << 22, up_to=log.leo))
        values = [value for _, value in records_of(data)]
        if not self._may_have(replica.topic_id, replica.tp, values, writes):
            where = f"the log of {replica.tp} ({replica.topic_id}) on node {node.node_id}"
            self.fail(f"{where} has {values}: {self._told(values, writes)}")

    def _incarnations(self, tp: TopicPartition, topic_id: UUID | None) -> Iterable[UUID]:
        return (topic_id,) if topic_id is not None else self._created.get(tp.topic, {})

    def _may_have(self, topic_id: UUID, tp: TopicPartition, values: list[str], writes: Writes) -> bool:
        created = self._created.get(tp.topic, {}).get(topic_id)
        if created is None:
            return False
        for value in values:
            it = writes.get(value)
            if it is None or it.tp != tp or it.topic_id not in (None, topic_id):
                return False
            if it.error == REFUSED:
                return False
            if it.returned_us is not None and it.error != UNANSWERED and it.returned_us < created:
                return False
        return True

    def _told(self, values: list[str], writes: Writes) -> str:
        found = [writes[it] for it in values if it in writes]
        parts = [f"{it.value} went to {it.topic_id or 'the name'} until {it.returned_us} us" for it in found[:4]]
        return "; ".join(parts) + f"; created: {self._created}"
