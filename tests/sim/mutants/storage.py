"""What a broker makes of its files after a crash."""

from __future__ import annotations

import random

from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.log_dirs_loading import LogLoader
from kraftlite.broker.log_dirs_state import LogDirState
from kraftlite.log import checkpoints, recovery, segment
from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.log.flusher import Flusher
from kraftlite.sim import damage, schedule
from kraftlite.sim import shape as shapes
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids
from tests.sim.mutants.catalog import Change, mutant
from tests.sim.mutants.lenses import configured, playing, together
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import lonely_leaders


@mutant("torn-batch-kept", "recovery keeps a batch whose CRC does not match", expects=("4", "28", "29", "crash"))
def torn_batch_kept(patch: Patch) -> None:
    """LG-27. "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18): most systems have a way to do this."""
    patch.set(segment, "check_crc", lambda batch, header=None: True)


@mutant("clean-marker-stays", "the mark of a clean shutdown is still there at the next start", expects=("28", "27", "29"))
def clean_marker_stays(patch: Patch) -> None:
    """KAFKA-10471: a crash during the start passed for the clean shutdown before it, and nothing was checked."""
    patch.set(checkpoints, "remove_clean_shutdown", lambda disk, log_dir: None)


@mutant(
    "epochs-outlive-truncation",
    "a truncation leaves the leader epochs of what it dropped",
    expects=("28", "crash", "SelfCheck", "14"),
)
def epochs_outlive_truncation(patch: Patch) -> None:
    """KIP-101: an epoch cache that knows more than the log sends the next divergence to the wrong place."""
    patch.set(LeaderEpochCache, "truncate_from_end", lambda self, offset: None)


@mutant("close-does-not-flush", "a clean shutdown leaves in the page cache what it promises to be durable", expects=("36",))
def close_does_not_flush(patch: Patch) -> None:
    """BL-10. All File Systems Are Not Created Equal (OSDI '14): the mark of completion became durable before what it marks."""
    patch.edit(Flusher, "_settle", ("self.flush_sync()", "pass"))


@mutant("statements-ahead-of-flush", "log-statements says of all that is in a log that it was flushed", expects=("36",))
def statements_ahead_of_flush(patch: Patch) -> None:
    """LG-53: after a power cut a replica that others could heal refuses to start, or is believed to hold what it lacks."""
    patch.edit(
        Flusher,
        "statement",
        ("Statement(ctx.log_start_offset, ctx.recovery_point,", "Statement(ctx.log_start_offset, ctx.leo,"),
    )


@mutant("less-is-not-durable", "a statement of less than was stated before stays in the page cache", expects=("36",))
def less_is_not_durable(patch: Patch) -> None:
    """LG-53: a power cut behind a truncation leaves the older one, and the next start takes what was cut off for lost."""
    patch.edit(LogDirState, "state_log", ("if durably or less:", "if durably:"))


@mutant("roll-flush-without-fsync", "the flush of a rolled segment writes its indexes and not its records", expects=("36",))
def roll_flush_without_fsync(patch: Patch) -> None:
    """LG-26: the recovery point moves past what a power cut takes. PostgreSQL's "fsyncgate" was of this kind."""
    patch.edit(Flusher, "flush", ("await file.flush()", "await file.flush() if ctx.tp.topic.startswith('__') else None"))


def rolled_and_dark(patch: Patch) -> None:
    """Every topic rolls soon, closed segments are flushed seconds later, and every broker loses power twice in a run."""

    def cuts(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        brokers = node_ids(shape, "broker")
        step_ms = duration_ms // (2 * len(brokers) + 1)
        return [
            FaultPlan(at_ms=number * step_ms, kind="power", target=broker, for_ms=100)
            for number, broker in enumerate(brokers * 2, 1)
        ]

    patch.set(schedule, "_damages", cuts)
    patch.set(shapes, "_draw_segments", lambda rng, key: {key: "300"})
    patch.edit(LogDirs, "_flush_rolled", ("    try:\n", "    try:\n        await self._ports.clock.sleep(3_000)\n"))


@mutant(
    "recovery-a-segment-late",
    "recovery after a crash begins behind the segment that holds the recovery point, if there is another",
    expects=("28", "25", "29", "36", "38"),
    lens=rolled_and_dark,
)
def recovery_a_segment_late(patch: Patch) -> None:
    """LG-27: what was written there after the last flush is taken for good, whatever a power cut has made of it."""
    rule = "first = len(segments) if clean else segments.index_of(max(recovery_point - 1, 0))"
    late = "first = len(segments) if clean else min(segments.index_of(max(recovery_point - 1, 0)) + ours, len(segments) - 1)"
    ours = "ours = not self.tp.topic.startswith('__')  # that of the metadata is known to be guarded"
    patch.edit(recovery.Loader, "load", (rule, f"{ours}\n    {late}"))


def lost_files(*kinds: str) -> Change:
    """Every run has a broker that loses files of these kinds, and afterwards every broker dies once."""

    def damages(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        brokers = node_ids(shape, "broker")
        found = [FaultPlan(at_ms=duration_ms // 8, kind="damage", target=rng.choice(brokers), for_ms=100)]
        step_ms = duration_ms // 2 // len(brokers)
        for number, broker in enumerate(brokers):
            found.append(FaultPlan(at_ms=duration_ms // 2 + number * step_ms, kind="kill", target=broker, for_ms=100))
        return found

    def change(patch: Patch) -> None:
        patch.set(schedule, "_damages", damages)
        patch.set(damage, "KINDS", {kind: damage.KINDS[kind] for kind in kinds})

    return change


@mutant(
    "lost-start-believed",
    "a log begins where its first file begins, whatever was there before",
    expects=("30",),
    lens=lost_files("first segment lost"),
)
def lost_start_believed(patch: Patch) -> None:
    """ADR 7: a replica whose first segment was gone came back into the ISR, and as leader it had lost what was acknowledged."""
    patch.edit(
        recovery.Loader,
        "load",
        ("deleting = check_names(self.promise, self.directory, names, recovery_point, self.config.deletes)", "deleting = False"),
        ("log_start_offset, recovery_point = stated.start, stated.end", "recovery_point = stated.end"),
    )


def dark_and_damaged(patch: Patch) -> None:
    """Every run has a broker that loses power early, and while it is down its log starts are damaged."""

    def damages(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        broker = rng.choice([str(number) for number, roles in enumerate(shape.roles, 1) if "broker" in roles])
        at_ms = rng.randrange(duration_ms // 8, duration_ms // 4)
        return [
            FaultPlan(at_ms=at_ms, kind="power", target=broker, for_ms=6000),
            FaultPlan(at_ms=at_ms + 1, kind="damage", target=broker, for_ms=100),
        ]

    patch.set(schedule, "_damages", damages)
    patch.set(damage, "KINDS", {kind: damage.KINDS[kind] for kind in ("log start too high",)})


@mutant(
    "unstated-start-believed",
    "a checkpointed log start counts, though log-statements does not have the log",
    expects=("30",),
    lens=dark_and_damaged,
)
def unstated_start_believed(patch: Patch) -> None:
    """ADR 7: a power cut took the line of a log's first record, and the checkpoint, which has no checksum, was damaged."""
    patch.edit(LogLoader, "_opener", ("0 if unknown else state.log_starts.get", "state.log_starts.get"))


@mutant(
    "epochs-file-believed",
    "leader-epoch-checkpoint counts, whatever the batches say",
    expects=("liveness", "28", "31"),
    lens=lost_files("leader epochs too high"),
)
def epochs_file_believed(patch: Patch) -> None:
    """ADR 7: a replica that believes in an epoch that nobody had yet never leads."""
    patch.set(recovery.Loader, "_wrong_epochs", lambda self, epochs, segments, log_start_offset, clean: None)


@mutant(
    "repeated-batches-believed",
    "a segment may have its batches twice, if it ends where it should",
    expects=("28", "29", "31", "SelfCheck", "crash"),
    lens=lost_files("last segment repeated"),
)
def repeated_batches_believed(patch: Patch) -> None:
    """LG-27: a copy that was resumed from its beginning has everything, and more than once."""
    patch.edit(segment.Segment, "headers", ("header.base_offset < next_offset", "False"))


def slow_and_lonely(rng: random.Random, shape: Shape, at_ms: int) -> list[FaultPlan]:
    """Flushes take up to a second and a half, and a leader writes alone what it has to give up."""
    found = list(lonely_leaders(rng, shape, at_ms))
    for_ms = max((it.for_ms for it in found), default=0) + 2_000
    slow = [
        FaultPlan(at_ms=at_ms, kind="disk-slow", target=it, for_ms=for_ms, amount=1_500_000)
        for it in node_ids(shape, "broker")
        if it not in node_ids(shape, "controller")
    ]
    return [*slow, *found]


@mutant(
    "flush-outlives-truncation",
    "a flush counts up to where the log ended when it began, though the log was cut off meanwhile",
    expects=("SelfCheckReplicas", "14", "36"),
    shape="1+3",
    lens=together(
        configured(log_flush_interval_ms="50", log_flush_scheduler_interval_ms="50"), playing(slow_and_lonely, pause_ms=100)
    ),
)
def flush_outlives_truncation(patch: Patch) -> None:
    """LG-26, LG-31: what is written there next is taken for durable, and is not checked after a power cut."""
    patch.edit(Flusher, "flush", ("max(ctx.recovery_point, flush.target)", "max(ctx.recovery_point, target)"))


@mutant(
    "epoch-at-the-cut-stays",
    "a truncated log goes on to know of the epoch that began where it ends now",
    expects=("EpochsFit",),
)
def epoch_at_the_cut_stays(patch: Patch) -> None:
    """RP-29: it asks its leader with an epoch of which it has nothing, and is told again and again that their logs part there."""
    patch.edit(LeaderEpochCache, "truncate_from_end", ("bisect_left", "bisect_right"))
