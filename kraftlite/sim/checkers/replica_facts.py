"""The facts that the checkers of partition replication look at, gathered once: running replicas, what is committed, who asked for
what.

Driven by `losses_keeper.LossesKeeper`. Per callback of a node it compares a few numbers of each of its partitions; only what
changed reaches the checkers. Every byte of a replica's log is read once, and again where it was cut and written anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.log.batch import check_crc, iter_batches
from kraftlite.log.log import Log
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.replica import ReplicaFetchRequest
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.partition import Partition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.facts import NOTE as METADATA_NOTE
from kraftlite.sim.checkers.facts import Facts
from kraftlite.sim.checkers.replica_views import Batch, ReplicaView, Stamp, Truth
from kraftlite.simhost.host import Incarnation, SimHost

NOTE: Final = "replica facts"
_READ_BYTES: Final = 1 << 20
_EXPIRATION: Final = "producer.id.expiration.ms"
_SURELY_LIVE_MS: Final = 600_000
"""Longer than a producer of a run waits with a record, and shorter than any expiration that is not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A change of a partition in the metadata log: before and after a batch was committed. `new` None: the topic is gone."""

    key: TopicIdPartition
    tp: TopicPartition
    old: PartitionRegistration | None
    new: PartitionRegistration | None


class ReplicaChecker(Checker):
    """A checker on top of `ReplicaFacts`; override the hooks that are needed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts = replica_facts(world)
        self.facts.attach(self)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        """Something of this replica has changed; `was` None: it is new. Its log has been read to the end."""

    def on_truth(self, truth: Truth) -> None:
        """More of the partition is committed: `truth.hw` has grown."""

    def on_partition(self, change: PartitionChange) -> None:
        """The controller's committed word on a partition is new."""

    def on_batch(self, truth: Truth, batch: Batch, raw: memoryview) -> None:
        """A batch that no replica had before is in a log. `raw`: its bytes."""


_HOOKS: Final = ("on_replica", "on_truth", "on_partition", "on_batch")


def replica_facts(world: World) -> ReplicaFacts:
    """Those of this world, made when they are first asked for."""
    found = world.notes.get(NOTE)
    if found is None:
        found = world.notes[NOTE] = ReplicaFacts(world)
    assert isinstance(found, ReplicaFacts)
    return found


class _Local:
    """The replicas that one incarnation of a node hosts."""

    __slots__ = ("by_tp", "here", "seen", "views")

    def __init__(self, here: Incarnation) -> None:
        broker = here.node.broker
        self.here = here
        self.by_tp: Mapping[TopicPartition, Partition] = {} if broker is None else broker.replicas._table.by_tp
        self.views: dict[TopicPartition, ReplicaView] = {}
        self.seen: dict[Partition, ReplicaView] = {}
        """The same by the objects themselves: what is asked after each step."""


class ReplicaFacts:
    """Shared by all `ReplicaChecker`s of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.truths: dict[TopicIdPartition, Truth] = {}
        self.views: dict[TopicIdPartition, dict[NodeId, ReplicaView]] = {}
        """Replicas that run now and have their log."""
        self.asked: dict[tuple[NodeId, NodeId, TopicIdPartition], dict[tuple[int, int], int]] = {}
        """(follower, leader, partition) → (leader epoch, the follower's broker epoch) → largest offset that it fetched at."""
        self.committed_us: dict[int, int] = {}
        """The time at which a metadata record was committed, by its offset."""
        self.excuses: dict[TopicIdPartition, str] = {}
        """The same as `Losses.excused`, for topics that are gone too."""
        self._compacted: dict[str | None, None] = {}
        self._restamped: dict[str | None, None] = {}
        """Topics that have, or had, such a configuration; None stands for all."""
        self.numbers_of: dict[tuple[str, str], list[int]] = {}
        """(topic, key) → every value that this configuration of its own ever had, if it is a number."""
        self._local: dict[NodeId, _Local] = {}
        self._hooks: dict[str, list[Callable[..., None]]] = {name: [] for name in _HOOKS}

    def attach(self, checker: ReplicaChecker) -> None:
        for name, hooks in self._hooks.items():
            if getattr(type(checker), name) is not getattr(ReplicaChecker, name):
                hooks.append(getattr(checker, name))

    def _tell(self, hook: str, *args: Any) -> None:
        for tell in self._hooks[hook]:
            tell(*args)

    # --- what the controller says

    @property
    def metadata(self) -> Facts:
        found = self.world.notes[METADATA_NOTE]
        assert isinstance(found, Facts)
        return found

    def registration(self, key: TopicIdPartition) -> PartitionRegistration | None:
        """Return the registration of the partition as it is committed."""
        return self.metadata.history.latest.partition(key.topic_id, key.partition)

    def is_tainted(self, view: ReplicaView) -> bool:
        """It may lack what it once had, and the cluster knows nothing of that yet."""
        return view.node_id in self.world.losses.tainted.get(view.tp, ())

    def partition_changed(self, change: PartitionChange) -> None:
        self._tell("on_partition", change)

    def note_compacted(self, topic: str | None) -> None:
        """Compaction may rewrite the logs of this topic (None: of every topic) from now on."""
        self._compacted[topic] = None
        for truth in self.truths.values():
            truth.compacted = self.is_compacted(truth.tp.topic)

    def note_restamped(self, topic: str | None) -> None:
        """The leaders of this topic (None: of every topic) may write other bytes than those that were sent."""
        self._restamped[topic] = None

    def is_compacted(self, topic: str) -> bool:
        return topic in self._compacted or None in self._compacted

    def is_restamped(self, topic: str) -> bool:
        return topic in self._restamped or None in self._restamped

    def forget_committed(self, key: TopicIdPartition, floor: int) -> None:
        """Note that from leader epoch `floor` on another history of the partition counts: what was committed before may be
        gone."""
        truth = self.truths.get(key)
        if truth is not None:
            truth.reset(floor)
            for view in self.views.get(key, {}).values():
                view.verified = 0

    # --- messages

    def fetch_sent(self, source: NodeId, target: NodeId, request: ReplicaFetchRequest) -> None:
        for asked in request.partitions:
            key = (source, target, TopicIdPartition(asked.topic_id, asked.partition))
            known = self.asked.get(key)
            if known is None:
                known = self.asked[key] = {}
            epochs = (asked.current_leader_epoch, request.replica_epoch)
            if asked.fetch_offset > known.get(epochs, -1):
                known[epochs] = asked.fetch_offset

    def asked_up_to(self, follower: NodeId, view: ReplicaView, leader_epoch: int, broker_epoch: int | None = None) -> int:
        """Return how far `follower` has said to this leader that it has everything, in this leader epoch; -1: it said nothing."""
        known = self.asked.get((follower, view.node_id, view.key), {})
        return max(
            (offset for (of, by), offset in known.items() if of == leader_epoch and broker_epoch in (None, by)), default=-1
        )

    # --- replicas

    def step(self, node: SimHost) -> None:
        """Look at what this node hosts."""
        here = node.now
        if here is None:
            return
        local = self._local.get(node.node_id)
        if local is None or local.here is not here:
            local = self._enter(node, here)
        seen = local.seen
        for partition in local.by_tp.values():
            view = seen.get(partition)
            if view is None:
                view = self._new_view(node, local, partition)
            else:
                ctx = view.ctx
                leader = partition.leader
                if (
                    partition.log is view.log
                    and (
                        ctx is None
                        or partition.log is None
                        or (ctx.leo == view.leo and ctx.hw == view.hw and ctx is partition.log._ctx)
                    )
                    and leader is view.leader
                    and (leader is None or leader.isr.maximal is view.maximal)
                    and partition.partition_epoch == view.partition_epoch
                    and partition.min_isr == view.min_isr
                    and not view.dirty
                ):
                    continue
            self._look(view)
        if len(seen) != len(local.by_tp):
            for tp in [tp for tp in local.views if tp not in local.by_tp]:
                gone = local.views.pop(tp)
                del seen[gone.partition]
                self._drop(gone)

    def _enter(self, node: SimHost, here: Incarnation) -> _Local:
        self._leave(node.node_id)
        local = self._local[node.node_id] = _Local(here)
        return local

    def death(self, node: SimHost) -> None:
        """Nothing of it runs, unless a new incarnation does already."""
        local = self._local.get(node.node_id)
        if local is not None and local.here is not node.now:
            self._leave(node.node_id)

    def _leave(self, node_id: NodeId) -> None:
        local = self._local.pop(node_id, None)
        for view in local.views.values() if local is not None else ():
            self._drop(view)

    def _drop(self, view: ReplicaView) -> None:
        here = self.views.get(view.key)
        if here is not None and here.get(view.node_id) is view:
            del here[view.node_id]

    def _new_view(self, node: SimHost, local: _Local, partition: Partition) -> ReplicaView:
        old = local.views.get(partition.tp)
        if old is not None:
            del local.seen[old.partition]
            self._drop(old)
        view = local.views[partition.tp] = local.seen[partition] = ReplicaView(node, local.here, partition)
        return view

    def view(self, node_id: NodeId, tp: TopicPartition) -> ReplicaView | None:
        """The replica on this node, if it runs and has its log."""
        local = self._local.get(node_id)
        view = None if local is None else local.views.get(tp)
        return view if view is not None and view.log is not None else None

    def truth(self, key: TopicIdPartition, tp: TopicPartition) -> Truth:
        found = self.truths.get(key)
        if found is None:
            found = self.truths[key] = Truth(key, tp)
            found.compacted = self.is_compacted(tp.topic)
        return found

    def log_cut(self, node: SimHost, tp: TopicPartition, leo: int) -> None:
        """The node's log of this partition lost everything from `leo` on, just now."""
        local = self._local.get(node.node_id)
        view = None if local is None or local.here is not node.now else local.views.get(tp)
        if view is not None and view.log is not None and view.log is view.partition.log:
            view.cut(leo)

    def _look(self, view: ReplicaView) -> None:
        partition = view.partition
        was = view.stamp() if view.looked else None
        view.looked = True
        view.was_cut, view.dirty = view.dirty, False
        log = partition.log
        if log is not view.log or (log is not None and log._ctx is not view.ctx):
            view.attach(log)  # also of the same log when it goes on with files in another directory
        view.read_state()
        truth = self.truth(view.key, view.tp)
        hosts = self.views.setdefault(view.key, {})
        if log is None or partition.leader_epoch < 0:
            self._drop(view)
        else:
            hosts[view.node_id] = view
            view.forget_below(log.log_start_offset)
            truth.start = max(truth.start, log.log_start_offset)
            with view.node.disk.undisturbed():
                self._scan(view, log, truth)
        truth.was = truth.hw
        grown = view.log is not None and self._extend(truth, view)
        self._tell("on_replica", view, was)
        if grown:
            self._tell("on_truth", truth)

    def _scan(self, view: ReplicaView, log: Log, truth: Truth) -> None:
        if view.scanned > log.leo:
            view.cut(log.leo)
        view.scanned = max(view.scanned, log.log_start_offset)
        while view.scanned < log.leo:
            try:
                data = log.read(view.scanned, _READ_BYTES, up_to=log.leo)
                count = 0
                for header, raw in iter_batches(data):
                    count += 1
                    if not check_crc(raw, header):
                        view.problems.append(f"the CRC of the batch at {header.base_offset} is wrong")
                    batch = Batch.of(header)
                    known = truth.known_as(batch, view)
                    view.add(known, gaps=truth.compacted)
                    if known is batch:
                        self._tell("on_batch", truth, batch, raw)
            except ApiError as error:
                view.problems.append(f"cannot be read at {view.scanned}: {error}")
                return
            if not count and truth.compacted:
                view.sparse_below = view.scanned = log.leo  # what came last was removed, and its segment is not the active one
            elif not count:
                view.problems.append(f"has no batch at {view.scanned}, its LEO is {log.leo}")
                return

    # --- what is committed

    def _extend(self, truth: Truth, view: ReplicaView) -> bool:
        """A leader's HW says what is committed. Whether that is more than was known."""
        leader = view.leader
        if leader is None or view.leader_epoch < truth.floor or self.is_tainted(view):
            return False
        truth.hw_by_epoch[view.leader_epoch] = max(view.hw, truth.hw_by_epoch.get(view.leader_epoch, 0))
        if view.hw <= truth.hw:
            return False
        for batch in view.batches[bisect_left(view.bases, truth.end) :]:
            if batch.next_offset > view.hw:
                break
            truth.commit(batch)
        truth.hw = view.hw
        return True

    def settled(self, view: ReplicaView, truth: Truth) -> bool:
        """Return whether a replica's log must agree with what is committed: after a loss that was allowed, only who follows
        the new history."""
        if self.is_tainted(view):
            return False
        if truth.floor < 0:
            return True
        if view.leader_epoch < truth.floor:
            return False
        if view.leader is not None:
            return True
        registration = self.registration(view.key)
        return registration is not None and view.node_id in (*registration.isr, *registration.elr)

    def lacks(self, view: ReplicaView, truth: Truth) -> str | None:
        """Say in words which of the committed records a replica does not have; None when it has all."""
        if view.leo < truth.hw:
            return f"its LEO is {view.leo}, but {truth.hw} is committed"
        return self.differs(view, truth, truth.hw)

    def differs(self, view: ReplicaView, truth: Truth, below: int) -> str | None:
        """Say in words where a replica contradicts what is committed below an offset."""
        end = min(below, truth.end)
        if view.verified >= end:
            return None
        for batch in view.batches[bisect_left(view.bases, view.verified) :]:
            if batch.next_offset > end:
                break
            known = truth.by_base.get(batch.base_offset)
            unknown = known is None and truth.compacted  # its leader had it compacted away when it was looked at first
            if known is not batch and batch.base_offset >= truth.begin and not unknown:
                return f"it has {batch}, committed is {known}"
            view.verified = batch.next_offset
        return None


def may_forget_producers(world: World) -> bool:
    """A wall clock that jumps by half of `producer.id.expiration.ms` (a day) makes a broker forget its producers (LG-21); and so
    does an outage that is longer than an expiration that was drawn short."""
    idle_ms = int(world.cluster.shape.config.get(_EXPIRATION) or BROKER_CONFIGS[_EXPIRATION].default or 0)
    jumped_ms = max(map(abs, world.cluster.wall_offset_ms.values()), default=0)
    return idle_ms < _SURELY_LIVE_MS or jumped_ms > idle_ms // 2


def leads(view: ReplicaView, registration: PartitionRegistration | None) -> LeaderState | None:
    """The leader's state of a replica that leads in the leader epoch that the controller has committed last."""
    if registration is None or registration.leader != view.node_id or registration.leader_epoch != view.leader_epoch:
        return None
    return view.leader
