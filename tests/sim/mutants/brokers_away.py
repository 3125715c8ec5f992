"""What controllers decide about brokers that are away."""

from __future__ import annotations

from kraftlite.controller.topic_control import TopicControl
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import long_absences


@mutant(
    "fenced-in-a-new-isr",
    "the ISR of a new partition has all of its replicas, also those whose brokers are fenced",
    expects=("50", "SelfCheck", "20", "19"),
    lens=together(configured(broker_session_timeout_ms="1000", broker_heartbeat_interval_ms="250"), playing(long_absences)),
)
def fenced_in_a_new_isr(patch: Patch) -> None:
    """CM-19: the HW waits for them, or one that has nothing is elected."""
    patch.edit(TopicControl, "_live", (" if self._cluster.may_lead(broker_id)", ""))
