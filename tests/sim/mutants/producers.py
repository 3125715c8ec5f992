"""Idempotent producers: what a log remembers of them."""

from __future__ import annotations

from kraftlite.broker.handlers import produce as handler
from kraftlite.log.batch import MAX_SEQUENCE
from kraftlite.log.producers import ProducerState
from kraftlite.log.truncation import Truncation
from kraftlite.replication.partition import Partition
from kraftlite.sim import client
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant(
    "resend-appended-again",
    "a batch that is sent again is appended again",
    expects=("ProducerStateKept", "30", "OrderKept", "NoDuplicates"),
)
def resend_appended_again(patch: Patch) -> None:
    """KIP-98: duplicates in spite of enable.idempotence."""
    patch.set(ProducerState, "duplicate_of", lambda self, header: None)
    patch.edit(ProducerState, "check_batch", ("if header.base_sequence != expected:", "if header.base_sequence > expected:"))


@mutant(
    "sequence-gap-accepted",
    "a batch is appended though the one before it is missing",
    expects=("ProducerStateKept", "30", "OrderKept", "NoDuplicates"),
)
def sequence_gap_accepted(patch: Patch) -> None:
    """KAFKA-5494: with several requests in flight a later one overtakes one that has failed."""
    patch.edit(ProducerState, "check_batch", ("if header.base_sequence != expected:", "if header.base_sequence < expected:"))


@mutant(
    "producers-outlive-truncation",
    "a truncated batch is still taken for written",
    expects=("ProducerStateKept", "30", "OrderKept", "NoDuplicates", "SelfCheck"),
)
def producers_outlive_truncation(patch: Patch) -> None:
    """LG-19; KAFKA-5435: producer state after a truncation. The resend is answered as a duplicate of what is nowhere."""
    patch.edit(Truncation, "truncate_to", ("self._reload_producers()", "pass"))


def _remembers_often(patch: Patch) -> None:
    patch.edit(ProducerState, "__init__", ("self._remember_every = remember_every", "self._remember_every = 1"))


@mutant(
    "remembered-beyond-a-truncation",
    "a truncation goes back to what producers were behind it",
    expects=("ProducerStateKept", "30", "OrderKept", "NoDuplicates", "SelfCheck"),
    lens=_remembers_often,
)
def remembered_beyond_a_truncation(patch: Patch) -> None:
    """LG-19: what was remembered on the way to a longer end of the log tells of batches that are gone."""
    patch.edit(ProducerState, "forget_beyond", ("self._remembered.pop()", "break"))


@mutant("resend-refused", "a batch that is sent again is refused as out of order", expects=("38",))
def resend_refused(patch: Patch) -> None:
    """LG-16, KIP-98: after a lost answer the retry is a fatal error; the producer starts anew and writes its records twice."""
    patch.set(ProducerState, "duplicate_of", lambda self, header: None)


@mutant("refused-while-isr-changes", "acks=all is refused as long as a change of the ISR is under way", expects=("38",))
def refused_while_isr_changes(patch: Patch) -> None:
    """RP-02: what counts is the committed ISR. Clients try again, so that nobody sees more than a partition that stutters."""
    rule = "if all_acks and len(leader.isr.committed) < self.min_isr:"
    patch.edit(
        Partition,
        "append",
        (rule, "if all_acks and (len(leader.isr.committed) < self.min_isr or leader.isr.pending is not None):"),
    )


@mutant("leaderless-is-unknown", "a partition that has no leader just now does not exist for producers", expects=("38",))
def leaderless_is_unknown(patch: Patch) -> None:
    """Clients that take the answer at its word give up, or create the topic anew."""
    rule = "if topic is None or partition not in topic.partitions:"
    patch.edit(
        handler,
        "_check",
        (rule, "if topic is None or partition not in topic.partitions or topic.partitions[partition].leader is None:"),
    )


def of_years(patch: Patch) -> None:
    """Every producer has written almost as many records as there are sequences."""
    patch.set(client, "_first_sequence", lambda theme, seed, number: MAX_SEQUENCE - 3)


@mutant(
    "sequences-end",
    "the sequence behind the greatest one is another than 0",
    expects=("38", "ProducerStateKept", "liveness"),
    lens=of_years,
)
def sequences_end(patch: Patch) -> None:
    """LG-17: a producer that has written two thousand million records into a partition is refused from then on."""
    patch.edit(ProducerState, "check_batch", ("(entry.last_sequence + 1) & MAX_SEQUENCE", "entry.last_sequence + 1"))
