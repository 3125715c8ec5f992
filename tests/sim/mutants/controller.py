"""The active controller: when it answers, what it keeps, what it lets others change."""

from __future__ import annotations

from kraftlite.broker.producer_ids import ProducerIdManager
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.core import ControllerCore
from kraftlite.controller.deferred import DeferredQueue
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.isr_control import IsrControl
from kraftlite.controller.offset_control import OffsetControl
from kraftlite.controller.producer_id_control import ProducerIdControl
from kraftlite.replication.table import PartitionTable
from kraftlite.sim.scenes import deposed_leader, late_requests, overtaken_join
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing, tuned
from tests.sim.mutants.patching import Patch


@mutant("answers-at-append", "the controller answers when a record is written, not when it is committed", expects=("13", "18"))
def answers_at_append(patch: Patch) -> None:
    """CE-06: an acknowledgement from one node's log. The default of MongoDB and of Redis in Jepsen's first analyses."""
    patch.edit(ControllerCore, "_park", ("self.deferred.add(wait_for, Answer(on_done, response))", "on_done(response)"))


@mutant("answers-at-earlier-commit", "the controller answers when what was pending before is committed", expects=("13", "18"))
def answers_at_earlier_commit(patch: Patch) -> None:
    """CE-07 is for operations without records; taken for the others, an answer is one batch early."""
    rule = "self.deferred.highest_pending_offset if last_offset is None else last_offset"
    pending = "self.deferred.highest_pending_offset"
    patch.edit(ControllerCore, "_park", (rule, f"last_offset if {pending} is None else {pending}"))


@mutant(
    "nothing-written-answers-at-once",
    "an answer that changes nothing does not wait for what is not committed, and which it speaks of",
    expects=("18",),
    lens=playing(deposed_leader),
)
def nothing_written_answers_at_once(patch: Patch) -> None:
    """CE-07: a client is told that a topic exists, a broker that it is fenced, and the next controller knows nothing of it."""
    rule = "self.deferred.highest_pending_offset if last_offset is None else last_offset"
    patch.edit(ControllerCore, "_park", (rule, "last_offset"))


@mutant(
    "renounce-answers-success",
    "what waits when a controller steps down is answered as if it had been committed",
    expects=("18",),
    lens=playing(deposed_leader),
)
def renounce_answers_success(patch: Patch) -> None:
    """CE-12: the cleanup path completes what it should fail. With futures the two differ by one argument."""
    patch.edit(DeferredQueue, "fail_all", ("parked.complete(error)", "parked.complete(None)"))


@mutant(
    "renounce-keeps-uncommitted",
    "a controller that steps down keeps what was never committed",
    expects=("14", "16", "18", "crash"),
    lens=playing(deposed_leader),
)
def renounce_keeps_uncommitted(patch: Patch) -> None:
    """The reason for Kafka's TimelineHashMap: a controller that steps down must forget what it only believed (CE-12)."""
    forget = "for epoch in self._registry.epochs:\n        self._registry.delete_snapshot(epoch)"
    patch.edit(OffsetControl, "deactivate", ("self._registry.revert_to(floor)", forget))


@mutant("past-is-kept", "a controller can go back to all that it ever committed", expects=("PastForgotten",))
def past_is_kept(patch: Patch) -> None:
    """TL-04: what is stable is not taken back, and its timeline snapshots grow with the log."""
    patch.edit(OffsetControl, "handle_commit", ("self._registry.delete_snapshots_up_to(keep)", "pass"))


@mutant(
    "stale-broker-epoch-accepted",
    "requests of an earlier incarnation of a broker are carried out",
    expects=("22",),
    lens=playing(late_requests),
)
def stale_broker_epoch_accepted(patch: Patch) -> None:
    """KIP-380 (KAFKA-7235): a request from before a restart arrives after it."""
    patch.edit(ClusterControl, "check_epoch", ("if registration.broker_epoch != broker_epoch:", "if False:"))


@mutant(
    "stale-partition-epoch-accepted",
    "AlterPartition is carried out over a change that its leader has not seen",
    expects=("21", "26"),
)
def stale_partition_epoch_accepted(patch: Patch) -> None:
    """KIP-497, and KAFKA-2729 from the other side: every ISR update is conditional on the version that the leader has seen."""
    patch.edit(IsrControl, "_refusal", ("if item.partition_epoch < partition.partition_epoch:", "if False:"))


@mutant("fenced-replica-joins-isr", "nobody asks whether a replica that joins an ISR is fenced", expects=("19", "SelfCheck"))
def fenced_replica_joins_isr(patch: Patch) -> None:
    """KIP-841 (KAFKA-13916, KAFKA-13944): a broker that was fenced, or shutting down, came back into the ISR and could be
    elected. Neither the leader nor the controller asked."""
    patch.edit(PartitionTable, "eligible", (" and broker.active", ""))
    patch.edit(
        ClusterControl,
        "ineligible_reason",
        ("if registration.fenced:", "if False:"),
        ("if registration.in_controlled_shutdown:", "if False:"),
    )


@mutant(
    "old-incarnation-joins-isr",
    "nobody asks which incarnation of a replica has fetched",
    expects=("21", "25", "26", "27"),
    lens=playing(overtaken_join),
)
def old_incarnation_joins_isr(patch: Patch) -> None:
    """KIP-903 (KAFKA-14139): a broker that came back without its log was added to the ISR for fetches of before."""
    patch.edit(PartitionTable, "eligible", (" and broker.broker_epoch == replica_epoch", ""))
    patch.edit(
        ClusterControl,
        "ineligible_reason",
        ("if broker_epoch is not None and registration.broker_epoch != broker_epoch:", "if False:"),
    )


@mutant("election-ignores-fencing", "a fenced broker is as good a leader as any", expects=("19", "20", "SelfCheck"))
def election_ignores_fencing(patch: Patch) -> None:
    """KAFKA-13944: a broker that was on its way out was elected; CM-14 says who may."""
    rule = "broker_id == added or self._cluster.may_lead(broker_id)"
    patch.edit(ElectionControl, "_acceptable", (rule, "broker_id == added or broker_id in self._cluster.brokers"))


@mutant("fencing-leaves-the-isr", "a broker that is fenced stays in its ISRs and leads on", expects=("19", "SelfCheck"))
def fencing_leaves_the_isr(patch: Patch) -> None:
    """CM-10: who is fenced is in no ISR but as its last member."""
    leaves = "yield from self.leader_and_isr_updates(found, records, removed=broker_id)"
    patch.edit(ElectionControl, "fence", (leaves, "yield"))


@mutant("unclean-election-unasked", "elections are unclean, whatever the topic says", expects=("20", "24"))
def unclean_election_unasked(patch: Patch) -> None:
    """Kafka's default before KIP-106."""
    patch.set(ConfigControl, "unclean_election_enabled", lambda self, topic: True)


@mutant("producer-ids-given-twice", "a block of producer ids overlaps the next", expects=("23",))
def producer_ids_given_twice(patch: Patch) -> None:
    """KIP-730; KAFKA-15552: after a migration the same block was given again."""
    patch.edit(
        ProducerIdControl,
        "allocate",
        ("next_producer_id=first + self._block_size,", "next_producer_id=first + self._block_size - 1,"),
    )


@mutant(
    "block-used-twice",
    "a broker gives out a block of producer ids again when it is used up",
    expects=("23", "ProducerStateKept", "28", "30"),
    lens=tuned(producer_id_block=1),
)
def block_used_twice(patch: Patch) -> None:
    """CM-55, KIP-730: two producers with one id, and the records of one are taken for the other's."""
    patch.edit(ProducerIdManager, "take", ("self._following = None", "pass"))


@mutant("answers-one-too-late", "an answer waits until more than its own records are committed", expects=("SelfCheck",))
def answers_one_too_late(patch: Patch) -> None:
    """CE-06: who is the last one to ask waits for whoever comes next."""
    patch.edit(DeferredQueue, "complete_up_to", ("self._waiting[0][0] <= offset", "self._waiting[0][0] < offset"))
