"""What a checkpoint of high watermarks hands on, and when (RP-16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.hw_checkpoint import HwCheckpoint

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class _Log:
    def __init__(self, hw: int) -> None:
        self.hw = hw


class _Replica:
    def __init__(self, log: _Log | None) -> None:
        self.log = log


class _Files:
    def __init__(self) -> None:
        self.written: list[Mapping[TopicPartition, int]] = []
        self.hws_filed = False

    def write_hw_checkpoint(self, hws: Mapping[TopicPartition, int]) -> None:
        self.written.append(dict(hws))
        self.hws_filed = True


class _World:
    def __init__(self) -> None:
        self.by_tp = {A: _Replica(_Log(1)), B: _Replica(None)}
        self.files = _Files()
        table: Any = self
        files: Any = self.files
        self.checkpoint = HwCheckpoint(table, files)

    def write(self) -> list[Mapping[TopicPartition, int]]:
        self.files.written.clear()
        self.checkpoint.write()
        return self.files.written


@pytest.fixture
def world() -> Iterator[_World]:
    found = _World()
    assert found.write() == [{A: 1}], "a replica without a log has no high watermark"
    yield found


def test_nothing_is_written_while_nothing_moves(world: _World) -> None:
    assert world.write() == []


def test_one_that_moved_has_all_written(world: _World) -> None:
    world.by_tp[B].log = _Log(0)
    assert world.write() == [{A: 1, B: 0}]
    world.by_tp[B].log.hw = 2
    assert world.write() == [{A: 1, B: 2}]


def test_what_no_file_has_is_written_again(world: _World) -> None:
    world.files.hws_filed = False
    assert world.write() == [{A: 1}]


def test_another_replica_in_the_place_of_one_that_is_gone_is_written(world: _World) -> None:
    """It has the same high watermark, and the same number of replicas is there."""
    world.by_tp = {TopicPartition("c", 0): _Replica(_Log(1)), B: _Replica(None)}
    assert world.write() == [{TopicPartition("c", 0): 1}]


def test_no_replica_has_nothing_written(world: _World) -> None:
    world.by_tp.clear()
    assert world.write() == []
