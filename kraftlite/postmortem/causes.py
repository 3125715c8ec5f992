"""Concludes from the records of one batch which operations of the controller wrote them, and why.

A metadata log has no causes, and a batch may have the records of several operations. What follows from the records themselves is
concluded; for the rest there is none. The names are those of the controller's operations in a trace, so that both are told alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.metadata import records
from kraftlite.metadata.registrations import BrokerRegistration, PartitionRegistration
from kraftlite.model.ids import UNCHANGED

_BOOTSTRAP: Final = "Bootstrap"


@dataclass(slots=True, kw_only=True, eq=False)
class Item:
    """A record of a batch. `old` and `new`: the registration of its partition; `broker`: that of its broker before it.

    To be concluded: `cause`, and `first`, the offset of the first record of the same operation.
    """

    offset: int
    record: Any
    old: PartitionRegistration | None = None
    new: PartitionRegistration | None = None
    broker: BrokerRegistration | None = None
    cause: str | None = None
    first: int = -1


def conclude(items: Sequence[Item]) -> None:
    """Set the causes of the records of one batch, and which of them belong together."""
    for item in items:
        item.first = item.offset
    _bootstrap(items)
    _topics(items)
    for item in items:
        if item.cause is None:
            said = _of_broker(item)
            if said is not None:
                item.cause = said
                _gather(items, item)
    for item in items:
        if item.cause is None and item.new is not None:
            item.cause = _of_partition(item)
        elif item.cause is None:
            item.cause = _ALONE.get(type(item.record))


def _bootstrap(items: Sequence[Item]) -> None:
    """The first records of a cluster, which its first active controller writes in one transaction."""
    begun: Item | None = None
    for item in items:
        record = item.record
        if isinstance(record, records.BeginTransactionRecord) and (record.name or "").startswith(_BOOTSTRAP):
            begun = item
        if begun is not None:
            item.cause, item.first = "operation:activate", begun.offset
        if isinstance(record, records.EndTransactionRecord | records.AbortTransactionRecord):
            begun = None


def _topics(items: Sequence[Item]) -> None:
    """A topic, its partitions and its configs; partitions that a topic gets later."""
    created: dict[Any, Item] = {}
    names: dict[str, Item] = {}
    for item in items:
        record = item.record
        if isinstance(record, records.TopicRecord):
            created[record.topic_id] = names[record.name] = item
            item.cause = "operation:create_topics"
        elif isinstance(record, records.PartitionRecord):
            topic = created.setdefault(record.topic_id, item)
            of_topic = isinstance(topic.record, records.TopicRecord)
            item.cause = "operation:create_topics" if of_topic else "operation:create_partitions"
            item.first = topic.offset
        elif isinstance(record, records.ConfigRecord) and record.resource_name in names:
            item.cause, item.first = "operation:create_topics", names[record.resource_name].offset


def _of_broker(item: Item) -> str | None:
    record, before = item.record, item.broker
    if isinstance(record, records.RegisterBrokerRecord):
        replaced = "" if before is None else f" replaces={before.broker_epoch}"
        return f"operation:register_broker broker={record.broker_id}{replaced}"
    if isinstance(record, records.UnregisterBrokerRecord):
        return f"operation:unregister_broker broker={record.broker_id}"
    if not isinstance(record, records.BrokerRegistrationChangeRecord):
        return None
    if record.in_controlled_shutdown is True:
        return f"operation:broker_heartbeat broker={record.broker_id} new=controlled_shutdown"
    if record.fenced is True:
        leaving = before is not None and before.in_controlled_shutdown
        if leaving:
            return f"operation:broker_heartbeat broker={record.broker_id} new=shutdown_now"
        return f"operation:maybe_fence_stale_broker broker={record.broker_id}"
    if record.fenced is False:
        return f"operation:broker_heartbeat broker={record.broker_id} new=unfenced"
    return None


def _gather(items: Sequence[Item], anchor: Item) -> None:
    """The partitions' changes of the batch that a record of a broker explains are of the same operation."""
    broker = anchor.record.broker_id
    returned = getattr(anchor.record, "fenced", None) is False
    explained: Callable[[Item], bool] = _elects(broker) if returned else _drops(broker)
    found = [item for item in items if item.cause is None and item.new is not None and explained(item)]
    first = min([anchor.offset, *(item.offset for item in found)])
    anchor.first = first
    for item in found:
        item.cause, item.first = anchor.cause, first


def _elects(broker: int) -> Callable[[Item], bool]:
    return lambda it: it.old is not None and it.new is not None and it.old.leader is None and it.new.leader == broker


def _drops(broker: int) -> Callable[[Item], bool]:
    def drops(item: Item) -> bool:
        old, new = item.old, item.new
        if old is None or new is None:
            return False
        left = broker in old.isr and broker not in new.isr
        return left or (old.leader == broker and new.leader != broker) or (broker in old.elr and broker not in new.elr)

    return drops


def _of_partition(item: Item) -> str | None:
    old, new, record = item.old, item.new, item.record
    if old is None or new is None:
        return None
    if (
        new.replicas != old.replicas
        or new.adding_replicas != old.adding_replicas
        or new.removing_replicas != old.removing_replicas
    ):
        if not _ends_move(old, new):  # it begins, is cancelled, or has another target now
            return "operation:alter_partition_reassignments"
        return f"operation:alter_partition broker={old.leader}" if None not in (old.leader, new.leader) else None
    if record.leader is not UNCHANGED and new.leader != old.leader:
        if new.recovering and new.leader not in old.isr:
            return "operation:elect_unclean"
        if old.leader is not None and new.leader == new.replicas[0] and old.leader in new.isr:
            return "operation:elect_preferred_or_asked"
        return None
    if new.isr != old.isr and new.leader is not None:
        return f"operation:alter_partition broker={new.leader}"
    return None


def _ends_move(old: PartitionRegistration, new: PartitionRegistration) -> bool:
    """Return whether a reassignment has come to its target."""
    under_way = bool(old.adding_replicas or old.removing_replicas) and not (new.adding_replicas or new.removing_replicas)
    return under_way and new.replicas == tuple(it for it in old.replicas if it not in old.removing_replicas)


_ALONE: Final = {
    records.RemoveTopicRecord: "operation:delete_topics",
    records.ConfigRecord: "operation:incremental_alter_configs",
    records.FeatureLevelRecord: "operation:update_features",
}
