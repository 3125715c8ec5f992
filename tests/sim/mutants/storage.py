"""What a broker makes of its files after a crash."""

from __future__ import annotations

from kraftlite.log import checkpoints, segment
from kraftlite.log.epochs import LeaderEpochCache
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant("torn-batch-kept", "recovery keeps a batch whose CRC does not match", expects=("4", "28", "29", "crash"))
def torn_batch_kept(patch: Patch) -> None:
    """LG-27. "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18): most systems have a way to do this."""
    patch.set(segment, "check_crc", lambda batch, header=None: True)


@mutant("clean-marker-stays", "the mark of a clean shutdown is still there at the next start", expects=("28", "27", "29"))
def clean_marker_stays(patch: Patch) -> None:
    """KAFKA-10471: a crash during the start passed for the clean shutdown before it, and nothing was checked."""
    patch.set(checkpoints, "remove_clean_shutdown", lambda disk, log_dir: None)


@mutant("epochs-outlive-truncation", "a truncation leaves the leader epochs of what it dropped", expects=("28", "crash"))
def epochs_outlive_truncation(patch: Patch) -> None:
    """KIP-101: an epoch cache that knows more than the log sends the next divergence to the wrong place."""
    patch.set(LeaderEpochCache, "truncate_from_end", lambda self, offset: None)
