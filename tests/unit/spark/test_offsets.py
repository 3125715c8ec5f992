"""Offsets have one text, a batch has no more than it may, and tasks cover it exactly."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import Offsets, Range, from_json, from_tree, limit, split, to_json, to_tree, together

TPS = st.builds(TopicPartition, st.sampled_from(["a", "b", "ä-1", "z.9"]), st.integers(0, 12))
OFFSETS = st.dictionaries(TPS, st.integers(-2, 2**62))


def test_the_text_is_canonical() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 2**62}
    assert to_json(offsets) == f'{{"a":{{"0":{2**62}}},"b":{{"9":2,"10":1}}}}'
    assert to_json({}) == "{}"


@given(OFFSETS, st.randoms())
def test_the_same_offsets_in_any_order_are_the_same_text(offsets: Offsets, random: object) -> None:
    items = list(offsets.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert to_json(dict(items)) == to_json(offsets)
    # Spark itself makes the text of what it was handed as a dict: its order must be that of ours.
    assert json.dumps(to_tree(dict(items))) == json.dumps(to_tree(offsets))
    assert from_json(to_json(offsets)) == offsets == from_tree(to_tree(offsets))


@pytest.mark.parametrize(
    "text", ["", "[]", "1", '{"t":1}', '{"t":{"-1":1}}', '{"t":{"0":1.5}}', '{"t":{"0":null}}', '{"t":{"":1}}']
)
def test_other_texts_are_refused_by_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ValueError, match=r"endingOffsets: expected e\.g\."):
        from_json(text, "endingOffsets")


BACKLOGS = st.dictionaries(TPS, st.tuples(st.integers(0, 10**6), st.integers(-5, 10**6)), min_size=1)


@given(BACKLOGS, st.integers(1, 10**6))
def test_a_limited_batch(backlogs: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    starts = {tp: start for tp, (start, _) in backlogs.items()}
    ends = {tp: start + size for tp, (start, size) in backlogs.items()}
    found = limit(starts, ends, most)
    backlog = {tp: max(0, ends[tp] - starts[tp]) for tp in starts}
    waiting = [tp for tp in starts if backlog[tp]]
    total = sum(backlog.values())
    taken = {tp: found[tp] - starts[tp] for tp in starts}
    if total <= most:
        assert found == ends
        return
    assert all(0 <= taken[tp] <= backlog[tp] for tp in starts), "never behind the start, never beyond the end"
    assert all(taken[tp] >= 1 for tp in waiting), "no partition starves"
    assert sum(taken.values()) <= max(most, 0) + len(waiting), "beyond the limit only by what keeps partitions from starving"
    for tp in waiting:
        assert abs(taken[tp] - backlog[tp] * most / total) <= 1, "in proportion to the backlog"


@given(BACKLOGS, st.integers(1, 10**6))
def test_limited_batches_reach_the_end(backlogs: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    at = {tp: start for tp, (start, _) in backlogs.items()}
    ends = {tp: start + max(0, size) for tp, (start, size) in backlogs.items()}
    most = max(most, sum(ends[tp] - at[tp] for tp in at) // 40)
    for _ in range(200):
        if at == ends:
            return
        following = limit(at, ends, most)
        assert following != at, "a batch that brings nothing would be planned for ever"
        at = following
    raise AssertionError("the end is never reached")


def test_no_limit() -> None:
    assert limit({TopicPartition("t", 0): 5}, {TopicPartition("t", 0): 9}, None) == {TopicPartition("t", 0): 9}


RANGES = st.dictionaries(TPS, st.tuples(st.integers(0, 1000), st.integers(-3, 500)), max_size=8).map(
    lambda found: [Range(tp, start, start + size) for tp, (start, size) in found.items()]
)
MAYBE = st.none() | st.integers(1, 60)


@given(RANGES, MAYBE, MAYBE, st.randoms())
def test_tasks_cover_exactly_what_is_to_be_read(ranges: list[Range], least: int | None, most: int | None, random: object) -> None:
    found = split(ranges, least, most)
    for whole in ranges:
        parts = [it for it in found if it.tp == whole.tp]
        if whole.size <= 0:
            assert parts == []
            continue
        assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        assert all(a.end == b.start for a, b in pairwise(parts))
    assert all(it.size > 0 for it in found)
    assert found == sorted(found, key=lambda it: (it.tp, it.start))
    if most is not None:
        assert all(it.size <= most for it in found)
    again = list(ranges)
    random.shuffle(again)  # type: ignore[attr-defined]
    assert split(again, least, most) == found, "a batch that runs again is split the same way"


@given(RANGES, st.integers(1, 60))
def test_about_as_many_tasks_as_asked_for(ranges: list[Range], least: int) -> None:
    """Spark: approximately minPartitions, because of rounding; never fewer than there are partitions with something to read."""
    full = [it for it in ranges if it.size > 0]
    found = split(ranges, least, None)
    assert len(found) >= len(full)
    if len(full) >= least:
        assert len(found) == len(full)
    else:
        assert len(found) <= least + len(full)


def spark_parts(size: int, total: int, least: int) -> int:
    return max(math.floor(size / total * least + 0.5), 1)


def spark_min_partitions(sizes: list[int], least: int) -> list[list[int]]:
    """KafkaOffsetRangeCalculator of Spark, on sizes: the sizes of each one's parts."""
    total = sum(sizes)
    unsplit = [size for size in sizes if spark_parts(size, total, least) == 1]
    left, big = max(least - len(unsplit), 1), total - sum(unsplit)
    result = []
    for size in sizes:
        parts = 1 if spark_parts(size, total, least) == 1 else spark_parts(size, big, left)
        rest, cut = size, []
        for part in range(parts):
            cut.append(rest // (parts - part))
            rest -= cut[-1]
        result.append([it for it in cut if it])
    return result


@given(st.lists(st.integers(1, 12) | st.integers(1, 500), min_size=1, max_size=6), st.integers(1, 40))
@example([5, 5], 5)  # two and a half each: rounded up
@example([100, 1, 1], 4)  # what is left whole does not count among the others
@example([10, 14], 2)
@example([11, 15], 13)  # seven and a half, and a little less in doubles
def test_min_partitions_as_spark(sizes: list[int], least: int) -> None:
    ranges = [Range(TopicPartition("t", index), 100, 100 + size) for index, size in enumerate(sizes)]
    if len(sizes) >= least:
        return
    wanted = spark_min_partitions(sizes, least)
    found = split(ranges, least, None)
    assert [[it.size for it in found if it.tp == whole.tp] for whole in ranges] == wanted


@given(RANGES, st.integers(1, 900))
def test_small_ranges_share_a_task_in_their_order(ranges: list[Range], most: int) -> None:
    single = split(ranges, None, None)
    found = together(single, most)
    assert [it for group in found for it in group] == single
    assert all(len(group) == 1 or sum(it.size for it in group) <= most for group in found)
    for one, following in pairwise(found):
        assert sum(it.size for it in one) + following[0].size > most, "they would have fitted"


def test_max_records_as_spark() -> None:
    found = split([Range(TopicPartition("t", 0), 0, 10)], None, 4)
    assert [it.size for it in found] == [3, 3, 4]
    assert [it.size for it in split([Range(TopicPartition("t", 0), 0, 14)], None, 4)] == [3, 3, 4, 4]


def test_max_records_first_and_then_min_partitions() -> None:
    found = split([Range(TopicPartition("t", 0), 0, 100), Range(TopicPartition("t", 1), 0, 10)], 7, 50)
    assert [it.size for it in found] == [16, 17, 17, 16, 17, 17, 10]
