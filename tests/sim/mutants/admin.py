"""What administrators decide: topics that come again, moves, configs, features, quotas, credentials, and who is asked."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from kraftlite.broker.dynamic_configs import DynamicConfigs
from kraftlite.broker.handlers import at_controller, broker_changes, configs, log_dirs, quotas
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.broker.telemetry import ClientTelemetry
from kraftlite.controller import describe
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.partition_change import PartitionChangeBuilder
from kraftlite.controller.placement import _Rack
from kraftlite.controller.queue import EventQueue
from kraftlite.controller.reassignment_control import ReassignmentControl
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.topic_control import TopicControl
from kraftlite.metadata.delta import ClusterDelta, ConfigsDelta, ScramDelta
from kraftlite.metadata.image import ClientQuotasImage, FeaturesImage
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.messages.controller import ConfigChange, ConfigResourceChange, IncrementalAlterConfigsRequest
from kraftlite.replication import states
from kraftlite.replication.counts import ReplicaCounts
from kraftlite.replication.manager import ReplicaManager
from kraftlite.replication.partition import Partition
from kraftlite.sim.services import admin as questions
from kraftlite.sim.services import at_controller as asked_here
from kraftlite.sim.workloads import admin as workload
from kraftlite.sim.workloads import agreements
from kraftlite.sim.workloads.admin_configs import BROKER, TOPIC
from kraftlite.sim.workloads.admin_configs import features as draw_features
from kraftlite.sim.workloads.admin_configs import quotas as draw_quotas
from kraftlite.sim.workloads.admin_topics import NAMES, Drawn, Sight, timeout_ms
from kraftlite.timeline.registry import Revertable
from tests.sim.mutants.catalog import Change, mutant
from tests.sim.mutants.lenses import configured, playing
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import slow_controllers

# --- deltas, images, snapshots, the timeline


@mutant("credential-not-removed", "a SCRAM credential that was removed stays in the images", expects=("16", "53"))
def credential_not_removed(patch: Patch) -> None:
    """A delta whose removals are forgotten: KAFKA-14084 was about SCRAM in KRaft, and its first version had no removals."""
    patch.edit(ScramDelta, "replay_removed", ("self.changes[record.name, record.mechanism] = None", "pass"))


@mutant("unregistered-stays-in-image", "a broker that was unregistered stays in the images", expects=("16", "53"))
def unregistered_stays_in_image(patch: Patch) -> None:
    """Clients go on asking a broker that has gone for good: KAFKA-14996's neighbourhood."""
    patch.edit(ClusterDelta, "replay_unregister", ("self.changed_brokers[record.broker_id] = None", "pass"))


@mutant("snapshot-without-moves", "a metadata snapshot forgets that replicas are being added and removed", expects=("16", "14"))
def snapshot_without_moves(patch: Patch) -> None:
    """A field that was added to the record and not to the image's writer."""
    patch.edit(
        PartitionRegistration,
        "to_record",
        ("removing_replicas=self.removing_replicas,", "removing_replicas=(),"),
        ("adding_replicas=self.adding_replicas,", "adding_replicas=(),"),
    )


@mutant("snapshot-without-features", "a metadata snapshot has no feature but metadata.version", expects=("16",))
def snapshot_without_features(patch: Patch) -> None:
    """KIP-584: a node that starts from the snapshot takes the cluster for an older one."""
    patch.edit(FeaturesImage, "write", ("if name != METADATA_VERSION:", "if False:"))


@mutant("snapshot-with-one-quota", "a metadata snapshot has one quota of each entity", expects=("16",))
def snapshot_with_one_quota(patch: Patch) -> None:
    """The class of KAFKA-13558: an image that is written incompletely is found when it is read, on another node."""
    patch.edit(ClientQuotasImage, "write", ("for key in sorted(values):", "for key in sorted(values)[:1]:"))


@mutant("image-keeps-configs", "a topic that is deleted leaves its configs in the images", expects=("16", "51", "53"))
def image_keeps_configs(patch: Patch) -> None:
    """CM-23: the topic that comes next under this name begins with them."""
    patch.set(ConfigsDelta, "replay_topic_removed", lambda self, topic: None)


@mutant(
    "revert-forgets-removals",
    "a controller that steps down does not take back what it removed",
    expects=("18", "14", "SelfCheck"),
)
def revert_forgets_removals(patch: Patch) -> None:
    """TL-05: the undo of a removal is an insertion. A timeline that only undoes changes passes for long."""
    patch.edit(
        Revertable,
        "_undo",
        ("            self._data[key] = value", "            if key in self._data:\n                self._data[key] = value"),
    )


# --- topics


@mutant("controller-keeps-configs", "a topic that is deleted leaves its configs at the controller", expects=("18", "50", "16"))
def controller_keeps_configs(patch: Patch) -> None:
    """CM-23: a topic that is created again has min.insync.replicas and cleanup.policy of its former self."""
    patch.set(ConfigControl, "remove_topic", lambda self, topic: None)


@mutant("validate-only-carried-out", "what was only to be validated is carried out", expects=("50",))
def validate_only_carried_out(patch: Patch) -> None:
    """CE-19: the dry run of kafka-topics or of an operator's plan creates topics."""
    patch.set(ControllerResult, "without_records", lambda self: self)


@mutant("collisions-allowed", "names that differ in dots and underscores only are both created", expects=("50",))
def collisions_allowed(patch: Patch) -> None:
    """CM-15: the metrics of both topics are one."""
    patch.edit(TopicControl, "_check_new_name", ("if has_collision_characters(name):", "if False:"))


@mutant("fenced-replicas-in-sync", "a new partition has its fenced replicas in the ISR", expects=("50", "19", "SelfCheck"))
def fenced_replicas_in_sync(patch: Patch) -> None:
    """CM-17, CM-19, KIP-841: a replica that is down from the first moment counts as in sync, or leads."""
    patch.set(TopicControl, "_live", lambda self, replicas: tuple(replicas))


@mutant("duplicates-decided-once", "a topic that a request names twice is created", expects=("50",))
def duplicates_decided_once(patch: Patch) -> None:
    """CM-25: which of both entries counts is chance."""
    patch.edit(TopicControl, "_check_new_name", ("if count[name] > 1:", "if False:"))


@mutant(
    "log-of-former-topic",
    "a topic that is created again takes over the log of its former self",
    expects=("25", "51", "54", "28"),
)
def log_of_former_topic(patch: Patch) -> None:
    """KIP-516: before topic ids a broker that missed a deletion served the old records under the new name."""
    rule = "if log is not None and log.topic_id in (None, topic_id):"
    patch.edit(ReplicaManager, "_delete", (rule, "if False:"))
    patch.edit(ReplicaManager, "_open_log", ("self._logs.delete(tp)", "existing.topic_id = topic_id"))


@mutant("former-id-still-served", "the id of a topic that is gone stands for the topic of its name", expects=("54", "53"))
def former_id_still_served(patch: Patch) -> None:
    """KIP-516: a consumer that knows the former topic goes on reading in the new one, as if nothing had happened."""
    names: dict[Any, str] = {}

    def by_id(original: Any, self: Any, topic_id: Any) -> Any:
        found = original(self, topic_id)
        if found is not None:
            names[topic_id] = found.name
            return found
        return self.topic(names[topic_id]) if topic_id in names else None

    patch.around(MetadataCache, "topic_by_id", by_id)


# --- moves and elections


@mutant("move-ends-early", "a reassignment ends before all new replicas are in sync", expects=("52", "50"))
def move_ends_early(patch: Patch) -> None:
    """CM-42; KAFKA-14190's class: data is deleted where it was, and is not yet where it should be."""
    rule = "any(replica not in isr for replica in awaited)"
    patch.edit(PartitionChangeBuilder, "_complete_reassignment", (rule, f"(not self._old.adding_replicas and {rule})"))


@mutant("move-needs-no-catching-up", "a reassignment is over as soon as it is asked for", expects=("50",))
def move_needs_no_catching_up(patch: Patch) -> None:
    """CM-41: replicas that have nothing yet are all that the partition has."""
    rule = "if not isr or not replicas or any(replica not in isr for replica in awaited):"
    patch.edit(PartitionChangeBuilder, "_complete_reassignment", (rule, "if not isr or not replicas:"))


@mutant("cancel-keeps-replicas", "a cancelled reassignment keeps the replicas that it was adding", expects=("50", "52"))
def cancel_keeps_replicas(patch: Patch) -> None:
    """CM-44: KIP-455 says that a cancellation goes back to the replicas of before."""
    rule = "replicas = _without(partition.replicas, partition.adding_replicas)"
    patch.edit(ReassignmentControl, "_cancel", (rule, "replicas = partition.replicas"))


@mutant("factor-may-change", "a request that forbids another replication factor is carried out with one", expects=("50",))
def factor_may_change(patch: Patch) -> None:
    """KIP-860: the guard of an operator against a plan that drops replicas."""
    patch.edit(ReassignmentControl, "_alter_one", ("if not allow_factor_change:", "if False:"))


def with_agreements(patch: Patch) -> None:
    """The administrator who asks for what has to agree comes with every seed."""
    patch.set(agreements, "comes_with", lambda seed: True)


@mutant(
    "factor-of-both-moves",
    "the replicas that a move removes count for the replication factor that a request keeps",
    expects=("50",),
    lens=with_agreements,
)
def factor_of_both_moves(patch: Patch) -> None:
    """KIP-860: amid a move a partition has more replicas than it should have."""
    check = ReassignmentControl._check_factor
    with_all = staticmethod(lambda partition, wanted: check(replace(partition, removing_replicas=()), wanted))
    patch.set(ReassignmentControl, "_check_factor", with_all)


@mutant(
    "dependents-are-not-asked",
    "a level is checked against those of the same request only, and not against what is finalized",
    expects=("50",),
    lens=with_agreements,
)
def dependents_are_not_asked(patch: Patch) -> None:
    """KIP-584: a level that needs another one could never be raised by itself."""
    patch.edit(FeatureControl, "_check_dependencies", ("dict(self.finalized.items()) | ", ""))


@mutant(
    "preferred-not-in-sync", "the preferred replica is elected though it is not in sync", expects=("20", "50", "24", "SelfCheck")
)
def preferred_not_in_sync(patch: Patch) -> None:
    """CM-38; KAFKA-7283's opposite: balance is no reason to lose records."""
    patch.edit(
        PartitionChangeBuilder,
        "_elect",
        ("if self._election is Election.PREFERRED and self._valid(preferred):", "if self._election is Election.PREFERRED:"),
    )


@mutant(
    "unregistered-stays-in-isr", "a broker that is unregistered stays in its ISRs", expects=("52", "20", "19", "72", "SelfCheck")
)
def unregistered_stays_in_isr(patch: Patch) -> None:
    """KAFKA-13488's class: what the registration takes with it is forgotten in one of several places."""
    patch.edit(ElectionControl, "unregister", ("yield from self.broker_lost(broker_id, records)", "yield"))


# --- configs and features


@mutant("config-removal-ignored", "a config that is deleted stays as it is", expects=("50",))
def config_removal_ignored(patch: Patch) -> None:
    """CM-47: the operation succeeds, and nothing has changed."""

    patch.edit(ConfigControl, "_new_value", ("return None", "return current.get(change.name)"))


@mutant("bad-key-in-part", "of a resource with one bad key the others are changed", expects=("50",))
def bad_key_in_part(patch: Patch) -> None:
    """CM-47: one bad key leaves its resource unchanged (KIP-339)."""

    def records(original: Any, self: Any, resource: Any, current: Any, wanted: Any) -> Any:
        names = sorted(wanted)
        try:
            return original(self, resource, current, wanted)
        except Exception:
            if len(names) < 2:
                raise
            return original(self, resource, current, {name: wanted[name] for name in names[:1]})

    patch.around(ConfigControl, "_records", records)


@mutant("cluster-default-wins", "the default of all brokers counts more than what a topic says itself", expects=("51",))
def cluster_default_wins(patch: Patch) -> None:
    """CM-49: one default for the cluster changes topics that were set up with care."""
    patch.edit(DynamicConfigs, "_log_config", ("{**self._topic_defaults, **own}", "{**own, **self._topic_defaults}"))


def draws_of(kind: int, name: str | None, key: str, values: tuple[str, ...]) -> Change:
    """The administrator changes no configuration but this one; `name` None: of any topic that comes and goes."""

    def draw(rng: random.Random, sight: Sight) -> Drawn:
        change = ConfigChange(name=key, op=0, value=rng.choice(values))
        resource = ConfigResourceChange(
            resource_type=kind, resource_name=rng.choice(NAMES) if name is None else name, changes=(change,)
        )
        return "alter_configs", IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=False, timeout_ms=timeout_ms(rng)
        )

    return lambda patch: patch.set(workload, "CONFIG_DRAWS", (draw,))


@mutant(
    "cluster-default-not-applied",
    "a changed default of all brokers reaches no log",
    expects=("51",),
    lens=draws_of(BROKER, "", "log.index.interval.bytes", ("100", "200", "300")),
)
def cluster_default_not_applied(patch: Patch) -> None:
    """CM-52; KAFKA-15604's class: dynamic defaults that are stored, described and not acted on."""
    patch.edit(
        BrokerMetadataPublisher,
        "_topics_of",
        ("if any(self._configs.concerns_this_broker(kind, name) for kind, name in changed):", "if False:"),
    )


@mutant(
    "min-isr-not-applied",
    "a leader goes on with the min.insync.replicas with which it began",
    expects=("51",),
    lens=draws_of(TOPIC, None, "min.insync.replicas", ("1", "2")),
)
def min_isr_not_applied(patch: Patch) -> None:
    """CM-52, RP-05: acknowledged means less than what the administrator has asked for."""
    patch.edit(Partition, "update_config", ("self._set_min_isr()", "pass"))


@mutant("described-without-broker", "DescribeConfigs does not show what is set for one broker", expects=("53",))
def described_without_broker(patch: Patch) -> None:
    """CM-49: what is shown is not what is in force."""
    patch.edit(
        broker_changes,
        "effective_broker_values",
        ('for name in ("", str(ctx.node_id)):', 'for name in ("",):'),
        also=(configs,),
    )


def much_about_features(patch: Patch) -> None:
    """The administrator changes nothing but feature levels."""
    patch.set(workload, "CONFIG_DRAWS", (draw_features,))


@mutant(
    "downgrade-without-permission",
    "a feature is lowered by a request that only allows upgrades",
    expects=("50",),
    lens=much_about_features,
)
def downgrade_without_permission(patch: Patch) -> None:
    """CM-53, KIP-584: a typing error takes a feature away from the cluster."""
    patch.edit(FeatureControl, "_check_update", ("if level < current and kind is FeatureUpgradeType.UPGRADE:", "if False:"))


@mutant("led-by-anybody-counted", "a broker counts the partitions that anybody leads as its own", expects=("60",))
def led_by_anybody_counted(patch: Patch) -> None:
    """Nothing but the metrics page looks there, and who balances the cluster by it moves leaders for nothing."""
    patch.edit(ReplicaCounts, "leaders", ("partition.leader is not None", "partition.leader_id is not None"))


@mutant("followers-mixed-up", "a leader tells the offset of one follower as that of another", expects=("60",))
def followers_mixed_up(patch: Patch) -> None:
    """Who looks for the follower that holds back the high watermark restarts the wrong broker."""
    patch.edit(states, "_known", ("tuple(followers)", "tuple(reversed(followers))"))


@mutant("followers-of-before", "a replica that leads no more still tells of followers", expects=("60",))
def followers_of_before(patch: Patch) -> None:
    """Two nodes know followers of one partition, and the page shows both as its leader."""
    told = "(partition.replicas, (0,) * len(partition.replicas), (), None) if leader is None"
    patch.edit(states, "_values", ("_NOTHING if leader is None", told))


@mutant(
    "deletion-takes-another-directory",
    "what is removed after its delay is the newest directory",
    expects=("36", "28", "crash"),
    lens=configured(log_segment_delete_delay_ms="100"),
)
def deletion_takes_another_directory(patch: Patch) -> None:
    """`log.segment.delete.delay.ms`. The name was looked up when the delay was over, and no longer that of the deleted log."""
    removed = "remove(self._ports.disk, log.directory)"
    patch.edit(LogDirs, "_remove_later", (removed, "remove(self._ports.disk, (state.newest or (None, log.directory))[1])"))


def much_about_quotas(patch: Patch) -> None:
    """The administrator changes no configuration but quotas, and every other question is about those of an entity."""
    patch.set(workload, "CONFIG_DRAWS", (draw_quotas,))
    strict = 'asks = (DescribeAsk("strict quotas", self._filters()),) if rng.randrange(2) else asks'
    rule = "return asks[rng.randrange(len(asks))]"
    patch.edit(workload.SimOperator, "_question", (rule, f"{strict}\n    {rule}"))


@mutant(
    "strict-filter-not-strict",
    "a strict filter describes the quotas of entities with more parts, too",
    expects=("53",),
    lens=much_about_quotas,
)
def strict_filter_not_strict(patch: Patch) -> None:
    """KIP-546: who asks for the quotas of a user gets those of the user's clients, and alters the wrong ones."""
    patch.edit(quotas, "describe_quotas", ("not (strict and len(entity) != len(filters)) and ", ""))


@mutant("keys-in-the-trace", "the trace of the controller has the keys of credentials", expects=("93",))
def keys_in_the_trace(patch: Patch) -> None:
    """CM-51: KAFKA-14121's kind, where values that nobody must read were logged."""
    patch.set(describe, "_SECRET", frozenset())


@mutant("directories-stay-behind", "a move that ends leaves the directories in the order of before", expects=("83", "50", "81"))
def directories_stay_behind(patch: Patch) -> None:
    """KIP-858: metadata has replicas in directories of other brokers, which look offline."""
    rule = "tuple(by_replica[replica] for replica in replicas)"
    patch.edit(PartitionChangeBuilder, "_complete_reassignment", (rule, "tuple(by_replica.values())[-len(replicas) :]"))


@mutant(
    "fenced-brokers-first", "a new replica is placed on a fenced broker, though another one in its rack is not", expects=("50",)
)
def fenced_brokers_first(patch: Patch) -> None:
    """CM-17: the partition is short of a replica from its first moment on."""
    rule = "found = self.unfenced.next(turn)\n    return found if found is not None else self.fenced.next(turn)"
    other = "found = self.fenced.next(turn)\n    return found if found is not None else self.unfenced.next(turn)"
    patch.edit(_Rack, "next", (rule, other))


@mutant(
    "expired-event-runs-all-the-same",
    "what has waited for too long in the controller's queue is answered so, and carried out when its turn comes",
    expects=("SelfCheck", "13", "50"),
    lens=playing(slow_controllers),
)
def expired_event_runs_all_the_same(patch: Patch) -> None:
    """CE-03: who was told that it came to nothing asks again, and it is done twice."""
    patch.edit(EventQueue, "run_one", ("        expiring.done = True\n", ""))


# --- clients at the edge


@mutant(
    "pushes-at-any-time",
    "a broker takes the metrics that a client pushes before its interval is over",
    expects=("PushesInOrder",),
)
def pushes_at_any_time(patch: Patch) -> None:
    """TM-03: the interval is what keeps thousands of clients from flooding a broker."""
    patch.edit(ClientTelemetry, "_check", ("now - found.last_push_ms >= found.interval_ms", "now >= found.last_push_ms"))


@mutant(
    "named-twice-at-a-controller",
    "a controller that a client asks directly does not answer for a resource that the request names twice",
    expects=("ToldByControllers",),
)
def named_twice_at_a_controller(patch: Patch) -> None:
    """CB-03: a client waits for a result of each resource that it names."""
    patch.edit(at_controller, "alter_configs_here", ("        if times > 1\n", "        if times > 2\n"), also=(asked_here,))


@mutant("records-told-as-bytes", "DescribeLogDirs tells how many offsets a log has for its bytes", expects=("LogDirsDescribed",))
def records_told_as_bytes(patch: Patch) -> None:
    """CP-14: who moves replicas to where there is room goes by it."""
    changes = ("tp=log.tp, size_bytes=log.size_bytes, offset_lag=max(", "tp=log.tp, size_bytes=log.leo, offset_lag=max(")
    patch.edit(log_dirs, "describe_log_dirs", changes)
    patch.set(questions, "DESCRIPTIONS", {**questions.DESCRIPTIONS, "log dirs": log_dirs.describe_log_dirs})
