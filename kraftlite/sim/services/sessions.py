"""Fetches of several partitions over a fetch session (KIP-227); a slow socket takes their records from the files in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.fetch import CONSUMER, FetchAnswer, FetchCall, answer, must_wait, plan, wait
from kraftlite.broker.handlers.fetch_sessions import SessionKey, SessionPartition
from kraftlite.log.stored import RecordsGone, StoredRecords
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.method import Method
from kraftlite.node.build import Node
from kraftlite.replication.api import FetchResult
from kraftlite.runtime.ports import Handlers, route


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAsk:
    """`wanted`: partitions with leader epoch (-1: not known) and offset. `slow_ms`: the socket takes records so much later."""

    session_id: int
    session_epoch: int
    by_id: bool
    wanted: tuple[tuple[SessionKey, int, int], ...]
    forgotten: tuple[SessionKey, ...] = ()
    max_wait_ms: int = 0
    max_bytes: int = 1 << 20
    slow_ms: int = 0


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    error: ErrorCode
    session_id: int
    items: tuple[tuple[SessionKey, FetchResult], ...] = ()


SESSION_FETCH: Final = Method("Client", "SessionFetch", SessionAsk, SessionAnswer)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    ctx = node.broker.context

    async def fetch(ask: SessionAsk) -> SessionAnswer:
        found = await _answered(ctx, _call(ask))
        if ask.slow_ms:
            await asyncio.sleep(ask.slow_ms / 1000)
        for item in found.items:
            item.result.records = _taken(item.result)
        return SessionAnswer(found.error, found.session_id, tuple((it.key, it.result) for it in found.items))

    return dict((route(SESSION_FETCH, fetch),))


def _call(ask: SessionAsk) -> FetchCall:
    return FetchCall(
        replica_id=CONSUMER,
        max_wait_ms=ask.max_wait_ms,
        min_bytes=1,
        max_bytes=ask.max_bytes,
        isolation_level=0,
        read_committed=False,
        session_id=ask.session_id,
        session_epoch=ask.session_epoch,
        uses_topic_ids=ask.by_id,
        partitions=[SessionPartition(key, epoch, offset, -1, ask.max_bytes) for key, epoch, offset in ask.wanted],
        forgotten=list(ask.forgotten),
        rack_id=None,
    )


async def _answered(ctx: BrokerContext, call: FetchCall) -> FetchAnswer:
    found = plan(ctx, call)
    results = ctx.replicas.fetch_now(found.params, found.entries)
    if not must_wait(found, results):
        return answer(ctx, found, results)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[FetchAnswer] = loop.create_future()

    def soon(look: Callable[[], None]) -> None:
        loop.call_soon(look)

    waiting = wait(ctx, found, soon, lambda it: None if done.done() else done.set_result(it))
    try:
        return await done
    finally:
        waiting.cancel()


def _taken(result: FetchResult) -> bytes:
    """The records in the pieces that a socket takes. Raises ApiError where production closes the connection."""
    records = result.records
    if not isinstance(records, StoredRecords):
        return bytes(records)
    try:
        return b"".join(records.read(at, min(500, len(records) - at)) for at in range(0, len(records), 500))
    except (RecordsGone, OSError) as error:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None
