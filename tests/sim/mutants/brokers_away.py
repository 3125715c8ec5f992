"""What controllers decide about brokers that are away or leaving: new replicas, new ISRs."""

from __future__ import annotations

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.topic_control import TopicControl
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import held_on_its_way_out, long_absences


@mutant(
    "fenced-in-a-new-isr",
    "the ISR of a new partition has all of its replicas, also those whose brokers are fenced",
    expects=("50", "SelfCheck", "20", "19"),
    lens=together(configured(broker_session_timeout_ms="1000", broker_heartbeat_interval_ms="250"), playing(long_absences)),
)
def fenced_in_a_new_isr(patch: Patch) -> None:
    """CM-19: the HW waits for them, or one that has nothing is elected."""
    patch.edit(TopicControl, "_live", (" if self._cluster.may_lead(broker_id)", ""))


@mutant(
    "placed-on-a-leaving-broker",
    "a new replica is placed on a broker in controlled shutdown",
    expects=("50",),
    lens=together(configured(broker_session_timeout_ms="6000", broker_heartbeat_interval_ms="250"), playing(held_on_its_way_out)),
)
def placed_on_a_leaving_broker(patch: Patch) -> None:
    """CM-16: the partition is short of a replica from its first moment on, and the shutdown has one more to hand over."""
    rule = "(broker.fenced or not broker.in_controlled_shutdown) and "
    patch.edit(ClusterControl, "usable_brokers", (rule, ""))
