"""Ends of transactions that are asked for again, or otherwise; and what gets into a transaction that is no part of it."""

from __future__ import annotations

from kraftlite.coordinator.transactions import rules
from kraftlite.log.producers import ProducerState
from kraftlite.replication.consume import ConsumePath
from kraftlite.sim.workloads import latest
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
