"""Many groups: no step is about all of them at once, and none holds up what else is on the loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest

from kraftlite.coordinator.api import DeleteOffsetsRequest
from kraftlite.coordinator.core.shards import Asked, GoOn, Tick
from kraftlite.coordinator.core.walks import AT_ONCE
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.member import Member
from kraftlite.coordinator.modern.records import (
    CurrentKey,
    EpochKey,
    EpochValue,
    MemberKey,
    TargetEpochKey,
    TargetEpochValue,
    current_value,
    member_value,
    record_of,
)
from kraftlite.coordinator.records import CommittedOffset, CoordinatorRecord, GroupValue, MemberValue, group_record, offset_record
from kraftlite.coordinator.shard_core import Event, GroupShard, MetadataChanged, TopicsDeleted
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.consumer_world import ConsumerWorld
from tests.harness.group_world import GroupWorld, subscription

MANY: Final = 3 * AT_ONCE + 1
LONGEST_MS: Final = 250
"""In one piece each of these took over a second. A shared machine can take 100 ms for itself that are counted to a thread."""
TP: Final = TopicPartition("t", 0)
ID: Final = UUID(int=7)


def committed(group_id: str, commit_ms: int = 1) -> CoordinatorRecord:
    return offset_record(group_id, TP, CommittedOffset(5, None, "", commit_ms))


def classic(group_id: str, *topics: str) -> CoordinatorRecord:
    """A stable group with one member, which reads `t` if nothing else is said."""
    member = MemberValue(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=10_000,
        subscription=subscription(*topics or ("t",)),
        assignment=b"",
    )
    value = GroupValue(
        protocol_type="consumer", generation=1, protocol_name="range", leader_id="m", state_since_ms=1, members=(member,)
    )
    return group_record(group_id, value)


def consumers(group_id: str) -> list[CoordinatorRecord]:
    """A group of the new protocol with one member."""
    member = Member(
        member_id="m", topics=("t",), rebalance_timeout_ms=1000, epoch=2, previous_epoch=2, assigned={ID: frozenset({0})}
    )
    return [
        record_of(MemberKey(group_id, "m"), member_value(member)),
        record_of(EpochKey(group_id), EpochValue(2)),
        record_of(TargetEpochKey(group_id), TargetEpochValue(2)),
        record_of(CurrentKey(group_id, "m"), current_value(member)),
    ]


def world(records: Iterable[CoordinatorRecord], **config: Any) -> GroupWorld:
    """A coordinator that has loaded the records, and is not told to go on with what its steps leave."""
    w = GroupWorld(**config)
    w.log += [(record.key, record.value, None) for record in records]
    w.goes_on = False
    w.fail_over()
    return w


def pieces(w: GroupWorld) -> int:
    """So many more are needed until nothing is left."""
    count = 0
    while w.more:
        w.step(GoOn())
        count += 1
    return count


def test_cp_70_offsets_of_many_groups_expire_piece_by_piece() -> None:
    w = world((committed(f"g-{n}") for n in range(MANY)), retention_check_interval_ms=1000, offsets_retention_ms=60_000)
    assert w.shard.group_count == MANY
    w.now_ms += 1000
    w.step(Tick())
    assert w.shard.group_count == MANY - AT_ONCE, "the first piece"
    assert w.error(w.commit({("t", 0): 6}, group_id="g-300")) == (ErrorCode.NONE,), "others are let in between"
    assert pieces(w) == 3
    assert list(w.shard.groups.by_id) == ["g-300"], "its offset is a new one"


def test_cp_70_offsets_of_a_deleted_topic_are_removed_piece_by_piece() -> None:
    w = world(committed(f"g-{n}") for n in range(MANY))
    w.delete_topics("t")
    assert w.shard.offset_count == MANY - AT_ONCE
    assert pieces(w) == 3
    assert w.shard.offset_count == 0


def test_cp_70_an_offset_of_a_topic_that_was_made_again_is_kept() -> None:
    """Whatever the clocks say: what was committed before may bear a later time."""
    w = world(committed(f"g-{n}", commit_ms=2**50) for n in range(MANY))
    pending = w.commit({("t", 0): 3}, group_id="g-299", producer=Producer(77, 0))
    w.delete_topics("t")
    assert w.offset("t", 0, "g-300") == (5, ErrorCode.NONE), "it is not its turn yet"
    w.commit({("t", 0): 6}, group_id="g-300")
    w.end_transaction(77, committed=True)
    pieces(w)
    assert w.error(pending) == (ErrorCode.NONE,)
    assert w.offset("t", 0, "g-300") == (6, ErrorCode.NONE)
    assert w.offset("t", 0, "g-299") == (-1, ErrorCode.NONE), "the record of its transaction came before the end of the topic"
    w.goes_on = True
    w.delete_topics("t")
    assert w.shard.offset_count == 0, "it is forgotten what came between"


def test_cp_70_who_resigns_half_way_leaves_the_rest_to_the_next_one() -> None:
    w = world((committed(f"g-{n}") for n in range(MANY)), retention_check_interval_ms=1000, offsets_retention_ms=60_000)
    w.now_ms += 1000
    w.step(Tick())
    w.fail_over()
    assert w.shard.group_count == MANY - AT_ONCE
    w.goes_on = True
    w.advance(1000)
    assert w.shard.group_count == 0


def test_cp_70_groups_look_at_changed_topics_piece_by_piece() -> None:
    w = ConsumerWorld()
    w.log += [(record.key, record.value, None) for n in range(MANY) for record in consumers(f"g-{n}")]
    w.goes_on = False
    w.fail_over()
    for group in w.shard.consumers.by_id.values():
        group.metadata_stale_at_ms = 2**40
    w.step(MetadataChanged(image=w.image(), topics=("t",), created=False))

    def stale() -> list[ConsumerGroup]:
        return [group for group in w.shard.consumers.by_id.values() if group.metadata_stale_at_ms]

    assert len(stale()) == MANY - AT_ONCE
    assert pieces(w) == 3
    assert not stale()


def test_cp_70_all_groups_are_listed_in_pieces() -> None:
    w = world(record for n in range(MANY) for record in (classic(f"c-{n}"), *consumers(f"n-{n}")))
    found = list(w.shard.overviews())
    assert max(map(len, found)) == AT_ONCE
    assert len({group.group_id for some in found for group in some}) == 2 * MANY
    walk = w.shard.overviews()
    next(walk)
    w.goes_on = True
    for number in range(MANY):
        w.leave("m", group_id=f"c-{number}")
        w.delete_group(f"c-{number}")
    assert sum(map(len, walk)) == MANY - AT_ONCE, "those that have gone meanwhile are passed over"


def test_cp_70_sessions_that_end_together_end_piece_by_piece() -> None:
    """They begin together when a shard is loaded, and their members may all be gone."""
    w = world(record for n in range(MANY) for record in (classic(f"c-{n}"), *consumers(f"n-{n}")))
    w.now_ms += 100_000
    w.step(Tick())

    def members() -> int:
        return sum(len(group.members) for found in (w.shard.groups, w.shard.consumers) for group in found.by_id.values())

    assert 2 * MANY - AT_ONCE <= members() < 2 * MANY, "the first piece"
    assert w.error(w.commit({("t", 0): 6}, group_id="another")) == (ErrorCode.NONE,), "others are let in between"
    assert pieces(w) >= 2 * MANY // AT_ONCE - 1
    assert members() == 0


@pytest.mark.usefixtures("uncollected")
def test_cp_70_nothing_about_fifty_thousand_groups_holds_the_loop() -> None:
    """Loading, listing, looking for what is too old, a deleted topic, a changed one, the end of sessions, and handing over."""
    w = GroupWorld(retention_check_interval_ms=1000)
    shard = GroupShard(w.config, w.tracer, random.Random(1))
    now_ms, wall_ms = 1000, w.wall_ms
    for number in range(25_000):
        for record in (committed(f"c-{number}", wall_ms), classic(f"c-{number}"), *consumers(f"n-{number}")):
            shard.replay(record.key, record.value, wall_ms=wall_ms)
    longest: dict[str, float] = {}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        begin = time.thread_time()
        found = work()
        longest[what] = max(longest.get(what, 0.0), (time.thread_time() - begin) * 1000)
        return found

    settling = shard.settle(now_ms, wall_ms)
    while timed("settle", lambda: next(settling, settling)) is not settling:
        pass
    timed("loaded", lambda: shard.loaded(now_ms, wall_ms))
    listing = shard.overviews()
    while timed("list", lambda: next(listing, None)) is not None:
        pass
    changed = MetadataChanged(image=w.shard._cluster.image, topics=("t",), created=False)
    deleted = TopicsDeleted(topics=frozenset({"t"}))
    for what, event in (("expire", Tick()), ("changed", changed), ("deleted", deleted), ("sessions", Tick())):
        now_ms += 60_000 if what == "sessions" else 2000
        output = timed(what, partial(shard.step, event, now_ms, wall_ms))
        while output.more:
            output = timed(what, partial(shard.step, GoOn(), now_ms, wall_ms))
    timed("resign", shard.resign)
    assert max(longest.values()) < LONGEST_MS, longest
    print(longest)


def reader_of(topics: int, partitions: int) -> GroupWorld:
    """A stable group with one member that reads many topics, and has old offsets of all of their partitions."""
    names = [f"topic-{number}" for number in range(topics)]
    offset = CommittedOffset(5, None, "", 1)
    records = [offset_record("c", TopicPartition(name, index), offset) for name in names for index in range(partitions)]
    return world((classic("c", *names), *records), retention_check_interval_ms=1000, offsets_retention_ms=60_000)


@pytest.mark.usefixtures("uncollected")
def test_cp_70_offsets_of_a_group_that_reads_many_topics_are_looked_at_at_once() -> None:
    """Each is kept because its topic is read, which is not looked for in a list of all of them."""
    w = reader_of(4_000, 5)
    w.now_ms += 1000
    begin = time.thread_time()
    w.shard.step(Tick(), w.now_ms, w.wall_ms)
    assert (time.thread_time() - begin) * 1000 < LONGEST_MS
    assert w.shard.offset_count == 20_000


@pytest.mark.usefixtures("uncollected")
def test_cp_70_offsets_of_topics_that_are_read_are_refused_at_once() -> None:
    w = reader_of(4_000, 1)
    partitions = tuple(TopicPartition(f"topic-{number}", 0) for number in reversed(range(4_000)))
    asked: Event = Asked(request_id=1, request=DeleteOffsetsRequest(group_id="c", partitions=partitions))
    begin = time.thread_time()
    output = w.shard.step(asked, w.now_ms, w.wall_ms)
    assert (time.thread_time() - begin) * 1000 < LONGEST_MS
    assert output.answers == [(1, (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,) * 4_000)]


def test_cp_40_an_offset_that_is_named_again_is_deleted_once() -> None:
    w = world([committed("g")])
    before = len(w.log)
    assert w.error(w.delete_offsets(*[("t", 0)] * 300)) == (ErrorCode.NONE,) * 300
    assert len(w.log) == before + 1
