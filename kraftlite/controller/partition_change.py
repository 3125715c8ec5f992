"""The new state of one partition: who leads, who is in the ISR, and the record that says so.

Source: Kafka's PartitionChangeBuilder; KIP-966; CM-26 to CM-29, CM-33; EL-05 to EL-09.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from kraftlite.metadata.records import PartitionChangeRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId


class Election(Enum):
    PREFERRED = "preferred"
    """Switch to the first replica if it is in the ISR and acceptable."""
    ONLINE = "online"
    """Any acceptable member of the ISR, to keep the partition online; the present leader stays if it can."""
    UNCLEAN = "unclean"
    """Elects as ONLINE does; when that finds no replica, any acceptable one: records may be lost."""


@dataclass(slots=True, kw_only=True)
class PartitionTarget:
    """The goal of a change; None leaves the field as it is. Made for each partition of a broker that fails (ADR 11)."""

    isr: tuple[NodeId, ...] | None = None
    replicas: tuple[NodeId, ...] | None = None
    adding: tuple[NodeId, ...] | None = None
    removing: tuple[NodeId, ...] | None = None
    recovering: bool | None = None
    directories: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElrRules:
    """The rules of eligible leader replicas (KIP-966): whether they are kept, and what decides who is one.

    `min_isr`: `min.insync.replicas` as configured. `lost`: the broker that stopped uncleanly and comes back, or is gone for good:
    it vouches for no record.
    """

    enabled: bool = False
    min_isr: int = 1
    lost: NodeId | None = None


WITHOUT_ELR: Final = ElrRules()


class _Elected(NamedTuple):
    leader: NodeId | None
    unclean: bool = False


class PartitionChangeBuilder:
    """Computes the PartitionChangeRecord that takes `partition` to `target` under an election policy; None: nothing changes.

    Without ELR (KIP-966) the last member of the ISR stays in it even when it is gone: only it may lead again (CM-28). With ELR
    the ISR may become empty. Who leaves it while it is smaller than min.insync.replicas has everything below the HW, which stands
    still then, and is an eligible leader replica until it has lost something or the ISR is large enough again.
    """

    def __init__(
        self,
        partition: PartitionRegistration,
        target: PartitionTarget,
        *,
        acceptable: Callable[[NodeId], bool],
        election: Election = Election.ONLINE,
        bump_leader_epoch_on_shrink: bool = False,
        elr: ElrRules = WITHOUT_ELR,
    ) -> None:
        self._old = partition
        self._rules = elr
        self._acceptable = acceptable
        self._election = election
        self._bump_on_shrink = bump_leader_epoch_on_shrink
        self.isr = partition.isr if target.isr is None else target.isr
        self.replicas = partition.replicas if target.replicas is None else target.replicas
        self.adding = partition.adding_replicas if target.adding is None else target.adding
        self.removing = partition.removing_replicas if target.removing is None else target.removing
        self.recovering = partition.recovering if target.recovering is None else target.recovering
        self.directories = partition.directories if target.directories is None else target.directories
        self.elr = partition.elr

    def build(self, topic_id: UUID, index: int) -> PartitionChangeRecord | None:
        old = self._old
        self._complete_reassignment()
        self._sort_isr()
        self._populate_elr()
        elected = self._elect()
        changes: dict[str, Any] = {}
        if elected.leader is not None and not self.isr:
            self.isr = (elected.leader,)
        if elected.leader != old.leader:
            changes["leader"] = elected.leader
            if elected.unclean:
                assert elected.leader is not None
                self.isr, self.elr, self.recovering = (elected.leader,), (), True
        if (self.isr or self._rules.enabled) and self.isr != old.isr:
            changes["isr"] = self.isr
        self._trim_elr(changes.get("isr", old.isr))
        bumps = self._bump_on_shrink and "isr" in changes
        lost = bumps and any(member not in changes["isr"] for member in old.isr)
        shrunk = self.replicas is not old.replicas and any(replica not in self.replicas for replica in old.replicas)
        if "leader" not in changes and (shrunk or lost):
            changes["leader"] = old.leader
        if self.recovering is not old.recovering:
            changes["recovering"] = self.recovering
        if self.replicas != old.replicas:
            changes["replicas"] = self.replicas
        if self.adding != old.adding_replicas:
            changes["adding_replicas"] = self.adding
        if self.removing != old.removing_replicas:
            changes["removing_replicas"] = self.removing
        if self.directories is not old.directories and self.directories != old.directories:
            changes["directories"] = self.directories
        if self.elr != old.elr:
            changes["elr"] = self.elr
        last_known = self._last_known(elected.leader)
        if last_known != old.last_known_elr:
            changes["last_known_elr"] = last_known
        if not changes:
            return None
        return PartitionChangeRecord(topic_id=topic_id, partition=index, **changes)

    def _sort_isr(self) -> None:
        """The order of the ISR is that of the assignment, so that equal sets are equal tuples. One that Kafka wrote in another
        order stays until something changes."""
        isr = self.isr
        if isr == self._old.isr and self.replicas == self._old.replicas:
            return
        ordered = tuple([replica for replica in self.replicas if replica in isr])
        if len(ordered) < len(isr):
            ordered += tuple(member for member in isr if member not in ordered)
        self.isr = ordered

    def _elect(self) -> _Elected:
        leader = self._old.leader
        preferred = self.replicas[0]
        if self._election is Election.PREFERRED and self._valid(preferred):
            return _Elected(leader=preferred)
        if leader is not None and self._valid(leader):
            return _Elected(leader=leader)
        for replica in self.replicas:
            if self._valid(replica):
                return _Elected(leader=replica)
        if self._rules.enabled and not self.isr and not self.elr and len(self._old.last_known_elr) == 1:
            (last,) = self._old.last_known_elr
            if last in self.replicas and self._acceptable(last):
                return _Elected(leader=last, unclean=True)
        if self._election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._acceptable(replica):
                    return _Elected(leader=replica, unclean=True)
        return _Elected(leader=None)

    def _valid(self, replica: NodeId) -> bool:
        """Return whether a replica may lead without loss: a member of the ISR; of the ELR, when nobody is in the ISR."""
        return replica in (self.isr or self.elr) and self._acceptable(replica)

    # --- eligible leader replicas

    def _populate_elr(self) -> None:
        """Keep eligible who was it, or in sync, while the ISR is too small for the HW to move (EL-05)."""
        if not self._rules.enabled:
            if self._old.isr:
                self.elr = ()
            return
        vouching = (*self._old.elr, *self._old.isr)
        self.elr = tuple(it for it in self.replicas if it in vouching and it not in self.isr and it != self._rules.lost)
        self._trim_elr(self.isr)

    def _trim_elr(self, isr: tuple[NodeId, ...]) -> None:
        """Nobody is eligible beside an ISR of the minimum size. Without the feature only a partition of which nobody is in the
        ISR keeps who was: they are its only candidates."""
        enough = min(self._rules.min_isr, len(self.replicas)) if self._rules.enabled else 1
        if len(isr) >= enough:
            self.elr = ()
        elif self.elr and any(member in isr for member in self.elr):
            self.elr = tuple(member for member in self.elr if member not in isr)

    def _last_known(self, leader: NodeId | None) -> tuple[NodeId, ...]:
        """Return who led last, until somebody leads again (EL-08). One that is gone may be in the ISR still, and not lead."""
        old = self._old
        if leader is not None or (self.isr and not self._rules.enabled):
            return ()
        if old.last_known_elr or not self._rules.enabled:
            return old.last_known_elr
        if old.leader is not None:
            return (old.leader,)
        if self.isr:
            return ()
        # Nobody led since before the feature: the only one that could was the last member of the ISR.
        return old.isr if len(old.isr) == 1 else ()

    def _complete_reassignment(self) -> None:
        """Finish when every replica that is added is in the ISR: one that stays and is not in sync is as far from it as before.
        Where the replication factor falls every target replica must be, so that the ISR does not shrink with it (CM-42)."""
        if not self.adding and not self.removing:
            return
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        isr = tuple(member for member in self.isr if member not in self.removing)
        awaited = replicas if len(self.adding) < len(self.removing) else self.adding
        if not isr or not replicas or any(replica not in isr for replica in awaited):
            return
        if self.directories:
            by_replica = dict(zip(self.replicas, self.directories, strict=True))
            self.directories = tuple(by_replica[replica] for replica in replicas)
        self.replicas, self.isr, self.adding, self.removing = replicas, isr, (), ()
