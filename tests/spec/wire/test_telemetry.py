"""GetTelemetrySubscriptions and PushTelemetry over a real socket, in virtual time. TM-01, TM-02, TM-03."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.telemetry import MAX_INSTANCES
from kraftlite.log import codecs
from kraftlite.model.errors import ErrorCode as E
from tests.harness.otlp import counter, gauge, pushed
from tests.harness.wire_fakes import Harness, RawClient, until

METRICS = 16
ONE = {(METRICS, "m"): {"metrics": "org.apache.kafka.producer.,b", "interval.ms": "1000"}}
SOFTWARE = {"client_software_name": "kgo", "client_software_version": "1.22"}
VALUES = pushed(gauge("org.apache.kafka.producer.connection.count", 3.0))


async def get(client: RawClient, instance_id: UUID | None = None, **more: Any) -> Any:
    return await client.call(71, 0, {"client_instance_id": instance_id or UUID(int=0)}, **more)


async def push(client: RawClient, known: Any, payload: bytes = VALUES, *, last: bool = False, **changed: Any) -> E:
    values = {
        "client_instance_id": known.client_instance_id,
        "subscription_id": known.subscription_id,
        "terminating": last,
        "compression_type": 0,
        "metrics": payload,
        **changed,
    }
    return E((await client.call(72, 0, values)).error_code.value)


def code(answer: Any) -> E:
    return E(answer.error_code.value)


async def test_tm_01_the_apis_are_offered_where_there_is_a_receiver() -> None:
    async with Harness() as h:
        assert {71, 72} <= set(h.apis.table)
        h.context.telemetry = None
        assert not {71, 72} & set(type(h.apis)(h.context, "C").table)


async def test_tm_02_a_client_is_given_an_id_and_what_all_its_subscriptions_ask() -> None:
    configs = {
        **ONE,
        (METRICS, "of all"): {"metrics": "a", "interval.ms": "5000"},
        (METRICS, "not for it"): {"metrics": "c", "interval.ms": "100", "match": "client_id=someone"},
    }
    async with Harness(configs=configs) as h:
        client = await h.client()
        found = await get(client)
        assert code(found) is E.NONE
        assert found.client_instance_id.int > 1
        assert found.requested_metrics == ("a", "b", "org.apache.kafka.producer.")
        assert found.push_interval.total_seconds() == 1
        assert found.accepted_compression_types == (4, 3, 1, 2)
        assert (found.telemetry_max_bytes, found.delta_temporality) == (10_000, True)
        another = await get(client)
        assert another.client_instance_id != found.client_instance_id
        assert another.subscription_id != found.subscription_id


@pytest.mark.parametrize(
    ("match", "is_asked"),
    [
        ("client_id=ra.*", True),
        ("client_id=r", False),  # an expression is of the whole text
        ("client_software_name=kgo,client_software_version=1\\..*", True),
        ("client_software_name=kgo,client_software_version=2\\..*", False),
        ("client_source_address=127.0.0.1", True),
        ("client_source_address=127.0.0.2", False),
        ("client_source_port=[0-9]+", True),
        ("client_source_port=0", False),
        ("client_instance_id=AAAAAAAAAAAAAAAAAAAABw", True),
        ("client_instance_id=AAAAAAAAAAAAAAAAAAAACA", False),
    ],
)
async def test_tm_01_a_subscription_is_for_the_clients_that_match(match: str, is_asked: bool) -> None:
    async with Harness(configs={(METRICS, "m"): {"metrics": "*,a", "match": match}}) as h:
        client = await h.client()
        await client.call(18, 3, SOFTWARE)
        found = await get(client, UUID(int=7))
        assert found.requested_metrics == (("*",) if is_asked else ())
        assert found.push_interval.total_seconds() == 300


async def test_tm_01_an_expression_that_earlier_versions_took_matches_nobody() -> None:
    configs = {**ONE, (METRICS, "old"): {"metrics": "a", "match": "client_id=(?=raw).*"}}
    async with Harness(configs=configs) as h:
        assert "a" not in (await get(await h.client())).requested_metrics


async def test_tm_02_who_asks_again_too_early_is_refused_unless_the_subscriptions_have_changed() -> None:
    async with Harness(configs=ONE) as h:
        client = await h.client()
        first = await get(client)
        again = await get(client, first.client_instance_id)
        assert (code(again), again.requested_metrics) == (E.THROTTLING_QUOTA_EXCEEDED, ())
        h.set_image(configs={**ONE, (METRICS, "n"): {"metrics": "z"}})
        changed = await get(client, first.client_instance_id)
        assert (code(changed), "z" in changed.requested_metrics) == (E.NONE, True)
        assert changed.subscription_id != first.subscription_id
        h.clock.advance(1_000)
        assert code(await get(client, first.client_instance_id)) is E.NONE


async def test_tm_02_who_was_told_to_ask_may_ask_at_once() -> None:
    async with Harness(configs=ONE) as h:
        client = await h.client()
        known = await get(client)
        assert await push(client, known, subscription_id=known.subscription_id + 1) is E.UNKNOWN_SUBSCRIPTION_ID
        assert code(await get(client, known.client_instance_id)) is E.NONE
        assert code(await get(client, known.client_instance_id)) is E.THROTTLING_QUOTA_EXCEEDED


async def test_tm_03_a_push_is_taken_once_an_interval() -> None:
    async with Harness(configs=ONE) as h:
        client = await h.client()
        known = await get(client)
        assert await push(client, known) is E.NONE
        assert await push(client, known) is E.THROTTLING_QUOTA_EXCEEDED
        h.clock.advance(1_000)
        assert await push(client, known) is E.NONE
        telemetry = h.context.telemetry
        assert telemetry is not None
        assert (telemetry.taken, telemetry.throttled, telemetry.instance_count) == (2, 1, 1)
        assert h.client_metrics.series_count == 1


async def test_tm_03_the_last_push_of_a_client_needs_no_interval_and_nothing_follows_it() -> None:
    async with Harness(configs=ONE) as h:
        client = await h.client()
        known = await get(client)
        assert await push(client, known) is E.NONE
        assert await push(client, known, last=True) is E.NONE
        h.clock.advance(1_000)
        assert await push(client, known) is E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"client_instance_id": UUID(int=0)}, E.INVALID_REQUEST),
        ({"client_instance_id": UUID(int=1)}, E.INVALID_REQUEST),
        ({"subscription_id": 7}, E.UNKNOWN_SUBSCRIPTION_ID),
        ({"subscription_id": 7, "compression_type": 9}, E.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1, "metrics": b"x" * 10_001}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": b"x" * 10_001}, E.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff"}, E.INVALID_RECORD),
        ({"metrics": VALUES, "compression_type": 4}, E.INVALID_RECORD),
        ({"metrics": codecs.compress(codecs.ZSTD, bytes(2 << 20)), "compression_type": 4}, E.INVALID_RECORD),
        ({"metrics": b""}, E.NONE),
    ],
)
async def test_tm_03_what_is_wrong_with_a_push(changed: dict[str, Any], error: E) -> None:
    async with Harness(configs=ONE) as h:
        client = await h.client()
        known = await get(client)
        assert await push(client, known, **changed) is error
        assert h.client_metrics.series_count == 0


@pytest.mark.parametrize("codec", range(5))
async def test_tm_03_every_compression_is_taken(codec: int) -> None:
    async with Harness(configs=ONE) as h:
        client = await h.client()
        known = await get(client)
        payload = codecs.compress(codec, pushed(counter("a.total", 3), counter("b.total", 4)))
        assert await push(client, known, payload, compression_type=codec) is E.NONE
        assert h.client_metrics.series_count == 2


async def test_tm_03_a_client_is_forgotten_after_a_minute_or_three_intervals() -> None:
    """A client that pushes before it has asked gets to know it by UNKNOWN_SUBSCRIPTION_ID, and may ask at once."""
    slow = {(METRICS, "m"): {"metrics": "a", "interval.ms": "30000"}}
    async with Harness(configs=slow) as h:
        client = await h.client()
        known = await get(client)
        h.clock.advance(89_999)
        assert await push(client, known, last=True) is E.NONE
        assert await push(client, known) is E.INVALID_REQUEST
        h.clock.advance(90_000)
        assert await push(client, known) is E.NONE, "nobody remembers that it has said good-bye"


async def test_tm_03_a_client_is_forgotten_with_the_connection_on_which_it_came() -> None:
    async with Harness(configs=ONE) as h:
        first, second = await h.client(), await h.client()
        known = await get(first)
        assert code(await get(second, known.client_instance_id)) is E.THROTTLING_QUOTA_EXCEEDED
        first.close()
        await until(lambda: h.listener.connection_count == 1)
        assert code(await get(second, known.client_instance_id)) is E.NONE


async def test_tm_03_of_a_long_client_id_the_beginning_is_remembered() -> None:
    async with Harness(configs=ONE) as h:
        telemetry = h.context.telemetry
        assert telemetry is not None
        client = await h.client()
        sent = client.send(71, 0, {"client_instance_id": UUID(int=0)}, client_id="x" * 32_000)
        found = await client.receive(71, 0, sent)
        assert len(telemetry._instances[found.client_instance_id].client.client_id) == 1_024


async def test_tm_03_the_clients_that_are_remembered_are_bounded() -> None:
    async with Harness(configs=ONE) as h:
        telemetry = h.context.telemetry
        assert telemetry is not None
        client = await h.client()
        first = await get(client)
        instance = telemetry._instances[first.client_instance_id]
        for number in range(MAX_INSTANCES - 1):
            telemetry.subscribe(UUID(int=1000 + number), instance.client, lambda: False)
        assert code(await get(client, first.client_instance_id)) is E.THROTTLING_QUOTA_EXCEEDED
        for number in range(MAX_INSTANCES):
            telemetry.subscribe(UUID(int=10**6 + number), instance.client, lambda: False)
        assert telemetry.instance_count == MAX_INSTANCES
        assert code(await get(client, first.client_instance_id)) is E.NONE
