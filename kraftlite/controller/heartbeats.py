"""Broker liveness: soft state of the active controller, never in the metadata log.

Source: Kafka's BrokerHeartbeatManager; CM-05 to CM-10, CE-25, CE-26.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_INT64
from kraftlite.model.messages.controller import BrokerHeartbeatRequest


class BrokerControlState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    SHUTDOWN_NOW = "shutdown_now"

    @property
    def fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


class HeartbeatTracker:
    """The time at which each broker incarnation was last heard of. Touched by the handler, off the event queue (CE-25).

    A session is over when nothing came for more than `session_timeout_ms`.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contact_ms: dict[tuple[NodeId, int], int] = {}
        self._heap: list[tuple[int, NodeId, int]] = []

    def touch(self, broker_id: NodeId, broker_epoch: int, now_ms: int) -> None:
        key = (broker_id, broker_epoch)
        if key not in self._contact_ms:
            heapq.heappush(self._heap, (now_ms, broker_id, broker_epoch))
        self._contact_ms[key] = now_ms

    def remove(self, broker_id: NodeId, broker_epoch: int) -> None:
        self._contact_ms.pop((broker_id, broker_epoch), None)

    def excuse(self, deaf_ms: int, now_ms: int) -> None:
        """Excuse the silence of `deaf_ms` until now, in which this node could not hear anybody."""
        for key, contact_ms in self._contact_ms.items():
            self._contact_ms[key] = min(now_ms, contact_ms + deaf_ms)

    def has_session(self, broker_id: NodeId, broker_epoch: int, now_ms: int) -> bool:
        contact_ms = self._contact_ms.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms - contact_ms <= self.session_timeout_ms

    def last_contact_ms(self, broker_id: NodeId, broker_epoch: int) -> int | None:
        return self._contact_ms.get((broker_id, broker_epoch))

    def pop_expired(self, now_ms: int) -> tuple[NodeId, int, int] | None:
        """One incarnation whose session is over and how long it has been silent, the longest first; it is forgotten here."""
        while self._heap:
            pushed_ms, broker_id, broker_epoch = self._heap[0]
            contact_ms = self._contact_ms.get((broker_id, broker_epoch))
            if contact_ms is None:
                heapq.heappop(self._heap)
            elif contact_ms != pushed_ms:
                heapq.heapreplace(self._heap, (contact_ms, broker_id, broker_epoch))
            elif now_ms - contact_ms > self.session_timeout_ms:
                heapq.heappop(self._heap)
                del self._contact_ms[(broker_id, broker_epoch)]
                return broker_id, broker_epoch, now_ms - contact_ms
            else:
                return None
        return None

    def next_expiry_ms(self) -> int | None:
        """Return when the next session is over if nothing comes any more; right after `pop_expired` has found none."""
        return self._heap[0][0] + self.session_timeout_ms + 1 if self._heap else None

    def has_expired(self, now_ms: int) -> bool:
        return any(now_ms - contact_ms > self.session_timeout_ms for contact_ms in self._contact_ms.values())


@dataclass(slots=True)
class BrokerHeartbeatState:
    broker_id: NodeId
    fenced: bool
    metadata_offset: int = -1
    controlled_shutdown_offset: int | None = None

    @property
    def shutting_down(self) -> bool:
        return self.controlled_shutdown_offset is not None

    @property
    def control_state(self) -> BrokerControlState:
        if self.shutting_down:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.FENCED if self.fenced else BrokerControlState.UNFENCED


@dataclass(slots=True)
class Leaving:
    """A broker whose session is over and whose leaderships have moved. It is fenced, and leaves all other ISRs, when the brokers
    have carried out what was written up to `offset` (None: not known yet), or at `due_ms`."""

    due_ms: int
    cause: str
    offset: int | None = None


class HeartbeatManager:
    """The active controller's knowledge of each registered broker beyond the log. Lives from claim to renounce."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.tracker = HeartbeatTracker(session_timeout_ms)
        self.brokers: dict[NodeId, BrokerHeartbeatState] = {}
        self.leaving: dict[NodeId, Leaving] = {}

    def register(self, broker_id: NodeId, fenced: bool) -> None:
        """Take over what a replayed registration (or its change) says."""
        self.leaving.pop(broker_id, None)
        state = self.brokers.get(broker_id)
        if state is None:
            self.brokers[broker_id] = BrokerHeartbeatState(broker_id, fenced)
        else:
            self.touch(broker_id, fenced, state.metadata_offset)

    def remove(self, broker_id: NodeId) -> None:
        self.brokers.pop(broker_id, None)
        self.leaving.pop(broker_id, None)

    def touch(self, broker_id: NodeId, fenced: bool, metadata_offset: int) -> None:
        state = self.brokers[broker_id]
        state.fenced = fenced
        state.metadata_offset = metadata_offset
        if fenced:
            # It leaves controlled shutdown: at its next heartbeat it may go at once.
            state.controlled_shutdown_offset = None

    def lowest_active_offset(self) -> int:
        """The least metadata offset that an unfenced broker outside of controlled shutdown has reported. One whose session is
        over reports nothing any more."""
        active = (it for it in self.brokers.values() if not (it.fenced or it.shutting_down or it.broker_id in self.leaving))
        return min((it.metadata_offset for it in active), default=MAX_INT64)

    def fix_controlled_shutdown_offset(self, broker_id: NodeId, offset: int) -> None:
        """Remember the offset at which the leadership moves were written. The first one counts (CM-08)."""
        state = self.brokers.get(broker_id)
        if state is not None and not state.fenced and state.controlled_shutdown_offset is None:
            state.controlled_shutdown_offset = offset

    def next_state(
        self, request: BrokerHeartbeatRequest, registration_offset: int, has_leaderships: Callable[[], bool]
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """Current and next state of the broker that sent this heartbeat (CM-06 to CM-08)."""
        state = self.brokers[request.broker_id]
        current = state.control_state
        if current is BrokerControlState.FENCED:
            if request.want_shut_down:
                return current, BrokerControlState.SHUTDOWN_NOW
            caught_up = request.current_metadata_offset >= registration_offset
            if not request.want_fence and caught_up:
                return current, BrokerControlState.UNFENCED
            return current, current
        if current is BrokerControlState.UNFENCED:
            if request.want_fence:
                return current, BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
            if request.want_shut_down:
                if has_leaderships():
                    return current, BrokerControlState.CONTROLLED_SHUTDOWN
                return current, BrokerControlState.SHUTDOWN_NOW
            return current, current
        assert state.controlled_shutdown_offset is not None
        if not has_leaderships() and state.controlled_shutdown_offset <= self.lowest_active_offset():
            return current, BrokerControlState.SHUTDOWN_NOW
        return current, current
