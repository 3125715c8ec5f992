"""Invariant 74: with eligible leader replicas, ISR, ELR and leader of a partition are what its history makes them (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import BrokerRegistrationRequest
from kraftlite.model.messages.methods import REGISTER_BROKER
from kraftlite.runtime.trace.controller import BrokerSessionExpired
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import BROKER, TOPIC, MetadataState, completes_a_move, has_elr, in_online_directory
from kraftlite.sim.checkers.views import Entry, NodeView

_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A change of a partition, as one record makes it."""

    name: str
    offset: int
    old: PartitionRegistration
    new: PartitionRegistration
    min_isr: int
    kept: bool
    """Eligible leader replicas were kept already."""
    anew: tuple[NodeId, ...] = ()
    """Replicas that may have begun anew in another directory, and then vouch for nothing."""
    away: tuple[NodeId, ...] = ()
    """Replicas whose brokers are not active at this record. A later operation of the same batch may unfence one."""
    leaving: tuple[NodeId, ...] = ()
    """Replicas of brokers whose session is over for the controller that writes this: it has yet to fence them (CM-10)."""


class EligibleLeaders(MetadataChecker):
    """Written from EL-03 to EL-12, a batch at a time: what ends a broker, or begins it anew, and what follows from it are
    written as one.

    While the feature is on: whoever leaves an ISR below the minimum is eligible, and stays it until the ISR is large
    enough, until its broker is registered after a stop that was not clean, or until an unclean election. Nobody who is gone
    is in an ISR. Leaders come from the ISR, else from the ELR, else the last known one leads, and no partition is left
    without a leader that could have one. When the feature is turned off nobody is eligible any more beside an ISR. All
    brokers have one value of min.insync.replicas, and a change of it clears the sets, but of partitions without an ISR.
    """

    numbers: ClassVar[tuple[int, ...]] = (74,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._previous: dict[UUID, int | None] = {}
        """The broker epoch that an incarnation says its former self stopped cleanly with."""
        self._changes: list[_Change] = []
        self._gone: dict[NodeId, str] = {}
        """The brokers that the batch ends, and how."""
        self._back: dict[NodeId, None] = {}
        """Those that the same batch unfences again."""
        self._lost: dict[NodeId, None] = {}
        self._cleared: dict[str | None, None] = {}
        self._minimum: dict[str | None, None] = {}
        """The topics whose minimum the batch changes; None: those of all."""
        self._leaving: dict[NodeId, int] = {}
        """The metadata epoch of the controller that ended a broker's session, until it is fenced."""
        self.facts.watch_call(REGISTER_BROKER, self._on_register)
        self.facts.watch(BrokerSessionExpired, self._on_expired)

    def _on_register(self, source: NodeId, target: NodeId, request: BrokerRegistrationRequest) -> None:
        self._previous[request.incarnation_id] = request.previous_broker_epoch

    def _on_expired(self, view: NodeView, event: BrokerSessionExpired) -> None:
        self._leaving[event.broker_id] = view.raft.epoch

    # --- a batch, record by record

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        match record:
            case r.PartitionChangeRecord():
                self._note(entry, offset, record, before, after)
            case r.BrokerRegistrationChangeRecord():
                self._leaving.pop(record.broker_id, None)
                if record.fenced is True:
                    self._gone[record.broker_id] = "fenced"
                    self._back.pop(record.broker_id, None)
                elif record.fenced is False:
                    self._back[record.broker_id] = None
                elif record.in_controlled_shutdown is True:
                    self._gone[record.broker_id] = "shutting down"
                elif isinstance(record.log_dirs, tuple):
                    self._gone.setdefault(record.broker_id, "")
            case r.UnregisterBrokerRecord():
                self._leaving.pop(record.broker_id, None)
                self._gone[record.broker_id] = "unregistered"
                self._lost[record.broker_id] = None
            case r.RegisterBrokerRecord():
                self._note_registration(record, before)
            case r.ClearElrRecord():
                self._cleared[record.topic_name or None] = None
            case r.ConfigRecord() if record.name == _MIN_ISR and record.resource_type in (TOPIC, BROKER) and has_elr(before):
                found = before.topic_named(record.resource_name)
                if record.resource_type == BROKER or (found is not None and found[1].partitions):  # no topic that is created
                    self._minimum[record.resource_name if record.resource_type == TOPIC else None] = None
            case _:
                pass

    def _note(
        self, entry: Entry, offset: int, record: r.PartitionChangeRecord, before: MetadataState, after: MetadataState
    ) -> None:
        old, new = before.partition(record.topic_id, record.partition), after.partition(record.topic_id, record.partition)
        assert old is not None and new is not None, "the record was replayed"
        topic = after.topics[record.topic_id].name
        found = after.topic_config(topic, _MIN_ISR) or self.world.cluster.shape.config.get(_MIN_ISR, "1")
        least = min(int(found), len(new.replicas))
        anew = tuple(it for it in new.replicas if it in old.replicas and _has_left(before, old, new, it))
        name = f"{topic}-{record.partition}"
        away = tuple(it for it in new.replicas if it not in after.brokers or not after.brokers[it].active)
        self._changes.append(
            _Change(
                name=name,
                offset=offset,
                old=old,
                new=new,
                min_isr=least,
                kept=has_elr(before),
                anew=anew,
                away=away,
                leaving=tuple(it for it in new.replicas if self._leaving.get(it) == entry.epoch),
            )
        )

    def _note_registration(self, record: r.RegisterBrokerRecord, before: MetadataState) -> None:
        self._leaving.pop(record.broker_id, None)
        known = before.brokers.get(record.broker_id)
        if known is not None and known.incarnation_id == record.incarnation_id:
            return
        self._gone[record.broker_id] = "a new incarnation"
        previous = self._previous.get(record.incarnation_id)
        if known is None or previous is None or previous != known.broker_epoch:
            self._lost[record.broker_id] = None
        if record.in_controlled_shutdown:
            self.fail(f"a new incarnation of broker {record.broker_id} begins in controlled shutdown")

    # --- the whole of it

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        changes, gone, lost, back = self._changes, self._gone, self._lost, self._back
        cleared, minimum = self._cleared, self._minimum
        self._changes, self._gone, self._lost, self._back, self._cleared, self._minimum = [], {}, {}, {}, {}, {}
        if has_elr(before) and not has_elr(after):
            self._check_off(entry, after)
        if not has_elr(before) or not has_elr(after) or not before.brokers:
            return  # without brokers: a new log's first records, of which a batch may have some
        self._check_minimum(after, cleared, minimum)
        if cleared:
            self._check_restored(before, after, cleared, lost)
        for broker_id, how in gone.items():
            if how and broker_id not in back:
                self._check_gone(after, broker_id, how, lost=broker_id in lost)
        last = {change.name: change for change in changes}
        for change in changes:
            # Who is live at the end of the batch may not have been so yet at an earlier change.
            ends = change is last[change.name]
            may_be_lost = {**lost, **dict.fromkeys(change.anew)}
            wrong = _sets(change, may_be_lost, restored=bool(cleared)) or _election(change, gone, after, ends=ends)
            if wrong is not None:
                self.fail(f"offset {change.offset}: {change.name} {wrong}: {change.old} becomes {change.new}")

    def _check_off(self, entry: Entry, state: MetadataState) -> None:
        """EL-03: the sets are those of an unbroken time. Where nobody is in the ISR they are all that may lead."""
        for topic in state.topics.values():
            for index, it in topic.partitions.items():
                if it.isr and (it.elr or it.last_known_elr):
                    self.fail(f"{topic.name}-{index} has eligible leader replicas behind {entry}, which turns them off: {it}")

    def _check_minimum(self, state: MetadataState, cleared: dict[str | None, None], minimum: dict[str | None, None]) -> None:
        if _MIN_ISR not in state.configs.get((BROKER, ""), {}):
            self.fail(f"brokers may disagree on {_MIN_ISR}: there is no value for the cluster")
        for (kind, name), values in state.configs.items():
            if kind == BROKER and name != "" and _MIN_ISR in values:
                self.fail(f"brokers may disagree on {_MIN_ISR}: broker {name} has the value {values[_MIN_ISR]}")
        for topic in minimum:
            if topic not in cleared and None not in cleared:
                self.fail(f"{_MIN_ISR} of {topic or 'the cluster'} changes, and the ELR of before stays")

    def _check_restored(
        self, before: MetadataState, after: MetadataState, cleared: dict[str | None, None], lost: dict[NodeId, None]
    ) -> None:
        """EL-04: where nobody is in the ISR, who may lead is known as before."""
        for topic_id, topic in before.topics.items():
            now = after.topics.get(topic_id)
            if now is None or (None not in cleared and topic.name not in cleared):
                continue
            for index, old in topic.partitions.items():
                new = now.partitions.get(index)
                if old.isr or new is None or new.isr:
                    continue
                if old.last_known_elr != new.last_known_elr or any(it not in new.elr and it not in lost for it in old.elr):
                    self.fail(f"{topic.name}-{index} has no ISR, and nobody knows any more who may lead: {old} becomes {new}")

    def _check_gone(self, state: MetadataState, broker_id: NodeId, how: str, *, lost: bool) -> None:
        for topic in state.topics.values():
            for index, it in topic.partitions.items():
                if broker_id in it.isr:
                    self.fail(f"{topic.name}-{index} has broker {broker_id} in its ISR, which is {how}: {it}")
                if lost and broker_id in it.elr:
                    self.fail(
                        f"{topic.name}-{index} has broker {broker_id} in its ELR, which may have lost records ({how}): {it}"
                    )


def _has_left(state: MetadataState, old: PartitionRegistration, new: PartitionRegistration, broker_id: NodeId) -> bool:
    """Return whether a replica is in another directory, and the one it had is not online: it may have begun anew (JB-06)."""
    return old.directory_of(broker_id) != new.directory_of(broker_id) and not in_online_directory(state, old, broker_id)


def _sets(change: _Change, lost: dict[NodeId, None], *, restored: bool) -> str | None:
    """EL-05, EL-08."""
    old, new = change.old, change.new
    vouching = [it for it in new.replicas if it in (*old.isr, *old.elr) and it not in new.isr]
    unclean = new.leader != old.leader and new.leader not in (None, *old.isr, *old.elr) and not completes_a_move(old, new)
    enough = len(new.isr) >= change.min_isr
    if restored:
        return "has eligible leader replicas beside an ISR" if new.elr and new.isr and enough else None
    wanted = () if enough or unclean else vouching
    # Operations of one batch follow each other: who is lost at its end may not have been lost yet.
    if any(it not in wanted for it in new.elr) or any(it not in new.elr and it not in lost for it in wanted):
        return f"should have the ELR {tuple(wanted)} with a minimum of {change.min_isr}"
    if new.leader is not None:
        return "has a leader, and one that led last" if new.last_known_elr else None
    if old.last_known_elr:
        return None if new.last_known_elr == old.last_known_elr else "has forgotten who led last"
    if old.leader is not None and new.last_known_elr != (old.leader,):
        return "does not know who led last"
    return None


def _election(change: _Change, gone: dict[NodeId, str], state: MetadataState, *, ends: bool) -> str | None:
    """EL-07, EL-09: the ISR, then the ELR, then who led last, then anybody."""
    old, new = change.old, change.new

    def live(members: Sequence[NodeId]) -> list[NodeId]:
        found = [it for it in members if it in new.replicas and it not in gone and it not in change.leaving]
        return [it for it in found if it in state.brokers and state.brokers[it].active and in_online_directory(state, new, it)]

    if new.leader is None:
        could = live(new.isr or new.elr) if ends else []
        return f"could be led by {could}" if could and all(state.brokers[it].log_dirs for it in could) else None
    if new.leader == old.leader or completes_a_move(old, new) or new.leader in old.isr:
        return None
    in_sync = [it for it in live(old.isr) if it not in change.away]
    eligible = [it for it in live(old.elr) if it not in (*change.anew, *change.away)]
    if in_sync and not (old.adding_replicas or old.removing_replicas):
        return f"is led by {new.leader}, though {in_sync} are in sync and alive"
    if new.leader in old.elr:
        recovers = new.recovering and not old.recovering and new.leader not in change.anew
        return "was elected from the ELR, and recovers" if recovers else None
    if eligible:
        return f"is led by {new.leader}, though {eligible} are eligible and alive"
    if not new.recovering:
        return f"is led by {new.leader}, who may have lost records, without saying so"
    return None
