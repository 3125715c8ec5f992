"""The sink that writes exactly once: what is decided, ended, healed, and read from the state topic."""

from __future__ import annotations

from kraftlite.exactly_once import protocol_core, reading
from kraftlite.sim.workloads import sink
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant("sink-ends-undecided", "transactions are ended that no decision names", expects=("SinkExact", "TransactionsSeen"))
def ends_undecided(patch: Patch) -> None:
    """The simplest sink: each task commits by itself, and a run that is repeated writes again what was committed."""
    patch.edit(protocol_core, "commit", ("if decision is not None and not decided:", "if False:"))


@mutant(
    "sink-heals-nothing", "what an earlier run of the batch has committed is not kept", expects=("SinkExact", "TransactionsSeen")
)
def heals_nothing(patch: Patch) -> None:
    """Flink's sinks before they recovered what they had pre-committed: the rows are there twice."""
    patch.edit(protocol_core, "commit", ("kept = _heal(cluster, last, mine)", "kept = {}"))


@mutant("sink-commits-copies", "the copies of what is kept are committed, too", expects=("SinkExact", "TransactionsSeen"))
def commits_copies(patch: Patch) -> None:
    """An end of the wrong kind on the way that is taken only after a crash."""
    patch.edit(protocol_core, "_discard_copies", ("commit=False", "commit=True"))


def _dies_early(patch: Patch) -> None:
    """Every run of a batch dies or stands still at one of its first two calls."""
    patch.set(sink, "LAST_CALLS", 1)


@mutant(
    "sink-old-batch-decided",
    "a driver that was overtaken decides an older batch",
    expects=("SinkExact", "TransactionsSeen"),
    lens=_dies_early,
)
def old_batch_decided(patch: Patch) -> None:
    """KIP-98 fences producers and not batches: a driver that begins late has the newest epoch, and an old checkpoint."""
    patch.edit(protocol_core, "commit", ("if last is not None and last.batch > batch:", "if False:"))


@mutant("sink-aborted-is-kept", "a transaction that has ended counts as committed", expects=("SinkExact", "TransactionsSeen"))
def aborted_is_kept(patch: Patch) -> None:
    """A control batch that is looked at, and not into."""
    change = ("return Fate.COMMITTED if stored.ends else Fate.ABORTED", "return Fate.COMMITTED")
    patch.edit(reading, "fate_of", change, also=(sink,))
