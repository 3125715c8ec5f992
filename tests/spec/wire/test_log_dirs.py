"""The replicas of a broker with many are described in turns."""

from __future__ import annotations

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.turns import Turns
from tests.harness.log_dirs_fakes import FakeLog
from tests.harness.wire_fakes import Harness

DESCRIBE_LOG_DIRS = 35


class Asked(Turns):
    """Counts the places where others may have their turn."""

    count = 0

    @property
    def over(self) -> bool:
        self.count += 1
        return super().over


async def test_cp_68_others_have_their_turn_between_the_replicas_of_a_directory() -> None:
    async with Harness() as h:
        replicas = [FakeLog(tp=TopicPartition("a", at), size_bytes=at, hw=1, leo=1) for at in range(300)]
        h.log_dirs.online = {"/data/1": replicas[::-1]}
        turns = h.context.turns = Asked(h.clock)
        answer = await (await h.client()).call(DESCRIBE_LOG_DIRS, 4, {"topics": None})
        assert [it.partition_index for topic in answer.results[0].topics for it in topic.partitions] == list(range(300))
        assert turns.count >= 2 * len(replicas)
