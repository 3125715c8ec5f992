"""The numbers that a node is built with beside its configuration: periods, sizes and counts of its cores that nobody configures.

Production takes the defaults. The simulator draws small and odd ones, so that the second turn, the second chunk and the full
table come within a run of seconds. A value changes when and in how many pieces something is done, never what is done.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from kraftlite.model.limits import (
    KIB,
    MAX_ELECTIONS_PER_RUN,
    MAX_RECORDS_PER_BATCH,
    PRODUCER_BATCHES,
    PRODUCER_ID_BLOCK_SIZE,
    RAFT_FETCH_MAX_WAIT_MS,
    RAFT_MAX_BATCH_BYTES,
    RAFT_MAX_FETCH_BYTES,
    RAFT_OBSERVER_EXPIRY_MS,
    SNAPSHOT_CHUNK_BYTES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Times in milliseconds, sizes in bytes. Raises ValueError for a value below 1."""

    # raft
    metadata_cleaning_interval_ms: int = 60_000
    """The period in which a node looks for metadata snapshots and segments that it may remove (RF-47)."""
    metadata_file_delete_ms: int = 60_000
    """The time for which a file of the metadata log stays that is superfluous."""
    raft_batch_bytes: int = RAFT_MAX_BATCH_BYTES
    raft_fetch_bytes: int = RAFT_MAX_FETCH_BYTES
    """The most that an answer to a fetch of the metadata log holds; one batch always fits."""
    raft_fetch_wait_ms: int = RAFT_FETCH_MAX_WAIT_MS
    raft_observer_expiry_ms: int = RAFT_OBSERVER_EXPIRY_MS
    """An observer that has not fetched for so long is no longer described."""
    snapshot_chunk_bytes: int = SNAPSHOT_CHUNK_BYTES
    # controller
    elements_per_turn: int = 1_000
    """See `controller.turns`."""
    elections_per_run: int = MAX_ELECTIONS_PER_RUN
    producer_id_block: int = PRODUCER_ID_BLOCK_SIZE
    first_records_per_batch: int = MAX_RECORDS_PER_BATCH
    """Records in one batch of the metadata transaction that a new log begins with (CE-15, CE-18)."""
    leaders_first: int = 1_000
    """Partitions that a failed broker led from which on those get new leaders before anything else is changed (CM-10)."""
    changes_per_part: int = MAX_RECORDS_PER_BATCH
    """Partitions of a failed broker whose changes are written before the next are computed: those of a batch (CM-10)."""
    # metadata
    records_per_slice: int = 250
    """Records that the loader replays before the loop gets a turn: two to four milliseconds."""
    snapshot_records_per_batch: int = 500
    snapshot_retry_ms: int = 10_000
    """A snapshot that could not be written is tried again after it (ML-20)."""
    # replication
    partitions_per_step: int = 16
    """Replicas that are made, deleted or told a new ISR before the loop gets a turn: heartbeats and fetches must not wait for
    thousands."""
    roles_per_step: int = 128
    """The same of replicas that are here and get a new leader, for which somebody waits: about five milliseconds."""
    isr_changes_per_request: int = 10_000
    follower_sessions: int = 1_000
    follower_session_idle_ms: int = 120_000
    batches_per_turn: int = 32
    """Batches of one produce request that are appended before the loop gets a turn."""
    checks_at_once: int = 2
    """Produce requests whose records are checked on threads at the same time."""
    deadline_granularity_ms: int = 16
    """Deadlines of parked requests are rounded up to a multiple of it: what expires together shares one timer."""
    # log
    producer_batches: int = PRODUCER_BATCHES
    # broker
    updates_joined: int = 100
    """Updates of the metadata that become one while it is applied: what is left of the first must not wait for ever."""
    first_retention_ms: int = 30_000
    """Retention begins so long after the start."""
    logs_per_turn: int = 16
    """Logs that retention looks at before the loop gets a turn, and that are opened or closed on one trip to a thread."""
    directory_report_ms: int = 30_000
    """The time that a report of replicas' directories has before it is sent again (BL-19)."""
    # coordinator
    group_load_bytes: int = 64 * KIB
    """Read at a time when groups are loaded, whatever `offsets.load.buffer.size` allows: the loop belongs to everybody."""
    producer_epochs: int = 32_767
    """The number of epochs that the first producer id of a new transactional id is given out with, the last ones that there are:
    behind them comes another producer id (TX-17)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; allowed is 1 and above")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """Times of delegation tokens, in milliseconds: the longest life, how long one lasts until it is renewed, and the period of
    removing those that have expired."""

    max_lifetime_ms: int = 7 * 24 * 3_600_000
    expiry_ms: int = 24 * 3_600_000
    check_interval_ms: int = 3_600_000
