"""The high watermark of partitions, and what depends on it: acknowledgements and reads."""

from __future__ import annotations

from kraftlite.log.truncation import Truncation
from kraftlite.replication import produce
from kraftlite.replication.consume import ConsumePath
from kraftlite.replication.fetcher_core import FetcherCore
from kraftlite.replication.isr import IsrState
from kraftlite.replication.partition import Partition
from kraftlite.replication.purgatory import Deadlines, ParkedProduce
from kraftlite.replication.sessions import FetchServer
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch

_MAXIMAL = "self.maximal = in_order((*self.committed, *pending.added), replicas)"


@mutant("acks-all-at-append", "acks=all is answered when the leader has the records", expects=("30",))
def acks_all_at_append(patch: Patch) -> None:
    """acks=1 in disguise."""
    rule = "if all_acks and partition.online_log().hw <= info.last_offset:"
    patch.edit(produce._Request, "go_on", (rule, "if False:"))


@mutant("min-isr-only-before-append", "min.insync.replicas is asked for before the append and not again", expects=("26",))
def min_isr_only_before_append(patch: Patch) -> None:
    """RP-03, RP-06; KAFKA-1555: the ISR shrinks while the produce waits, and one replica acknowledges alone."""
    rule = " or len(leader.isr.committed) < self.min_isr or"
    patch.edit(Partition, "maybe_advance_hw", (rule, " or"))
    patch.edit(Partition, "_after_isr_change", ("if self.under_min_isr:", "if False:"))


@mutant("hw-passes-pending-shrink", "the HW goes past a member whose removal the controller has not confirmed", expects=("26",))
def hw_passes_pending_shrink(patch: Patch) -> None:
    """KIP-497, RP-12: until the controller has spoken that member may be elected."""
    shrunk = "self.maximal = in_order((*(it for it in self.committed if it not in pending.removed), *pending.added), replicas)"
    patch.edit(IsrState, "propose", (_MAXIMAL, shrunk))


@mutant("hw-passes-pending-expansion", "the HW does not wait for a replica that may be in the ISR already", expects=("26",))
def hw_passes_pending_expansion(patch: Patch) -> None:
    """KIP-497 calls it the maximal ISR: the answer to an expansion can be lost, and the replica elected."""
    patch.edit(IsrState, "propose", (_MAXIMAL, "self.maximal = self.committed"))


@mutant("hw-above-leo-after-truncation", "a truncation leaves the HW where it was", expects=("28", "32", "crash", "SelfCheck"))
def hw_above_leo_after_truncation(patch: Patch) -> None:
    """The HW points behind the end of a log that was cut, and comes true with the next records, whoever they are from."""
    patch.edit(Truncation, "truncate_to", ("ctx.hw = min(ctx.hw, leo)", "pass"))


@mutant("hw-assumed-at-restart", "a restarted replica takes all that it has for committed", expects=("26", "29", "32"))
def hw_assumed_at_restart(patch: Patch) -> None:
    """RP-16: the checkpoint is lost, and instead of nothing everything is trusted."""
    patch.edit(Partition, "attach_log", ("log.update_hw(checkpointed_hw)", "log.update_hw(log.leo)"))


@mutant("consumer-reads-to-leo", "a consumer reads what is not committed", expects=("29", "96"))
def consumer_reads_to_leo(patch: Patch) -> None:
    """RP-13: what was read may be gone with the next leader."""
    patch.edit(ConsumePath, "_read", ("bound = stable if params.read_committed else hw", "bound = log.leo"))


@mutant(
    "produce-outlives-leadership",
    "a produce that waits survives the end of its leader and is acknowledged",
    expects=("30", "SelfCheck", "14"),
)
def produce_outlives_leadership(patch: Patch) -> None:
    """RP-09: the HW of the next leader completes produces that have been truncated."""
    patch.edit(Partition, "become_follower", ("self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)", "pass"))


@mutant("hw-from-a-divergence", "a leader says its HW with where the logs part, and the follower takes it", expects=("32",))
def hw_from_a_divergence(patch: Patch) -> None:
    """RP-31: what is left may still differ from the leader's log, and counts as committed."""
    patch.edit(
        FetcherCore,
        "_take",
        (
            "        self._diverged(followed, result.diverging_epoch, result.log_start_offset)",
            "        self._diverged(followed, result.diverging_epoch, result.log_start_offset)\n"
            "        adopt_leader_offsets(partition, log, result.high_watermark, result.log_start_offset)",
        ),
    )
    patch.edit(FetchServer, "_read", ("diverging_epoch=diverging", "diverging_epoch=diverging, high_watermark=log.hw"))


@mutant("timed-out-and-acknowledged", "a produce that has waited for as long as it may is acknowledged", expects=("30",))
def timed_out_and_acknowledged(patch: Patch) -> None:
    """RP-04: the records are in the leader's log, so all seems well. A purgatory that completes what expires like the rest."""
    patch.edit(ParkedProduce, "expire", ("ErrorCode.REQUEST_TIMED_OUT", "ErrorCode.NONE"))


@mutant("earlier-deadline-waits", "what is due before the next deadline waits for that one", expects=("96",))
def earlier_deadline_waits(patch: Patch) -> None:
    """CP-18, RP-04: one timer for everything that waits. It is armed when it is not, and not for what is due sooner: a fetch of a
    consumer waits for as long as a produce may."""
    patch.edit(Deadlines, "add", ("if self._timer is None or due < self._armed_for:", "if self._timer is None:"))


@mutant(
    "former-leader-says-too-few",
    "a produce that waits at the end of its leader is told that there are too few replicas",
    expects=("38",),
)
def former_leader_says_too_few(patch: Patch) -> None:
    """RP-09: its producer tries again at the same broker, and does not look for the new leader."""
    rule = "self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)"
    patch.edit(Partition, "become_follower", (rule, "self.fail_waiting(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)"))
