"""What a node makes of odd sizes and counts of its parts."""

from __future__ import annotations

from kraftlite.controller import activation, core
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.raft.following import Following
from kraftlite.replication.alter_partition import AlterPartitionCore
from kraftlite.sim import boot_faults
from kraftlite.sim.quorum_scenes import leader_goes_amid_a_download
from kraftlite.sim.shape import SHORT_LOG
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together, tuned
from tests.sim.mutants.patching import Patch


@mutant(
    "rest-of-the-changes-forgotten",
    "changes of ISRs that do not fit into one request are forgotten",
    expects=("liveness", "33"),
    lens=tuned(isr_changes_per_request=1),
)
def rest_of_the_changes_forgotten(patch: Patch) -> None:
    """KIP-497's batching: what is left over waits for the next request, or for ever."""
    patch.edit(
        AlterPartitionCore,
        "request",
        ("    if not self._sent:\n", "    self._waiting.clear()\n    if not self._sent:\n"),
    )


@mutant(
    "snapshot-slice-dropped",
    "the record at which loading a metadata snapshot pauses is not replayed",
    expects=("16", "crash", "14"),
    lens=tuned(records_per_slice=2, metadata_cleaning_interval_ms=50, snapshot_chunk_bytes=400),
)
def snapshot_slice_dropped(patch: Patch) -> None:
    """An off-by-one at the border of a turn, which a thousand records a turn never show."""
    patch.edit(
        MetadataLoader,
        "_load_snapshot",
        ("                delta.replay(record)", "                replayed + 1 >= self._slice or delta.replay(record)"),
    )


def dying_amid_bootstraps(patch: Patch) -> None:
    """Controllers die while they write the first records, in every run."""
    patch.set(boot_faults, "ONE_SEED_IN", 1)


@mutant(
    "half-written-bootstrap-is-left",
    "who takes over amid a predecessor's first records aborts them, and does not write them again",
    expects=("liveness", "crash", "33", "85"),
    lens=dying_amid_bootstraps,
)
def half_written_bootstrap_is_left(patch: Patch) -> None:
    """CE-15: the log has no metadata.version then, and nobody can take it over."""
    rule = ("if not empty_before_transaction:", "if transaction_start:")
    patch.edit(activation, "activation_records", rule, also=(core,))


short_log = configured(**{key.replace(".", "_"): value for key, value in SHORT_LOG.items()})


@mutant(
    "download-of-a-former-leader",
    "a snapshot that a former leader had begun to give is waited for, and the new one is not asked",
    expects=("SnapshotsFetched", "liveness"),
    lens=together(short_log, playing(leader_goes_amid_a_download, pause_ms=2_000)),
)
def download_of_a_former_leader(patch: Patch) -> None:
    """RF-44: snapshots of two nodes may have one name, and parts of one are no parts of the other."""
    patch.edit(Following, "_start_download", (" or self._download_from != state.leader_id", ""))
