"""The facts that all checkers of the metadata quorum look at, gathered once: nodes, elections, the committed log and its meaning.

`MetadataWatch` drives the checkers: after each callback it compares three small stamps of the node that ran, and only what has
changed reaches the checkers that overrode the hook for it. Decoding happens once per committed batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from kraftlite.log.batch import iter_records
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import ClearElrRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod, Method, Req, Res
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.raft.core import RaftCore
from kraftlite.raft.metalog import METADATA_PARTITION
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogOpened, LogRestarted, LogTruncated
from kraftlite.runtime.trace.raft import LeaderElected, LeaderResigned
from kraftlite.sim.checkers.base import Checker, Violation, World
from kraftlite.sim.checkers.model import MetadataHistory, MetadataState, Misfit
from kraftlite.sim.checkers.views import Entry, EntryPool, LogMemory, NodeView
from kraftlite.sim.checkers.voter_sets import VoterSets
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange, Exchange

NOTE: Final = "metadata facts"

E = TypeVar("E", bound=TraceEvent)
OnEvent: TypeAlias = Callable[[NodeView, E], None]
OnCall: TypeAlias = Callable[[NodeId, NodeId, Req], None]
OnAnswer: TypeAlias = Callable[[NodeId, NodeId, Req, Res], None]
OnArrival: TypeAlias = Callable[[Exchange[Req, Res]], None]
OnServed: TypeAlias = Callable[[Exchange[Req, Res], Res], None]


class MetadataWatch(Checker):
    """Finds nothing itself: keeps the facts for the checkers that are made after it, and passes on to them what has changed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts = world.notes[NOTE] = Facts(world)

    def minds_event(self, kind: type[TraceEvent]) -> bool:
        return self.facts.minds_event(kind)

    def minds_method(self, method: AnyMethod) -> bool:
        return self.facts.minds_method(method)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        self.facts.event(node, event)

    def on_step(self, node: SimHost) -> None:
        self.facts.step(node)

    def on_boot(self, node: SimHost) -> None:
        self.facts.view(node)

    def on_death(self, node: SimHost, how: str) -> None:
        self.facts.death(node, how)

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        self.facts.call(source, target, method, request)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        self.facts.answer(source, target, method, request, response)

    def on_arrival(self, exchange: AnyExchange) -> None:
        for see in self.facts.arrivals.get(exchange.method, ()):
            see(exchange)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        for see in self.facts.served.get(exchange.method, ()):
            see(exchange, response)


class MetadataChecker(Checker):
    """A checker on top of `Facts`. Override the hooks that are needed; each is called only when what it is about has changed.

    `facts.watch`, `watch_call`, `watch_answer`, `watch_arrival` and `watch_served` subscribe to single events and messages.
    Needs a `MetadataWatch` before it.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts: Facts = world.notes[NOTE]
        self.facts.attach(self)

    # the hooks of the facts

    def on_down(self, view: NodeView, how: str) -> None:
        """An incarnation has ended: killed, power, stopped, failed, wiped."""

    def on_opened(self, view: NodeView, before: LogMemory, durable: int) -> None:
        """An incarnation has opened its log. `before`: what the one before it left; [0, durable) of it was safely on the disk."""

    def on_role(self, view: NodeView) -> None:
        """`view.state` is new, or it is the first of an incarnation."""

    def on_append(self, view: NodeView, entry: Entry) -> None:
        """A batch is in the node's log that was not; after a restart also what the last incarnation wrote when it ended."""

    def on_truncate(self, view: NodeView, leo: int) -> None:
        """The node has cut its log at `leo`; `view.log` still has what it dropped."""

    def on_log_restart(self, view: NodeView, offset: int) -> None:
        """The node has dropped its log and starts anew at `offset`; `view.log` still has the old one."""

    def on_raft(self, view: NodeView) -> None:
        """Anything of role, log, high watermark, recovery point or snapshots has changed."""

    def on_hw(self, view: NodeView, old: int, new: int) -> None:
        """The node's high watermark moves; `facts.committed_end` does not count that yet."""

    def on_hw_noted(self, view: NodeView, old: int, new: int) -> None:
        """Called like `on_hw`, after `facts` has taken over what is committed by it."""

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        """A batch is committed in the cluster for the first time; its records were replayed."""

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        """A record is committed for the first time."""

    def on_controller(self, view: NodeView) -> None:
        """Claim, offsets or parked answers of the node's controller have changed."""

    def on_image(self, view: NodeView, image: MetadataImage) -> None:
        """The node has a new metadata image."""

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        """The node's broker answers clients from a new image."""


_HOOKS: Final = (
    "on_down", "on_opened", "on_role", "on_append", "on_truncate", "on_log_restart", "on_raft", "on_hw", "on_hw_noted",
    "on_commit", "on_record", "on_controller", "on_image", "on_cache",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """A committed state of a partition: which record made it, and everything before that record."""

    offset: int
    registration: PartitionRegistration
    before: MetadataState


class Facts:
    """Shared by all `MetadataChecker`s of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.views: dict[NodeId, NodeView] = {node_id: NodeView(node) for node_id, node in world.nodes.items()}
        self.controllers = tuple(sorted(it for it, view in self.views.items() if view.node.config.is_controller))
        self.voter_sets = VoterSets(world.cluster.quorum)
        self.pool = EntryPool()
        self.serde = MetadataSerde()
        self.history = MetadataHistory()
        self.changes: dict[TopicIdPartition, dict[int, PartitionCommit]] = {}
        """Every committed state of every partition, by partition epoch."""
        self.elected: dict[int, tuple[NodeId, int]] = {}
        """The winner of each epoch, and its incarnation."""
        self.committed: list[Entry] = []
        """All batches below the highest high watermark any node ever knew, in order."""
        self.committed_end = 0
        self.published_hw = 0
        """The highest that a leader ever had."""
        self._hooks: dict[str, list[Callable[..., None]]] = {name: [] for name in _HOOKS}
        self._events: dict[type[TraceEvent], list[OnEvent[Any]]] = {}
        self._calls: dict[AnyMethod, list[OnCall[Any]]] = {}
        self._answers: dict[AnyMethod, list[OnAnswer[Any, Any]]] = {}
        self.arrivals: dict[AnyMethod, list[OnArrival[Any, Any]]] = {}
        self.served: dict[AnyMethod, list[OnServed[Any, Any]]] = {}
        self._committed_at: dict[int, Entry] = {}
        self.watch(LeaderElected, self._elected)
        self.watch(LeaderResigned, self._resigns)
        self.watch(LogTruncated, self._truncated)
        self.watch(LogRestarted, self._restarted)
        self.watch(LogOpened, self._opened_log)

    # --- checkers

    def attach(self, checker: MetadataChecker) -> None:
        for name, hooks in self._hooks.items():
            if getattr(type(checker), name) is not getattr(MetadataChecker, name):
                hooks.append(getattr(checker, name))

    def watch(self, event: type[E], see: OnEvent[E]) -> None:
        self._events.setdefault(event, []).append(see)

    def watch_call(self, method: Method[Req, Res], see: OnCall[Req]) -> None:
        self._calls.setdefault(method, []).append(see)

    def watch_answer(self, method: Method[Req, Res], see: OnAnswer[Req, Res]) -> None:
        self._answers.setdefault(method, []).append(see)

    def watch_arrival(self, method: Method[Req, Res], see: OnArrival[Req, Res]) -> None:
        self.arrivals.setdefault(method, []).append(see)

    def watch_served(self, method: Method[Req, Res], see: OnServed[Req, Res]) -> None:
        """Also of answers that never arrive, such as those to a request of a broker that has died."""
        self.served.setdefault(method, []).append(see)

    def minds_event(self, kind: type[TraceEvent]) -> bool:
        return kind in self._events

    def minds_method(self, method: AnyMethod) -> bool:
        return any(method in table for table in (self._calls, self._answers, self.arrivals, self.served))

    def view(self, node: SimHost) -> NodeView:
        """Return the view of this node, in the incarnation that runs now."""
        found = self.views[node.node_id]
        if found.here is not node.now:
            found.enter(node.now)
        return found

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """Those of the newest set that is committed; before there is one, those with which the cluster began."""
        return tuple(node_id for node_id, _ in self.voter_sets.newest)

    def committed_at(self, base_offset: int) -> Entry | None:
        return self._committed_at.get(base_offset)

    def last_leader(self) -> tuple[int, NodeId, int] | None:
        """Highest epoch that was won, by whom, in which incarnation."""
        if not self.elected:
            return None
        epoch = max(self.elected)
        return epoch, *self.elected[epoch]

    def records(self, entry: Entry) -> list[tuple[int, MetadataRecord]]:
        """(offset, record) of a data batch."""
        if entry.is_control:
            return []
        return [
            (entry.base_offset + it.offset_delta, self.serde.decode(it.value))
            for it in iter_records(entry.raw)
            if it.value is not None
        ]

    # --- what the world tells

    def event(self, node: SimHost, event: TraceEvent) -> None:
        watching = self._events.get(type(event))
        if watching is not None and node.now is not None:  # else: what ends itself may still talk until its callback returns
            view = self.view(node)
            for see in watching:
                see(view, event)

    def call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        for see in self._calls.get(method, ()):
            see(source, target, request)

    def answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        for see in self._answers.get(method, ()):
            see(source, target, request, response)

    def death(self, node: SimHost, how: str) -> None:
        view = self.views[node.node_id]
        self._tell("on_down", view, how)
        view.enter(node.now)
        if how == "wiped":
            view.lose_disk()

    def step(self, node: SimHost) -> None:
        here = node.now
        if here is None:
            return
        view = self.views[node.node_id]
        if view.here is not here:
            view.enter(here)
        core = view.core
        if core is None:
            core = self._open(view)
            if core is None:
                return
        raft, metalog = core._ctx, core.metalog  # after each step: no properties in between
        log, state = metalog.log._ctx, raft.state
        stamp = (
            state, log.leo, raft.hw, state.hw if isinstance(state, Leader) else None, log.recovery_point,
            log.log_start_offset, metalog.snapshots.latest,
        )  # fmt: skip
        if stamp != view.raft_stamp:
            view.raft_stamp = stamp
            view.kept_from = log.log_start_offset
            self._raft(view, core)
        controller = view.controller
        if controller is not None:
            offsets, deferred = controller.offsets, controller.deferred
            claim = (
                controller.claim_epoch, controller.activated, offsets.write_offset, offsets.committed_offset,
                offsets.stable_offset, len(deferred), deferred.highest_pending_offset,
            )  # fmt: skip
            if claim != view.controller_stamp and not controller.queue.has_begun:  # between the turns of an event: not yet
                view.controller_stamp = claim
                self._tell("on_controller", view)
        running = here.node
        image = running.loader.image
        if image is not view.image:
            view.image = image
            self._tell("on_image", view, image)
        broker = running.broker
        if broker is not None and broker.cache.image is not view.cached:
            view.cached = broker.cache.image
            self._tell("on_cache", view, view.cached)

    def _tell(self, hook: str, *args: object) -> None:
        for tell in self._hooks[hook]:
            tell(*args)

    # --- a node's log

    def _open(self, view: NodeView) -> RaftCore | None:
        """The core of a new incarnation, None while it is not open."""
        assert view.here is not None
        try:
            core = view.here.node.raft.core
        except Fault:
            return None  # "not started" is all that the property can raise
        view.core = core
        controller = view.here.node.controller
        view.controller = controller.core if controller is not None else None
        view.directory = core.config.metadata_dir
        if core.config.directory_id != view.directory_id:  # another disk: nothing of the old one counts
            view.directory_id = core.config.directory_id
            view.forget_disk()
        before, durable = view.log, view.durable
        log = core.metalog.log
        entries = view.read_log(self.pool, log.log_start_offset, log.leo)
        view.log = LogMemory(log.log_start_offset)
        opened_leo = view.opened_leo if view.opened_leo is not None else log.leo
        for entry in entries:
            if entry.next_offset <= opened_leo:
                view.log.add(entry)
        view.durable = min(max(durable, log.log_start_offset), view.log.leo)
        forgot = self.world.losses.forgetful.get(view.node_id, 0)
        view.forgets, view.forgot = forgot > view.forgot, forgot
        self._tell("on_opened", view, before, durable)
        for entry in view.log.beyond(before.leo):
            self._tell("on_append", view, entry)  # written by the callback in which the last incarnation ended
        return core

    def _opened_log(self, view: NodeView, event: LogOpened) -> None:
        if event.tp == METADATA_PARTITION:
            view.opened_leo = event.leo

    def _truncated(self, view: NodeView, event: LogTruncated) -> None:
        if event.tp != METADATA_PARTITION or view.core is None:
            return
        self._take_appended(view)
        self._tell("on_truncate", view, event.leo)
        view.log.cut(event.leo)
        view.durable = min(view.durable, event.leo)

    def _restarted(self, view: NodeView, event: LogRestarted) -> None:
        if event.tp == METADATA_PARTITION and view.core is None:
            view.opened_leo = event.offset
        elif event.tp == METADATA_PARTITION:
            self._tell("on_log_restart", view, event.offset)
            view.forget_disk(event.offset)

    def _take_appended(self, view: NodeView) -> None:
        log = view.raft.metalog.log
        if log.leo > view.log.leo:
            for entry in view.read_log(self.pool, view.log.leo, log.leo):
                view.log.add(entry)
                self._tell("on_append", view, entry)

    # --- raft

    def _elected(self, view: NodeView, event: LeaderElected) -> None:
        self.elected.setdefault(event.raft_epoch, view.author)

    def _resigns(self, view: NodeView, event: LeaderResigned) -> None:
        """A leader that leaves has committed as a leader all that it has committed in this step."""
        if view.core is not None:
            self._raft(view, view.core)

    def _raft(self, view: NodeView, core: RaftCore) -> None:
        state = core.state
        if state is not view.state:
            view.state = state
            if isinstance(state, Leader):
                self.elected.setdefault(state.epoch, view.author)
            self._tell("on_role", view)
        self._take_appended(view)
        new, old = core.committed_offset or 0, view.hw
        if new != old:
            self._tell("on_hw", view, old, new)
            view.hw = new
            if isinstance(state, Leader):
                self.published_hw = max(self.published_hw, new)
            self._take_committed(view)
            self._tell("on_hw_noted", view, old, new)
        self._tell("on_raft", view)

    def _take_committed(self, view: NodeView) -> None:
        while self.committed_end < view.hw:
            entry = view.log.starting_at(self.committed_end)
            if entry is None or entry.next_offset > view.hw:
                raise Violation(
                    "committed metadata log",
                    f"node {view.node_id} says that [0,{view.hw}) is committed, but no batch of its log goes from "
                    f"{self.committed_end} to there: {view.log.entries[-3:]}",
                )
            self.committed.append(entry)
            self._committed_at[entry.base_offset] = entry
            self.committed_end = entry.next_offset
            self.voter_sets.note(entry)
            self._replay(entry)

    def _note_cleared(self, offset: int, old: MetadataState, new: MetadataState) -> None:
        for topic_id, topic in new.topics.items():
            for index, now in topic.partitions.items():
                before = old.partition(topic_id, index)
                if now is not before:
                    found = self.changes.setdefault(TopicIdPartition(topic_id, index), {})
                    found.setdefault(now.partition_epoch, PartitionCommit(offset, now, old))

    def _replay(self, entry: Entry) -> None:
        before = self.history.latest
        for offset, record in self.records(entry):
            try:
                old, new = self.history.replay(record, offset)
            except Misfit as misfit:
                raise Violation("committed metadata log", f"offset {offset}, epoch {entry.epoch}: {misfit}") from misfit
            if isinstance(record, ClearElrRecord):
                self._note_cleared(offset, old, new)
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                registration = new.partition(record.topic_id, record.partition)
                assert registration is not None, "the record was replayed"
                found = self.changes.setdefault(TopicIdPartition(record.topic_id, record.partition), {})
                found.setdefault(registration.partition_epoch, PartitionCommit(offset, registration, old))
            self._tell("on_record", entry, offset, record, old, new)
        self._tell("on_commit", entry, before, self.history.latest)
