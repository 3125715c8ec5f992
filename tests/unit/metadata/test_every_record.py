"""A metadata record that somebody adds must reach the controller's state and the image of every node, not only the log."""

from __future__ import annotations

import pytest

from kraftlite.metadata import delta
from kraftlite.metadata import records as r
from kraftlite.metadata.codec import RECORD_TYPES
from tests.harness.controller_world import World

TRANSACTIONS = (r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord)
"""The loader takes them: what is between them reaches the image, or does not."""
PARTITIONS = (r.PartitionRecord, r.PartitionChangeRecord, r.ClearElrRecord)
"""The delta takes them itself, with the offset that is told as their cause."""


@pytest.mark.parametrize("kind", RECORD_TYPES.values(), ids=lambda it: it.__name__)
def test_the_controller_replays_it(kind: type) -> None:
    assert kind in World().active.core.state._replayers


@pytest.mark.parametrize("kind", [it for it in RECORD_TYPES.values() if it not in TRANSACTIONS], ids=lambda it: it.__name__)
def test_the_image_has_it(kind: type) -> None:
    assert kind in delta._REPLAY or kind in PARTITIONS
