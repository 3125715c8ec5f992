"""Progress is shown beside the query, never in its way.

Source: docs/SPARK.md, "Groups".
"""

from __future__ import annotations

import queue
import threading

from kraftlite.client.settings import ClientSettings
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import Offsets
from kraftlite.spark.source.progress import Publisher

SETTINGS = ClientSettings(bootstrap=("localhost:9092",))
LIMIT_S = 10.0


def at(offset: int) -> Offsets:
    return {TopicPartition("t", 0): offset}


class Coordinator:
    """Answers a commit when it is let; counts who looks for the group."""

    def __init__(self, *, group: str | None = None, answers: bool = True) -> None:
        self.group = group
        self.answers = answers
        self.committed: list[tuple[str, Offsets, str]] = []
        self.looked = 0
        self.asked: queue.Queue[Offsets] = queue.Queue()
        self.let = threading.Event()
        self.let.set()

    def commit(self, settings: ClientSettings, group: str, offsets: Offsets, token: str) -> bool:
        self.asked.put(offsets)
        assert self.let.wait(LIMIT_S)
        if self.answers:
            self.committed.append((group, offsets, token))
        return self.answers

    def find(self, settings: ClientSettings, prefix: str, token: str) -> str | None:
        self.looked += 1
        return self.group

    def publisher(self, group: str | None = None) -> Publisher:
        return Publisher(SETTINGS, group, "prefix", "token", commit=self.commit, find=self.find)


def test_a_batch_does_not_wait_and_only_the_newest_is_committed() -> None:
    there = Coordinator()
    publisher = there.publisher("mine")
    there.let.clear()
    publisher.publish(at(1), wait=False)
    assert there.asked.get(timeout=LIMIT_S) == at(1)
    publisher.publish(at(2), wait=False)
    publisher.publish(at(3), wait=False)
    assert there.committed == [], "nobody has answered yet, and nobody has waited"
    there.let.set()
    publisher.publish(at(3), wait=True)
    assert there.committed == [("mine", at(1), "token"), ("mine", at(3), "token")]


def test_what_is_committed_is_not_committed_again() -> None:
    there = Coordinator()
    publisher = there.publisher("mine")
    for _ in range(3):
        publisher.publish(at(7), wait=True)
    assert [offsets for _, offsets, _ in there.committed] == [at(7)]


def test_a_group_is_looked_for_once_a_task_was_told_to_commit() -> None:
    there = Coordinator(group="prefix-query")
    publisher = there.publisher()
    publisher.publish(at(0), wait=True)
    assert there.looked == 0
    told = publisher.expect(at(0))
    assert told is not None
    assert (told.group, told.offsets, told.token) == ("prefix", at(0), "token")
    publisher.publish(at(5), wait=True)
    assert there.committed == [("prefix-query", at(5), "token")]
    assert publisher.expect(at(5)) is None, "from now on the planner does it"
    publisher.publish(at(6), wait=True)
    assert there.looked == 1


def test_a_coordinator_that_fails_is_left_alone_for_a_while() -> None:
    there = Coordinator(answers=False)
    publisher = there.publisher("mine")
    for offset in range(4):
        publisher.publish(at(offset), wait=True)
    assert there.asked.qsize() == 1
