"""Invariant 51: the configs that a replica acts on are those of the metadata that its broker has applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import BROKER, TOPIC, MetadataState
from kraftlite.sim.checkers.views import NodeView

_NEVER: Final = str((1 << 63) - 1)


class Layer(NamedTuple):
    """The key of a topic's config at its brokers, keys with other units that stand in for it in a file, and its default."""

    of_brokers: str
    default: str
    others: tuple[tuple[str, int], ...] = ()


LAYERS: Final[Mapping[str, Layer]] = {
    "retention.ms": Layer(
        "log.retention.ms", "604800000", (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000))
    ),
    "segment.ms": Layer("log.roll.ms", "604800000", (("log.roll.hours", 3_600_000),)),
    "flush.messages": Layer("log.flush.interval.messages", _NEVER),
    "flush.ms": Layer("log.flush.interval.ms", _NEVER, (("log.flush.scheduler.interval.ms", 1),)),
    "index.interval.bytes": Layer("log.index.interval.bytes", "4096"),
    "file.delete.delay.ms": Layer("log.segment.delete.delay.ms", "60000"),
    "retention.bytes": Layer("log.retention.bytes", "-1"),
    "segment.jitter.ms": Layer("log.roll.jitter.ms", "0", (("log.roll.jitter.hours", 3_600_000),)),
    "segment.index.bytes": Layer("log.index.size.max.bytes", "10485760"),
    "min.compaction.lag.ms": Layer("log.cleaner.min.compaction.lag.ms", "0"),
    "max.compaction.lag.ms": Layer("log.cleaner.max.compaction.lag.ms", _NEVER),
    "segment.bytes": Layer("log.segment.bytes", str(1 << 30)),
    "max.message.bytes": Layer("message.max.bytes", "1048588"),
    "min.insync.replicas": Layer("min.insync.replicas", "1"),
    "unclean.leader.election.enable": Layer("unclean.leader.election.enable", "false"),
    "cleanup.policy": Layer("log.cleanup.policy", "delete"),
    "compression.type": Layer("compression.type", "producer"),
    "message.timestamp.type": Layer("log.message.timestamp.type", "CreateTime"),
    "min.cleanable.dirty.ratio": Layer("log.cleaner.min.cleanable.ratio", "0.5"),
    "delete.retention.ms": Layer("log.cleaner.delete.retention.ms", "86400000"),
    "producer.id.expiration.ms": Layer("producer.id.expiration.ms", "86400000"),
}
"""The keys that a log acts on. Source: Kafka's topic configuration reference."""


def in_force(state: MetadataState, static: Mapping[str, str], node_id: NodeId, topic: str, key: str) -> str:
    """CM-49: the topic's, else that of the broker, of the cluster, of the file, else the default."""
    layer = LAYERS[key]
    own = state.configs.get((TOPIC, topic), {}).get(key)
    if own is not None:
        return own
    for values in (state.configs.get((BROKER, str(node_id)), {}), state.configs.get((BROKER, ""), {}), static):
        if layer.of_brokers in values:
            return values[layer.of_brokers]
    return next((str(int(static[name]) * unit) for name, unit in layer.others if name in static), layer.default)


def as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


class ConfigsInForce(MetadataChecker):
    """Looked at whenever a broker has applied an update in full. Topics that were created again have the configs of their own."""

    numbers: ClassVar[tuple[int, ...]] = (51,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._looked: dict[tuple[tuple[NodeId, int], object], tuple[object, ...]] = {}
        """By replica: the config of its log, the configs that it follows and the number of replicas that were found to agree."""

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        node = view.node.node
        assert node is not None and node.broker is not None
        publisher = node.broker.publisher
        if not publisher._ready or publisher._task is not None:
            return  # an update is being applied, or logs are being loaded
        state = self.facts.history.visible(image.offset)
        configs = state.configs
        own, cluster = configs.get((BROKER, str(view.node_id))), configs.get((BROKER, ""))
        for replica in node.broker.replicas.partitions():
            if replica.log is None:
                continue
            found = (len(replica.replicas), configs.get((TOPIC, replica.tp.topic)), own, cluster)
            looked = self._looked.get((view.author, replica))
            if looked is not None and looked[0] is replica.log.config and looked[1:] == found:
                continue
            self._looked[view.author, replica] = (replica.log.config, *found)
            self._compare(view, image.offset, state, replica)

    def _compare(self, view: NodeView, offset: int, state: MetadataState, replica: Any) -> None:
        static = view.node.config.values
        topic = replica.tp.topic
        for key in LAYERS:
            wanted = in_force(state, static, view.node_id, topic, key)
            found = as_text(getattr(replica.log.config, key.replace(".", "_")))
            if found != wanted and not equal_numbers(found, wanted):
                self.fail(f"broker {view.node_id} has applied offset {offset}: {key} of {topic} is {wanted}, its log has {found}")
        least = min(int(in_force(state, static, view.node_id, topic, "min.insync.replicas")), len(replica.replicas))
        if replica.min_isr != least:
            self.fail(
                f"broker {view.node_id} has applied offset {offset}, and demands {replica.min_isr} replicas of {replica.tp} to "
                f"be in sync, not {least}"
            )

    def at_end(self) -> None:
        self._looked.clear()
        for view in self.facts.views.values():
            node = view.node.node
            if node is not None and node.broker is not None:
                self.on_cache(view, node.broker.cache.image)


def equal_numbers(a: str, b: str) -> bool:
    try:
        return float(a) == float(b)
    except ValueError:
        return False
