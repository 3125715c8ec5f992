"""The life of brokers: registration, heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

from kraftlite.controller.broker_control import BrokerControl
from kraftlite.controller.heartbeats import HeartbeatManager, HeartbeatTracker
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant(
    "new-incarnation-keeps-isr",
    "a broker that restarted is still in the ISRs of the one before it",
    expects=("19", "27", "24", "SelfCheck"),
)
def new_incarnation_keeps_isr(patch: Patch) -> None:
    """KIP-966: an unclean restart may have lost the log's tail, and who is in the ISR may lead."""
    rule = "yield from self._elections.broker_leaves(existing.broker_id, records)"
    patch.edit(BrokerControl, "register", (rule, "pass"))


@mutant("unfenced-before-caught-up", "a broker is unfenced before it has the metadata and its logs", expects=("19", "22", "33"))
def unfenced_before_caught_up(patch: Patch) -> None:
    """CM-06, BL-07: a broker that is told to be alive, and elected, before it knows of any partition."""
    patch.edit(HeartbeatManager, "next_state", ("if not request.want_fence and caught_up:", "if True:"))


@mutant(
    "shutdown-does-not-wait",
    "a broker may go as soon as it leads nothing, though the others do not know yet",
    expects=("19", "22"),
)
def shutdown_does_not_wait(patch: Patch) -> None:
    """CM-08: clients and followers still ask the broker that has gone; KAFKA-13944 is from the same corner."""
    rule = "if not has_leaderships() and state.controlled_shutdown_offset <= self.lowest_active_offset():"
    patch.edit(HeartbeatManager, "next_state", (rule, "if not has_leaderships():"))


@mutant("heartbeat-does-not-renew", "a session is over after its timeout, heartbeats or not", expects=("22", "33", "liveness"))
def heartbeat_does_not_renew(patch: Patch) -> None:
    """CE-25: sessions that run out on brokers that have sent all their heartbeats."""
    rule = "    self._contact_ms[key] = now_ms"
    patch.edit(HeartbeatTracker, "touch", (rule, "    self._contact_ms.setdefault(key, now_ms)"))
