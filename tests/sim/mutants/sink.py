"""The sink that writes exactly once: what is decided, ended, healed, and read from the state topic."""

from __future__ import annotations

from kraftlite.exactly_once import protocol_core, reading
from kraftlite.log.cleaner import Cleaning
from kraftlite.log.compaction import TransactionView
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


def _redealt(patch: Patch) -> None:
    """Of every query somebody changes options between two runs of a batch."""
    patch.set(sink, "REDEALS_ONE_IN", 1)


@mutant(
    "sink-rows-not-compared",
    "what is committed of a batch is kept, whatever this run has staged",
    expects=("SinkExact", "TransactionsSeen"),
    lens=_redealt,
)
def rows_not_compared(patch: Patch) -> None:
    """SX-03: a query that goes on with another number of tasks writes some rows twice, and others never."""
    rule = "return new is not None and (old.rows, old.fingerprint) == (new.rows, new.fingerprint)"
    patch.edit(protocol_core, "_same_rows", (rule, "return new is not None"))


def _cleaned(patch: Patch) -> None:
    """The cleaner is busy in every run."""
    rule = 'if state["cleanup.policy"] == "compact" and rng.randrange(2):'
    patch.edit(sink, "visit", (rule, 'state["cleanup.policy"] = "compact"\n    if True:'))


@mutant(
    "cleaner-believes-the-aborted",
    "a record of an aborted transaction supersedes what was committed before it",
    expects=("CompactionSound",),
    lens=_cleaned,
)
def cleaner_believes_the_aborted(patch: Patch) -> None:
    """LG-42, KIP-98: the map of the newest offsets is made without a look at the index of aborted transactions."""
    patch.edit(Cleaning, "index", ("not self._indexed.read_batch(header) and header", "header"))


@mutant(
    "cleaner-drops-ends",
    "the marker of a committed transaction goes when its time is over, though records of it are there",
    expects=("CompactionSound", "StableOffsets"),
    lens=_cleaned,
)
def cleaner_drops_ends(patch: Patch) -> None:
    """KIP-98: the transaction is open again for who reads the log anew, and its last stable offset stands still."""
    patch.edit(TransactionView, "read_control", ("if producer_id not in self._committed:", "if True:"))
