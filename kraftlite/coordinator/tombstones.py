"""Tombstones in batches that the topic takes, however many there are. Source: CP-40."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraftlite.coordinator.records import CoordinatorRecord
from kraftlite.model.limits import KIB

MAX_PER_BATCH: Final = 1_000
MAX_BATCH_BYTES: Final = 256 * KIB
"""A quarter of what a batch may have by default: the id of a group may be long, and is in each of its keys."""


def in_batches(tombstones: Sequence[CoordinatorRecord]) -> Iterator[list[CoordinatorRecord]]:
    """Each is in one of them, in order; none is empty."""
    batch: list[CoordinatorRecord] = []
    size = 0
    for one in tombstones:
        size += len(one.key)
        if len(batch) == MAX_PER_BATCH or (batch and size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], len(one.key)
        batch.append(one)
    if batch:
        yield batch
