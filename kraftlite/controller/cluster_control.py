"""The brokers and controllers of the cluster: registrations (in the log) and, while active, their heartbeats (not in the log).

Source: Kafka's ClusterControlManager; CM-01 to CM-05, CM-12 to CM-14.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.heartbeats import HeartbeatManager, HeartbeatTracker
from kraftlite.controller.placement import UsableBroker
from kraftlite.controller.results import ControllerResult
from kraftlite.metadata import features
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import LOST_DIR, MIGRATING_DIR, UNASSIGNED_DIR, NodeId, is_reserved_uuid, uuid_to_str
from kraftlite.model.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    Empty,
    FeatureRange,
)
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import TimelineRegistry


def invalid_assignment(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}")


class ClusterControl:
    """Registrations of brokers and controllers. `heartbeats` exists on the active controller only."""

    def __init__(
        self, registry: TimelineRegistry, cluster_id: str, session_timeout_ms: int, feature_control: FeatureControl
    ) -> None:
        self._cluster_id = cluster_id
        self._session_timeout_ms = session_timeout_ms
        self._features = feature_control
        self.brokers: TimelineMap[NodeId, BrokerRegistration] = TimelineMap(registry)
        self.registration_offsets: TimelineMap[NodeId, int] = TimelineMap(registry)
        self.controllers: TimelineMap[NodeId, ControllerRegistration] = TimelineMap(registry)
        self.directory_owners: TimelineMap[UUID, NodeId] = TimelineMap(registry)
        self.heartbeats: HeartbeatManager | None = None

    # --- soft state

    def activate(self, now_ms: int) -> None:
        """A fresh session for every unfenced broker: nothing is known of when it was last heard of (CE-26)."""
        self.heartbeats = HeartbeatManager(self._session_timeout_ms)
        for broker_id in sorted(self.brokers):
            registration = self.brokers[broker_id]
            self.heartbeats.register(broker_id, registration.fenced)
            if not registration.fenced:
                self.heartbeats.tracker.touch(broker_id, registration.broker_epoch, now_ms)

    def deactivate(self) -> None:
        self.heartbeats = None

    @property
    def tracker(self) -> HeartbeatTracker | None:
        return None if self.heartbeats is None else self.heartbeats.tracker

    def next_expiry_ms(self) -> int | None:
        """Return when the first session is over for which nothing comes any more; the task that fences need not wait longer."""
        return None if self.tracker is None else self.tracker.next_expiry_ms()

    @property
    def live(self) -> HeartbeatManager:
        assert self.heartbeats is not None, "heartbeats belong to the active controller"
        return self.heartbeats

    # --- questions

    def is_active(self, broker_id: NodeId) -> bool:
        """Return whether a broker is registered, unfenced and not in controlled shutdown (CM-14)."""
        registration = self.brokers.get(broker_id)
        return registration is not None and registration.active

    def may_lead(self, broker_id: NodeId) -> bool:
        """Return whether a broker is active, and its session is not over."""
        return self.is_active(broker_id) and (self.heartbeats is None or broker_id not in self.heartbeats.leaving)

    def directory_online(self, broker_id: NodeId, directory: UUID | None) -> bool:
        """Return whether a replica in `directory` may be used (JB-01). A registration without any directory is older than
        directories are, and says nothing of them."""
        registration = self.brokers.get(broker_id)
        known = () if registration is None else registration.log_dirs
        if directory is None or directory in known or directory in (UNASSIGNED_DIR, MIGRATING_DIR):
            return True
        return registration is not None and not known and directory != LOST_DIR

    def first_directory(self, broker_id: NodeId) -> UUID:
        """Return the directory of a new replica: a broker that has only one need not say which it takes (JB-03)."""
        registration = self.brokers.get(broker_id)
        known = () if registration is None else registration.log_dirs
        if registration is not None and not known:
            return MIGRATING_DIR
        return known[0] if len(known) == 1 else UNASSIGNED_DIR

    def check_assignment(self, replicas: Sequence[NodeId]) -> None:
        """Check the replicas that a request names. Raises ApiError(INVALID_REPLICA_ASSIGNMENT), worded as Kafka words it."""
        if not replicas:
            raise invalid_assignment("an empty replica list.")
        for broker_id in sorted(replicas):
            if broker_id not in self.brokers:
                raise invalid_assignment(f"broker {broker_id}, but no such broker is registered.")
            if replicas.count(broker_id) > 1:
                raise invalid_assignment(f"the broker {broker_id} more than once.")

    def registration_offset(self, broker_id: NodeId) -> int:
        return self.registration_offsets[broker_id]

    def check_epoch(self, broker_id: NodeId, broker_epoch: int) -> BrokerRegistration:
        """The registration. Raises ApiError(STALE_BROKER_EPOCH) for an unknown broker or another incarnation (CM-05)."""
        registration = self.brokers.get(broker_id)
        if registration is None:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if registration.broker_epoch != broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {registration.broker_epoch}, but got broker epoch {broker_epoch}",
            )
        return registration

    def usable_brokers(self) -> list[UsableBroker]:
        """List the candidates for new replicas: all brokers that are not on their way down and have a directory for them.

        One whose session is over is about to be fenced, and counts as such."""
        over = () if self.heartbeats is None else self.heartbeats.leaving
        cordoning = features.supports_cordoning(self._features.level_or_minimum())
        return [
            UsableBroker(broker_id=broker.broker_id, rack=broker.rack, fenced=broker.fenced or broker.broker_id in over)
            for broker in self.brokers.values()
            if (broker.fenced or not broker.in_controlled_shutdown) and not (cordoning and broker.is_cordoned)
        ]

    def ineligible_reason(self, broker_id: NodeId, broker_epoch: int | None) -> str | None:
        """Say why a broker may not join an ISR; None when it may (CM-31)."""
        registration = self.brokers.get(broker_id)
        if registration is None:
            return "not registered"
        if registration.in_controlled_shutdown:
            return "shutting down"
        if registration.fenced:
            return "fenced"
        if broker_epoch is not None and registration.broker_epoch != broker_epoch:
            return f"broker epoch mismatch: requested={broker_epoch} VS expected={registration.broker_epoch}"
        return None

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold. Looks at every registration."""
        owners = dict(self.directory_owners.items())
        wanted = {directory: broker.broker_id for broker in self.brokers.values() for directory in broker.log_dirs}
        assert owners == wanted, f"directories belong to {owners}, the registrations say {wanted}"
        brokers, offsets = set(self.brokers), set(self.registration_offsets)
        assert brokers == offsets, f"brokers {brokers} are registered, offsets are known of {offsets}"
        if self.heartbeats is not None:
            soft = {broker.broker_id: broker.fenced for broker in self.heartbeats.brokers.values()}
            hard = {broker.broker_id: broker.fenced for broker in self.brokers.values()}
            assert soft == hard, f"fenced by heartbeats {soft}, by registrations {hard}"
            gone = [it for it in self.heartbeats.leaving if hard.get(it, True)]
            assert not gone, f"{gone} are fenced already, and are still to be fenced"

    # --- operations

    def check_registration(self, request: BrokerRegistrationRequest, now_ms: int) -> BrokerRegistration | None:
        """The present registration of the id, if any. Raises ApiError for CM-01, CM-03 and CM-04."""
        self._check_cluster(request.cluster_id)
        existing = self.brokers.get(request.broker_id)
        another = existing is not None and existing.incarnation_id != request.incarnation_id
        if existing is not None and another and self.live.tracker.has_session(existing.broker_id, existing.broker_epoch, now_ms):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with broker id {request.broker_id}. If the broker was recently restarted "
                "this should resolve itself once its session expires.",
            )
        self._check_features(request)
        level = self._features.metadata_version
        if level is not None and features.supports_directories(level):
            self._check_directories(request)
        return existing

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID, f"Expected cluster ID {self._cluster_id}, but got cluster ID {cluster_id}"
            )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        ranges = self._advertised(request)
        for name, level in self._features.finalized.items():
            found = ranges.get(name)
            low, high = (found.min_level, found.max_level) if found is not None else (0, 0)
            if not low <= level <= high:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {low} and {high}, inclusive.",
                )
        for name, found in ranges.items():
            if name not in self._features.finalized and found.min_level > 0 and name != features.METADATA_VERSION:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version 0 of {name}. "
                    f"The broker wants a version between {found.min_level} and {found.max_level}, inclusive.",
                )

    @staticmethod
    def _advertised(request: BrokerRegistrationRequest) -> dict[str, FeatureRange]:
        ranges = {feature.name: feature for feature in request.features}
        ranges.setdefault(features.METADATA_VERSION, FeatureRange(name=features.METADATA_VERSION, min_level=1, max_level=1))
        return ranges

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        def refuse(reason: str) -> ApiError:
            return ApiError(ErrorCode.INVALID_REGISTRATION, reason)

        if not request.log_dirs:
            raise refuse("No directories specified in request")
        if len(set(request.log_dirs)) != len(request.log_dirs):
            raise refuse("Duplicate directory IDs in request")
        for directory in request.log_dirs:
            if is_reserved_uuid(directory):
                raise refuse(f"Reserved directory ID in request: {uuid_to_str(directory)}")
            owner = self.directory_owners.get(directory)
            if owner is not None and owner != request.broker_id:
                raise refuse(f"Broker {owner} is already registered with directory {uuid_to_str(directory)}")

    def registration_record(
        self, request: BrokerRegistrationRequest, existing: BrokerRegistration | None, offset: int
    ) -> RegisterBrokerRecord:
        """`offset`: where the record will be, which is the epoch of a new incarnation (CM-02)."""
        same = existing is not None and existing.incarnation_id == request.incarnation_id
        return RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=existing.broker_epoch if same and existing is not None else offset,
            listeners=request.listeners,
            features=tuple(sorted(self._advertised(request).values(), key=lambda feature: feature.name)),
            rack=request.rack,
            fenced=existing.fenced if same and existing is not None else True,
            in_controlled_shutdown=existing.in_controlled_shutdown if same and existing is not None else False,
            log_dirs=request.log_dirs if features.supports_directories(self._features.level_or_minimum()) else (),
            cordoned_log_dirs=self._still_cordoned(request, existing),
        )

    def _still_cordoned(self, request: BrokerRegistrationRequest, existing: BrokerRegistration | None) -> tuple[UUID, ...] | None:
        """Keep what a broker said of its directories until it says something else, which is when it has its configuration."""
        if existing is None or existing.cordoned_log_dirs is None:
            return None
        if not features.supports_cordoning(self._features.level_or_minimum()):
            return None
        return tuple(directory for directory in existing.cordoned_log_dirs if directory in request.log_dirs)

    def cordoned_record(self, request: BrokerHeartbeatRequest) -> BrokerRegistrationChangeRecord | None:
        """Note which directories a broker has cordoned; None: nothing new (JB-13)."""
        told = request.cordoned_log_dirs
        if told is None or not features.supports_cordoning(self._features.level_or_minimum()):
            return None
        known = self.brokers[request.broker_id].cordoned_log_dirs
        if known is not None and sorted(known) == sorted(told):
            return None
        return BrokerRegistrationChangeRecord(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch, cordoned_log_dirs=told
        )

    def register_controller(self, request: ControllerRegistrationRequest) -> ControllerResult[Empty]:
        self._check_cluster(request.cluster_id)
        level = self._features.metadata_version
        if level is None or not features.supports_controller_registration(level):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The current metadata.version {level} is too old to support controller registrations.",
            )
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            listeners=request.listeners,
            features=request.features,
        )
        return ControllerResult(records=[record], response=Empty(), atomic=True)

    # --- replay

    def replay_register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        previous = self.brokers.get(record.broker_id)
        registration = BrokerRegistration.from_record(record)
        self.brokers[record.broker_id] = registration
        self.registration_offsets[record.broker_id] = offset
        self._move_directories(previous, registration)
        if self.heartbeats is not None:
            if previous is not None and previous.incarnation_id != record.incarnation_id:
                self.heartbeats.remove(record.broker_id)
                self.heartbeats.tracker.remove(previous.broker_id, previous.broker_epoch)
            self.heartbeats.register(record.broker_id, record.fenced)

    def _move_directories(self, previous: BrokerRegistration | None, registration: BrokerRegistration | None) -> None:
        for directory in previous.log_dirs if previous is not None else ():
            self.directory_owners.pop(directory)
        if registration is not None:
            for directory in registration.log_dirs:
                self.directory_owners[directory] = registration.broker_id

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        registration = self._known(record.broker_id, record.broker_epoch, record)
        del self.brokers[record.broker_id]
        self.registration_offsets.pop(record.broker_id)
        self._move_directories(registration, None)
        if self.heartbeats is not None:
            self.heartbeats.remove(record.broker_id)
            self.heartbeats.tracker.remove(record.broker_id, record.broker_epoch)

    def replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        registration = self._known(record.broker_id, record.broker_epoch, record)
        changed = registration.merge(record)
        if changed != registration:
            self.brokers[record.broker_id] = changed
            self._move_directories(registration, changed)
        if self.heartbeats is not None:
            self.heartbeats.register(record.broker_id, changed.fenced)

    def replay_fenced(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> None:
        fenced = isinstance(record, FenceBrokerRecord)
        change = BrokerRegistrationChangeRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch, fenced=fenced)
        self.replay_registration_change(change)

    def _known(self, broker_id: NodeId, broker_epoch: int, record: object) -> BrokerRegistration:
        registration = self.brokers.get(broker_id)
        if registration is None or registration.broker_epoch != broker_epoch:
            found = "none" if registration is None else f"epoch {registration.broker_epoch}"
            raise ValueError(f"cannot replay {record}: the registration of broker {broker_id} is {found}")
        return registration

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerRegistration.from_record(record)
