"""TP-01, TP-03, TP-07: what a produce request says of its transaction."""

from __future__ import annotations

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ErrorCode as E
from kraftlite.replication.api import ProduceTransaction
from tests.harness.wire_fakes import Harness, batch, partition
from tests.spec.wire.test_produce_fetch import produce, results


def transactional(producer_id: int = 7, producer_epoch: int = 0) -> bytes:
    made = build_batch(
        [Record(None, b"x")],
        timestamp_ms=0,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
    )
    return bytes(made)


async def test_tp_01_transactional_records_need_a_transactional_id() -> None:
    """CP-16: the whole request is refused, with what is right in it."""
    async with Harness({"events": [partition([1]), partition([1])]}) as h:
        client = await h.client()
        answer = await client.call(0, 9, produce(("events", 0, transactional()), ("events", 1, bytes(batch(b"x")))))
        assert [it[2] for it in results(answer)] == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        assert not h.replicas.appended


@pytest.mark.parametrize("other", [(8, 0), (7, 1)])
async def test_tp_01_a_request_has_the_records_of_one_producer_and_epoch(other: tuple[int, int]) -> None:
    async with Harness({"events": [partition([1]), partition([1])]}) as h:
        client = await h.client()
        values = produce(("events", 0, transactional()), ("events", 1, transactional(*other)), transactional_id="t")
        answer = await client.call(0, 9, values)
        assert [it[2] for it in results(answer)] == [E.INVALID_PRODUCER_ID_MAPPING] * 2
        assert not h.replicas.appended


@pytest.mark.parametrize(("version", "adds", "abortable"), [(3, 0, False), (10, 0, False), (11, 0, True), (12, 2, True)])
async def test_tp_03_tp_07_the_version_of_a_produce_says_what_its_client_knows(version: int, adds: int, abortable: bool) -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(0, version, produce(("events", 0, transactional()), transactional_id="t"))
        assert results(answer)[0][2] == E.NONE
        assert h.replicas.options["transaction"] == ProduceTransaction("t", adds, abortable)


async def test_tp_03_plain_records_under_a_transactional_id_are_in_no_transaction() -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(0, 12, produce(("events", 0, bytes(batch(b"x"))), transactional_id="t"))
        assert results(answer)[0][2] == E.NONE and h.replicas.options["transaction"] is None
