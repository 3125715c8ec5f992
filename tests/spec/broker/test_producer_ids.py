from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlite.broker.producer_ids import ProducerIdManager
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AllocateProducerIdsResponse
from kraftlite.model.method import Method
from tests.harness.broker_ports import TestBed


class Blocks:
    """A controller channel that hands out blocks of 10, when it may."""

    def __init__(self) -> None:
        self.next = 1000
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0

    async def call(self, method: Method, request: Any, timeout_ms: int) -> AllocateProducerIdsResponse:
        self.asked += 1
        await self.open.wait()
        if self.next < 0:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
        block = AllocateProducerIdsResponse(first_producer_id=self.next, count=10)
        self.next += 10
        return block


def make(epoch: int | None = 5) -> tuple[TestBed, Blocks, ProducerIdManager]:
    bed, blocks = TestBed(), Blocks()
    return bed, blocks, ProducerIdManager(bed.ports, NodeId(1), blocks, lambda: epoch)


async def test_cm_55_ids_are_unique_over_blocks() -> None:
    _, blocks, manager = make()
    assert [await manager.next_id() for _ in range(35)] == list(range(1000, 1035))
    assert blocks.asked in (4, 5)


async def test_cm_55_the_next_block_is_asked_for_when_90_percent_are_used() -> None:
    bed, blocks, manager = make()
    for _ in range(8):
        await manager.next_id()
    await bed.clock.settle()
    assert blocks.asked == 1
    await manager.next_id()
    await bed.clock.settle()
    assert blocks.asked == 2


async def test_cm_55_both_blocks_exhausted_is_coordinator_load_in_progress() -> None:
    bed, blocks, manager = make()
    for _ in range(8):
        await manager.next_id()
    blocks.open.clear()
    assert [await manager.next_id() for _ in range(2)] == [1008, 1009]
    waiting = asyncio.ensure_future(manager.next_id())
    await bed.clock.run_for(1_001)
    with pytest.raises(ApiError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    blocks.open.set()
    assert await manager.next_id() == 1010


async def test_cm_55_a_refused_request_is_made_again_by_the_next_caller() -> None:
    bed, blocks, manager = make()
    blocks.next = -1
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await manager.next_id()
    await bed.clock.settle()
    blocks.next = 2000
    assert await manager.next_id() == 2000


async def test_an_unregistered_broker_has_no_ids() -> None:
    _, blocks, manager = make(epoch=None)
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await manager.next_id()
    assert blocks.asked == 0


async def test_many_callers_share_one_request() -> None:
    _, blocks, manager = make()
    got = await asyncio.gather(*(manager.next_id() for _ in range(8)))
    assert sorted(got) == list(range(1000, 1008)) and blocks.asked == 1
