"""Files of what is deleted: they stay for `file.delete.delay.ms`, and then they go."""

from __future__ import annotations

from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.log_dirs_purges_driver import Purges
from kraftlite.log.deletion import DeletedFiles, Deletion
from kraftlite.raft.core import RaftCore
from kraftlite.replication.delete_records import DeleteRecordsPath
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.cleaning import dark, much_is_deleted
from tests.sim.mutants.lenses import configured, together
from tests.sim.mutants.patching import Patch


@mutant("deleted-files-go-at-once", "the files of a deleted segment are removed without any delay", expects=("98",))
def deleted_files_go_at_once(patch: Patch) -> None:
    """LG-38: whoever reads the segment by its path just then finds nothing."""
    patch.edit(DeletedFiles, "stamp", ("now_ms + self._ctx.config.file_delete_delay_ms", "now_ms"))


@mutant(
    "later-deletions-are-forgotten",
    "what is deleted while other files wait is never removed",
    expects=("98",),
    lens=configured(log_segment_delete_delay_ms="700"),
)
def later_deletions_are_forgotten(patch: Patch) -> None:
    """KAFKA-6322's neighbours: one round of removals serves who asked for it, and nobody asks again."""
    patch.edit(Purges, "_purge", ("while self._find(log.tp) is log", "if self._find(log.tp) is log"))


@mutant("deletions-never-begin", "the files of deleted segments are never removed", expects=("98",))
def deletions_never_begin(patch: Patch) -> None:
    """KAFKA-9455's neighbours: the disk fills with what retention has taken out."""
    patch.edit(Purges, "soon", ("if self._purging.get(log.tp) is not log:", "if False:"))


@mutant("deletion-by-unlink", "retention unlinks a segment where it is", expects=("98",))
def deletion_by_unlink(patch: Patch) -> None:
    """LG-38: nothing is left for who reads it."""
    patch.edit(Deletion, "delete_segments_before", ("self._files.set_aside(segment)", "segment.unlink()"))


@mutant("compacted-by-unlink", "compaction unlinks the segments that it replaces", expects=("98",))
def compacted_by_unlink(patch: Patch) -> None:
    """LG-38, LG-46."""
    patch.edit(Deletion, "replace_segments", ("self._files.set_aside(segment)", "segment.unlink()"))


@mutant("deleted-topics-go-at-once", "the directory of a deleted log is removed without any delay", expects=("98",))
def deleted_topics_go_at_once(patch: Patch) -> None:
    """LG-38."""
    patch.edit(LogDirs, "_remove_later", ("clock.sleep(delay_ms)", "clock.sleep(0)"))


@mutant("deleted-topics-stay", "the directory of a deleted log stays for a thousand times its delay", expects=("98",))
def deleted_topics_stay(patch: Patch) -> None:
    """A delay in milliseconds is taken for one in seconds."""
    patch.edit(LogDirs, "_remove_later", ("clock.sleep(delay_ms)", "clock.sleep(delay_ms * 1000)"))


@mutant("doomed-snapshots-go-at-once", "a snapshot that is superfluous is removed without any delay", expects=("98",))
def doomed_snapshots_go_at_once(patch: Patch) -> None:
    """RF-47: whoever downloads it just then has to begin anew."""
    patch.edit(RaftCore, "_clean", ("(ctx.now_ms + self.config.file_delete_delay_ms, doomed)", "(ctx.now_ms, doomed)"))


@mutant(
    "deletion-not-durable",
    "DeleteRecords is answered before the new log start is on the disk",
    expects=("47",),
    lens=together(configured(log_flush_start_offset_checkpoint_interval_ms="60000"), much_is_deleted, dark),
)
def deletion_not_durable(patch: Patch) -> None:
    """LG-40; KIP-107: what a client has deleted is there again behind a power cut."""
    patch.edit(DeleteRecordsPath, "delete", ("self._logs.write_log_starts()", "pass"))
