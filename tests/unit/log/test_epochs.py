"""The leader epoch cache. RP-28 and RP-29 are tables."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.model.messages.replica import EpochEndOffset


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (7, (7, 100)),
        (8, None),
        (-1, None),
        (6, (4, 60)),
        (5, (4, 60)),
        (4, (4, 60)),
        (3, (2, 40)),
        (2, (2, 40)),
        (1, (1, 10)),
        (0, (0, 10)),
    ],
)
def test_rp_29_end_offset_for(epoch: int, expected: tuple[int, int] | None) -> None:
    cache = LeaderEpochCache([(2, 10), (4, 40), (7, 60)])
    found = cache.end_offset_for(epoch, 100)
    assert found == (EpochEndOffset(leader_epoch=expected[0], end_offset=expected[1]) if expected else None)


def test_rp_29_nothing_is_known() -> None:
    assert LeaderEpochCache().end_offset_for(0, 100) is None


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ((8, 70), ((2, 10), (4, 40), (7, 60), (8, 70))),
        ((7, 65), ((2, 10), (4, 40), (7, 60))),
        ((7, 50), ((2, 10), (4, 40), (7, 50))),
        ((8, 60), ((2, 10), (4, 40), (8, 60))),
        ((8, 15), ((2, 10), (8, 15))),
        ((4, 90), ((2, 10), (4, 90))),
        ((0, 0), ((0, 0),)),
    ],
)
def test_rp_28_assign_drops_what_contradicts(assigned: tuple[int, int], expected: tuple[tuple[int, int], ...]) -> None:
    cache = LeaderEpochCache([(2, 10), (4, 40), (7, 60)])
    cache.assign(*assigned)
    assert cache.entries == expected


def test_rp_28_truncation_trims_both_ends() -> None:
    cache = LeaderEpochCache([(2, 10), (4, 40), (7, 60)])
    cache.truncate_from_end(61)
    assert len(cache.entries) == 3
    cache.truncate_from_end(60)
    assert cache.entries == ((2, 10), (4, 40))
    cache.truncate_from_start(10)
    assert cache.entries == ((2, 10), (4, 40))
    cache.truncate_from_start(39)
    assert cache.entries == ((2, 39), (4, 40)), "the front entry is kept with the new start"
    cache.truncate_from_start(50)
    assert cache.entries == ((4, 50),)
    assert [cache.epoch_at(offset) for offset in (49, 50, 99)] == [None, 4, 4]
    with pytest.raises(ValueError, match="negative"):
        cache.assign(-1, 0)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 12), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 30), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=200)
@given(steps)
def test_rp_28_entries_always_increase(commands: list[tuple[str, int, int]]) -> None:
    cache = LeaderEpochCache()
    for name, first, second in commands:
        if name == "assign":
            cache.assign(first, second)
            assert cache.latest_epoch == first or cache.entries[-1][0] == first
        elif name == "end":
            cache.truncate_from_end(first)
            assert all(start < first for _, start in cache.entries)
        else:
            cache.truncate_from_start(first)
        entries = cache.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))


class ModelLog:
    """A log as the list of the epochs of its records. Slow, and says the same as the cache."""

    def __init__(self) -> None:
        self.start = 0
        self.epochs: list[int] = []

    @property
    def leo(self) -> int:
        return self.start + len(self.epochs)

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        if not self.epochs or epoch > self.epochs[-1]:
            return None
        known = [it for it in self.epochs if it <= epoch]
        return (known[-1] if known else epoch, self.start + len(known))

    def entries(self) -> tuple[tuple[int, int], ...]:
        first_of = {epoch: self.start + at for at, epoch in reversed(list(enumerate(self.epochs)))}
        return tuple(sorted(first_of.items()))


log_steps = st.tuples(st.sampled_from(("append", "append", "end", "start")), st.integers(0, 3), st.integers(1, 4))


@settings(max_examples=200)
@given(st.lists(log_steps, max_size=20))
def test_rp_28_29_the_cache_says_what_the_records_say(commands: list[tuple[str, int, int]]) -> None:
    """Cuts fall on the starts of epochs as often as between them, and epochs are asked for of which there is no record."""
    cache, log = LeaderEpochCache(), ModelLog()
    for name, step, count in commands:
        if name == "append":
            epoch = (log.epochs[-1] if log.epochs else 0) + step
            cache.assign(epoch, log.leo)
            log.epochs += [epoch] * count
        elif name == "end":
            offset = max(log.start, log.leo - step * count)
            cache.truncate_from_end(offset)
            del log.epochs[offset - log.start :]
        elif log.epochs:
            offset = min(log.start + step, log.leo - 1)
            cache.truncate_from_start(offset)
            del log.epochs[: offset - log.start]
            log.start = offset
        assert cache.entries == log.entries()
        assert cache.latest_epoch == (log.epochs[-1] if log.epochs else None)
        for epoch in range(-1, (log.epochs[-1] if log.epochs else 0) + 3):
            found = cache.end_offset_for(epoch, log.leo)
            expected = None if epoch < 0 else log.end_offset_for(epoch)
            assert (None if found is None else (found.leader_epoch, found.end_offset)) == expected, epoch
        assert [cache.epoch_at(it) for it in range(log.start, log.leo)] == log.epochs
