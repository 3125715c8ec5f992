"""Draws what the nodes of a run are built with beside their configuration: small and odd numbers, all of them allowed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kraftlite.model.tuning import Tuning

CHOICES: Final[Mapping[str, Sequence[int]]] = {
    "metadata_cleaning_interval_ms": (50, 400, 1_500, 7_000),
    "metadata_file_delete_ms": (1, 300, 5_000),
    "raft_batch_bytes": (4_096, 16_384),
    "raft_fetch_bytes": (1, 300, 2_000),
    "raft_fetch_wait_ms": (1, 20, 200),
    "raft_observer_expiry_ms": (50, 1_000, 5_000),
    "snapshot_chunk_bytes": (100, 400, 3_000),
    "elements_per_turn": (1, 2, 7, 50),
    "elections_per_run": (1, 2, 3),
    "producer_id_block": (1, 2, 10),
    "records_per_slice": (1, 3, 20),
    "snapshot_records_per_batch": (1, 2, 10),
    "snapshot_retry_ms": (50, 1_000),
    "partitions_per_step": (1, 2, 5),
    "isr_changes_per_request": (1, 2),
    "follower_sessions": (1, 2),
    "follower_session_idle_ms": (1, 300, 3_000),
    "batches_per_turn": (1, 2),
    "checks_at_once": (1,),
    "deadline_granularity_ms": (1, 7, 250),
    "first_retention_ms": (1, 500, 3_000),
    "logs_per_turn": (1, 2),
    "group_load_bytes": (1, 200, 2_000),
    "producer_batches": (1, 5),
    "producer_epochs": (1, 2, 5, 30),
    "directory_report_ms": (50, 500, 3_000),
    "roles_per_step": (1, 2, 5),
    "updates_joined": (1, 2, 5),
    "leaders_first": (1, 2),
    "first_records_per_batch": (1, 2, 5),
    "changes_per_part": (1, 2, 5),
}


def draw(rng: random.Random, usual: Tuning) -> Tuning:
    """A third of the seeds are as usual, a third have a few odd numbers, and a third have many."""
    share = rng.choice((0, 5, 2))
    drawn = {name: rng.choice(values) for name, values in CHOICES.items() if share and rng.randrange(share) == 0}
    return replace(usual, **drawn)
