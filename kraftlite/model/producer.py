"""The identity of a producer. Source: KIP-98."""

from __future__ import annotations

from typing import NamedTuple


class Producer(NamedTuple):
    """The id and the epoch that a producer stamps its batches with."""

    producer_id: int
    producer_epoch: int
