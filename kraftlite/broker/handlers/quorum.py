"""DescribeQuorum and changes of the voters: asked at any broker or controller, answered by the leader of the metadata quorum.

Source: KIP-595, KIP-853.
"""

from __future__ import annotations

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.messages.methods import ADD_VOTER, DESCRIBE_QUORUM, REMOVE_VOTER, UPDATE_VOTER
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)


async def describe_quorum(ctx: BrokerContext) -> DescribeQuorumResponse:
    """Raises ApiError; REQUEST_TIMED_OUT when no leader answered."""
    return await ctx.controller.call(DESCRIBE_QUORUM, DescribeQuorumRequest(), ctx.settings.request_timeout_ms)


async def add_voter(ctx: BrokerContext, request: AddVoterRequest) -> AddVoterResponse:
    """Raises ApiError; REQUEST_TIMED_OUT when no leader answered."""
    return await ctx.controller.call(ADD_VOTER, request, ctx.settings.request_timeout_ms)


async def remove_voter(ctx: BrokerContext, request: RemoveVoterRequest) -> RemoveVoterResponse:
    """Raises ApiError; REQUEST_TIMED_OUT when no leader answered."""
    return await ctx.controller.call(REMOVE_VOTER, request, ctx.settings.request_timeout_ms)


async def update_voter(ctx: BrokerContext, request: UpdateVoterRequest) -> UpdateVoterResponse:
    """Raises ApiError."""
    return await ctx.controller.call(UPDATE_VOTER, request, ctx.settings.request_timeout_ms)
