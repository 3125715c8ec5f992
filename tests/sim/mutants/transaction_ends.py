"""Ends of transactions that are asked for again, or otherwise; and what gets into a transaction that is no part of it."""

from __future__ import annotations

from kraftlite.broker import log_cleaner
from kraftlite.coordinator.pending_offsets import PendingOffsets
from kraftlite.coordinator.transactions import rules
from kraftlite.log import cleaner, reads
from kraftlite.log.producers import ProducerState
from kraftlite.replication.consume import ConsumePath
from kraftlite.sim.workloads import latest, transaction_instance
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant("end-again-is-new", "an end of version 2 that is asked for again is taken for one of a former producer", expects=("72",))
def end_again_is_new(patch: Patch) -> None:
    """KIP-890, TX-43: the answer of the first one was lost, and the producer is fenced by its own end."""
    patch.edit(rules, "_end_2", ("again = overflowed or (", "again = False and ("))


@mutant("other-end-succeeds", "the other end of a transaction that has ended succeeds", expects=("72", "TransactionsSeen"))
def other_end_succeeds(patch: Patch) -> None:
    """TX-43, TX-45: whoever asks for an abort behind a commit believes it."""
    patch.edit(rules, "_ended_already", ("return Refused(ErrorCode.INVALID_TXN_STATE)", "return ended"))


@mutant(
    "plain-amid-transaction",
    "a producer may write outside of its open transaction",
    expects=("72", "66", "67", "TransactionsSeen"),
)
def plain_amid_transaction(patch: Patch) -> None:
    """LG-24: an abort takes it along, or a reader of committed records misses it."""
    rule = "if entry.txn_first_offset is not None and not header.is_transactional:"
    patch.edit(ProducerState, "check_batch", (rule, "if False:"))


@mutant("lost-answer-fences", "an InitProducerId that is asked again because its answer was lost is fenced", expects=("72",))
def lost_answer_fences(patch: Patch) -> None:
    """KIP-360, TX-15: only the current epoch may go on."""
    patch.edit(rules, "_next_epoch", ("if expected.producer_epoch == current.last_epoch:", "if False:"))


def asked_in_every_run(patch: Patch) -> None:
    """Every run has the client that asks where the committed transactions end."""
    patch.set(latest, "ONE_SEED_IN", 1)


@mutant(
    "latest-is-the-hw",
    "who reads what is committed is told the HW as the latest offset",
    expects=("48",),
    lens=asked_in_every_run,
)
def latest_is_the_hw(patch: Patch) -> None:
    """KIP-98: a consumer that reads to the latest offset waits for a transaction that is open."""
    rule = "bound = log.last_stable_offset if read_committed else log.hw"
    patch.edit(ConsumePath, "list_offset", (rule, "bound = log.hw"))


def adding_again(patch: Patch) -> None:
    """Every producer that adds partitions itself adds those again that it has added."""
    patch.set(transaction_instance, "ADDS_ALL_ONE_IN", 1)


@mutant(
    "partitions-added-in-part",
    "who adds partitions of which some are in the transaction is told that all are",
    expects=("72", "66", "67", "liveness"),
    lens=adding_again,
)
def partitions_added_in_part(patch: Patch) -> None:
    """TX-30: what is written to the others gets no marker, and readers of committed records stop there."""
    patch.edit(rules, "add", ("if partitions <= current.partitions:", "if partitions & current.partitions:"))


@mutant(
    "aborted-beside-aborted-not-told",
    "a fetch that ends before an abort does not tell of the transactions that were aborted after it",
    expects=("67", "TransactionsSeen"),
)
def aborted_beside_aborted_not_told(patch: Patch) -> None:
    """LG-23: transactions overlap, and what a later marker aborts may begin before an earlier one. KIP-98 keeps the LSO with each
    entry for that."""
    patch.edit(reads, "aborted_transactions", ("if entry.last_stable_offset >= up_to:", "if entry.last_offset >= up_to:"))


@mutant(
    "ended-before-is-told",
    "a fetch tells of the aborted transactions that had ended before it, too",
    expects=("67", "TransactionsSeen"),
)
def ended_before_is_told(patch: Patch) -> None:
    """LG-23: a consumer takes the next records of that producer, which are committed, for aborted ones and skips them."""
    patch.edit(reads, "aborted_transactions", ("segment.txn_index.ending_from(start)", "segment.txn_index"))


@mutant(
    "first-timeout-stays",
    "a transactional id keeps the timeout of its first instance",
    expects=("73",),
)
def first_timeout_stays(patch: Patch) -> None:
    """TX-12: transactions of a producer that has asked for more time are aborted under its hands."""
    patch.edit(rules, "_fresh", ("timeout_ms=timeout_ms", "timeout_ms=current.timeout_ms"))


@mutant(
    "begins-with-the-one-before",
    "a transaction goes on from the beginning of the one before it",
    expects=("65", "73"),
)
def begins_with_the_one_before(patch: Patch) -> None:
    """TX-30, TX-62: its timeout is over before its time, and the coordinator aborts it."""
    kept = "start_ms=current.start_ms if current.start_ms > 0 else now_ms,"
    patch.edit(rules, "add", ("start_ms=now_ms,", kept))


@mutant(
    "cleaned-beyond-the-lso",
    "the cleaner goes on to the HW, where transactions are open or not decided yet",
    expects=("45", "67"),
)
def cleaned_beyond_the_lso(patch: Patch) -> None:
    """LG-42: what an open transaction writes supersedes what was there, and then it is aborted: both are gone."""
    bound = ("min(log.last_stable_offset, log.active_base_offset)", "min(log.hw, log.active_base_offset)")
    patch.edit(cleaner, "look", bound, also=(log_cleaner,))


@mutant(
    "unstable-for-ever",
    "an offset of a transaction counts as on its way to the log for ever",
    expects=("70",),
)
def unstable_for_ever(patch: Patch) -> None:
    """KIP-447, TG-04: consumers that wait for stable offsets begin no more."""
    patch.edit(PendingOffsets, "written", ("if in_transaction:", "if False:"))
