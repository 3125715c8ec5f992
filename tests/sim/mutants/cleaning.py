"""What becomes of old records: compaction, retention, DeleteRecords, and what a log tells of its offsets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kraftlite.broker import log_cleaner, log_dirs_retention_driver, log_moves
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.broker.log_dirs_loading import LogLoader
from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.broker.server import BrokerServer
from kraftlite.log import batch, cleaner, compaction, leftovers, recovery, retention, seek
from kraftlite.log.cleaned import CleanedSegment
from kraftlite.log.compaction import BatchFilter
from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.log.segment import Segment
from kraftlite.log.truncation import Truncation
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication import fetcher_core, follower_state
from kraftlite.replication.delete_records import DeleteRecordsPath
from kraftlite.sim import damage, schedule, start_faults, swap_faults
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape, TopicPlan
from kraftlite.sim.targets import node_ids, period_ms
from kraftlite.sim.workloads import deletions, logs
from kraftlite.simhost.disk import MemDisk
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import taking_turns


def dark(patch: Patch) -> None:
    """Every broker loses power three times in a run."""

    def cuts(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        brokers = node_ids(shape, "broker")
        step_ms = duration_ms // (3 * len(brokers) + 1)
        return [
            FaultPlan(at_ms=number * step_ms, kind="power", target=broker, for_ms=100)
            for number, broker in enumerate(brokers * 3, 1)
        ]

    patch.set(schedule, "_damages", cuts)


def misled(patch: Patch) -> None:
    """Every run has a broker with false log starts beside damaged statements, and later it leads."""

    def damages(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        if len(node_ids(shape, "broker")) < 2:
            return []
        return start_faults.misled_leader(rng, shape, rng.randint(duration_ms // 8, duration_ms // 4))

    patch.set(schedule, "_damages", damages)


@mutant("cleaner-drops-the-last", "compaction removes the newest record of a key, too", expects=("45",))
def cleaner_drops_the_last(patch: Patch) -> None:
    """LG-42. KAFKA-4614's neighbours: an off-by-one in the one comparison on which all data of a compacted topic depends."""
    patch.edit(
        compaction.BatchFilter,
        "_keeps",
        ("offset < self._offsets.last_of(record.key)", "offset <= self._offsets.last_of(record.key)"),
    )


@mutant("tombstone-dropped-at-once", "the first pass that meets a tombstone removes it", expects=("45",))
def tombstone_dropped_at_once(patch: Patch) -> None:
    """KIP-534: a reader that began before it sees the value and never the deletion."""
    rule = "record.value is not None or not header.has_delete_horizon or self._wall_ms < header.base_timestamp"
    patch.edit(compaction.BatchFilter, "_keeps", (rule, "record.value is not None"))


@mutant("tombstone-without-delay", "a tombstone may go as soon as a second pass meets it", expects=("45",))
def tombstone_without_delay(patch: Patch) -> None:
    """KAFKA-8522: delete.retention.ms that does not count from the right moment."""
    patch.edit(
        compaction.BatchFilter,
        "__init__",
        ("min(wall_ms + delete_retention_ms, MAX_INT64)", "wall_ms"),
    )


@mutant("cleans-beyond-the-hw", "compaction goes on behind the high watermark", expects=("45", "24", "25", "28"))
def cleans_beyond_the_hw(patch: Patch) -> None:
    """LG-42: what superseded a value is truncated afterwards, and both are gone."""
    rule = "bound = min(log.last_stable_offset, log.active_base_offset)"
    patch.edit(cleaner, "look", (rule, "bound = log.active_base_offset"), also=(log_cleaner,))


@mutant("compaction-lag-ignored", "records younger than min.compaction.lag.ms are compacted", expects=("45",))
def compaction_lag_ignored(patch: Patch) -> None:
    """KIP-58: a reader that is not far behind was promised to see every record."""
    patch.edit(
        cleaner, "look", ("config.min_compaction_lag_ms > 0 and", "config.min_compaction_lag_ms < 0 and"), also=(log_cleaner,)
    )


@mutant(
    "swap-without-sync",
    "a compacted segment takes the place of others before it is durable",
    expects=("45", "24", "25", "38", "liveness"),
    lens=dark,
)
def swap_without_sync(patch: Patch) -> None:
    """LG-46: a power cut leaves neither the old segments nor the new one."""
    patch.edit(CleanedSegment, "sync", ("self.file.sync()", "pass"))


@mutant("keys-collide", "two keys with the same beginning count as one", expects=("45",))
def keys_collide(patch: Patch) -> None:
    """KAFKA-1641's class: Kafka's map knows keys by a hash alone; a weak one loses the values of other keys."""
    patch.set(compaction, "_digest", lambda key: key[:1])


@mutant("full-map-goes-on", "a full key map takes nothing more, and the pass goes on all the same", expects=("45",))
def full_map_goes_on(patch: Patch) -> None:
    """LG-43: what is said to be compacted is not, and is never looked at again."""
    patch.edit(compaction.OffsetMap, "put", ("return False", "return True"))


@mutant("clean-part-not-rewritten", "a pass rewrites only what was dirty", expects=("45",))
def clean_part_not_rewritten(patch: Patch) -> None:
    """LG-42: an older value outlives the tombstone that deleted it, and is there again when that is gone."""
    patch.edit(
        cleaner.Cleaning,
        "groups",
        ("for source in self._sources:", "for source in [it for it in self._sources if it.end_offset > self.todo.first_dirty]:"),
    )


@mutant("horizon-shifts-times", "a batch that gets a delete horizon loses its records' times", expects=("45",))
def horizon_shifts_times(patch: Patch) -> None:
    """KIP-534 stores the horizon in the base timestamp; KAFKA-15116's class of what follows from that."""
    rule = "record._replace(timestamp_delta=delta)"
    patch.edit(batch, "retained_batch", (rule, "record"), also=(compaction,))


@mutant("all-clean-at-start", "what a start finds counts as compacted", expects=("45",))
def all_clean_at_start(patch: Patch) -> None:
    """LG-43. KAFKA-3587's class: a checkpoint of the cleaner that is ahead of what was cleaned."""
    patch.edit(LogDirs, "load", ("progress = state.clean_offsets.get(tp)", "progress = log.leo"))


@mutant("retention-one-too-many", "retention by size removes one segment too many", expects=("46",))
def retention_one_too_many(patch: Patch) -> None:
    """LG-36: less than retention.bytes is left."""
    patch.edit(retention, "_surplus", ("return left >= 0", "return left + segment.size > 0"))


@mutant("retention-tells-nobody", "followers hear of what retention deletes when something is appended", expects=("31",))
def retention_tells_nobody(patch: Patch) -> None:
    """RP-17, KIP-227: a log start that moves is something to say, also where nobody writes."""
    patch.edit(BrokerServer, "_on_log_start", ("is not None", "is None"))


def kept_for_a_moment(patch: Patch) -> None:
    """Every topic whose records are deleted keeps them for 800 ms, and every broker looks for older ones all the time."""
    patch.set(logs, "RETENTION", {"retention.ms": ("800",), "retention.bytes": ("-1",)})
    configured(log_retention_check_interval_ms="50")(patch)


def leads_on_alone(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A leader whom the controller does not hear takes records that nobody else gets, and comes back to its successor."""
    kept_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(500, 2_500)
    return [FaultPlan(at_ms=at_ms, kind="cut-one-way", target="leader ld-0", other="controller", for_ms=kept_ms)]


@mutant(
    "keeps-what-the-leader-deleted",
    "a follower whose log parts from its leader's above all that is left there keeps what it has below",
    expects=("25", "24", "30"),
    lens=together(kept_for_a_moment, playing(leads_on_alone)),
)
def keeps_what_the_leader_deleted(patch: Patch) -> None:
    """KIP-101, as Kafka does: it may be another epoch's, and is told as committed by a replica that is elected just then."""
    rule = "if log.log_start_offset < leader_log_start and target <= leader_log_start:"
    patch.edit(follower_state, "truncate_to_divergence", (rule, "if False:"), also=(fetcher_core, log_moves))


@mutant("retention-by-oldest", "retention by time goes by the first record of a segment", expects=("46",))
def retention_by_oldest(patch: Patch) -> None:
    """KIP-32, KAFKA-2511's class: a segment goes although its last record is young."""
    rule = "newest = segment.max_timestamp"
    patch.edit(
        retention,
        "newest_ms",
        (rule, "newest = -1 if segment.rolling_timestamp is None else segment.rolling_timestamp - 600"),
    )


@mutant("retention-beyond-the-hw", "retention removes what is not committed yet", expects=("46", "32", "26"))
def retention_beyond_the_hw(patch: Patch) -> None:
    """KAFKA-5431's class: a log start that passes the high watermark takes it along."""
    patch.edit(retention, "_delete_while", ("if end > log.hw or (last", "if (last"))


@mutant("retention-of-compacted", "retention deletes whatever the policy of the topic says", expects=("46",))
def retention_of_compacted(patch: Patch) -> None:
    """LG-48: the last values of a compacted topic go after a week."""
    patch.edit(retention, "apply_retention", ("if not config.deletes:", "if False:"), also=(log_dirs_retention_driver,))


@mutant("deleted-before-followers", "DeleteRecords does not wait for the followers", expects=("47",))
def deleted_before_followers(patch: Patch) -> None:
    """KIP-107: the next leader still has what was deleted."""
    patch.edit(DeleteRecordsPath, "_verdict", ("low = self._low_watermark(leader, log)", "low = log.log_start_offset"))


@mutant("follower-starts-ahead", "a follower's log start goes to its high watermark", expects=("47",))
def follower_starts_ahead(patch: Patch) -> None:
    """RP-17: it leads next, and what nobody has deleted is gone."""
    rule = "log.increment_log_start(leader_log_start,"
    patch.edit(follower_state, "adopt_leader_offsets", (rule, "log.increment_log_start(log.hw,"), also=(fetcher_core,))


@mutant("time-index-off-by-one", "the time index names the offset behind the record", expects=("48", "49", "crash"))
def time_index_off_by_one(patch: Patch) -> None:
    """LG-05. KAFKA-4205's class: whoever looks for a time finds the record behind it, or none."""
    patch.edit(Segment, "_note", ("self._offset_of_max = last_offset", "self._offset_of_max = last_offset + 1"))


@mutant("index-leads-behind", "an entry of the offset index names the place behind its batch", expects=("49",))
def index_leads_behind(patch: Patch) -> None:
    """LG-05: whoever looks for an offset begins behind it."""
    patch.edit(Segment, "_note", ("append(last_offset, position)", "append(last_offset, position + size_bytes)"))


@mutant("later-than-the-time", "a lookup by time does not find a record of that very time", expects=("48",))
def later_than_the_time(patch: Patch) -> None:
    """KIP-79: the first record whose timestamp is not earlier."""
    patch.edit(seek, "_scan", ("timestamp - 1", "timestamp"))


@mutant(
    "config-not-applied",
    "a change of a topic's configuration reaches no log that is there",
    expects=("49", "26"),
)
def config_not_applied(patch: Patch) -> None:
    """CM-52. KAFKA-9057's class: a change that waits for the next restart."""
    told = "self._topics_of(changed)"
    patch.edit(BrokerMetadataPublisher, "_apply_configs", (told, f"dict([*{told}.items()][1:])"))


@mutant(
    "log-start-keeps-its-epoch", "the first leader epoch of a log begins before its log start", expects=("SelfCheckReplicas",)
)
def log_start_keeps_its_epoch(patch: Patch) -> None:
    """KIP-101: the file says that the log has what is deleted. Kafka's cache moves the start along."""
    patch.edit(LeaderEpochCache, "truncate_from_start", ("self._starts[0] = offset", "pass"))


def much_is_deleted(patch: Patch) -> None:
    """Every run has the client that deletes where a replica is dead."""
    patch.set(deletions, "comes_with", lambda seed: True)


@mutant("deletion-waits-for-the-dead", "DeleteRecords waits for followers that are dead", expects=("47",), lens=much_is_deleted)
def deletion_waits_for_the_dead(patch: Patch) -> None:
    """RP-17; KIP-107: one broker that is down, and every deletion times out."""
    patch.edit(DeleteRecordsPath, "_low_watermark", (" and self._table.alive(broker_id)", ""))


@mutant(
    "deletion-never-times-out",
    "DeleteRecords waits for a follower that lags, for ever",
    expects=("96", "47"),
    lens=much_is_deleted,
)
def deletion_never_times_out(patch: Patch) -> None:
    """RP-17: the time of the request gets lost on its way to the deadlines."""
    patch.edit(
        DeleteRecordsPath, "_followed", ("self._deadlines.add(expired, timeout_ms)", "self._deadlines.add(expired, 10**6)")
    )


@mutant(
    "start-beside-damage-believed",
    "a checkpointed log start counts where log-statements is damaged, though other brokers have the log",
    expects=("30", "25", "45", "46", "47"),
    lens=misled,
)
def start_beside_damage_believed(patch: Patch) -> None:
    """LG-53: the replica began behind what it had, stayed in the ISR on trust, and as leader it had lost what was below."""
    patch.edit(LogLoader, "_opener", ("state.statements_damaged and not sole", "False"))


@mutant(
    "only-copy-begins-anew",
    "no checkpointed log start counts where log-statements is damaged, also not that of an only copy",
    expects=("47", "46"),
    lens=together(misled, much_is_deleted),
)
def only_copy_begins_anew(patch: Patch) -> None:
    """LG-53: nobody else could tell that log start, and records come back that DeleteRecords had removed."""
    patch.edit(LogLoader, "_opener", ("state.statements_damaged and not sole", "state.statements_damaged"))


def foreign_segment(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    """All that the partition has is a segment of another one: somebody has put the wrong file back."""
    logs = [it for it in disk.tree(log_dir) if it.endswith(".log") and "/__cluster" not in it]
    own = [it for it in logs if it.startswith(f"{log_dir}/{tp}/")]
    others = sorted((len(disk.read_file(it)), it) for it in logs if it not in own and disk.read_file(it))
    if not own or not others:
        return
    for path in own[1:]:
        disk.unlink(path)
    disk.write_file_atomically(own[0], disk.read_file(others[0][1]))


def misplaced(patch: Patch) -> None:
    """Every broker finds foreign segments once, and all brokers die afterwards."""

    def damages(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        brokers = node_ids(shape, "broker")
        step_ms = duration_ms // (2 * len(brokers) + 1)
        return [
            FaultPlan(at_ms=number * step_ms, kind="damage" if number % 2 else "kill", target=broker, for_ms=100)
            for number, broker in enumerate(brokers * 2, 1)
        ]

    patch.set(schedule, "_damages", damages)
    patch.set(damage, "KINDS", {"foreign segment": foreign_segment})


@mutant(
    "foreign-segment-kept",
    "what is left of a compacted log is kept as its beginning, though the log has lost its end",
    expects=("28", "30", "45", "29", "25", "crash", "SelfCheck"),
    lens=misplaced,
)
def foreign_segment_kept(patch: Patch) -> None:
    """LG-53: a coordinator that led with it had lost its transactions, and could not load what was not its own."""
    patch.edit(LogLoader, "_opener", ("cut_short=not sole and not config.compacted", "cut_short=not sole"))
    patch.edit(recovery.Loader, "_accept", ("self._has_holes |= header.base_offset > next_offset", "pass"))


@mutant("compacted-beyond-segment-bytes", "compaction makes one segment of any number of others", expects=("45",))
def compacted_beyond_segment_bytes(patch: Patch) -> None:
    """LG-42: a segment that is as large as the log is copied whole by each pass from then on."""
    patch.edit(cleaner.Cleaning, "groups", ("and size + source.size <= self._config.segment_bytes", ""))


def late_only(patch: Patch) -> None:
    """Every compacted topic is compacted because records are superseded for long, and never because they are many."""
    drawn = {**logs.COMPACTION, "min.cleanable.dirty.ratio": ("1.0",), "max.compaction.lag.ms": ("1000", "4000")}
    patch.set(logs, "COMPACTION", drawn)
    configured(log_cleaner_io_buffer_load_factor="0.9")(patch)


@mutant("superseded-stays-for-ever", "max.compaction.lag.ms makes no compaction due", expects=("45",), lens=late_only)
def superseded_stays_for_ever(patch: Patch) -> None:
    """LG-43; KIP-354: what was to be forgotten after a day is there until enough else is written."""
    rule = "overdue=earliest_ms is not None and"
    patch.edit(cleaner, "look", (rule, "overdue=False and earliest_ms is not None and"), also=(log_cleaner,))


@mutant("last-word-dropped", "compaction drops the last batch of a producer when it has no records left", expects=("45",))
def last_word_dropped(patch: Patch) -> None:
    """LG-45; KAFKA-5793's neighbours: a replica that is made anew takes a copy of that batch for a new one."""
    patch.edit(BatchFilter, "_is_last_word", ("return header.last_offset == word.data_offset", "return False"))


@mutant("expired-active-stays", "what is too old stays while it is in the active segment", expects=("46",))
def expired_active_stays(patch: Patch) -> None:
    """LG-37: a topic to which nobody writes any more keeps its last records for ever."""
    patch.edit(retention, "_delete_while", ("        if last:\n            log.roll()", "        if last:\n            break"))


often = configured(log_cleaner_backoff_ms="50", log_cleaner_dedupe_buffer_size="1048576")
slowly = configured(
    log_cleaner_backoff_ms="50", log_cleaner_dedupe_buffer_size="1048576", log_cleaner_io_max_bytes_per_second="2000"
)
"""Passes that take seconds, one after another."""


def taken_over_uncleanly(patch: Patch) -> None:
    """Every run has brokers that live one at a time, and topics that all of them have, that the next one may lead with what it
    has, and that are compacted soon."""
    original, soon = logs.draw_topics, {"segment.ms": "200", "min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.0"}

    def draw_topics(rng: random.Random, brokers: int) -> list[TopicPlan]:
        return [replace(it, replication=brokers, config={**it.config, **soon}) for it in original(rng, brokers)]

    patch.set(logs, "draw_topics", draw_topics)
    patch.set(logs, "elects_uncleanly", lambda seed: True)
    playing(taking_turns)(patch)


@mutant(
    "progress-outlives-truncation",
    "how far a log is compacted stays where it was when the log is cut off below that",
    expects=("SelfCheckReplicas", "14", "45"),
    shape="1+3",
    lens=together(taken_over_uncleanly, often),
)
def progress_outlives_truncation(patch: Patch) -> None:
    """LG-43: what is written there next counts as compacted, and what a tombstone has deleted comes back when that goes."""
    patch.edit(Truncation, "truncate_to", ("ctx.clean_offset = min(ctx.clean_offset, leo)", "pass"))


def dark_amid_swaps(patch: Patch) -> None:
    """Each broker has half of each second in which it loses power in the middle of a swap, and no other fault."""

    def cuts(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        rng, brokers = random.Random(f"swaps/{seed}"), node_ids(shape, "broker")
        return [
            FaultPlan(at_ms=at_ms, kind="power-mid-swap", target=it, for_ms=500, amount=rng.randint(2, 7))
            for at_ms in range(1_500, duration_ms, 1_000)
            for it in brokers
        ]

    patch.set(swap_faults, "draw", cuts)
    patch.set(schedule, "draw", lambda rng, shape, duration_ms: [])
    often(patch)


@mutant(
    "originals-beside-a-swap",
    "a start that finds a compacted segment complete leaves what it was made of beside it",
    expects=("38", "45", "28", "29", "48", "49", "crash", "SelfCheck", "liveness"),
    shape="1+3",
    lens=dark_amid_swaps,
)
def originals_beside_a_swap(patch: Patch) -> None:
    """LG-46, KAFKA-6175's class: records are there twice, superseded ones among them."""
    patch.edit(leftovers, "_settle", ("and base <= int(stem) <", "and base == int(stem) <"))


@mutant(
    "changed-during-a-pass",
    "a compacted segment takes the place of others that were deleted meanwhile",
    expects=("45", "46", "47", "crash", "SelfCheck", "14"),
    lens=together(much_is_deleted, slowly),
)
def changed_during_a_pass(patch: Patch) -> None:
    """LG-47, KAFKA-2118's neighbours: what a client has deleted is there again."""
    rule = "if not self._current(log) or not cleaning.intact():\n                cleaning"
    patch.edit(log_cleaner.LogCleaner, "_clean", (rule, "if not self._current(log):\n                cleaning"))


@mutant(
    "intact-where-it-swaps",
    "a pass goes on when the log was cut off behind the segments that it swaps next",
    expects=("45", "SelfCheck", "14"),
    shape="1+3",
    lens=together(taken_over_uncleanly, slowly),
)
def intact_where_it_swaps(patch: Patch) -> None:
    """LG-47: a record is gone because of a later one of its key that the log has not any more."""
    patch.edit(cleaner.Cleaning, "intact", ("self._sources[self._swapped :]", "self._sources[self._swapped : self._swapped + 1]"))
