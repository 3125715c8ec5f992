"""Pending offsets against a model that looks at every open transaction, and how long a look takes where there are many."""

from __future__ import annotations

import random
import time

import pytest

from kraftlite.coordinator.pending_offsets import PendingOffset, PendingOffsets
from kraftlite.coordinator.records import CommittedOffset
from kraftlite.model.topic_partition import TopicPartition

GROUPS = ("g", "h")
TPS = tuple(TopicPartition("t", index) for index in range(4))
Key = tuple[int, str, TopicPartition]


class Model:
    """By producer id, group and partition."""

    def __init__(self) -> None:
        self.found: dict[Key, PendingOffset] = {}

    def put(self, group_id: str, tp: TopicPartition, pending: PendingOffset, producer_id: int) -> None:
        self.found[producer_id, group_id, tp] = pending

    def overtake(self, group_id: str, tp: TopicPartition, order: int) -> None:
        for key, pending in self.found.items():
            if key[1:] == (group_id, tp) and pending.order < order:
                self.found[key] = PendingOffset(order, None)

    def take(self, keys: list[Key]) -> list[tuple[str, TopicPartition, PendingOffset]]:
        return [(key[1], key[2], self.found.pop(key)) for key in keys]


@pytest.mark.parametrize("seed", range(40))
def test_it_does_what_the_model_does(seed: int) -> None:
    rng, kept, model = random.Random(seed), PendingOffsets(), Model()
    for order in range(1, 200):
        group_id, tp, producer_id = rng.choice(GROUPS), rng.choice(TPS), rng.randrange(5)
        what = rng.choice(("put", "put", "put", "overtake", "drop", "drop_group", "end"))
        if what == "put":
            pending = PendingOffset(order, CommittedOffset(order, None, "", 0, None))
            kept.put(group_id, tp, pending, producer_id)
            model.put(group_id, tp, pending, producer_id)
        elif what == "overtake":
            kept.overtake(group_id, tp, order)
            model.overtake(group_id, tp, order)
        elif what == "drop":
            kept.drop(group_id, tp)
            model.take([key for key in model.found if key[1:] == (group_id, tp)])
        elif what == "drop_group":
            kept.drop_group(group_id)
            model.take([key for key in model.found if key[1] == group_id])
        else:
            expected = model.take([key for key in model.found if key[0] == producer_id])
            assert sorted(kept.end(producer_id)) == sorted(expected)
        assert set(kept.groups()) == {key[1] for key in model.found}
        for group in GROUPS:
            partitions = {key[2] for key in model.found if key[1] == group}
            assert set(kept.partitions_of(group)) == partitions
            assert kept.has_any(group) == bool(partitions)
            assert [kept.is_pending(group, one) for one in TPS] == [one in partitions for one in TPS]
    for producer_id in range(5):
        kept.end(producer_id)
    assert not kept._pending and not kept._open, "nothing is left behind"


def test_one_request_does_not_look_at_every_open_transaction_for_each_of_its_partitions() -> None:
    """The loop stood still for ten seconds, and the broker was fenced."""
    kept, many = PendingOffsets(), 5_000
    for number in range(many):
        kept.put("g", TopicPartition("t", number), PendingOffset(number, None), number)
    others = [TopicPartition("u", number) for number in range(many)]
    began = time.process_time()
    assert not any(kept.is_pending("g", tp) for tp in others)
    for tp in others:
        kept.overtake("g", tp, many)
        kept.drop("g", tp)
    assert time.process_time() - began < 2
