"""The replicated metadata log: what is durable, what is committed, where logs part, snapshots in its place."""

from __future__ import annotations

from kraftlite.log.flusher import Flusher
from kraftlite.raft.core import RaftCore
from kraftlite.raft.following import Following
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.metalog import MetadataLog
from kraftlite.raft.serving import Serving
from kraftlite.raft.snapshots import FileSnapshotWriter
from kraftlite.sim.quorum_scenes import fleeting_leaders
from kraftlite.sim.scenes import deposed_leader
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing, tuned
from tests.sim.mutants.patching import Patch


@mutant("commits-an-earlier-epoch", "the HW counts entries of earlier epochs", expects=("9", "SelfCheck"))
def commits_an_earlier_epoch(patch: Patch) -> None:
    """Raft §5.4.2, figure 8: an entry of an earlier term on a majority can still be overwritten."""
    rule = "if hw <= leader.epoch_start_offset or (leader.hw is not None and hw <= leader.hw):"
    patch.edit(Leadership, "update_hw", (rule, "if hw < 0 or (leader.hw is not None and hw <= leader.hw):"))


@mutant("observers-count", "the HW counts observers among the replicas that have an entry", expects=("6",))
def observers_count(patch: Patch) -> None:
    """KIP-595: brokers fetch like voters, and only the voter set tells them apart. KAFKA-16530 is about who counts, too."""
    rule = "hw = min(ctx.voters.majority_offset(offsets), ctx.metalog.leo)"
    counted = "[*offsets.values(), *(_or(it.end_offset, -1) for it in leader.observers.values())]"
    patch.edit(Leadership, "update_hw", (rule, f"hw = min(sorted({counted})[-ctx.voters.majority], ctx.metalog.leo)"))


@mutant("leader-counts-unflushed", "the leader counts itself before its log is flushed", expects=("6",))
def leader_counts_unflushed(patch: Patch) -> None:
    """Raft dissertation §10.2.1: a leader may write in parallel with its followers, but counts itself only when its own write
    is durable. KAFKA-10526 is the attempt in KRaft."""
    patch.edit(Leadership, "update_hw", ("min(ctx.metalog.log.recovery_point, ctx.metalog.leo)", "ctx.metalog.leo"))


@mutant("follower-acks-before-flush", "a voter acknowledges what is only in its page cache", expects=("6",))
def follower_acks_before_flush(patch: Patch) -> None:
    """KAFKA-10533: KafkaRaftClient did not flush what it fetched before it fetched on; found by its simulation."""
    rule = "        return\n    request = RaftFetchRequest("
    patch.edit(Following, "_fetch", (rule, "    request = RaftFetchRequest("))


@mutant("flush-without-fsync", "a flush reports success without one", expects=("6",))
def flush_without_fsync(patch: Patch) -> None:
    """PostgreSQL's fsyncgate, disks that lie, and clusters that run with libeatmydata."""
    patch.edit(Flusher, "flush", ("await file.flush()", "pass"))


@mutant("quorum-divergence-by-offset", "logs are compared by their length, not by their epochs", expects=("4", "16"))
def quorum_divergence_by_offset(patch: Patch) -> None:
    """KIP-101 in the quorum: KIP-595 sends the last fetched epoch with each fetch for this."""
    patch.edit(
        MetadataLog,
        "check_position",
        ("end = self.end_offset_for_epoch(epoch)", "end = self.end"),
        ("if end.epoch != epoch or end.offset < offset:", "if end.offset < offset:"),
    )


@mutant(
    "diverging-voter-counts",
    "the fetch of a voter whose log has parted from the leader's counts for the HW",
    expects=("6", "5"),
    lens=playing(deposed_leader),
)
def diverging_voter_counts(patch: Patch) -> None:
    """RF-25: the position of a fetch is validated before it becomes the progress of a voter; the two lines are easily swapped."""
    rule = "        self._leadership.note_fetch(leader, key, None)\n"
    counts = (
        "        self._leadership.note_fetch(leader, key, request.fetch_offset)\n        self._leadership.update_hw(leader)\n"
    )
    patch.edit(Serving, "on_fetch_request", (rule, counts))


@mutant(
    "voters-of-later-epochs-count",
    "a leader answers voters that are in a later epoch already, and counts them",
    expects=("9", "5", "6"),
    lens=playing(deposed_leader),
)
def voters_of_later_epochs_count(patch: Patch) -> None:
    """RF-32. A voter that has voted in a later epoch must not help an earlier one to commit: Raft §5.1's rule for requests."""
    patch.edit(Serving, "_leader_error", ("if epoch > ctx.epoch:", "if False:"))


@mutant("applied-before-commit", "state machines get what is in the log, committed or not", expects=("7", "16", "18"))
def applied_before_commit(patch: Patch) -> None:
    """Reads of uncommitted state, as with MongoDB's read concern "local" and etcd's early reads in Jepsen's analyses."""
    patch.edit(RaftCore, "committed_offset", ("return self._ctx.hw", "return self.metalog.leo"))


@mutant("snapshot-not-synced", "a metadata snapshot gets its name before its bytes are durable", expects=("crash", "11"))
def snapshot_not_synced(patch: Patch) -> None:
    """A rename without an fsync before it: "All File Systems Are Not Created Equal" (OSDI '14) found it in most of what it
    looked at."""
    patch.edit(FileSnapshotWriter, "freeze", ("await self._part.file.flush()", "pass"))


@mutant(
    "snapshot-installed-in-part",
    "a downloaded snapshot is installed without a look at whether it is complete",
    expects=("crash", "11", "16"),
    lens=tuned(snapshot_chunk_bytes=400),
)
def snapshot_installed_in_part(patch: Patch) -> None:
    """KIP-630 has size and position in each answer for this: a snapshot is as good as its last chunk."""
    rule = "whole = download.position == response.size"
    look = "ctx.metalog.verify(download)"
    patch.edit(Following, "on_fetch_snapshot_response", (rule, "whole = download.position > 0"), (look, "pass"))


@mutant(
    "high-watermark-of-another-log",
    "a follower whose log has parted from the leader's takes the leader's high watermark for what is left",
    expects=("4", "6", "8"),
    lens=playing(fleeting_leaders, pause_ms=3_000),
)
def high_watermark_of_another_log(patch: Patch) -> None:
    """RF-28: where two logs parted more than once, what is left after the first cut is not the leader's either."""
    rule = " and response.diverging_epoch is None and response.snapshot_id is None"
    patch.edit(Following, "on_fetch_response", (rule, " and response.snapshot_id is None"))
