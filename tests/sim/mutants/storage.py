"""What a broker makes of its files after a crash."""

from __future__ import annotations

from kraftlite.log import checkpoints, segment
from kraftlite.log.epochs import LeaderEpochCache
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant("torn-batch-kept", "recovery keeps a batch whose CRC does not match", expects=("4", "28", "29", "crash"))
def torn_batch_kept(patch: Patch) -> None:
    """LG-27; KAFKA-4614's and KAFKA-10645's kind. "Protocol-Aware Recovery" (FAST '18): most systems have a way to do this."""
    patch.set(segment, "check_crc", lambda batch, header=None: True)


@mutant("clean-marker-stays", "the mark of a clean shutdown is still there at the next start", expects=("28", "27", "29"))
def clean_marker_stays(patch: Patch) -> None:
    """KAFKA-10471 and LG-08: a crash passes for a clean shutdown, and nothing is checked."""
    patch.set(checkpoints, "remove_clean_shutdown", lambda disk, log_dir: None)


@mutant("epochs-outlive-truncation", "a truncation leaves the leader epochs of what it dropped", expects=("28", "crash"))
def epochs_outlive_truncation(patch: Patch) -> None:
    """KIP-101; KAFKA-7897, KAFKA-15653: an epoch cache that knew more than the log."""
    patch.set(LeaderEpochCache, "truncate_from_end", lambda self, offset: None)
