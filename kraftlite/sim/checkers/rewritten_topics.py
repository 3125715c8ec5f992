"""The topics whose batches need not stay as they were sent: compaction rewrites them, or their leader restamps them."""

from __future__ import annotations

from typing import Final

from kraftlite.metadata.records import ConfigRecord, MetadataRecord
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import TOPIC, MetadataState
from kraftlite.sim.checkers.replica_facts import replica_facts
from kraftlite.sim.checkers.views import Entry

COMPACTED: Final = {"cleanup.policy", "log.cleanup.policy"}
RESTAMPED: Final[dict[str, str]] = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "log.message.timestamp.type": "CreateTime",
}
"""Configuration key → the only value with which a leader leaves the bytes of a batch as they are."""


class RewrittenTopics(MetadataChecker):
    """Tells the facts of the replicas which topics have, or once had, such a configuration. It finds nothing by itself: whatever
    compaction makes of a log, invariants 45 to 49 judge. Without one of these configurations, the bytes of a batch stay."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._replicas = replica_facts(world)
        values = world.cluster.shape.config
        for key in (*COMPACTED, *RESTAMPED):
            if key in values:
                self._note(key, values[key], None)

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, ConfigRecord) and record.value is not None:
            if record.resource_type == TOPIC and record.value.lstrip("-").isdecimal():
                self._replicas.numbers_of.setdefault((record.resource_name, record.name), []).append(int(record.value))
            self._note(record.name, record.value, record.resource_name if record.resource_type == TOPIC else None)

    def _note(self, key: str, value: str, topic: str | None) -> None:
        """`topic` None: all of them."""
        if key in COMPACTED and "compact" in value:
            self._replicas.note_compacted(topic)
        elif key in RESTAMPED and value != RESTAMPED[key]:
            self._replicas.note_restamped(topic)
