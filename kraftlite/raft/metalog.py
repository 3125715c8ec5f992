"""The metadata log and its snapshots as one thing: what raft compares, truncates, replaces and cleans.

Source: KIP-595 (diverging epochs), KIP-630 (snapshots), KIP-853 (voters in the log); RF-30, RF-31, RF-42, RF-43, RF-45 to RF-47,
DQ-02 to DQ-06.
"""

from __future__ import annotations

import random
from typing import Final

from kraftlite.log.appends import AppendInfo
from kraftlite.log.batch import HEADER_BYTES, check_crc, iter_batches, parse_header
from kraftlite.log.checkpoints import MalformedCheckpoint, read_partition_metadata, restore_partition_metadata
from kraftlite.log.log import Log, OpenLog
from kraftlite.log.validation import AppendOrigin
from kraftlite.model.errors import ApiError, Fault
from kraftlite.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, uuid_to_str
from kraftlite.model.limits import MIB
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.raft.client import RecordSerde
from kraftlite.raft.config import QuorumConfig
from kraftlite.raft.damage import check_only_copy, wrong_epoch_from
from kraftlite.raft.flush_mark import FlushMark, read_flush_mark
from kraftlite.raft.membership import Membership
from kraftlite.raft.snapshots import BOOTSTRAP_SNAPSHOT_ID, PartialSnapshot, SnapshotReader, SnapshotStore
from kraftlite.raft.voters import VoterSet
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace import raft as trace

_PROVEN_PER_TURN_BYTES: Final = 4 * MIB
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class MetadataLog:
    """`Log` plus `SnapshotStore` of `__cluster_metadata-0`. Offsets [log_start_offset, leo) are in the log.

    Invariant: the log starts at 0, or a snapshot reaches at least to where it starts. Opening raises Fault when that does
    not hold (RF-46); a truncation below the high watermark raises Fault (RF-31).

    `membership` has read all of the log, the uncommitted end included (DQ-02): whatever changes the log goes through here.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        config: QuorumConfig,
        serde: RecordSerde,
        wall_ms: int,
        entropy: random.Random,
        tracer: Tracer,
        stored_epoch: int | None = None,
    ) -> None:
        """`stored_epoch`: that of `quorum-state`; None when there is none."""
        self._disk = disk
        self._config = config
        self._serde = serde
        self._tracer = tracer
        self.membership = Membership(VoterSet(config.voters), config.listener_name)
        self._noted: VoterSet | None = None
        """The voters that were told of last."""
        self._mark: FlushMark | None = None
        self.cleaning = False
        """`clean` is not through, and wants to go on at the next turn of the loop."""
        self._proven: tuple[OffsetAndEpoch, int] | None = None
        """So many bytes of this snapshot are checked, before the older one is given up for it."""
        if config.is_voter and len(config.voters) == 1:
            check_only_copy(disk, config.metadata_dir)
        elif config.may_become_voter and read_flush_mark(disk, config.metadata_dir) is not None:
            check_only_copy(disk, config.metadata_dir)  # it was the only voter when it ran last
        # A voter with a later epoch than the quorum's raises that by an election (RF-12). An observer cannot, and without the
        # file, which was there before the first record, nothing vouches for its log.
        latest_epoch = None if config.is_voter or config.may_become_voter else stored_epoch or 0
        wrong_from = wrong_epoch_from(disk, config.metadata_dir, latest_epoch)
        _vouch_for_owner(disk, config.metadata_dir)
        self.log = Log(
            OpenLog(
                disk=disk,
                directory=config.metadata_dir,
                tp=METADATA_PARTITION,
                topic_id=METADATA_TOPIC_ID,
                config=config.log_config,
                wall_ms=wall_ms,
                entropy=entropy,
                tracer=tracer,
            )
        )
        if wrong_from is not None:
            self.log.truncate_to(max(wrong_from, self.log.log_start_offset))
        self.snapshots = SnapshotStore(disk, config.metadata_dir)
        self.snapshots.load()
        self._reconcile()

    def _reconcile(self) -> None:
        """Bring log and snapshots together after a crash anywhere (RF-46)."""
        self._drop_damaged_snapshots()
        latest, log = self.snapshots.latest, self.log
        if latest is not None and self._replaces_log(latest):
            log.truncate_fully_and_start_at(latest.offset)
        start = self.log.log_start_offset
        for snapshot_id in self.snapshots.ids:
            if snapshot_id.offset < start:
                self._delete(snapshot_id, "older than the log")
        self.snapshots.unlink(self.snapshots.take_doomed())
        if start > 0 and self.snapshots.latest is None:
            raise Fault(
                f"{self._config.metadata_dir}: the log starts at offset {start} and no snapshot reaches that far; "
                "the metadata before it is lost"
            )
        self._read_membership()
        # What recovery found may only be in the page cache yet.
        self.log.flush_sync()
        self.note_durable()

    def _replaces_log(self, latest: OffsetAndEpoch) -> bool:
        """Return whether the log is what a downloaded snapshot was to replace when the node ended (RF-45): it does not reach the
        snapshot's end, or is of an earlier epoch there, so that it has what was never committed."""
        start, end = self.log.log_start_offset, self.log.leo
        if latest.offset > end or start == end:
            # Also when the log is empty there already: the crash may have kept the epochs of what the snapshot replaced.
            return latest.offset >= end
        epoch = self.log.epoch_at(latest.offset - 1) if latest.offset > start else None
        return epoch is not None and epoch < latest.epoch

    def _read_membership(self) -> None:
        """Read the control records of the latest snapshot, or of the bootstrap snapshot, and of the log behind it."""
        latest = self.snapshots.latest
        bootstrap = self.snapshots.path(BOOTSTRAP_SNAPSHOT_ID)
        if latest is not None:
            self._load_membership(latest)
        elif self._disk.stat(bootstrap) is not None:
            self._load_membership(BOOTSTRAP_SNAPSHOT_ID)
        while self.membership.next_offset < self.leo:
            data = self.log.read(self.membership.next_offset, MIB, up_to=self.leo)
            for header, raw in iter_batches(data):
                if header.is_control and not check_crc(raw, header):
                    raise Fault(
                        f"{self._config.metadata_dir}: the control batch at offset {header.base_offset} is damaged. Where other "
                        "controllers have the metadata, remove the .log files and .checkpoint files, and keep quorum-state: the "
                        "node fetches both anew"
                    )
            self.membership.read(data, self.leo)
        self._note_membership()

    def _load_membership(self, snapshot_id: OffsetAndEpoch) -> None:
        with self.open_reader(snapshot_id) as reader:
            try:
                self.membership.load(reader.controls(), snapshot_id.offset)
            except ApiError as error:
                raise Fault(f"{self.snapshots.path(snapshot_id)}: {error}") from None

    def _note_membership(self) -> None:
        """Tell what came of a change of the log, or of its start."""
        membership = self.membership
        for offset in membership.leaps:
            self._tracer.emit(trace.VotersLeapt(offset=offset))
        membership.leaps.clear()
        voters = membership.voters
        if voters is self._noted:
            return
        self._noted = voters
        if voters.is_only_voter(self._config.key):
            if self._mark is None:
                self._mark = FlushMark(self._disk, self._config.metadata_dir)
        else:
            # Others may truncate this log now; removed before the record of the new voter can be on any other disk.
            mark, self._mark = self._mark or FlushMark(self._disk, self._config.metadata_dir), None
            mark.close()
            mark.remove()
        if not membership.is_static:
            self._tracer.emit(
                trace.VotersChanged(
                    offset=membership.voters_offset, voters=voters.ids, kraft_version=membership.kraft_version, leo=self.leo
                )
            )
            self._note_replaced_disk(voters)

    def _note_replaced_disk(self, voters: VoterSet) -> None:
        own, directory_id = voters.get(self._config.node_id), self._config.directory_id
        if own is None or own.directory_id is None or directory_id is None or own.directory_id == directory_id:
            return
        known = uuid_to_str(own.directory_id)
        self._tracer.emit(
            trace.VoterDirectoryReplaced(
                voter_directory_id=known,
                directory_id=uuid_to_str(directory_id),
                way_on=f"kraftlite quorum remove -i {own.id} -d {known}, then kraftlite quorum add -c FILE",
            )
        )

    # appending

    def append_as_leader(self, raw: bytearray, leader_epoch: int, wall_ms: int) -> AppendInfo:
        """Append one batch of this node's own."""
        info = self.log.append_as_leader(raw, leader_epoch=leader_epoch, wall_ms=wall_ms, origin=AppendOrigin.RAFT_LEADER)
        self.membership.read(raw, info.leo)
        self._note_membership()
        return info

    def append_as_follower(self, data: bytes, leader_epoch: int, wall_ms: int) -> AppendInfo | None:
        """Append what a leader sent, after `check_readable`. None: it was nothing. Raises ApiError, as the log does."""
        info = self.log.append_as_follower(data, leader_epoch=leader_epoch, wall_ms=wall_ms)
        if info is not None:
            self.membership.read(data, info.leo)
            self._note_membership()
        return info

    def note_durable(self) -> None:
        """A flush has ended. The only copy remembers it, so that a later start can tell a torn end from a lost one (RF-46)."""
        if self._mark is not None:
            self._mark.write(self.log.recovery_point)

    def _drop_damaged_snapshots(self) -> None:
        """A damaged snapshot is superfluous when the log goes back to an older one, or to 0. Otherwise Fault, naming it."""
        while (latest := self.snapshots.latest) is not None and self.drop_if_damaged(latest):
            pass

    def drop_if_damaged(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Check all of a snapshot; False when it is sound, True when it was damaged and is gone. Raises Fault when it is damaged
        and nothing else here has what it has."""
        try:
            with self.open_reader(snapshot_id) as reader:
                reader.verify()
        except Fault as damage:
            self._note_damage(snapshot_id, damage)
            if self.snapshots.contains(snapshot_id):
                raise
            return True
        return False

    def _note_damage(self, snapshot_id: OffsetAndEpoch, damage: Fault) -> None:
        """Tell of damage that was found, and give the snapshot up if the log goes back to a sound one, or to 0, without it."""
        store = self.snapshots
        if snapshot_id not in store.damaged:
            store.damaged.add(snapshot_id)
            self._tracer.emit(
                trace.SnapshotDamaged(end_offset=snapshot_id.offset, last_epoch=snapshot_id.epoch, error=str(damage))
            )
        start = self.log.log_start_offset
        others = [known.offset for known in store.ids if known not in store.damaged]
        if snapshot_id.offset <= self.leo and (start == 0 or any(start <= offset <= self.leo for offset in others)):
            self._delete(snapshot_id, "damaged")

    def read_snapshot_chunk(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes | None:
        """Bytes of a snapshot for somebody else; None when what has them is damaged. That is told, and a new snapshot is asked
        for (`latest_is_damaged`)."""
        if snapshot_id in self.snapshots.damaged:
            return None
        path = self.snapshots.path(snapshot_id)
        try:
            if self._disk.stat(path) is None:
                raise Fault(f"{path} is gone")
            with self.open_reader(snapshot_id) as reader:
                chunk = self.snapshots.read_chunk(snapshot_id, position, max_bytes)
                reader.verify_chunk(position, position + len(chunk))
        except Fault as damage:
            self._note_damage(snapshot_id, damage)
            return None
        return chunk

    @property
    def latest_is_damaged(self) -> bool:
        """Return whether a node that comes now finds no snapshot to begin with."""
        return self.snapshots.latest in self.snapshots.damaged

    @property
    def leo(self) -> int:
        return self.log.leo

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; of the snapshot that the log starts from when the log is empty; 0 when there is nothing."""
        if self.log.latest_epoch is not None:
            return self.log.latest_epoch
        latest = self.snapshots.latest
        return latest.epoch if latest is not None and latest.offset == self.leo else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(epoch=self.last_epoch, offset=self.leo)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch at or below `epoch` in this log and where it ends (RF-30)."""
        found = self.log.end_offset_for_epoch(epoch)
        earliest = self.snapshots.earliest
        if found is None:
            return self.end
        if earliest is not None and found.end_offset == earliest.offset and found.leader_epoch == epoch:
            return earliest  # older than all in the log: the snapshot it starts from is what is known
        return OffsetAndEpoch(epoch=found.leader_epoch, offset=found.end_offset)

    def check_position(self, offset: int, epoch: int) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
        """Check whether a log that ends at (offset, epoch) is a prefix of this one.

        (None, None) when it is; (diverging, None) when it must be truncated first; (None, snapshot) when it must load a
        snapshot first (RF-43).
        """
        latest, earliest = self.snapshots.latest, self.snapshots.earliest
        start = self.log_start_offset
        if offset == 0 and epoch == 0:
            return (None, latest) if latest is not None else (None, None)
        behind = earliest is not None and (
            offset < start or (offset == start and start > 0 and epoch != self._epoch_before(start)) or epoch < earliest.epoch
        )
        if behind:
            return None, latest
        end = self.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return end, None
        return None, None

    def begins_batch(self, offset: int) -> bool:
        """Return whether a log can end at this offset and be a prefix of this one: nowhere inside a batch."""
        found = self.log.find(offset, 1, up_to=self.leo) if self.log_start_offset < offset < self.leo else None
        return found is None or parse_header(found.segment.file.pread(HEADER_BYTES, found.extent.start)).base_offset == offset

    def truncate_to_diverging(self, diverging: OffsetAndEpoch) -> int:
        """Give up what the leader does not have; returns the new LEO. Raises Fault below the high watermark (RF-31)."""
        if diverging.epoch == 0:
            target = diverging.offset
        else:
            local = self.end_offset_for_epoch(diverging.epoch)
            target = min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset
        old = self.leo
        if target < self.log.hw:
            raise Fault(f"the leader asks to truncate to {target}, below the high watermark {self.log.hw} of this node")
        if self.log.truncate_to(target):
            self._tracer.emit(trace.LogTruncated(old_leo=old, new_leo=self.leo))
            self.membership.truncate_to(self.leo)
            self._note_membership()
        return self.leo

    def check_ahead(self, part: PartialSnapshot) -> None:
        """Check as much of a download as has come. Raises as `verify`."""
        part.check_ahead(self._serde)

    def verify(self, part: PartialSnapshot) -> None:
        """Raises Fault or ApiError when a downloaded snapshot is not one: before the log is given up for it."""
        part.verify(self._serde)
        Membership(VoterSet(()), self._config.listener_name).load(part.controls(self._serde), part.snapshot_id.offset)

    def install(self, part: PartialSnapshot) -> None:
        """Make a downloaded snapshot real and let the log start at its end (RF-45). A crash between both is repaired at start."""
        if part.snapshot_id.offset < self.log.hw:
            raise Fault(f"the leader's snapshot {part.snapshot_id} ends below the high watermark {self.log.hw} of this node")
        part.complete()
        self.log.truncate_fully_and_start_at(part.snapshot_id.offset)
        self._load_membership(part.snapshot_id)
        self._note_membership()
        self._delete_older_than(part.snapshot_id.offset, "replaced by a newer one")
        self._tracer.emit(
            trace.SnapshotInstalled(
                end_offset=part.snapshot_id.offset, last_epoch=part.snapshot_id.epoch, size_bytes=part.position
            )
        )

    def check_new_snapshot(self, snapshot_id: OffsetAndEpoch, hw: int | None) -> bool:
        """Check whether a snapshot with this id is to be created. ValueError when it breaks RF-42.

        False when it exists, or when a newer one (downloaded meanwhile) has made it superfluous.
        """
        latest = self.snapshots.latest
        offset, epoch = snapshot_id.offset, snapshot_id.epoch
        if self.snapshots.contains(snapshot_id) or (latest is not None and 0 < offset <= latest.offset):
            return False
        if hw is None or offset > hw:
            raise ValueError(f"snapshot {snapshot_id} ends above the high watermark {hw}")
        if offset < self.log_start_offset or offset <= 0:
            raise ValueError(f"snapshot {snapshot_id} ends below the log start {self.log_start_offset}, or at 0")
        if self._epoch_before(offset) != epoch:
            raise ValueError(f"snapshot {snapshot_id}: offset {offset - 1} is not of epoch {epoch} in this log")
        if offset < self.leo:
            header = parse_header(self.log.read(offset, 1, up_to=self.leo))
            if header.base_offset != offset:
                raise ValueError(f"snapshot {snapshot_id} ends inside the batch at offset {header.base_offset}")
        return True

    def _epoch_before(self, offset: int) -> int | None:
        """Return the epoch of the record before `offset`."""
        if offset == self.log_start_offset:
            return next((known.epoch for known in self.snapshots.ids if known.offset == offset), None)
        return self.log.epoch_at(offset - 1)

    def open_reader(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        return self.snapshots.open_reader(snapshot_id, self._serde)

    # cleaning

    def clean(self, wall_ms: int, keep_from: int | None = None) -> list[str]:
        """Remove the oldest snapshots, and the log before the next one, as far as the limits ask for it (RF-47).

        The log from `keep_from` on stays: somebody still reads it and must not be sent back to a snapshot (RF-49).
        Returns the files to unlink after the delay. At least one snapshot always stays.
        """
        self.cleaning = False
        while len(self.snapshots.ids) > 1:
            oldest, following = self.snapshots.ids[:2]
            reason = self._why_clean(oldest, wall_ms)
            if reason is None or following.offset > self.log.hw or (keep_from is not None and following.offset > keep_from):
                break
            sound = self._is_sound(following)
            self.cleaning = sound is None
            if not sound:
                if sound is None or self.snapshots.contains(following):
                    break
                continue
            self.log.increment_log_start(following.offset, reason)
            self.log.delete_segments_before(following.offset, reason=reason)
            self.membership.trim_to(following.offset)
            self._delete(oldest, reason)
        self.log.deleted.purge(wall_ms)
        return self.snapshots.take_doomed()

    def _why_clean(self, oldest: OffsetAndEpoch, wall_ms: int) -> str | None:
        if oldest in self.snapshots.damaged:
            return "damaged"
        total = self.log.size_bytes + sum(self.snapshots.size(snapshot_id) for snapshot_id in self.snapshots.ids)
        if total > self._config.max_retention_bytes:
            return "metadata.max.retention.bytes"
        try:
            with self.open_reader(oldest) as reader:
                age = wall_ms - reader.last_contained_timestamp_ms
        except Fault:
            return "damaged"  # nobody needs it: there is a newer one, and a start reads that
        return "metadata.max.retention.ms" if age > self._config.max_retention_ms else None

    def _is_sound(self, snapshot_id: OffsetAndEpoch) -> bool | None:
        """Check a part of the snapshot that will be all there is; None while it is not through."""
        begin = self._proven[1] if self._proven is not None and self._proven[0] == snapshot_id else 0
        size = self.snapshots.size(snapshot_id)
        try:
            with self.open_reader(snapshot_id) as reader:
                end = min(size, begin + _PROVEN_PER_TURN_BYTES)
                reader.verify_chunk(begin, end)
        except Fault as damage:
            self._proven = None
            self._note_damage(snapshot_id, damage)
            return False
        self._proven = (snapshot_id, end)
        return True if end == size else None

    def _delete_older_than(self, offset: int, reason: str) -> None:
        for snapshot_id in self.snapshots.ids:
            if snapshot_id.offset < offset:
                self._delete(snapshot_id, reason)

    def _delete(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        self.snapshots.doom(snapshot_id)
        self._tracer.emit(
            trace.SnapshotDeleted(
                end_offset=snapshot_id.offset,
                last_epoch=snapshot_id.epoch,
                reason=reason,
                log_start_offset=self.log_start_offset,
            )
        )

    def unlink(self, paths: list[str]) -> None:
        self.snapshots.unlink(paths)

    def close(self) -> None:
        self.log.close()
        self.note_durable()
        if self._mark is not None:
            self._mark.close()


def _vouch_for_owner(disk: Disk, directory: str) -> None:
    """Write a damaged `partition.metadata` anew: the id of this topic is the same in every cluster."""
    if disk.stat(directory) is None:
        return
    try:
        damaged = read_partition_metadata(disk, directory) not in (None, METADATA_TOPIC_ID)
    except (MalformedCheckpoint, IsADirectoryError):
        damaged = True
    if damaged:
        restore_partition_metadata(disk, directory, METADATA_TOPIC_ID)
