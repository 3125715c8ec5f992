"""Decides who leads and who is in sync when brokers come and go, and runs elections on request.

Source: Kafka's ReplicationControlManager.generateLeaderAndIsrUpdates; CM-06 to CM-12, CM-27 to CM-29,
CM-38 to CM-40; EL-07 to EL-12.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.partition_change import (
    WITHOUT_ELR,
    Election,
    ElrRules,
    PartitionChangeBuilder,
    PartitionTarget,
)
from kraftlite.controller.results import BoundedRecords, ControllerResult
from kraftlite.controller.topics_state import PartitionRef, TopicInfo, TopicsState
from kraftlite.controller.turns import Steps
from kraftlite.metadata import features
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResult,
    Empty,
)

R = TypeVar("R")
Acceptable = Callable[[NodeId, UUID | None], bool]
"""(broker, the directory of its replica) -> may it lead."""


class ElectionControl:
    """Computes records; changes nothing."""

    def __init__(
        self,
        state: TopicsState,
        cluster: ClusterControl,
        configs: ConfigControl,
        feature_control: FeatureControl,
        max_elections_per_run: int,
    ) -> None:
        self._state = state
        self._cluster = cluster
        self._configs = configs
        self._features = feature_control
        self._max_elections = max_elections_per_run

    # --- one partition

    def change(
        self,
        info: TopicInfo,
        index: int,
        target: PartitionTarget,
        election: Election,
        *,
        removed: NodeId | None = None,
        added: NodeId | None = None,
        gone: Collection[UUID] = (),
        elr: ElrRules | None = None,
    ) -> PartitionChangeRecord | None:
        """The change of one partition. `removed` may not lead, `added` may, and nobody does in the directories `gone`, whatever
        the registrations say yet. `elr`: the rules of its topic, where the caller knows them."""
        acceptable = self._acceptable(removed, added, gone)
        rules = self.elr_rules(info.name) if elr is None else elr
        return self._change(info, index, target, election, acceptable, self._bumps_on_shrink(), rules)

    @staticmethod
    def _change(
        info: TopicInfo,
        index: int,
        target: PartitionTarget,
        election: Election,
        acceptable: Acceptable,
        bump: bool,
        elr: ElrRules,
    ) -> PartitionChangeRecord | None:
        partition = info.partitions[index]
        replicas = partition.replicas if target.replicas is None else target.replicas
        directories = partition.directories if target.directories is None else target.directories

        def may_lead(broker_id: NodeId) -> bool:
            place = replicas.index(broker_id) if broker_id in replicas else len(directories)
            return acceptable(broker_id, directories[place] if place < len(directories) else None)

        builder = PartitionChangeBuilder(
            partition, target, acceptable=may_lead, election=election, bump_leader_epoch_on_shrink=bump, elr=elr
        )
        return builder.build(info.topic_id, index)

    def _acceptable(self, removed: NodeId | None, added: NodeId | None, gone: Collection[UUID]) -> Acceptable:
        """Return who may lead, asked of the registrations once for each broker and directory: for as long as no other event
        runs."""
        known: dict[tuple[NodeId, UUID | None], bool] = {}

        def acceptable(broker_id: NodeId, directory: UUID | None) -> bool:
            if broker_id == removed:
                return False
            found = known.get((broker_id, directory))
            if found is None:
                active = directory not in gone and (broker_id == added or self._cluster.may_lead(broker_id))
                found = active and self._cluster.directory_online(broker_id, directory)
                known[broker_id, directory] = found
            return found

        return acceptable

    def _bumps_on_shrink(self) -> bool:
        return not features.skips_leader_epoch_bump_on_isr_shrink(self._features.level_or_minimum())

    def elr_rules(self, topic: str, lost: NodeId | None = None) -> ElrRules:
        """Return the rules of a topic's partitions (KIP-966)."""
        if not self._features.elr_enabled:
            return WITHOUT_ELR
        return ElrRules(enabled=True, min_isr=self._configs.configured_min_isr(topic), lost=lost)

    # --- many partitions

    def leader_and_isr_updates(
        self,
        partitions: Iterable[PartitionRef],
        records: list[MetadataRecord],
        *,
        removed: NodeId | None = None,
        added: NodeId | None = None,
        gone: Collection[UUID] = (),
        lost: bool = False,
    ) -> Steps[None]:
        """Take `removed` out of leaderships and ISRs; let `added` lead where nobody does, but in the directories `gone`. `lost`:
        `removed` may have lost records, or will not come back, and leaves the ELRs too."""
        policies: dict[str, tuple[Election, ElrRules]] = {}
        acceptable, bump = self._acceptable(removed, added, gone), self._bumps_on_shrink()
        for info, index in partitions:
            policy = policies.get(info.name)
            if policy is None:
                unclean = self._configs.unclean_election_enabled(info.name)
                rules = self.elr_rules(info.name, removed if lost else None)
                policy = policies[info.name] = (Election.UNCLEAN if unclean else Election.ONLINE, rules)
            isr = tuple([member for member in info.partitions[index].isr if member != removed])
            record = self._change(info, index, PartitionTarget(isr=isr), policy[0], acceptable, bump, policy[1])
            if record is not None:
                records.append(record)
            yield

    def broker_leaves(self, broker_id: NodeId, records: list[MetadataRecord]) -> Steps[None]:
        yield from self.leader_and_isr_updates(self._state.partitions_with_broker_in_isr(broker_id), records, removed=broker_id)

    def broker_lost(self, broker_id: NodeId, records: list[MetadataRecord]) -> Steps[None]:
        """A broker may lack what it had, or will not come back: it vouches for nothing any more (KIP-966)."""
        for partitions in (self._state.partitions_with_broker_in_isr, self._state.partitions_with_broker_in_elr):
            yield from self.leader_and_isr_updates(partitions(broker_id), records, removed=broker_id, lost=True)

    def broker_restarted(self, broker_id: NodeId, records: list[MetadataRecord], *, clean: bool) -> Steps[None]:
        """A new incarnation registers. After a clean stop it has everything that its former self had."""
        if clean or not self._features.elr_enabled:
            yield from self.broker_leaves(broker_id, records)
        else:
            yield from self.broker_lost(broker_id, records)

    def fence(
        self,
        broker_id: NodeId,
        records: list[MetadataRecord],
        partitions: Sequence[PartitionRef] | None = None,
        *,
        last: bool = True,
    ) -> Steps[None]:
        """Fence a broker: the partition changes come first, the fencing itself is written last (CM-10). `partitions`: of all
        that it leaves, these now; `last`: none are left after them."""
        found = self._state.partitions_with_broker_in_isr(broker_id) if partitions is None else partitions
        yield from self.leader_and_isr_updates(found, records, removed=broker_id)
        if last:
            registration = self._cluster.brokers[broker_id]
            epoch = registration.broker_epoch
            records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=True))

    def fence_in_parts(self, broker_id: NodeId, size: int, response: R, cause: str) -> Steps[ControllerResult[R]]:
        """Fence a broker, `size` partitions at a time: each part is on its way while the next is computed."""
        found = self._state.partitions_with_broker_in_isr(broker_id)
        return self._leave_from(0, found, broker_id, size, response, cause, fenced=True)

    def move_leaders_in_parts(self, broker_id: NodeId, size: int, response: R, cause: str) -> Steps[ControllerResult[R]]:
        """Do as `fence_in_parts` does with what the broker leads, and leave all else as it is."""
        led = self._state.partitions_with_broker_in_isr(broker_id)[: self._state.count_led(broker_id)]
        return self._leave_from(0, led, broker_id, size, response, cause, fenced=False)

    def _leave_from(
        self,
        start: int,
        partitions: Sequence[PartitionRef],
        broker_id: NodeId,
        size: int,
        response: R,
        cause: str,
        *,
        fenced: bool,
    ) -> Steps[ControllerResult[R]]:
        records: list[MetadataRecord] = []
        end = start + size
        last = end >= len(partitions)
        yield from self.fence(broker_id, records, partitions[start:end], last=last and fenced)
        rest = None if last else partial(self._leave_from, end, partitions, broker_id, size, response, cause, fenced=fenced)
        return ControllerResult(records=records, response=response, cause=cause, rest=rest)

    def unfence(self, broker_id: NodeId, records: list[MetadataRecord], offline: Collection[UUID] = ()) -> Steps[None]:
        """The registration first, then elections for what this broker can revive (CM-11); `offline`: its directories in which
        it cannot, although its registration still has them."""
        registration = self._cluster.brokers[broker_id]
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.broker_epoch, fenced=False))
        if not registration.in_controlled_shutdown:
            found = self._state.partitions_without_leader()
            yield from self.leader_and_isr_updates(found, records, added=broker_id, gone=offline)

    def enter_controlled_shutdown(self, broker_id: NodeId, records: list[MetadataRecord]) -> Steps[None]:
        """The intent first, then new leaders. Where it is the last ISR member there is no leader until it comes back."""
        registration = self._cluster.brokers[broker_id]
        if not registration.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=registration.broker_epoch, in_controlled_shutdown=True
                )
            )
        yield from self.broker_leaves(broker_id, records)

    def unregister(self, broker_id: NodeId) -> Steps[ControllerResult[Empty]]:
        registration = self._cluster.brokers.get(broker_id)
        if registration is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        records = BoundedRecords()
        yield from self.broker_lost(broker_id, records)
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.broker_epoch))
        return ControllerResult(records=list(records), response=Empty(), atomic=True, cause=f"broker={broker_id}")

    # --- on request, and by the clock

    def elect(self, request: ElectLeadersRequest) -> Steps[ControllerResult[ElectLeadersResponse]]:
        """Elect leaders on request (CM-38). Raises ApiError(INVALID_REQUEST) for an unknown election type."""
        if request.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown election type {request.election_type}; allowed are 0 (preferred) and 1 (unclean).",
            )
        kind = ElectionType(request.election_type)
        records = BoundedRecords()
        results: list[ElectLeadersResult] = []
        if request.partitions is None:
            for name in sorted(self._state.topic_ids):
                info = self._state.topic(name)
                assert info is not None
                for index in sorted(info.partitions):
                    result = self._elect_one(name, index, kind, records)
                    if result.error is not ErrorCode.ELECTION_NOT_NEEDED:
                        results.append(result)
                    yield
        else:
            seen: set[tuple[str, int]] = set()
            for wanted in request.partitions:
                yield
                if (wanted.topic, wanted.partition) in seen:
                    results.append(_refused(wanted.topic, wanted.partition, ErrorCode.INVALID_REQUEST, "Duplicate partition."))
                    continue
                seen.add((wanted.topic, wanted.partition))
                results.append(self._elect_one(wanted.topic, wanted.partition, kind, records))
        cause = f"type={kind.name.lower()}"
        return ControllerResult(records=list(records), response=ElectLeadersResponse(results=tuple(results)), cause=cause)

    def _elect_one(self, topic: str, index: int, kind: ElectionType, records: list[MetadataRecord]) -> ElectLeadersResult:
        info = self._state.topic(topic)
        if info is None:
            return _refused(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
        partition = info.partitions.get(index)
        if partition is None:
            return _refused(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
        preferred = kind is ElectionType.PREFERRED
        if partition.leader is not None and (not preferred or partition.leader == partition.preferred_leader):
            return _refused(topic, index, ErrorCode.ELECTION_NOT_NEEDED, None)
        record = self.change(info, index, PartitionTarget(), Election.PREFERRED if preferred else Election.UNCLEAN)
        if record is None:
            error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            return _refused(topic, index, error, None)
        records.append(record)
        return _refused(topic, index, ErrorCode.NONE, None)

    def balance_preferred(self) -> Steps[ControllerResult[bool]]:
        """Leaders back to the preferred replicas, a bounded number per run. The response: run again at once (CE-28)."""
        return (yield from self._sweep(self._state.imbalanced_partitions(), lambda _info: Election.PREFERRED))

    def elect_unclean(self) -> Steps[ControllerResult[bool]]:
        """Leaders for leaderless partitions of the topics that allow losing records (CE-29)."""
        return (
            yield from self._sweep(
                self._state.partitions_without_leader(),
                lambda info: Election.UNCLEAN if self._configs.unclean_election_enabled(info.name) else None,
            )
        )

    def _sweep(
        self, partitions: list[PartitionRef], policy: Callable[[TopicInfo], Election | None]
    ) -> Steps[ControllerResult[bool]]:
        records: list[MetadataRecord] = []
        for info, index in partitions:
            if len(records) >= self._max_elections:
                return ControllerResult(records=records, response=True)
            yield
            election = policy(info)
            if election is None:
                continue
            record = self.change(info, index, PartitionTarget(), election)
            if record is not None:
                records.append(record)
        return ControllerResult(records=records, response=False)

    # --- log directories

    def directories_offline(
        self, broker_id: NodeId, broker_epoch: int, offline: Collection[UUID], records: list[MetadataRecord], *, leaves: bool
    ) -> Steps[None]:
        """A broker reports failed directories: what was in them leaves its ISRs, and the registration forgets them. `leaves`: the
        broker leaves all its ISRs by the same records."""
        registration = self._cluster.brokers[broker_id]
        newly = tuple(directory for directory in registration.log_dirs if directory in offline)
        if not newly or not features.supports_directories(self._features.level_or_minimum()):
            return
        affected = []
        for info, index in () if leaves else self._state.partitions_with_broker_in_isr(broker_id):
            if self._directory_of(info, index, broker_id) in newly:
                affected.append((info, index))
            yield
        yield from self.leader_and_isr_updates(affected, records, removed=broker_id)
        left = tuple(directory for directory in registration.log_dirs if directory not in newly)
        if left:  # no record says that there are none: a broker whose every directory has failed stops
            records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, log_dirs=left))

    @staticmethod
    def _directory_of(info: TopicInfo, index: int, broker_id: NodeId) -> object:
        partition = info.partitions[index]
        return dict(zip(partition.replicas, partition.directories, strict=False)).get(broker_id)


def _refused(topic: str, index: int, error: ErrorCode, message: str | None) -> ElectLeadersResult:
    return ElectLeadersResult(topic=topic, partition=index, error=error, message=message)
