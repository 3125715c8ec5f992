"""Feature levels: what a downgrade loses, what a level needs, who must have it, and what each level switches on."""

from __future__ import annotations

from kraftlite.broker.publisher import BrokerMetadataPublisher, _Update
from kraftlite.controller import election_control
from kraftlite.controller import feature_control as features
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.registration import ControllerRegistrar
from kraftlite.sim.workloads import levels
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing, tuned
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import late_registrations


def moving_levels(patch: Patch) -> None:
    """Every run has the administrator who moves levels, from an older release."""
    patch.set(levels, "comes_with", lambda seed: True)


@mutant(
    "downgrade-loses-metadata",
    "a downgrade of metadata.version that loses metadata is carried out",
    expects=("85", "50", "16"),
    lens=moving_levels,
)
def downgrade_loses_metadata(patch: Patch) -> None:
    """KAFKA-13896: Kafka's unsafe downgrade was never made safe for what the older level cannot say."""
    patch.edit(
        features, "_check_metadata_downgrade", ("if not lost:", "if not lost or kind is FeatureUpgradeType.UNSAFE_DOWNGRADE:")
    )


@mutant(
    "level-without-what-it-needs",
    "a feature is finalized without the level of metadata.version that it needs",
    expects=("85", "50", "crash"),
    lens=moving_levels,
)
def level_without_what_it_needs(patch: Patch) -> None:
    """KIP-1022: records of eligible leader replicas below the level that has their fields."""
    patch.edit(FeatureControl, "_check_dependencies", ("if missing is not None:", "if False:"))


@mutant(
    "upgrade-past-silent-controllers",
    "a feature is upgraded while a controller of the quorum has not said what it supports",
    expects=("85", "50"),
    lens=moving_levels,
)
def upgrade_past_silent_controllers(patch: Patch) -> None:
    """KIP-919: an old controller that comes back dies on the first record that it does not know."""
    patch.edit(FeatureControl, "_check_supported", ("for node_id in self.voters():", "for node_id in ():"))


@mutant(
    "deaf-registrar",
    "a controller that could not register at an old level never tries again",
    expects=("86",),
    lens=moving_levels,
)
def deaf_registrar(patch: Patch) -> None:
    """FV-09: nothing but the next upgrade, which waits for it for ever, would show it."""
    rule = "if image.features.metadata_version != self._level:"
    patch.edit(ControllerRegistrar, "on_metadata_update", (rule, "if self._level is None:"))


@mutant(
    "overtaken-registrar",
    "a controller whose registration was replaced by a late one of its former self does not register again",
    expects=("86",),
    lens=playing(late_registrations),
)
def overtaken_registrar(patch: Patch) -> None:
    """CM-13: an upgrade goes by what the former software supports, until the next restart."""
    again = "self._seen = self.registered = False"
    patch.edit(ControllerRegistrar, "on_metadata_update", (again, "self._seen = False"))


@mutant(
    "no-epoch-for-an-old-shrink",
    "a shrinking ISR does not raise the leader epoch at levels at which it must",
    expects=("85", "13", "50"),
    lens=moving_levels,
)
def no_epoch_for_an_old_shrink(patch: Patch) -> None:
    """CM-26, KAFKA-15021: followers of before 3.6 learn of the smaller ISR by the epoch."""
    rule = "not features.skips_leader_epoch_bump_on_isr_shrink(self._features.level_or_minimum())"
    patch.edit(election_control.ElectionControl, "_bumps_on_shrink", (rule, "False"))


@mutant(
    "directories-before-their-level",
    "brokers are registered with directories at levels that have none",
    expects=("85", "16", "crash"),
    lens=moving_levels,
)
def directories_before_their_level(patch: Patch) -> None:
    """KAFKA-16131: directories written under an older metadata.version."""
    rule = "request.log_dirs if features.supports_directories(self._features.level_or_minimum()) else ()"
    patch.edit(ClusterControl, "registration_record", (rule, "request.log_dirs"))


@mutant(
    "asking-is-doing",
    "an update of features that only asks is carried out",
    expects=("50",),
    lens=moving_levels,
)
def asking_is_doing(patch: Patch) -> None:
    """CE-19: --dry-run of a tool that upgrades for good."""
    rule = "return result.without_records() if request.validate_only else result"
    patch.edit(FeatureControl, "update", (rule, "return result"))


@mutant(
    "old-broker-is-let-in",
    "a broker is registered that lacks a finalized level",
    expects=("85",),
    shape="3+3-old",
    scene="old-broker-meets-an-upgrade",
)
def old_broker_is_let_in(patch: Patch) -> None:
    """KIP-584: it would die on the first record that it does not know, or misread it."""
    patch.edit(ClusterControl, "_check_features", ("if not low <= level <= high:", "if False:"))


@mutant(
    "upgrade-past-old-brokers",
    "a feature is upgraded although a registered broker lacks the level",
    expects=("85",),
    shape="3+3-old",
    scene="old-broker-meets-an-upgrade",
)
def upgrade_past_old_brokers(patch: Patch) -> None:
    """KIP-584: the same, the other way round."""
    patch.edit(FeatureControl, "_check_supported", ("for node_id, ranges in self.brokers():", "for node_id, ranges in ():"))


@mutant(
    "directories-are-not-told-later",
    "a broker that was registered before there were directories never says its own",
    expects=("81", "liveness", "83"),
    shape="3+3-old",
    scene="directories-come-while-a-broker-is-away",
)
def directories_are_not_told_later(patch: Patch) -> None:
    """KAFKA-16162: no registration followed the change of metadata.version, and replicas had no directory for ever."""
    patch.edit(BrokerMetadataPublisher, "_refresh_registration", ("and not own.log_dirs", "and False"))


@mutant(
    "registrations-of-joined-lost",
    "of updates that become one only the first says whether registrations or features have changed",
    expects=("16", "81", "liveness"),
    shape="3+3-old",
    scene="directories-come-amid-a-failover",
    lens=tuned(partitions_per_step=1, roles_per_step=1, leaders_first=1, changes_per_part=1),
)
def registrations_of_joined_lost(patch: Patch) -> None:
    """ML-25: kraftlite's own. A broker that is busy with a failover does not hear that there are directories now."""
    patch.edit(_Update, "merged", ("any(update.registrations for update in updates)", "updates[0].registrations"))


@mutant(
    "eligible-while-off", "who was eligible to lead stays it when the feature is turned off", expects=("74",), lens=moving_levels
)
def eligible_while_off(patch: Patch) -> None:
    """KIP-966: the sets of another time count again as soon as the feature is back."""
    rule = "and (record.level > 0) != self.elr_enabled:"
    patch.edit(FeatureControl, "_with_elr", (rule, "and record.level > 0 and not self.elr_enabled:"))
