"""DescribeQuorum: asked at any broker, answered by the leader of the metadata quorum. Source: KIP-595, KIP-853."""

from __future__ import annotations

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.messages.methods import DESCRIBE_QUORUM
from kraftlite.model.messages.raft import DescribeQuorumRequest, DescribeQuorumResponse


async def describe_quorum(ctx: BrokerContext) -> DescribeQuorumResponse:
    """Raises ApiError; REQUEST_TIMED_OUT when no leader answered."""
    return await ctx.controller.call(DESCRIBE_QUORUM, DescribeQuorumRequest(), ctx.settings.request_timeout_ms)
