"""The memory for the ids that clients choose has a bound: a new one is refused, and who is known goes on."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from kraftlite.coordinator.api import CommitRequest, ConsumerHeartbeatRequest, OffsetToCommit
from kraftlite.coordinator.core.keys import ENTRY_BYTES, Keyed
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.offsets_log import GroupHarness
from tests.harness.transaction_broker import Coordinating, code

LONG = "x" * 30_000
LIMIT = 2 * ENTRY_BYTES + len(LONG)
"""There is room for a group of a long name and another one, and then for no more."""
FULL = ErrorCode.POLICY_VIOLATION


def test_a_keys_memory_comes_and_goes_with_it() -> None:
    found: Keyed[int] = Keyed()
    found["a"] = 1
    found["ä" * 500] = 2
    assert found.key_bytes == 2 * ENTRY_BYTES + 1 + 1000
    found["a"] = 3
    assert found.key_bytes == 2 * ENTRY_BYTES + 1 + 1000, "it was there already"
    assert found.pop("a") == 3
    assert found.pop("a", None) is None
    with pytest.raises(KeyError):
        del found["a"]
    del found["ä" * 500]
    assert found.key_bytes == 0
    for uncounted in (lambda: found.update({"a": 1}), lambda: found.setdefault("a", 1), found.clear, found.popitem):
        with pytest.raises(NotImplementedError):
            uncounted()


async def asked(answer: Awaitable[Any]) -> ErrorCode:
    try:
        await answer
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def commit(group_id: str) -> CommitRequest:
    offset = OffsetToCommit(TopicPartition("t", 0), 5, None, "")
    return CommitRequest(group_id=group_id, generation=-1, member_id="", instance_id=None, offsets=(offset,))


def heartbeat(group_id: str) -> ConsumerHeartbeatRequest:
    return ConsumerHeartbeatRequest(
        group_id=group_id, member_id="m", member_epoch=0, instance_id=None, rack_id=None, rebalance_timeout_ms=1000,
        topics=("t",), regex=None, server_assignor=None, owned=(), client_id="c", client_host="/h",
    )  # fmt: skip


async def test_cp_69_a_new_group_is_refused_when_there_are_too_many() -> None:
    async with GroupHarness() as h:
        groups = h.groups
        groups.most_bytes = LIMIT
        assert await asked(groups.commit(commit(LONG))) is ErrorCode.NONE
        assert await asked(groups.consumer_heartbeat(heartbeat("g"))) is ErrorCode.NONE
        for refused in (groups.commit(commit("new")), groups.consumer_heartbeat(heartbeat("new"))):
            assert await asked(refused) is FULL
        client = await h.client()
        protocols = ({"name": "range", "metadata": b""},)
        join = {
            "group_id": "new",
            "session_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        assert (await client.call(11, 0, join)).error_code.name == "policy_violation"
        assert groups.group_count() == 2
        assert await asked(groups.commit(commit(LONG))) is ErrorCode.NONE, "who is known goes on"
        assert await asked(groups.consumer_heartbeat(heartbeat("g"))) is ErrorCode.NONE
        await groups.delete_group(LONG)
        assert await asked(groups.commit(commit("new"))) is ErrorCode.NONE, "there is room again"


async def test_cp_69_a_new_transactional_id_is_refused_when_there_are_too_many() -> None:
    c = Coordinating(partitions=3)
    await c.apply()
    c.coordinator.most_bytes = LIMIT
    await c.init(LONG)
    had = await c.init("t")
    assert await code(c.init("new")) is FULL
    again = await c.init("t")
    assert again.producer_epoch == had.producer_epoch + 1, "who is known goes on"
    await c.apply()
    assert await code(c.init("new")) is FULL
    await c.close()
