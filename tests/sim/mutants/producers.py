"""Idempotent producers: what a log remembers of them."""

from __future__ import annotations

from kraftlite.log.producers import ProducerState
from kraftlite.log.truncation import Truncation
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
