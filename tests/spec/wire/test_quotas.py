"""Quotas of clients over a real socket, in virtual time. QU-01 to QU-06."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kraftlite.broker.quotas import BrokerQuotas
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.controller import CreatableTopicResult, CreateTopicsResponse, MutationClient
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.quotas.matching import FETCH, PRODUCE, REQUEST
from kraftlite.runtime.trace.wire import ClientThrottled, ConnectionClosed
from tests.harness.wire_fakes import Harness, RawClient, batch, request_bytes, until
from tests.spec.wire.test_produce_fetch import fetch, produce

RAW = (QuotaEntityPart(type="client-id", name="raw"),)
"""The client id of `RawClient`."""


def limit(h: Harness, **values: float) -> BrokerQuotas:
    """Set quotas of the client `raw`, as metadata does. Each look at the loop's time finds it 0.3 s later."""
    now = iter(range(0, 10**10, 300_000))
    quotas = BrokerQuotas(h.context.ports, {}, now_us=lambda: next(now))
    h.set_image(quotas={RAW: {key: str(value) for key, value in values.items()}})
    h.context.client_quotas = quotas.apply(h.metadata.image.client_quotas)
    return quotas


async def silent(client: RawClient, h: Harness) -> None:
    """What it was asked last is not answered while time stands still, nor looked at."""
    before = h.apis.requests.total()
    with pytest.raises(TimeoutError):
        await client.read_frame(timeout=0.05)
    assert h.apis.requests.total() == before


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_qu_04_a_producer_is_answered_at_once_and_its_next_request_waits(version: int) -> None:
    async with Harness() as h:
        limit(h, **{PRODUCE: 100})
        client = await h.client()
        values = produce(("events", 0, bytes(batch(b"x" * 1_500))))
        size = len(request_bytes(0, version, values, 1, "raw"))
        answer = await client.call(0, version, values)
        expected = round((size / 10 - 100) / 100 * 10_000)
        assert answer.throttle_time.total_seconds() * 1000 == expected
        assert answer.responses[0].partition_responses[0].error_code.value == 0
        asked = client.send(18, 3, {"client_software_name": "raw", "client_software_version": "1"})
        await silent(client, h)
        h.clock.advance(expected - 1)
        await silent(client, h)
        h.clock.advance(1)
        assert (await client.receive(18, 3, asked)).throttle_time.total_seconds() == 0


async def test_qu_04_requests_that_come_together_are_not_all_taken_before_the_first_one_counts() -> None:
    async with Harness() as h:
        limit(h, **{PRODUCE: 100})
        client = await h.client()
        for _ in range(3):
            client.send(0, 9, produce(("events", 0, bytes(batch(b"x" * 3_000)))))
        await client.read_frame()
        await silent(client, h)
        assert h.apis.requests["Produce"] == 1


async def test_qu_04_a_producer_without_answers_is_muted_too() -> None:
    async with Harness() as h:
        limit(h, **{PRODUCE: 100})
        client = await h.client()
        client.send(0, 9, produce(("events", 0, bytes(batch(b"x" * 3_000))), acks=0))
        asked = client.send(18, 0, {})
        await until(lambda: h.apis.requests["Produce"] == 1)
        await silent(client, h)
        h.clock.advance(60_000)
        await client.receive(18, 0, asked)


async def test_qu_01_another_client_is_not_slowed_down() -> None:
    async with Harness() as h:
        limit(h, **{PRODUCE: 100})
        client, other = await h.client(), await h.client()
        await client.call(0, 9, produce(("events", 0, bytes(batch(b"x" * 9_000)))))
        for _ in range(5):
            answer = await other.call(0, 9, produce(("events", 0, bytes(batch(b"x" * 9_000)))), client_id="other")
            assert answer.throttle_time.total_seconds() == 0


async def test_qu_05_a_throttled_fetch_is_answered_empty_and_not_charged() -> None:
    async with Harness() as h:
        limit(h, **{FETCH: 100})
        client = await h.client()
        await client.call(0, 9, produce(*[("events", 0, bytes(batch(b"x" * 2_000)))]), client_id="other")
        first = await client.call(1, 12, fetch(("events", 0, 0), session=(0, 0)))
        assert first.responses == ()
        assert first.session_id == 0
        assert len(h.context.fetch_sessions) == 0
        over = first.throttle_time.total_seconds() * 1000
        assert over > 0
        h.clock.advance(int(over))
        again = await client.call(1, 12, fetch(("events", 0, 0), session=(0, 0)))
        assert again.throttle_time.total_seconds() * 1000 == over  # as if the first one had not been


async def test_qu_05_a_session_is_told_after_the_throttling_what_it_was_not_told() -> None:
    async with Harness() as h:
        quotas = limit(h, **{FETCH: 1_000_000})
        client = await h.client()
        opened = await client.call(1, 12, fetch(("events", 0, 0), session=(0, 0)))
        session = opened.session_id
        assert session != 0
        await client.call(0, 9, produce(("events", 0, bytes(batch(b"x" * 2_000)))), client_id="other")
        h.set_image(quotas={RAW: {FETCH: "100"}})
        quotas.apply(h.metadata.image.client_quotas)
        throttled = await client.call(1, 12, fetch(session=(session, 1)))
        assert (throttled.responses, throttled.session_id) == ((), session)
        assert throttled.throttle_time.total_seconds() > 0
        h.set_image(quotas={RAW: {FETCH: "1000000"}})
        quotas.apply(h.metadata.image.client_quotas)
        h.clock.advance(60_000)
        told = await client.call(1, 12, fetch(session=(session, 2)))
        assert len(told.responses[0].partitions[0].records) > 2_000


async def test_qu_05_one_fetch_takes_no_more_than_the_full_windows_allow() -> None:
    async with Harness() as h:
        limit(h, **{FETCH: 100})
        client = await h.client()
        await client.call(1, 12, fetch(("events", 0, 0)))
        assert h.replicas.fetches[-1][0].max_bytes == 1_000


async def test_qu_06_the_share_of_the_loop_is_a_quota_of_every_api() -> None:
    """A request that took 0.3 s of the loop is 3 percent of ten seconds; and no wait is longer than a window."""
    asked_for = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    async with Harness() as h:
        limit(h, **{REQUEST: 2.9})
        client = await h.client()
        answer = await client.call(3, 9, asked_for)
        assert 0 < answer.throttle_time.total_seconds() <= 1
        asked = client.send(18, 0, {})
        await silent(client, h)
        h.clock.advance(1_000)
        await client.receive(18, 0, asked)


async def test_qu_06_cold_apis_say_it_in_every_version_that_can() -> None:
    async with Harness() as h:
        limit(h, **{REQUEST: 0.1})
        for key, version, values in _COLD:
            client = await h.client()
            answer = await client.call(key, version, values)
            assert answer.throttle_time.total_seconds() == 1, (key, version)
            client.close()


_COLD: tuple[tuple[int, int, Mapping[str, Any]], ...] = (
    (18, 3, {"client_software_name": "raw", "client_software_version": "1"}),
    (48, 1, {"components": [], "strict": False}),
    (60, 1, {"include_cluster_authorized_operations": False, "endpoint_type": 1}),
    (2, 7, {"replica_id": -1, "isolation_level": 0, "topics": []}),
)


async def test_qu_04_a_muted_connection_is_not_idle_and_frees_everything_when_it_goes() -> None:
    async with Harness(listener={"max_idle_ms": 1_000}) as h:
        limit(h, **{PRODUCE: 1})
        client = await h.client()
        await client.call(0, 9, produce(("events", 0, bytes(batch(b"x" * 3_000)))))
        for _ in range(10):
            h.clock.advance(1_000)
            await asyncio.sleep(0)
        assert not [event for event in h.tracer.events if isinstance(event, ConnectionClosed)]
        await h.listener.stop()
        assert h.listener.connection_count == 0


async def test_the_trace_says_once_who_is_throttled() -> None:
    async with Harness() as h:
        limit(h, **{PRODUCE: 100})
        client = await h.client()
        for _ in range(3):
            answer = await client.call(0, 9, produce(("events", 0, bytes(batch(b"x" * 2_000)))))
            h.clock.advance(int(answer.throttle_time.total_seconds() * 1000))
        told = [event for event in h.tracer.events if isinstance(event, ClientThrottled)]
        assert [(event.quota, event.client_id, event.bound) for event in told] == [(PRODUCE, "raw", 100.0)]


async def test_without_quotas_nothing_is_counted() -> None:
    async with Harness() as h:
        quotas = limit(h)
        assert h.context.client_quotas is None
        client = await h.client()
        await client.call(0, 9, produce(("events", 0, bytes(batch(b"x" * 3_000)))))
        assert list(quotas.clients.usages()) == []


@pytest.mark.parametrize("version", [5, 6])
async def test_qu_07_a_change_of_topics_is_charged_to_its_client_and_its_wait_is_kept(version: int) -> None:
    """QU-07: the controller says for how long; from v6 on the client knows that it may be refused."""
    async with Harness() as h:
        h.controller.answers[CREATE_TOPICS] = lambda request: CreateTopicsResponse(
            topics=(CreatableTopicResult(name="t", error=ErrorCode.THROTTLING_QUOTA_EXCEEDED, message="later"),),
            throttle_ms=9_000,
        )
        client = await h.client()
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = await client.call(19, version, {"topics": [topic], "timeout": 1000, "validate_only": False})
        assert answer.throttle_time.total_seconds() == 9
        assert answer.topics[0].error_code.value == 89
        ((_method, sent, _timeout),) = h.controller.calls
        assert sent.quota == MutationClient(user="ANONYMOUS", client_id="raw", strict=version == 6)
        asked = client.send(18, 0, {})
        await silent(client, h)
        h.clock.advance(9_000)
        await client.receive(18, 0, asked)
