"""What a leader lets in: batches that are none, producers that were replaced, requests that nobody may make."""

from __future__ import annotations

from types import ModuleType

from kraftlite.log import appends, validation
from kraftlite.log.producers import ProducerState
from kraftlite.replication import consume
from kraftlite.replication.produce import ProducePath
from kraftlite.sim.workloads import stranger
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch

_BY_NAME: tuple[ModuleType, ...] = tuple(it for it in (appends,) if hasattr(it, "check_leader_batch"))
"""Modules that have it under its own name."""


def strangers_everywhere(patch: Patch) -> None:
    """A stranger comes in every run, not in a third of them."""
    patch.set(stranger, "ONE_SEED_IN", 1)


@mutant(
    "count-not-validated",
    "a batch is appended whose count is not that of its offsets",
    expects=("StrangersRefused", "29", "crash", "liveness"),
)
def count_not_validated(patch: Patch) -> None:
    """KAFKA-5968, KAFKA-8069: offsets that are taken on trust; the end of a log jumps, or two records have one offset."""
    rule = "if header.count <= 0 or header.last_offset_delta != header.count - 1:"
    patch.edit(validation, "check_leader_batch", (rule, "if False:"), also=_BY_NAME)


@mutant(
    "crc-not-validated",
    "a batch is appended whose CRC is not that of its bytes",
    expects=("StrangersRefused", "29", "crash", "liveness"),
)
def crc_not_validated(patch: Patch) -> None:
    """What a network or a client garbled is replicated and served, and each consumer stops at it."""
    patch.edit(validation, "check_leader_batch", ("if not check_crc(batch, header):", "if False:"), also=_BY_NAME)


@mutant(
    "client-writes-control-batches",
    "a client's control batch is appended as if the coordinator had written it",
    expects=("StrangersRefused", "29", "30", "crash", "liveness"),
    lens=strangers_everywhere,
)
def client_writes_control_batches(patch: Patch) -> None:
    """KIP-98: a marker ends a transaction that nobody has ended."""
    patch.edit(validation, "_check_client_header", ('raise _invalid("clients may not write control batches")', "return"))


@mutant(
    "replaced-producer-accepted",
    "a producer goes on in an epoch that was replaced",
    expects=("StrangersRefused", "ProducerStateKept"),
)
def replaced_producer_accepted(patch: Patch) -> None:
    """KIP-98, KIP-360: the zombie of a producer writes behind its successor."""
    patch.set(ProducerState, "check_epoch", lambda self, header: None)


@mutant("acks-not-validated", "acks that do not exist are taken for acks=1", expects=("StrangersRefused", "29"))
def acks_not_validated(patch: Patch) -> None:
    """KAFKA-1367's class: a field whose unknown values fall through to the weakest one."""
    patch.edit(ProducePath, "append", ("if acks not in (-1, 0, 1):", "if False:"))


@mutant(
    "offset-not-validated",
    "a fetch beyond the log is answered with nothing and no error",
    expects=("StrangersRefused", "liveness"),
)
def offset_not_validated(patch: Patch) -> None:
    """KAFKA-3395's class: a consumer that waits for ever at a place that is not there."""
    patch.edit(consume, "find_divergence", ("if not log.log_start_offset <= fetch_offset <= log.leo:", "if False:"))


@mutant(
    "epoch-begins-anywhere",
    "the first batch of a new epoch may have any sequence",
    expects=("StrangersRefused", "ProducerStateKept"),
    lens=strangers_everywhere,
)
def epoch_begins_anywhere(patch: Patch) -> None:
    """LG-17, KAFKA-14379: what was in flight behind a lost batch comes first in the next epoch."""
    rule = "if header.base_sequence != 0 and entry.producer_epoch != NO_EPOCH:"
    patch.edit(ProducerState, "check_batch", (rule, "if False:"))


@mutant(
    "resend-known-by-its-end",
    "a batch that ends where another one ended is taken for it, wherever it begins",
    expects=("StrangersRefused", "ProducerStateKept"),
    lens=strangers_everywhere,
)
def resend_known_by_its_end(patch: Patch) -> None:
    """KAFKA-6003: what was never written is acknowledged."""
    patch.edit(ProducerState, "duplicate_of", (" and batch.offset_delta == delta", ""))
