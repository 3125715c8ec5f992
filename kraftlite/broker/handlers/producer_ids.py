"""InitProducerId: producers without a transactional id get a fresh id at any broker, those with one from its coordinator.

Source: CP-43, TX-10; KIP-98, KIP-360.
"""

from __future__ import annotations

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.transactions import coordinator_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer


async def init_producer_id(
    ctx: BrokerContext,
    *,
    transactional_id: str | None,
    transaction_timeout_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> Producer:
    """Raises ApiError. -1: the producer has no id (epoch) yet; one without the other makes no sense."""
    if (producer_id == -1) != (producer_epoch == -1):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"producer id {producer_id} with epoch {producer_epoch}")
    if transactional_id is None:
        return Producer(await ctx.producer_ids.next_id(), 0)
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if not 0 < transaction_timeout_ms <= ctx.settings.transaction_max_timeout_ms:
        raise ApiError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction timeout {transaction_timeout_ms} ms: allowed is 1 to {ctx.settings.transaction_max_timeout_ms}",
        )
    if ctx.transactions is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"transactions are not offered (transactional id {transactional_id!r})")
    expected = None if producer_id == -1 else Producer(producer_id, producer_epoch)
    coordinator = coordinator_of(ctx, transactional_id)
    return await coordinator.init_producer_id(transactional_id, timeout_ms=transaction_timeout_ms, expected=expected)
