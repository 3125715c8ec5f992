"""Rights and quotas: who decides by which entries, and what is counted against whom (KIP-801, KIP-140, KIP-13)."""

from __future__ import annotations

from kraftlite.controller.acl_control import AclControl
from kraftlite.controller.mutation_quotas import MutationQuota
from kraftlite.metadata.delta import AclsDelta
from kraftlite.node.authorization import AclPublisher
from kraftlite.quotas.rates import TokenBucket, WindowedRate
from kraftlite.quotas.usage import ClientQuotas
from kraftlite.security import authorizer as decisions
from kraftlite.security.authorizer import Authorizer
from kraftlite.sim.workloads import mutations
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured
from tests.sim.mutants.patching import Patch


@mutant("prefix-shadows-another", "of several prefixes of a name only the first one's entries are looked at", expects=("90",))
def prefix_shadows_another(patch: Patch) -> None:
    """KAFKA-14265: a DENY behind another prefix is passed over."""
    patch.edit(Authorizer, "covering", ("yield from found.values()", "yield from found.values()\n            break"))


@mutant("first-allow-decides", "the first ALLOW decides, whatever a DENY behind it says", expects=("90",))
def first_allow_decides(patch: Patch) -> None:
    """SE-31: deny wins."""
    patch.edit(Authorizer, "_decide", ("allowing = entry", "return Decision(True, Reason.MATCHING_ACL, entry)"))


@mutant("everyone-asked-per-principal", "a resource that has entries of others only is open to everybody", expects=("90",))
def everyone_asked_per_principal(patch: Patch) -> None:
    """KAFKA-14435: allow.everyone.if.no.acl.found means no entry at all."""
    patch.edit(
        Authorizer,
        "_decide",
        ("covered = True", "pass"),
        (
            "        if entry.permission_type == Permission.DENY:",
            "        covered = True\n        if entry.permission_type == Permission.DENY:",
        ),
    )


@mutant("operation-all-not-matched", "an entry for all operations allows none of them", expects=("90",))
def operation_all_not_matched(patch: Patch) -> None:
    """KAFKA-13697."""
    patch.edit(decisions, "_allowing", ("frozenset({Operation(operation), Operation.ALL})", "frozenset({Operation(operation)})"))


@mutant("host-not-compared", "an entry for one host holds for all of them", expects=("90",))
def host_not_compared(patch: Patch) -> None:
    """KAFKA-13698, the other way round: hosts were compared as what they are not."""
    patch.edit(decisions, "_same_host", ("if of_entry in (WILDCARD, host):", "if True:"))


@mutant("removal-lost-in-a-delta", "an entry that is given and taken back within one delta stays", expects=("90", "16", "crash"))
def removal_lost_in_a_delta(patch: Patch) -> None:
    """KAFKA-13889, KAFKA-13892."""
    patch.edit(
        AclsDelta,
        "replay_removed",
        ("self.changes[record.id] = None", "self.changes.setdefault(record.id, None)"),
    )


@mutant(
    "snapshot-keeps-entries",
    "a snapshot leaves the entries that it does not have",
    expects=("90", "16"),
    lens=configured(
        metadata_log_max_record_bytes_between_snapshots="1000",
        metadata_log_segment_ms="300",
        metadata_max_retention_bytes="2000",
    ),
)
def snapshot_keeps_entries(patch: Patch) -> None:
    """SE-33: a snapshot replaces all."""
    patch.edit(AclsDelta, "finish_snapshot", ("self.changes.setdefault(key, None)", "pass"))


@mutant("half-a-change-visible", "of a change of several entries the last is applied with the next change", expects=("90", "91"))
def half_a_change_visible(patch: Patch) -> None:
    """KAFKA-14214: readers see entries of two states."""
    patch.edit(
        AclPublisher,
        "on_metadata_update",
        (
            "self._authorizer.update(delta.acls.changes)",
            "late = self.__dict__.pop('late', {})\n"
            "        changes = {**late, **delta.acls.changes}\n"
            "        if len(changes) > 1:\n"
            "            self.late = dict([changes.popitem()])\n"
            "        self._authorizer.update(changes)",
        ),
    )


@mutant("decision-outlives-its-entries", "decisions are remembered beyond the next change", expects=("90", "91"))
def decision_outlives_its_entries(patch: Patch) -> None:
    """SE-33: a right that was taken back is used again and again."""
    patch.edit(Authorizer, "update", ("self._decided.clear()", "pass"))


@mutant("limit-not-updated", "who was looked up keeps the quota that held then", expects=("92",))
def limit_not_updated(patch: Patch) -> None:
    """KAFKA-10458: a new limit holds for new clients only."""
    patch.edit(ClientQuotas, "set_quotas", ("self._clients.clear()", "pass"), ("usage.bound = inf", "pass"))


@mutant("burst-counts-as-a-rate", "missing windows are not counted, and a short burst is a high rate", expects=("92",))
def burst_counts_as_a_rate(patch: Patch) -> None:
    """KAFKA-10162: clients are throttled at once, though they use less than they may."""
    patch.edit(WindowedRate, "measure", ("if missing > 0:", "if False:"))


@mutant("quotas-count-nothing", "what was produced is measured and not counted", expects=("92",))
def quotas_count_nothing(patch: Patch) -> None:
    """QU-03: nobody is ever throttled."""
    patch.edit(WindowedRate, "record", ("sample.value += value", "pass"))


def with_quotas_of_changes(patch: Patch) -> None:
    """Every run has the client that makes more topics than it may."""
    patch.set(mutations, "ONE_SEED_IN", 1)


@mutant("changes-cost-nothing", "what a client changes is not charged to its quota", expects=("92",), lens=with_quotas_of_changes)
def changes_cost_nothing(patch: Patch) -> None:
    """QU-07: a client that makes topics without end keeps the controller busy."""
    patch.edit(MutationQuota, "settle", ("bucket.tokens.take(self._charged,", "bucket.tokens.take(0,"))


@mutant(
    "changes-are-never-refused",
    "a quota of changes makes clients wait, and refuses nothing",
    expects=("92",),
    lens=with_quotas_of_changes,
)
def changes_are_never_refused(patch: Patch) -> None:
    """KIP-599: a client that does not wait goes on as fast as it can."""
    patch.edit(MutationQuota, "charge", ("if self._strict and (self._refused or self._exhausted()):", "if False:"))


@mutant(
    "bucket-without-a-brim", "who rests for long may change more at once than ever", expects=("92",), lens=with_quotas_of_changes
)
def bucket_without_a_brim(patch: Patch) -> None:
    """KIP-599: a token bucket bounds the burst, or it bounds nothing but the average."""
    refilled = "self.tokens + bound * max(0, now_ms - self._last_ms) / 1_000"
    patch.edit(TokenBucket, "refill", (f"min(self._burst(bound), {refilled})", refilled))


@mutant("named-twice-and-made-twice", "an entry that a request names twice is there twice", expects=("EntriesDescribed",))
def named_twice_and_made_twice(patch: Patch) -> None:
    """KIP-801: what is equal has one id; who removes one of two is told that it is gone, and it still holds."""
    patch.edit(AclControl, "create", (" and binding not in new", ""))
