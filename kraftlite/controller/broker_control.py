"""Registration and heartbeats: what moves a broker from one control state to the next.

Source: KIP-631; Kafka's BrokerHeartbeatManager; CM-01, CM-02, CM-05 to CM-12, CE-25 to CE-27.
"""

from __future__ import annotations

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.heartbeats import BrokerControlState, Leaving
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.topics_state import TopicsState
from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.limits import LEADERS_FIRST_MS
from kraftlite.model.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftlite.model.tuning import Tuning
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.controller import BrokerSessionExpired, BrokerStateChanged


class BrokerControl:
    """Computes records for the log; the soft state of heartbeats is changed here directly."""

    def __init__(
        self, cluster: ClusterControl, state: TopicsState, elections: ElectionControl, tracer: Tracer, tuning: Tuning
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._elections = elections
        self._tracer = tracer
        self._leaders_first = tuning.leaders_first
        self.changes_per_part = tuning.changes_per_part

    def register(
        self, request: BrokerRegistrationRequest, now_ms: int, write_offset: int
    ) -> Steps[ControllerResult[BrokerRegistrationResponse]]:
        """A new incarnation leaves all ISRs and leaderships of the one before it, then starts fenced (CM-02, invariant 19).

        One that cannot name the broker epoch with which the one before it stopped may have lost records, and leaves the ELRs
        as well (KIP-966).
        """
        existing = self._cluster.check_registration(request, now_ms)
        records: list[MetadataRecord] = []
        clean = existing is not None and request.previous_broker_epoch == existing.broker_epoch
        if existing is None or existing.incarnation_id != request.incarnation_id:
            yield from self._elections.broker_restarted(request.broker_id, records, clean=clean)
        registration = self._cluster.registration_record(request, existing, write_offset + len(records))
        records.append(registration)
        response = BrokerRegistrationResponse(broker_epoch=registration.broker_epoch)
        cause = f"broker={request.broker_id}"
        if existing is not None and existing.incarnation_id != request.incarnation_id:
            cause += f" replaces={existing.broker_epoch} clean={str(clean).lower()}"
        return ControllerResult(records=records, response=response, cause=cause)

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Steps[ControllerResult[BrokerHeartbeatResponse]]:
        broker_id = request.broker_id
        self._cluster.check_epoch(broker_id, request.broker_epoch)
        registration_offset = self._cluster.registration_offset(broker_id)
        live = self._cluster.live
        current, following = live.next_state(request, registration_offset, lambda: self._state.has_leaderships(broker_id))
        records: list[MetadataRecord] = []
        cause = f"broker={broker_id}"
        if following is not current:
            cause += f" old={current.value} new={following.value}"
            if following is BrokerControlState.UNFENCED:
                yield from self._elections.unfence(broker_id, records, request.offline_log_dirs)
            elif following is BrokerControlState.CONTROLLED_SHUTDOWN:
                yield from self._elections.enter_controlled_shutdown(broker_id, records)
            else:
                yield from self._elections.fence(broker_id, records)
            self._tracer.emit(
                BrokerStateChanged(broker_id=broker_id, broker_epoch=request.broker_epoch, old=current.value, new=following.value)
            )
        live.touch(broker_id, following.fenced, request.current_metadata_offset)
        if following is BrokerControlState.SHUTDOWN_NOW:
            # Its session is over by agreement: the next incarnation need not wait for it to expire.
            live.tracker.remove(broker_id, request.broker_epoch)
        if request.offline_log_dirs:
            cause += f" offline_log_dirs={len(request.offline_log_dirs)}"
            leaves = following is not current and following is not BrokerControlState.UNFENCED
            yield from self._elections.directories_offline(
                broker_id, request.broker_epoch, request.offline_log_dirs, records, leaves=leaves
            )
        cordoned = self._cluster.cordoned_record(request)
        if cordoned is not None:
            records.append(cordoned)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= registration_offset,
            is_fenced=following.fenced,
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        )
        return ControllerResult(records=records, response=response, cause=cause)

    def after_heartbeat(self, request: BrokerHeartbeatRequest, last_offset: int) -> None:
        """The records of a heartbeat were applied up to `last_offset`: where its leaderships have moved by (CM-08)."""
        registration = self._cluster.brokers.get(request.broker_id)
        if registration is not None and registration.in_controlled_shutdown and not registration.fenced:
            self._cluster.live.fix_controlled_shutdown_offset(request.broker_id, last_offset)

    def expired_heartbeat(self, request: BrokerHeartbeatRequest) -> None:
        """Deal with a heartbeat that waited too long in the queue: only note that the broker lives (CE-25)."""
        registration = self._cluster.brokers.get(request.broker_id)
        live = self._cluster.heartbeats
        if live is None or registration is None or registration.broker_epoch != request.broker_epoch:
            return
        live.touch(request.broker_id, registration.fenced, request.current_metadata_offset)

    def fence_one_stale(self, now_ms: int, last_offset: int) -> Steps[ControllerResult[bool]]:
        """Fence one broker whose session is over; the response says whether more are due (CE-27).

        What a broker with many leaderships led gets its new leaders first: it leaves the ISRs of all other partitions when those
        lead. On few processors the changes of those ISRs, which are more, would take the time of the brokers that elect.
        `last_offset`: the last that has been written.
        """
        live = self._cluster.live
        tracker = live.tracker
        while (expired := tracker.pop_expired(now_ms)) is not None:
            broker_id, broker_epoch, silent_ms = expired
            registration = self._cluster.brokers.get(broker_id)
            if registration is None or registration.broker_epoch != broker_epoch or registration.fenced:
                continue
            self._tracer.emit(BrokerSessionExpired(broker_id=broker_id, broker_epoch=broker_epoch, silent_ms=silent_ms))
            cause = f"broker={broker_id} silent_ms={silent_ms}"
            if self._state.count_led(broker_id) >= self._leaders_first:
                live.leaving[broker_id] = Leaving(now_ms + LEADERS_FIRST_MS, cause)
                return (yield from self._elections.move_leaders_in_parts(broker_id, self.changes_per_part, True, cause))
            more = bool(live.leaving) or tracker.has_expired(now_ms)
            return (yield from self._elections.fence_in_parts(broker_id, self.changes_per_part, more, cause))
        for broker_id, leaving in live.leaving.items():
            if leaving.offset is None:
                leaving.offset = last_offset
            if now_ms >= leaving.due_ms or live.lowest_active_offset() >= leaving.offset:
                # It stays in `leaving` until the record that fences it is replayed: nothing may be led by it meanwhile.
                return (yield from self._elections.fence_in_parts(broker_id, self.changes_per_part, True, leaving.cause))
        return ControllerResult(records=[], response=bool(live.leaving))
