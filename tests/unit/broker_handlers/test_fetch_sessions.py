"""The cache of fetch sessions: who gets a slot, and what an incremental response leaves out."""

from __future__ import annotations

import random

import pytest

from kraftlite.broker.handlers.fetch_sessions import EVICTION_MS, FetchSessionCache, SessionKey, SessionPartition, next_epoch
from kraftlite.model.errors import ApiError, ErrorCode


def wanted(*indexes: int, offset: int = 0) -> list[SessionPartition]:
    return [SessionPartition(SessionKey("t", None, index), -1, offset, -1, 100) for index in indexes]


def cache(slots: int = 2) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(3))


def resume(sessions: FetchSessionCache, session_id: int, epoch: int, *indexes: int, now_ms: int = 0) -> object:
    return sessions.resume(session_id, epoch, wanted(*indexes), (), uses_topic_ids=False, now_ms=now_ms)


def test_ids_are_positive_and_never_repeat() -> None:
    sessions = cache(500)
    ids = []
    for _ in range(500):
        session = sessions.create(wanted(0), uses_topic_ids=False, now_ms=0)
        assert session is not None
        ids.append(session.session_id)
    assert len(set(ids)) == 500
    assert min(ids) > 0
    assert max(ids) < 2**31


def test_no_slots_no_sessions() -> None:
    assert cache(0).create(wanted(0), uses_topic_ids=False, now_ms=0) is None


def test_epochs_count_up_and_wrap_to_1() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1
    sessions = cache()
    session = sessions.create(wanted(0), uses_topic_ids=False, now_ms=0)
    assert session is not None
    for epoch in (1, 2, 3):
        resume(sessions, session.session_id, epoch)
    with pytest.raises(ApiError) as error:
        resume(sessions, session.session_id, 3)
    assert error.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_cache_keeps_its_sessions() -> None:
    sessions = cache(2)
    for _ in range(2):
        assert sessions.create(wanted(0), uses_topic_ids=False, now_ms=0) is not None
    assert sessions.create(wanted(0, 1, 2), uses_topic_ids=False, now_ms=EVICTION_MS) is None


def test_the_least_recently_used_goes_first_once_it_is_stale() -> None:
    sessions = cache(2)
    first = sessions.create(wanted(0), uses_topic_ids=False, now_ms=0)
    second = sessions.create(wanted(0), uses_topic_ids=False, now_ms=10)
    assert first is not None
    assert second is not None
    resume(sessions, first.session_id, 1, now_ms=1_000)
    third = sessions.create(wanted(0), uses_topic_ids=False, now_ms=EVICTION_MS + 11)
    assert third is not None
    assert sessions.evictions == 1
    resume(sessions, first.session_id, 2, now_ms=EVICTION_MS)
    with pytest.raises(ApiError):
        resume(sessions, second.session_id, 1)


def test_a_larger_session_takes_the_slot_of_a_smaller_settled_one() -> None:
    sessions = cache(2)
    small = sessions.create(wanted(0), uses_topic_ids=False, now_ms=0)
    large = sessions.create(wanted(*range(9)), uses_topic_ids=False, now_ms=0)
    assert small is not None
    assert large is not None
    late = EVICTION_MS + 1
    resume(sessions, small.session_id, 1, now_ms=late)
    resume(sessions, large.session_id, 1, now_ms=late)
    assert sessions.create(wanted(1), uses_topic_ids=False, now_ms=late) is None, "not larger"
    assert sessions.create(wanted(1, 2), uses_topic_ids=False, now_ms=late) is not None
    resume(sessions, large.session_id, 2, now_ms=late)
    with pytest.raises(ApiError):
        resume(sessions, small.session_id, 2)


def test_partitions_are_added_updated_and_forgotten() -> None:
    sessions = cache()
    session = sessions.create(wanted(0, 1), uses_topic_ids=False, now_ms=0)
    assert session is not None
    sessions.resume(session.session_id, 1, wanted(1, 2, offset=5), [SessionKey("t", None, 0)], uses_topic_ids=False, now_ms=0)
    assert [(key.partition, one.fetch_offset) for key, one in session.partitions.items()] == [(1, 5), (2, 5)]
    left = sessions.resume(
        session.session_id, 2, (), [SessionKey("t", None, index) for index in (1, 2)], uses_topic_ids=False, now_ms=0
    )
    assert left is None
    assert len(sessions) == 0


def test_partitions_with_data_move_behind_the_others() -> None:
    sessions = cache()
    session = sessions.create(wanted(0, 1, 2), uses_topic_ids=False, now_ms=0)
    assert session is not None
    first = next(iter(session.partitions.values()))
    assert session.must_tell(first, hw=3, log_start_offset=0, size=10, error=False)
    assert [key.partition for key in session.partitions] == [1, 2, 0]


def test_what_must_be_told() -> None:
    sessions = cache()
    session = sessions.create(wanted(0), uses_topic_ids=False, now_ms=0)
    assert session is not None
    (one,) = session.partitions.values()

    def tell(*, hw: int = 5, start: int = 0, size: int = 0, error: bool = False) -> bool:
        return session.must_tell(one, hw=hw, log_start_offset=start, size=size, error=error)

    assert tell()
    assert not tell()
    assert tell(hw=6)
    assert not tell(hw=6)
    assert tell(hw=6, start=1)
    assert tell(hw=6, start=1, size=1)
    assert tell(hw=6, start=1, error=True)
    assert tell(hw=6, start=1), "all is well again"
    assert not tell(hw=6, start=1)
