"""The metadata that clients read is the log's word at the offset that came with it, and never goes back (ML-01, ML-24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.facts import Facts
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.checkers.model import TOPIC, MetadataState
from kraftlite.sim.history import MetadataRead


class MetadataReads(HistoryChecker):
    """Equal offsets mean equal content, on all brokers. A broker's answers never go back, across restarts too: a later read has
    no smaller offset, and no smaller leader epoch of a partition. Where the committed log is known, an answer is exactly what the
    log says at its offset: that makes the reads linearizable as far as the offsets order them."""

    def at_end(self) -> None:
        self._check_equal()
        self._check_monotonic()
        metadata = self.metadata
        if metadata is not None and metadata.committed_end:
            for read in self.history.metadata:
                self._check_content(read, metadata)

    def _check_equal(self) -> None:
        known: dict[int, MetadataRead] = {}
        for read in self.history.metadata:
            other = known.setdefault(read.metadata_offset, read)
            if _content(other) != _content(read):
                self.fail(
                    f"nodes {other.broker} and {read.broker} both have the metadata log up to {read.metadata_offset}: "
                    + _difference(_content(other), _content(read))
                )

    def _check_monotonic(self) -> None:
        latest: dict[NodeId, list[MetadataRead]] = {}
        for read in sorted(self.history.metadata, key=lambda it: it.invoked_us):
            earlier = latest.setdefault(read.broker, [])
            for before in earlier:
                if before.returned_us >= read.invoked_us or before.broker in self.world.losses.wiped:
                    continue
                if before.metadata_offset > read.metadata_offset:
                    self.fail(
                        f"node {read.broker} answered with metadata offset {before.metadata_offset} at {before.returned_us} us "
                        f"and with {read.metadata_offset} to what was asked at {read.invoked_us} us"
                    )
                self._check_epochs(before, read)
            done = [it for it in earlier if it.returned_us < read.invoked_us]
            if done:
                newest = max(done, key=lambda it: it.metadata_offset)
                earlier[:] = [it for it in earlier if it.returned_us >= read.invoked_us or it is newest]
            earlier.append(read)

    def _check_epochs(self, before: MetadataRead, read: MetadataRead) -> None:
        for tp, (_, epoch) in before.leaders.items():
            now = read.leaders.get(tp)
            same = before.topic_ids.get(tp.topic) == read.topic_ids.get(tp.topic)
            if now is not None and same and now[1] < epoch:
                self.fail(f"node {read.broker} told leader epoch {epoch} of {tp} and later {now[1]}")

    def _check_content(self, read: MetadataRead, metadata: Facts) -> None:
        if read.metadata_offset >= metadata.committed_end:
            self.fail(
                f"node {read.broker} answered with metadata offset {read.metadata_offset}, "
                f"committed is up to {metadata.committed_end}"
            )
        expected = _visible(metadata.history.visible(read.metadata_offset))
        if _content(read) != expected:
            self.fail(
                f"node {read.broker} answered {read.client} at {read.returned_us} us with metadata offset "
                f"{read.metadata_offset}; the log says otherwise: {_difference(expected, _content(read))}"
            )


def _content(read: MetadataRead) -> dict[str, Mapping[Any, Any]]:
    return {
        "topic ids": read.topic_ids,
        "leaders": read.leaders,
        "configs": {topic: dict(values) for topic, values in read.configs.items()},
    }


def _visible(state: MetadataState) -> dict[str, Mapping[Any, Any]]:
    """Return what a broker would answer from this state."""
    return {
        "topic ids": {topic.name: str(topic_id) for topic_id, topic in state.topics.items()},
        "leaders": {
            TopicPartition(topic.name, index): (it.leader, it.leader_epoch)
            for topic in state.topics.values()
            for index, it in topic.partitions.items()
        },
        "configs": {topic.name: dict(state.configs.get((TOPIC, topic.name), {})) for topic in state.topics.values()},
    }


def _difference(a: Mapping[str, Mapping[Any, Any]], b: Mapping[str, Mapping[Any, Any]]) -> str:
    for what, left in a.items():
        right = b[what]
        for key in (*left, *(it for it in right if it not in left)):
            if left.get(key) != right.get(key):
                return f"{what} of {key}: {left.get(key)} and {right.get(key)}"
    return "nothing differs"
