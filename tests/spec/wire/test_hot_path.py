"""What nobody has asked for costs a request nothing: no quota and no authorizer, no call of theirs. QU-01, SE-30.

Calls of functions are counted, which no load of the machine changes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import kraftlite
from kraftlite.broker.quotas import BrokerQuotas
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.quotas.matching import CONNECTION, FETCH, MUTATION, PRODUCE
from kraftlite.wire.apis.call import Call
from kraftlite.wire.request_times import RequestTimes
from tests.harness.wire_fakes import Harness, RawClient, batch, topic_uuid
from tests.spec.wire.test_produce_fetch import fetch, produce

HOME = str(kraftlite.__path__[0])
NOT_ASKED_FOR = (
    "quotas/",
    "security/",
    "tls/",
    "broker/quotas.py",
    "wire/metering.py",
    "wire/muting.py",
    "wire/rights/",
    "wire/auth.py",
)
REQUESTS = 20
EACH_USER = (QuotaEntityPart(type="user", name=None),)
EACH_ADDRESS = (QuotaEntityPart(type="ip", name=None),)
Calls = Counter[str]


@contextmanager
def counted() -> Iterator[Calls]:
    """The calls of functions of kraftlite in this thread, by the module."""
    calls: Calls = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            calls[frame.f_code.co_filename.removeprefix(f"{HOME}/")] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def asked(client: RawClient, kind: str) -> None:
    if kind == "produce":
        await client.call(0, 12, produce(("events", 0, bytes(batch(b"v")))))
    else:
        answer = await client.call(1, 16, fetch((topic_uuid(0), 0, 0)))
        assert [one.error_code for topic in answer.responses for one in topic.partitions] == [ErrorCode.NONE]


async def names_called(kind: str) -> set[str]:
    """The functions of `wire/apis/call.py` that a request calls on a node with a metrics page."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith("wire/apis/call.py"):
            found.add(frame.f_code.co_name)

    async with Harness() as h:
        h.apis.times = RequestTimes()
        client = await h.client()
        await asked(client, kind)
        sys.setprofile(note)
        try:
            await asked(client, kind)
        finally:
            sys.setprofile(None)
    return found


async def calls_of(kind: str, quotas: dict[Any, Any] | None = None) -> Calls:
    async with Harness() as h:
        if quotas is not None:
            h.set_image(quotas=quotas)
            h.context.client_quotas = BrokerQuotas(h.context.ports, {}).apply(h.metadata.image.client_quotas)
        client = await h.client()
        await asked(client, kind)  # what is made once, as a session
        with counted() as calls:
            for _ in range(REQUESTS):
                await asked(client, kind)
        return calls


def of_what_nobody_asked_for(calls: Calls) -> dict[str, int]:
    return {module: times for module, times in calls.items() if module.startswith(NOT_ASKED_FOR)}


@pytest.mark.parametrize("kind", ["produce", "fetch"])
async def test_without_quotas_and_authorizer_a_request_calls_nothing_of_them(kind: str) -> None:
    calls = await calls_of(kind)
    assert calls.total() > 10 * REQUESTS, "this counts"
    assert of_what_nobody_asked_for(calls) == {}


@pytest.mark.parametrize("kind", ["produce", "fetch"])
async def test_counting_errors_costs_a_request_without_any_no_call(kind: str) -> None:
    found = await names_called(kind)
    assert "send" in found, "this sees the calls"
    assert not {Call.note_error.__name__, Call.note_errors.__name__} & found


@pytest.mark.parametrize("kind", ["produce", "fetch"])
async def test_quotas_that_bound_no_request_cost_none(kind: str) -> None:
    """Rates of connections and of changes are none of a request to produce or to fetch."""
    quotas = {EACH_ADDRESS: {CONNECTION: "5"}, EACH_USER: {MUTATION: "1"}}
    assert of_what_nobody_asked_for(await calls_of(kind, quotas)) == {}


@pytest.mark.parametrize(("kind", "key"), [("produce", PRODUCE), ("fetch", FETCH)])
async def test_a_quota_costs_a_few_calls(kind: str, key: str) -> None:
    """The same counts see one that is set, and that it does not cost more and more."""
    calls = await calls_of(kind, {EACH_USER: {key: "1e12"}})
    found = of_what_nobody_asked_for(calls)
    assert found["wire/metering.py"] >= REQUESTS
    assert sum(found.values()) <= 30 * REQUESTS
