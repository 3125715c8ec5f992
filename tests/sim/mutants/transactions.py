"""Transactions: outcomes, markers, epochs, verification, the last stable offset, the index of aborted transactions, offsets."""

from __future__ import annotations

from kraftlite.coordinator.offsets import Offsets
from kraftlite.coordinator.pending_offsets import PendingOffsets
from kraftlite.coordinator.transactions import markers, records, rules
from kraftlite.coordinator.transactions.markers_driver import MarkerSender
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.log import reads, recovery
from kraftlite.log.context import LogContext
from kraftlite.log.guards import Guards
from kraftlite.log.indexes import TransactionIndex
from kraftlite.log.producers import ProducerState
from kraftlite.replication.enrol_driver import Enroller
from kraftlite.sim.workloads.transaction_instance import Instance
from kraftlite.sim.workloads.transactions import TopicMaker
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.storage import lost_files


@mutant("lso-at-append", "the LSO moves when a marker is appended, not when it is committed", expects=("67", "TransactionsSeen"))
def lso_at_append(patch: Patch) -> None:
    """KIP-98; Jepsen on Redpanda 21.10.1: aborted reads."""
    patch.edit(ProducerState, "complete", ("self._undecided[transaction.first_offset] = transaction.last_offset", "pass"))


@mutant(
    "aborted-not-told", "a fetch tells of aborted transactions of the first segment entry only", expects=("TransactionsSeen",)
)
def aborted_not_told(patch: Patch) -> None:
    """KIP-98: the list must have every aborted transaction that overlaps what was read."""
    patch.edit(reads, "aborted_transactions", ("if entry.last_stable_offset >= up_to:", "if found:"))


@mutant(
    "index-lso-ignores-others", "an index entry says that nothing is open behind its marker", expects=("67", "TransactionsSeen")
)
def index_lso_ignores_others(patch: Patch) -> None:
    """TP-34: readers stop looking at an entry whose LSO is beyond what they read, and miss aborts that come later."""
    patch.edit(
        ProducerState,
        "complete",
        ("next(iter(self._open.values()), transaction.last_offset + 1)", "transaction.last_offset + 1"),
    )


@mutant(
    "open-forgotten-at-restore", "a start forgets which transactions are open", expects=("67", "66", "TransactionsSeen", "crash")
)
def open_forgotten_at_restore(patch: Patch) -> None:
    """TP-39: a snapshot without the first offset of the open transaction."""
    patch.edit(
        ProducerState,
        "restore",
        ("self._open.update((producer_id, first) for first, producer_id in sorted(open_transactions))", "pass"),
    )


@mutant(
    "marker-epoch-not-recorded",
    "a marker does not fence its transaction's own late batches",
    expects=("ProducerStateKept", "66", "liveness"),
)
def marker_epoch_not_recorded(patch: Patch) -> None:
    """KIP-890: a late batch opens a transaction again, which nobody ends."""
    patch.edit(
        ProducerState,
        "append_marker",
        ("entry = self._entry(header)", "entry = self.entries.get(header.producer_id) or self._entry(header)"),
    )


@mutant(
    "no-verification",
    "a partition takes what a producer says is in a transaction",
    expects=("66", "liveness", "TransactionsSeen"),
)
def no_verification(patch: Patch) -> None:
    """KIP-890: hanging transactions, and records that come into the next transaction."""
    patch.edit(Enroller, "begin", ("if not adds and not self.verifies:", "if not adds:"))
    patch.edit(ProducerState, "check_terms", ("self.guards.check(header, terms.guard, leader_epoch)", "pass"))


@mutant("repeated-marker-refused", "a marker of version 2 that is there already is refused", expects=("66", "liveness"))
def repeated_marker_refused(patch: Patch) -> None:
    """KAFKA-19999: behind a failover the new coordinator never completes what the old one has marked."""
    patch.edit(
        ProducerState,
        "check_marker",
        ("is_repeated = entry.txn_first_offset is None or header.producer_epoch == LAST_EPOCH", "is_repeated = False"),
    )


@mutant(
    "late-end-ends-next", "an EndTxn of the epoch before ends the transaction of now", expects=("65", "66", "TransactionsSeen")
)
def late_end_ends_next(patch: Patch) -> None:
    """KAFKA-17754; Jepsen on Bufstream 0.1.0: aborted reads, lost writes, torn transactions."""
    patch.edit(rules, "_end_2", ("if not now:", "if not (now or again):"))


@mutant(
    "timeout-without-epoch",
    "a transaction that took too long is aborted in its own epoch",
    expects=("65", "66", "TransactionsSeen"),
)
def timeout_without_epoch(patch: Patch) -> None:
    """KAFKA-6119: the producer goes on in a transaction that is over."""
    patch.edit(rules, "fence", ("else min(current.producer_epoch + 1, FENCING_EPOCH)", "else current.producer_epoch"))


@mutant("abort-behind-prepare-commit", "InitProducerId aborts what is being committed", expects=("65", "66", "crash"))
def abort_behind_prepare_commit(patch: Patch) -> None:
    """TX-47: a decided outcome flips, and a transaction is torn."""
    patch.edit(
        rules,
        "init",
        ("if entry.pending is not None:", "if entry.pending is not None and current.state not in PREPARED:"),
        ("if current.state in PREPARED:", "if False:"),
        ("if current.state is _S.ONGOING:", "if current.state is _S.ONGOING or current.state in PREPARED:"),
    )
    patch.edit(TransactionShard, "_write", ("assert transaction.may_follow(entry.current)", "assert True"))


@mutant(
    "decided-at-append",
    "markers are sent when the decision is written, not when it is committed",
    expects=("66", "65", "TransactionsSeen", "crash"),
)
def decided_at_append(patch: Patch) -> None:
    """TX-06: a coordinator that fails takes the decision with it, and the next one aborts what was committed."""
    patch.edit(
        TransactionShard,
        "_write",
        (
            "entry.pending = transaction",
            "entry.pending = transaction\n"
            "    if transaction.state in PREPARED:\n"
            "        entry.current = transaction\n"
            "        self._mark(transactional_id, entry)\n"
            "        entry.pending = transaction",
        ),
    )


@mutant("complete-at-first-marker", "a transaction is complete when its first partition has the marker", expects=("66", "crash"))
def complete_at_first_marker(patch: Patch) -> None:
    """KAFKA-9777: the other partitions are marked late, in the middle of the next transaction, or never."""
    patch.edit(TransactionShard, "_marked", ("marking.waiting -= event.partitions", "marking.waiting.clear()"))


@mutant(
    "not-marked-after-load",
    "a coordinator that takes over does not send the markers of what is decided",
    expects=("66", "liveness"),
)
def not_marked_after_load(patch: Patch) -> None:
    """TX-60: the transaction stays as it is for ever, and every reader waits at its first record."""
    patch.edit(TransactionShard, "_take_over", ("self._mark(transactional_id, entry)", "pass"))


@mutant("markers-given-up", "a marker that could not be written is not sent again", expects=("66", "crash", "liveness"))
def markers_given_up(patch: Patch) -> None:
    """TX-51: one leader that moved, and the transaction is torn."""
    patch.set(markers, "fate_of", lambda error: markers.Fate.DONE)


@mutant("init-keeps-the-epoch", "a new instance gets the epoch of the one before", expects=("65", "66", "TransactionsSeen", "42"))
def init_keeps_the_epoch(patch: Patch) -> None:
    """KIP-360: nobody is fenced, and two instances write into one transaction."""
    patch.edit(
        rules,
        "_next_epoch",
        ("return current.producer_epoch + 1, NO_EPOCH", "return max(0, current.producer_epoch), NO_EPOCH"),
    )


@mutant("offset-before-marker", "an offset of a transaction counts when it is written", expects=("44", "42", "TransactionsSeen"))
def offset_before_marker(patch: Patch) -> None:
    """TG-05: a copy that was aborted is never made again."""
    patch.edit(Offsets, "_put", ("if producer_id is None:", "if True:"))


@mutant("aborted-offset-counts", "the offsets of an aborted transaction count", expects=("44", "42", "TransactionsSeen"))
def aborted_offset_counts(patch: Patch) -> None:
    """KIP-98: input is skipped."""
    patch.edit(
        Offsets, "end_transaction", ("if committed and pending.committed is not None:", "if pending.committed is not None:")
    )


@mutant("undecided-forgotten", "an HW that goes back finds transactions decided", expects=("67",))
def undecided_forgotten(patch: Patch) -> None:
    """TP-30: a follower that is elected serves as stable what its leader had not decided."""
    patch.edit(LogContext, "set_hw", ("if hw < self.producers.decided_below:", "if False:"))
    patch.edit(LogContext, "reloaded", ("if self.hw < self.producers.decided_below:", "if False:"))


@mutant(
    "guard-survives-marker",
    "a marker leaves the guard of a batch that was verified before it",
    expects=("66", "69", "liveness", "TransactionsSeen"),
    scene="answer-comes-late",
)
def guard_survives_marker(patch: Patch) -> None:
    """KAFKA-14884: verification answered, marker, append: the batch belongs to a transaction that is over."""
    patch.edit(Guards, "end", ("if guard is not None and not", "if False and guard is not None and not"))


@mutant(
    "older-coordinator-writes",
    "a marker of an older coordinator epoch is accepted",
    expects=("66", "TransactionsSeen", "liveness"),
    scene="coordinator-wakes",
)
def older_coordinator_writes(patch: Patch) -> None:
    """KAFKA-9144: a coordinator that was replaced ends what is the next one's."""
    patch.edit(ProducerState, "check_marker", ("if marker.coordinator_epoch < entry.coordinator_epoch:", "if False:"))


@mutant(
    "equal-epoch-ends-next",
    "a late marker of version 2 ends the next transaction",
    expects=("66", "TransactionsSeen"),
    scene="coordinator-wakes",
)
def equal_epoch_ends_next(patch: Patch) -> None:
    """KIP-1228: the marker of a transaction has the epoch of the next one."""
    patch.edit(
        ProducerState,
        "check_marker",
        ("if version >= 2 and header.producer_epoch == entry.producer_epoch and not is_repeated:", "if False:"),
    )


@mutant(
    "unstable-offset-told",
    "a stable fetch answers while a transaction that moves the offset is open",
    expects=("70", "TransactionsSeen"),
)
def unstable_offset_told(patch: Patch) -> None:
    """KIP-447: the next copier begins at the old offset, and copies again what is about to be committed."""
    patch.edit(Offsets, "fetch", ("if require_stable and self.pending.is_pending(group_id, tp):", "if False:"))


@mutant("plain-commit-overwritten", "a commit marker overwrites what was committed plainly behind it", expects=("71", "42", "44"))
def plain_commit_overwritten(patch: Patch) -> None:
    """Redpanda 2026: the offsets of a group diverge from their log."""
    patch.edit(PendingOffsets, "overtake", ("if pending.order < order:", "if False:"))


@mutant("tombstone-leaves-pending", "an offset that was deleted comes back with the marker", expects=("71", "42", "44"))
def tombstone_leaves_pending(patch: Patch) -> None:
    """TG-06: memory has an offset that the log does not have."""
    patch.edit(PendingOffsets, "drop", ("tuple(self._pending.get(group_id, {}).get(tp, ()))", "()"))


@mutant("any-generation-commits", "an offset of a transaction is taken from any generation", expects=("TransactionsSeen",))
def any_generation_commits(patch: Patch) -> None:
    """KIP-447: a member that lost its partition commits its copies, and so does who has the partition now."""
    patch.edit(
        Offsets,
        "_check_commit",
        ("consumers = self._consumers", "if request.producer is not None:\n        return\n    consumers = self._consumers"),
    )


@mutant("offsets-answered-early", "a marker of offsets is answered before it is committed", expects=("66", "70", "crash"))
def offsets_answered_early(patch: Patch) -> None:
    """KAFKA-17507: the transaction is complete, and a stable fetch still answers what was before."""
    patch.edit(
        Offsets,
        "end",
        (
            "self._effects.mark(marker, written, ",
            "self._effects.answer(request_id, _NONE)\n    request_id = -1\n    self._effects.mark(marker, written, ",
        ),
    )


@mutant(
    "older-epoch-adds",
    "a producer of an older epoch adds partitions to the transaction of its successor",
    expects=("69", "66", "65"),
)
def older_epoch_adds(patch: Patch) -> None:
    """KIP-98: a zombie writes into what the next instance commits."""
    patch.edit(
        rules,
        "_not_its_transaction",
        ("if asker.producer_epoch != current.producer_epoch:", "if asker.producer_epoch > current.producer_epoch:"),
    )


@mutant(
    "late-state-taken-back", "a state that is late for its client is taken back", expects=("66", "65", "68", "liveness", "crash")
)
def late_state_taken_back(patch: Patch) -> None:
    """TX-09, TX-47: Kafka does; another outcome comes behind one that is decided."""
    patch.edit(
        TransactionShard,
        "step",
        (
            "self._effects.late(event.token, event.error)",
            "self._effects.written(event.token, event.error)\n        self._effects._then[event.token] = nothing",
        ),
    )


@mutant("failed-append-stays-pending", "an id whose record could not be written is busy for ever", expects=("liveness", "66"))
def failed_append_stays_pending(patch: Patch) -> None:
    """TX-07: CONCURRENT_TRANSACTIONS to everybody."""
    patch.edit(TransactionShard, "_written", ("entry.pending = None\n        if completes:", "if completes:"))


@mutant(
    "complete-written-once",
    "an id whose completion could not be written is decided for ever",
    expects=("liveness", "66", "crash"),
    lens=configured(transaction_state_log_replication_factor="2", transaction_state_log_min_isr="2"),
)
def complete_written_once(patch: Patch) -> None:
    """TX-54: its markers are there, and nobody completes it before the next coordinator."""
    patch.edit(
        TransactionShard,
        "_written",
        ("completes and told_of(error) is not ErrorCode.NOT_COORDINATOR", "False"),
    )
    patch.edit(
        TransactionShard,
        "check",
        (
            'assert pending is not None, f"{transactional_id} is {current.state.title}, and nobody',
            'assert True, f"{transactional_id} is {current.state.title}, and nobody',
        ),
    )


def _a_topic_comes_and_goes(patch: Patch) -> None:
    """In every run, and not in a quarter of them."""
    patch.edit(TopicMaker, "run", ("for among in (3, 4, 6)", "for among in (3, 1, 6)"))


@mutant(
    "deleted-topic-waited-for",
    "a marker waits for a partition that was deleted",
    expects=("liveness", "66"),
    lens=_a_topic_comes_and_goes,
)
def deleted_topic_waited_for(patch: Patch) -> None:
    """TX-52: the transaction is decided for ever, and its id is of no use."""
    patch.edit(MarkerSender, "_where", ("return Gone.GONE", "return None"))


@mutant("previous-id-not-logged", "a record does not say which producer id an id had before", expects=("68",))
def previous_id_not_logged(patch: Patch) -> None:
    """KIP-890: behind a failover the retry over the end of the epochs is fenced."""
    patch.edit(records, "_tags", ("if value.previous_producer_id != NO_PRODUCER_ID:", "if False:"))


@mutant("index-not-truncated", "the index of aborted transactions keeps what was cut off the log", expects=("67",))
def index_not_truncated(patch: Patch) -> None:
    """TP-38: readers leave out what is committed."""
    patch.edit(TransactionIndex, "truncate", ("del self._entries[keep:]", "pass"))


@mutant(
    "lost-aborted-believed",
    "a segment without any index has no aborted transactions",
    expects=("67", "TransactionsSeen"),
    lens=lost_files("indexes lost"),
)
def lost_aborted_believed(patch: Patch) -> None:
    """LG-28: an index that is made of what was aborted has no file where nothing was, so that nobody misses it."""
    patch.set(recovery.Loader, "_lost_aborted", lambda self, segment: False)


def dawdling(patch: Patch) -> None:
    """A third of the transactions of every run dawdle, not a twelfth."""
    patch.edit(Instance, "transact", ("odd = self.rng.randrange(12)", "odd = self.rng.randrange(3)"))


@mutant(
    "timeout-from-the-last-add",
    "a transaction that gets another partition may take its whole time again",
    expects=("73",),
    lens=dawdling,
)
def timeout_from_the_last_add(patch: Patch) -> None:
    """TX-62: a producer that goes on adding is never aborted, and readers of committed records wait for it."""
    patch.edit(rules, "has_timed_out", ("current.start_ms + current.timeout_ms", "current.updated_ms + current.timeout_ms"))
