"""Where the replicas of a broker that leaves its cluster go."""

from __future__ import annotations

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.client.moves import planned_moves, waited_for


def test_the_least_loaded_broker_takes_the_place_and_the_order_stays() -> None:
    held = {("a", 0): [4, 5], ("a", 1): [5, 4], ("b", 0): [6, 5], ("b", 1): [4]}
    assert planned_moves(held, 4, {4, 5, 6, 7}) == {("a", 0): [7, 5], ("a", 1): [5, 6], ("b", 1): [7]}


def test_partitions_without_a_place_are_named_and_nothing_is_moved() -> None:
    held = {("a", 0): [4, 5, 6], ("b", 0): [4]}
    with pytest.raises(ClientError, match=r"a-0 would have more replicas"):
        planned_moves(held, 4, {5, 6})
    many = {("t", index): [4, 5] for index in range(30)}
    with pytest.raises(ClientError, match=r"t-9 and 20 more would"):
        planned_moves(many, 4, {5})


def test_fewer_replicas_only_where_there_is_no_place_and_never_none() -> None:
    held = {("a", 0): [4, 5, 6], ("b", 0): [6, 4]}
    assert planned_moves(held, 4, {5, 6}, fewer_replicas=True) == {("a", 0): [5, 6], ("b", 0): [6, 5]}
    with pytest.raises(ClientError, match="a-0 would"):
        planned_moves({("a", 0): [4]}, 4, set(), fewer_replicas=True)


def test_nothing_is_moved_to_a_broker_that_is_not_offered() -> None:
    assert planned_moves({("a", 0): [4, 5]}, 4, {7}) == {("a", 0): [7, 5]}
    assert planned_moves({("a", 0): [5, 6]}, 4, {7}) == {}


def test_moves_wait_for_absent_brokers_that_share_a_partition() -> None:
    held = {("a", 0): [4, 5, 6], ("b", 0): [7, 8]}
    assert waited_for(held, 4, {4, 6, 9}) == [5]
    assert waited_for(held, 4, {4, 5, 6}) == []
    assert waited_for(held, 6, {4, 5}) == []
