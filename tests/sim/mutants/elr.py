"""Eligible leader replicas: who vouches for what was committed when the ISR is too small, and who does no longer (KIP-966)."""

from __future__ import annotations

from dataclasses import replace

from kraftlite.controller.broker_control import BrokerControl
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.partition_change import PartitionChangeBuilder
from kraftlite.replication.partition import Partition
from kraftlite.sim import knobs as knobs_module
from kraftlite.sim import run
from kraftlite.sim.elr_scenes import dark_rack, killed_on_its_way_out, lagging_follower, last_member, one_after_another
from kraftlite.sim.knobs import Values
from kraftlite.sim.shape import Shape
from kraftlite.sim.workloads import minimum
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together, tuned
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import leaders_one_after_another


def changing_the_minimum(patch: Patch) -> None:
    """Every run has the administrator who does, and followers that leave the ISR."""
    playing(lagging_follower)(patch)
    patch.set(minimum, "comes_with", lambda theme, seed: True)


def demanding_all(patch: Patch) -> None:
    """Every replica must be in sync, and followers that live leave the ISR: they are eligible beside it."""
    playing(lagging_follower)(patch)
    of_all_replicas(patch)


def of_all_replicas(patch: Patch) -> None:
    """Every replica must be in sync."""
    original = knobs_module.turned

    def strict(shape: Shape, knobs: Values) -> Shape:
        shape = original(shape, knobs)
        topics = (replace(it, config={**it.config, minimum.KEY: str(it.replication)}) for it in shape.topics)
        return replace(shape, topics=tuple(topics))

    patch.set(knobs_module, "turned", strict, also=(run,))


@mutant(
    "elected-from-elr-beside-an-isr",
    "an eligible replica may be elected while members of the ISR are there",
    expects=("74",),
    lens=demanding_all,
)
def elected_from_elr_beside_an_isr(patch: Patch) -> None:
    """EL-07: the ELR is for an empty ISR. A member of the ISR may have records that are committed since."""
    rule = "replica in (self.isr or self.elr)"
    patch.edit(PartitionChangeBuilder, "_valid", (rule, "replica in (*self.isr, *self.elr)"))
    alone = "elected.leader is not None and not self.isr"
    patch.edit(PartitionChangeBuilder, "build", (alone, "elected.leader is not None and elected.leader not in self.isr"))


@mutant(
    "unclean-restart-keeps-elr",
    "a broker that stopped uncleanly stays eligible",
    expects=("74", "24", "LossesKeeper"),
    lens=playing(one_after_another),
)
def unclean_restart_keeps_elr(patch: Patch) -> None:
    """KAFKA-15586, KAFKA-18635: what it had not flushed is gone, and it is elected for it."""
    patch.edit(ElectionControl, "broker_restarted", ("if clean or not", "if True or not"))


@mutant(
    "no-epoch-is-an-epoch",
    "a broker that knows no former epoch counts as one that stopped cleanly",
    expects=("74", "24"),
    lens=playing(one_after_another),
)
def no_epoch_is_an_epoch(patch: Patch) -> None:
    """Both sides begin with -1 for "none", and -1 equals -1; a disk that was replaced knows none."""
    rule = "request.previous_broker_epoch == existing.broker_epoch"
    patch.edit(BrokerControl, "register", (rule, "request.previous_broker_epoch in (None, existing.broker_epoch)"))


@mutant(
    "brokers-disagree-on-the-minimum",
    "a single broker may have its own min.insync.replicas",
    expects=("74",),
    lens=changing_the_minimum,
)
def brokers_disagree_on_the_minimum(patch: Patch) -> None:
    """KAFKA-16540: the controller keeps the ELR by one minimum, and the leader moves its HW by another."""
    patch.edit(ConfigControl, "_check_elr", ('if resource[1] != "":', "if False:"))


@mutant(
    "a-new-minimum-keeps-the-elr",
    "who is eligible by one min.insync.replicas stays it by another",
    expects=("50", "74"),
    lens=changing_the_minimum,
)
def a_new_minimum_keeps_the_elr(patch: Patch) -> None:
    """EL-04: by a smaller minimum the HW moves on without who has left."""
    patch.edit(ConfigControl, "_elr_cleared_by", ("for record in records if self.elr_enabled() else ():", "for record in ():"))


@mutant(
    "last-member-stays",
    "the last member of an ISR stays in it when it is gone, with ELR too",
    expects=("74",),
    lens=playing(one_after_another),
)
def last_member_stays(patch: Patch) -> None:
    """EL-06: the rule of before KIP-966. It may come back with less than it had."""
    patch.edit(PartitionChangeBuilder, "build", ("(self.isr or self._rules.enabled) and", "self.isr and"))


@mutant(
    "replaced-disk-vouches",
    "a broker whose disk was replaced by an empty one counts as one that stopped cleanly",
    expects=("74", "24", "27"),
    lens=playing(last_member),
)
def replaced_disk_vouches(patch: Patch) -> None:
    """KAFKA-14139: with other directories than before, and nothing in them."""
    rule = "request.previous_broker_epoch == existing.broker_epoch"
    odd = "request.previous_broker_epoch == existing.broker_epoch or request.log_dirs != existing.log_dirs"
    patch.edit(BrokerControl, "register", (rule, f"({odd})"))


@mutant(
    "shutdown-kept-over-a-restart",
    "a new incarnation begins in the controlled shutdown of its former self",
    expects=("74", "33", "liveness"),
    lens=playing(killed_on_its_way_out),
)
def shutdown_kept_over_a_restart(patch: Patch) -> None:
    """KAFKA-18635: it is never acceptable as a leader again."""
    rule = "existing.in_controlled_shutdown if same and existing is not None else False"
    patch.edit(
        ClusterControl, "registration_record", (rule, "existing.in_controlled_shutdown if existing is not None else False")
    )


@mutant(
    "anybody-is-the-last-known-leader",
    "when nobody is eligible the first replica to come back leads",
    expects=("74", "20", "24"),
    lens=playing(dark_rack),
)
def anybody_is_the_last_known_leader(patch: Patch) -> None:
    """EL-08: only who led last has everything, if it has lost nothing."""
    rule = "if self._election is Election.UNCLEAN:"
    patch.edit(PartitionChangeBuilder, "_elect", (rule, "if self._election is Election.UNCLEAN or self._rules.enabled:"))


@mutant(
    "elr-beside-a-large-isr",
    "who was eligible stays it when the ISR is large enough again",
    expects=("74", "20"),
    lens=playing(one_after_another),
)
def elr_beside_a_large_isr(patch: Patch) -> None:
    """EL-14: the HW moves on without it from then on."""
    patch.edit(PartitionChangeBuilder, "_trim_elr", ("if len(isr) >= enough:", "if False:"))


@mutant(
    "hw-moves-before-the-metadata",
    "the HW passes a member as soon as the controller has answered that it is out",
    expects=("26",),
    lens=changing_the_minimum,
)
def hw_moves_before_the_metadata(patch: Patch) -> None:
    """RP-06: a larger min.insync.replicas may have been committed before that, and is not known here yet."""
    patch.edit(Partition, "maybe_advance_hw", (" or self._unheard is not None", ""))


@mutant(
    "smaller-minimum-at-once",
    "a smaller min.insync.replicas counts before the changes of partitions with which it came",
    expects=("26", "24", "25", "30"),
    lens=together(changing_the_minimum, tuned(partitions_per_step=1, roles_per_step=1)),
)
def smaller_minimum_at_once(patch: Patch) -> None:
    """RP-05: a leader that was replaced before moves its HW by it, alone."""
    patch.edit(Partition, "announce_config", ("self.min_isr = max(self.min_isr, before)", "pass"))


def changing_it_without_an_isr(patch: Patch) -> None:
    """Every run has the administrator who changes the minimum, while partitions lose all their replicas and others do not."""
    configured(broker_session_timeout_ms="1000", broker_heartbeat_interval_ms="250")(patch)
    playing(leaders_one_after_another, pause_ms=1_000)(patch)
    patch.set(minimum, "comes_with", lambda theme, seed: True)


@mutant(
    "a-new-minimum-forgets-who-may-lead",
    "a change of min.insync.replicas clears the ELR of partitions without an ISR, too",
    expects=("74",),
    shape="5+5",
    lens=changing_it_without_an_isr,
)
def a_new_minimum_forgets_who_may_lead(patch: Patch) -> None:
    """EL-04: nobody may lead then, though replicas are there that have everything."""
    rule = "return cleared + [record for topic in topics for record in self.candidates(topic)]"
    patch.edit(ConfigControl, "_elr_cleared_by", (rule, "return cleared"))
