"""Log directories: where replicas are, who is told, and how they move (KIP-858, KIP-113)."""

from __future__ import annotations

from kraftlite.broker.assignments import Assignments
from kraftlite.broker.log_dirs_loading import LogLoader
from kraftlite.broker.log_dirs_placement import Placement
from kraftlite.broker.log_moves import LogMoves
from kraftlite.broker.log_moves_driver import MoveDriver
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.directory_control import DirectoryControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.log.log import Log
from kraftlite.replication.partition import Partition
from kraftlite.sim import move_faults, schedule
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids
from kraftlite.sim.workloads import directories as workload
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together, tuned
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import (
    deaf_controllers,
    failing_places,
    failing_under_produces,
    failing_while_fenced,
    lonely_leaders,
)


@mutant(
    "lost-replica-made-anew", "a replica whose directory is offline is made anew in another one", expects=("80", "36", "crash")
)
def lost_replica_made_anew(patch: Patch) -> None:
    """JB-07, KAFKA-16234: when the directory is back, there are two."""
    patch.edit(Placement, "candidates", ("if missing:", "if False:"))


@mutant(
    "failed-report-forgotten",
    "a report that failed is not repeated",
    expects=("81", "liveness"),
    lens=together(tuned(directory_report_ms=100), playing(deaf_controllers, pause_ms=200)),
)
def failed_report_forgotten(patch: Patch) -> None:
    """JB-05, BL-19. A report has so long that a controller which is away for seconds is no reason for it to fail."""
    patch.edit(Assignments, "failed", ("{**sent, **self._waiting}", "self._waiting"))


@mutant("report-not-written", "the controller answers a report and writes nothing", expects=("81", "83", "liveness"))
def report_not_written(patch: Patch) -> None:
    """JB-05."""
    patch.edit(DirectoryControl, "_assign_one", ("if record is not None:", "if False:"))


@mutant("failed-directory-keeps-leaders", "leaders stay in a directory that has failed", expects=("83", "liveness", "74"))
def failed_directory_keeps_leaders(patch: Patch) -> None:
    """JB-06, BL-16."""
    patch.edit(ElectionControl, "directories_offline", ("in newly:", "in ():"))


@mutant(
    "unfenced-into-a-failed-directory",
    "a broker that is unfenced leads in a directory that has failed",
    expects=("83",),
    lens=together(configured(replica_high_watermark_checkpoint_interval_ms="50"), playing(failing_while_fenced, pause_ms=3_000)),
)
def unfenced_into_a_failed_directory(patch: Patch) -> None:
    """JB-06: one heartbeat may say both."""
    patch.edit(ElectionControl, "_acceptable", ("directory not in gone and ", ""))


@mutant(
    "moved-before-it-is-whole",
    "a copy takes its replica's place before it has everything",
    expects=("30", "25", "24", "28", "32", "33"),
)
def moved_before_it_is_whole(patch: Patch) -> None:
    """JB-11."""
    patch.edit(LogMoves, "is_complete", ("copy.leo == current.leo", "copy.leo >= current.log_start_offset"))


def deposed_leaders_are_moved(patch: Patch) -> None:
    """Every run has leaders that are alone, and the administrator who moves their replicas when they are replaced."""
    playing(lonely_leaders)(patch)
    patch.set(workload, "comes_to_deposed_leaders", lambda seed: True)
    patch.set(workload, "reborn_comes_with", lambda seed: False)


@mutant(
    "copy-is-not-cut",
    "a copy keeps what its replica has cut off",
    expects=("28", "25", "30", "24", "80", "liveness"),
    lens=deposed_leaders_are_moved,
)
def copy_is_not_cut(patch: Patch) -> None:
    """JB-10: KAFKA-16297."""
    patch.set(LogMoves, "_diverging", staticmethod(lambda copy, current: None))


def reborn_topics(patch: Patch) -> None:
    """Every run has the administrator whose topics come and go, and who says before where their replicas are to be."""
    patch.set(workload, "reborn_comes_with", lambda seed: True)


@mutant(
    "late-replica-is-not-fetched",
    "a replica that could not be made at first is fetched from nobody",
    expects=("31",),
    lens=together(reborn_topics, playing(failing_places, pause_ms=200)),
)
def late_replica_is_not_fetched(patch: Patch) -> None:
    """RP-33, JB-07: kraftlite's own, found by a topic that is created while directories fail."""
    found = "self.log, self.offline_reason, self.leader_epoch, self.partition_epoch = log, None, -1, -1"
    patch.edit(Partition, "attach_log", (found, "self.log, self.offline_reason = log, None"))


@mutant("old-directory-stays", "the directory that a replica has left is not deleted", expects=("80", "crash", "liveness"))
def old_directory_stays(patch: Patch) -> None:
    """JB-11."""
    patch.edit(LogMoves, "promote", ("self._delete(source, copy)", "copy.close_files()"))


@mutant(
    "moved-log-forgets-its-hw",
    "a log that has moved has the high watermark of its copy",
    expects=("32", "29", "33", "crash", "14"),
)
def moved_log_forgets_its_hw(patch: Patch) -> None:
    """JB-11."""
    patch.edit(Log, "exchange", ("self.update_hw(hw)", "self.update_hw(0)"))


def records_of_the_moving_are_deleted(patch: Patch) -> None:
    """Every run has somebody who deletes records of partitions whose replicas are moved."""
    patch.set(workload, "deletes_amid_moves", lambda seed: True)


@mutant(
    "copy-keeps-what-was-deleted",
    "a copy takes its replica's place with what was deleted from that meanwhile",
    expects=("47",),
    lens=records_of_the_moving_are_deleted,
)
def copy_keeps_what_was_deleted(patch: Patch) -> None:
    """JB-11, KIP-107: kraftlite's own, where a start found the move almost done. Records that were deleted came back."""
    patch.set(LogMoves, "_follow_start", staticmethod(lambda copy, current: copy.update_hw(min(current.hw, copy.leo))))
    patch.edit(LogMoves, "is_complete", ("and copy.log_start_offset >= current.log_start_offset", ""))


@mutant(
    "deleted-meanwhile-holds-a-move-up",
    "a copy does not follow its replica's log start, and waits for having it",
    expects=("liveness",),
    lens=records_of_the_moving_are_deleted,
)
def deleted_meanwhile_holds_a_move_up(patch: Patch) -> None:
    """JB-11: the administrator waits for a move that is never over, and what has failed is never emptied."""
    patch.set(LogMoves, "_follow_start", staticmethod(lambda copy, current: copy.update_hw(min(current.hw, copy.leo))))


@mutant("placed-in-the-first-directory", "a new replica is placed in the first directory of its broker", expects=("50", "80"))
def placed_in_the_first_directory(patch: Patch) -> None:
    """JB-03: the broker knows which of them has room; that directory fills up."""
    patch.edit(ClusterControl, "first_directory", ("known[0] if len(known) == 1 else UNASSIGNED_DIR", "known[0]"))


@mutant(
    "failed-directory-answers-nobody",
    "a produce that waits where a directory fails is not answered before its time is over",
    expects=("96", "SelfCheck"),
    lens=playing(failing_under_produces, pause_ms=1_000),
)
def failed_directory_answers_nobody(patch: Patch) -> None:
    """RP-09: its producer stands still for its whole timeout, and then hears nothing of where to go."""
    patch.edit(Partition, "go_offline", ("self.fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)", "pass"))


def dark_amid_moves(patch: Patch) -> None:
    """Each broker has half of each second in which it loses power when a copy has taken a replica's place, and no other fault."""

    def cuts(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        brokers = node_ids(shape, "broker")
        times = range(1_500, duration_ms, 1_000)
        return [
            FaultPlan(at_ms=at_ms, kind="power-mid-move", target=it, for_ms=500, amount=1) for at_ms in times for it in brokers
        ]

    patch.set(move_faults, "draw", cuts)
    patch.set(schedule, "draw", lambda rng, shape, duration_ms: [])


@mutant(
    "two-directories-are-too-many",
    "a start that finds a replica in two directories refuses both",
    expects=("crash",),
    lens=dark_amid_moves,
)
def two_directories_are_too_many(patch: Patch) -> None:
    """JB-11, LG-33: a power cut where a move ends leaves two, of which metadata names one; the broker does not start any more."""
    patch.edit(LogLoader, "_settle", ("if assigned not in (state.directory_id, other[0].directory_id):", "if True:"))


@mutant("promoted-unflushed", "a copy takes its replica's place before it is on the disk", expects=("80", "36"))
def promoted_unflushed(patch: Patch) -> None:
    """KIP-113, JB-10: what the old directory had durably is gone with it, and the copy is in the page cache."""
    patch.edit(MoveDriver, "_advance", ("await move.copy.flush()", "pass"))


@mutant(
    "wish-dropped-by-older-metadata",
    "where a replica is is not told where metadata says it already, although something else was said since",
    expects=("81",),
)
def wish_dropped_by_older_metadata(patch: Patch) -> None:
    """JB-05: what was said before comes back as metadata, and the controller knows the wrong directory."""
    rule = "(assigned == directory_id and key not in self._told)"
    patch.edit(Assignments, "_drop_void", (rule, "assigned == directory_id"))


@mutant("older-wish-comes-back", "a report that has failed comes in the place of what was wished meanwhile", expects=("81",))
def older_wish_comes_back(patch: Patch) -> None:
    """JB-05, BL-19."""
    patch.edit(Assignments, "failed", ("{**sent, **self._waiting}", "{**self._waiting, **sent}"))


@mutant("taken-back-unsaid", "a report does not say of which directory it takes the one before back", expects=("81",))
def taken_back_unsaid(patch: Patch) -> None:
    """JB-11: a replica that never left its place counts as begun anew when the directory that it was to move to has failed."""
    patch.edit(LogMoves, "_forget", ("if move.said and move.source.online:", "if False:"))
