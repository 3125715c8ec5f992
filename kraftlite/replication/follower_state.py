"""The follower's operations on its log: append what was fetched, cut off what the leader does not have, start over.

Source: KIP-101, KIP-279, KIP-595 (divergence in the fetch); RP-15, RP-17, RP-31 to RP-33, RP-35, RP-36.
"""

from __future__ import annotations

from kraftlite.log.log import Log
from kraftlite.model.messages.replica import EpochEndOffset
from kraftlite.replication.partition import Partition


def prepare_to_follow(log: Log) -> None:
    """Make the log fit to be continued by another leader: RP-33.

    With epochs it is fetched from the LEO, and divergence is found by epoch. Without any, only what is below the HW is trusted.
    An epoch that begins at the LEO has no records: this broker led and nobody wrote. It says nothing, and would refuse batches
    of an older epoch that the new leader has there; so it goes.
    """
    if log.latest_epoch is None:
        if log.leo > log.hw:
            log.truncate_to(log.hw, allow_below_hw=True)
        return
    _drop_empty_epochs(log)


def _drop_empty_epochs(log: Log) -> None:
    entries = log.epoch_entries
    kept = [entry for entry in entries if entry[1] < log.leo]
    if len(kept) == len(entries):
        return
    if kept:
        log.assign_epoch_start(*kept[-1])
    elif log.leo == log.log_start_offset:
        log.truncate_fully_and_start_at(log.leo)


def last_fetched_epoch(log: Log) -> int | None:
    """The epoch of the last record; None for an empty log or one without epochs."""
    return log.epoch_at(log.leo - 1) if log.leo > log.log_start_offset else None


def append_fetched(partition: Partition, data: memoryview, leader_hw: int, leader_log_start: int, wall_ms: int) -> bool:
    """Take one partition of a fetch response, and return whether the LEO or the log start moved. Raises ApiError (RP-36) and
    OSError."""
    log = partition.online_log()
    appended = None
    if len(data):
        # A topic that was compacted once has gaps for ever, all of them below the leader's HW.
        appended = log.append_as_follower(data, leader_epoch=partition.leader_epoch, gaps_below=leader_hw, wall_ms=wall_ms)
    return adopt_leader_offsets(partition, log, leader_hw, leader_log_start) or appended is not None


def adopt_leader_offsets(partition: Partition, log: Log, leader_hw: int, leader_log_start: int) -> bool:
    """HW = min(leader's HW, LEO) (RP-15); the log start follows the leader's, never beyond the HW (RP-17). Whether that moved."""
    if leader_hw >= 0:
        old = log.hw
        log.update_hw(min(leader_hw, log.leo))
        if log.hw != old:
            partition.hw_changed(log.hw)
    if log.log_start_offset < leader_log_start <= log.hw:
        return log.increment_log_start(leader_log_start, "leader's log start")
    return False


def truncate_to_divergence(log: Log, leader_end: EpochEndOffset, leader_log_start: int) -> int:
    """Cut the log where it and the leader's part; returns the new LEO (RP-31).

    `leader_end`: the largest epoch <= ours that the leader knows, and where it ends there. When this log does not know that
    epoch, its end of the next older one is the bound, and the next fetch goes on from there.

    Where nothing stays that the leader still has, the log begins anew where the leader's does: what lies below that was another
    epoch's perhaps, and the leader knows it no more. Departs: Kafka keeps it until it takes the leader's log start over, and a
    replica that is elected before tells it as committed.
    """
    own_end = log.end_offset_for_epoch(leader_end.leader_epoch)
    if own_end is None:
        target = leader_end.end_offset
    elif own_end.leader_epoch != leader_end.leader_epoch:
        target = own_end.end_offset
    else:
        target = min(own_end.end_offset, leader_end.end_offset)
    if log.log_start_offset < leader_log_start and target <= leader_log_start:
        log.truncate_fully_and_start_at(leader_log_start)
    else:
        log.truncate_to(target, allow_below_hw=True)
        _drop_empty_epochs(log)
    return log.leo


def reset_to_leader_range(log: Log, leader_log_start: int, leader_leo: int) -> int:
    """Our position is not in the leader's range: cut or start over; returns the new LEO (RP-35).

    Over starts what has nothing that the leader has, too: see `truncate_to_divergence`.
    """
    if log.leo > leader_leo:
        if leader_leo < log.log_start_offset or log.log_start_offset < leader_log_start == leader_leo:
            log.truncate_fully_and_start_at(max(leader_log_start, 0))
        else:
            log.truncate_to(leader_leo, allow_below_hw=True)
            _drop_empty_epochs(log)
    elif log.leo < leader_log_start:
        log.truncate_fully_and_start_at(leader_log_start)
    return log.leo
