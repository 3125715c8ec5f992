"""What shows only when a period is short or a limit is small: see `kraftlite/sim/knobs.py`."""

from __future__ import annotations

from kraftlite.broker.log_dirs_state import LogDirState
from kraftlite.controller.core import ControllerCore
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.partition_change import PartitionChangeBuilder
from kraftlite.log.indexes import OffsetIndex
from kraftlite.log.producers import ProducerState
from kraftlite.replication.hw_checkpoint import HwCheckpoint
from kraftlite.replication.manager import ReplicaManager
from kraftlite.replication.sessions import FetchServer
from kraftlite.sim import run
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured
from tests.sim.mutants.patching import Patch


@mutant("recovery-points-ahead", "the checkpoint of recovery points has the ends of the logs, flushed or not", expects=("36",))
def recovery_points_ahead(patch: Patch) -> None:
    """LG-26; `log.flush.offset.checkpoint.interval.ms`. After a power cut nothing below the end is looked at again."""
    patch.edit(LogDirState, "_recovery_points", ("log.recovery_point for", "log.leo for"))


@mutant("hw-checkpoint-has-the-end", "the checkpoint of HWs has the ends of the logs", expects=("26", "29", "32", "28"))
def hw_checkpoint_has_the_end(patch: Patch) -> None:
    """`replica.high.watermark.checkpoint.interval.ms`. A restarted leader serves what no other replica has."""
    patch.edit(HwCheckpoint, "write", ("else log.hw for", "else log.leo for"))


@mutant(
    "producer-expires-from-its-first-write",
    "what a producer writes later does not keep it",
    expects=("ProducerStateKept",),
    lens=configured(producer_id_expiration_ms="4000", producer_id_expiration_check_interval_ms="300"),
)
def producer_expires_from_its_first_write(patch: Patch) -> None:
    """LG-21; `producer.id.expiration.ms`. A producer that writes all the time is forgotten, and its retry appended twice."""
    rule = "entry.last_timestamp_ms = timestamp"
    patch.edit(ProducerState, "append_batch", (rule, f"{rule} if entry.last_timestamp_ms < 0 else entry.last_timestamp_ms"))


@mutant(
    "task-not-armed-after-it-did-something",
    "a periodic task of the controller that has written records is not run again",
    expects=("37", "33", "liveness"),
)
def task_not_armed_after_it_did_something(patch: Patch) -> None:
    """CE-24. A task that is armed again by hand forgets it on the way that is rarely taken."""
    armed = "self.periodic.schedule(task, now_ms, again=result.response)"
    patch.edit(ControllerCore, "_periodic_event", (armed, f"if task.name == 'write_no_op' or not result.records: {armed}"))


@mutant("isr-check-ends-with-a-find", "the check of ISRs ends when it has found a laggard", expects=("IsrLag", "33", "liveness"))
def isr_check_ends_with_a_find(patch: Patch) -> None:
    """RP-19; `replica.lag.time.max.ms`. A periodic task that ends with its first result, or its first failure."""
    rule = "partition.check_isr(self._clock.now_ms())\n"
    found = "if partition.leader is not None and partition.leader.isr.pending is not None:\n                return\n"
    patch.edit(ReplicaManager, "_check_isrs", (rule, f"{rule}            {found}"))


@mutant(
    "preferred-leader-outside-the-isr",
    "the preferred replica leads again, in sync or not",
    expects=("20", "25", "24", "SelfCheck"),
)
def preferred_leader_outside_the_isr(patch: Patch) -> None:
    """CM-39, CE-28; `leader.imbalance.check.interval.seconds`. Balancing leaders must not cost records."""
    rule = "self._election is Election.PREFERRED and self._valid(preferred)"
    patch.edit(PartitionChangeBuilder, "_elect", (rule, "self._election is Election.PREFERRED and self._acceptable(preferred)"))


@mutant(
    "unclean-task-asks-no-topic",
    "the periodic unclean election takes all that have no leader",
    expects=("20", "24"),
    lens=configured(unclean_leader_election_interval_ms="300"),
)
def unclean_task_asks_no_topic(patch: Patch) -> None:
    """CE-29; `unclean.leader.election.interval.ms`. Only topics that allow it may lose records."""
    policy = "Election.UNCLEAN if self._configs.unclean_election_enabled(info.name) else None"
    patch.edit(ElectionControl, "elect_unclean", (policy, "Election.UNCLEAN"))


@mutant(
    "index-entry-behind",
    "a read begins at the index entry behind its offset",
    expects=("29", "28", "liveness"),
)
def index_entry_behind(patch: Patch) -> None:
    """LG-12; `log.index.interval.bytes`. With an entry every 4 KiB a small log has none, and no test sees it."""
    rule = "return self._positions[index - 1] if index else 0"
    late = rule.replace("index - 1", "min(index, len(self._positions) - 1)")
    patch.edit(OffsetIndex, "position_at_or_below", (rule, late))


@mutant(
    "no-first-batch-above-the-limit",
    "a follower's fetch gets nothing when its first batch is too large",
    expects=("33", "liveness", "IsrLag"),
    lens=configured(replica_fetch_response_max_bytes="1"),
)
def no_first_batch_above_the_limit(patch: Patch) -> None:
    """LG-50, KIP-74; `replica.fetch.response.max.bytes`. A follower that cannot get over one large batch never catches up."""
    patch.edit(
        FetchServer,
        "collect",
        ("min(left, request.partition_max_bytes), not payload)", "min(left, request.partition_max_bytes), False)"),
    )


def segments_below_the_least_fetch(patch: Patch) -> None:
    """Every run has segments that hold less than what a follower's fetch waits for."""
    small = {"replica.fetch.min.bytes": "5000", "log.segment.bytes": "300"}
    patch.set(run, "draw_knobs", lambda seed, given=(), max_delay_us=0: small)


@mutant(
    "fetch-waits-though-there-is-more",
    "a follower's fetch waits for its least bytes, though the rest is in the next segment",
    expects=("liveness", "33", "IsrLag"),
    lens=segments_below_the_least_fetch,
)
def fetch_waits_though_there_is_more(patch: Patch) -> None:
    """RP-39; `replica.fetch.min.bytes`. A lagging follower got one segment in each wait, and never joined the ISR again."""
    patch.edit(FetchServer, "collect", ("urgent or (more_left and bool(payload))", "urgent"))
