"""Invariant 100: a directory that is cordoned gets no new replica, and the controller knows what is cordoned (JB-13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final
from uuid import UUID

from kraftlite.broker.server import BrokerServer
from kraftlite.metadata import records as r
from kraftlite.metadata.features import supports_cordoning
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.broker import ReplicaMoveStarted
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import BROKER, MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.services.directories import ALTER_DIR, AlterDirTold
from kraftlite.simhost.network import AnyExchange

_KEY: Final = "cordoned.log.dirs"

Places = Mapping[TopicPartition, tuple[UUID | None, str]]
"""The topic id and the directory of each log of a broker."""


class CordonsKept(MetadataChecker):
    """Looked at in the directories of the logs that a broker has before and after it applies an update, while the same
    directories were cordoned; in the copies that it begins, and the wishes that it refuses. A replica for which somebody asked
    for a directory may be made there, and where nothing else is online there is no choice.

    A broker that registers anew is not used for what it has cordoned; when all is well, each registration names what is cordoned.
    """

    numbers: ClassVar[tuple[int, ...]] = (100,)
    only_methods = (ALTER_DIR,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[tuple[NodeId, int], tuple[frozenset[str], Places]] = {}
        self._wished: dict[tuple[NodeId, int], dict[TopicPartition, None]] = {}
        self._arrived: dict[AnyExchange, frozenset[str] | None] = {}
        self.placed = self.moved = self.refused = 0
        self.facts.watch(ReplicaMoveStarted, self._begun)
        self.facts.watch_arrival(ALTER_DIR, self._asked)
        self.facts.watch_served(ALTER_DIR, self._told)

    def _cordoned(self, view: NodeView) -> frozenset[str] | None:
        """The directories that the broker has applied as cordoned; None while it applies an update."""
        broker = _broker_of(view)
        if broker is None or not broker.publisher._ready or broker.publisher._task is not None:
            return None
        return cordoned_paths(self.facts.history.visible(broker.cache.image.offset), view)

    # --- brokers

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        broker, cordoned = _broker_of(view), self._cordoned(view)
        if broker is None or cordoned is None:
            return
        before = self._seen.get(view.author)
        places: Places = {log.tp: (log.topic_id, log.directory.rpartition("/")[0]) for log in broker.log_dirs.logs()}
        self._seen[view.author] = cordoned, places
        if before is None or not cordoned or before[0] != cordoned:
            return
        online = {state.path for state in broker.log_dirs._dirs if state.online}
        for tp, (topic_id, path) in places.items():
            known = before[1].get(tp)
            if known is not None and known[0] == topic_id:
                continue
            self.placed += 1
            if path in cordoned and online - cordoned and tp not in self._wished.get(view.author, ()):
                registration = image.topics.registration(tp)
                if registration is None or registration.directory_of(view.node_id) not in broker.log_dirs.online_ids():
                    self.fail(
                        f"node {view.node_id} makes a log of {tp} in {path}, which is cordoned; "
                        f"{sorted(online - cordoned)} are not"
                    )

    def _begun(self, view: NodeView, event: ReplicaMoveStarted) -> None:
        cordoned = self._cordoned(view)
        self.moved += 1
        if cordoned is not None and event.target in cordoned:
            self.fail(f"node {view.node_id} copies {event.tp} from {event.source} to {event.target}, which is cordoned")

    def _asked(self, exchange: AnyExchange) -> None:
        view = self.facts.views[exchange.target]
        self._arrived[exchange] = self._cordoned(view)
        self._wished.setdefault(view.author, {})[exchange.request.tp] = None

    def _told(self, exchange: AnyExchange, answer: AlterDirTold) -> None:
        view, before = self.facts.views[exchange.target], self._arrived.pop(exchange, None)
        if answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT and before is not None and before == self._cordoned(view):
            self.refused += 1
            if exchange.request.path not in before:
                self.fail(
                    f"node {view.node_id} refuses to have {exchange.request.tp} in {exchange.request.path}, which is not among "
                    f"the cordoned {sorted(before)}"
                )

    # --- the controller

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if not isinstance(record, r.RegisterBrokerRecord) or not _supported(after):
            return
        known, now = before.brokers.get(record.broker_id), after.brokers[record.broker_id]
        kept = () if known is None else [it for it in known.cordoned_log_dirs or () if it in now.log_dirs]
        if not set(kept) <= set(now.cordoned_log_dirs or ()):
            self.fail(
                f"offset {offset}: broker {record.broker_id} had cordoned {known and known.cordoned_log_dirs}, and is registered "
                f"anew with {now.cordoned_log_dirs}"
            )

    def unsettled(self) -> str | None:
        state = self.facts.history.latest
        for node in self.world.cluster.brokers:
            known = state.brokers.get(node.node_id)
            broker = None if node.node is None else node.node.broker
            if known is None or broker is None or not node.started or not _supported(state):
                continue
            paths = cordoned_paths(state, self.facts.views[node.node_id])
            wanted = {it.directory_id for it in broker.log_dirs._dirs if it.online and it.path in paths}
            if not wanted <= set(known.cordoned_log_dirs or ()) or (not paths and known.cordoned_log_dirs):
                return f"broker {node.node_id} has {sorted(paths)} cordoned, and is registered with {known.cordoned_log_dirs}"
        return None


def cordoned_paths(state: MetadataState, view: NodeView) -> frozenset[str]:
    if not _supported(state):
        return frozenset()
    text = state.configs.get((BROKER, str(view.node_id)), {}).get(_KEY, view.node.config.values.get(_KEY, ""))
    paths = view.node.config.log_dirs
    return frozenset(paths if text == "*" else (it for it in text.split(",") if it in paths))


def _supported(state: MetadataState) -> bool:
    level = state.features.get("metadata.version")
    return level is not None and supports_cordoning(level)


def _broker_of(view: NodeView) -> BrokerServer | None:
    return None if view.node.node is None else view.node.node.broker
