"""AlterPartitionReassignments and ListPartitionReassignments: asked at any broker, answered by the active controller.

Source: KIP-455, KIP-860; CM-41 to CM-46.
"""

from __future__ import annotations

from dataclasses import replace

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import forward_entries
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kraftlite.model.messages.methods import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS


async def alter_reassignments(
    ctx: BrokerContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Raises ApiError when the request as a whole is refused."""
    if not request.partitions:
        return AlterPartitionReassignmentsResponse(results=())
    found = await forward_entries(
        ctx,
        ALTER_PARTITION_REASSIGNMENTS,
        request,
        request.partitions,
        lambda some: replace(request, partitions=some),
        lambda answer: answer.results,
    )
    return AlterPartitionReassignmentsResponse(results=found)


async def list_reassignments(
    ctx: BrokerContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Raises ApiError when the request as a whole is refused."""
    return await ctx.controller.call(LIST_PARTITION_REASSIGNMENTS, request, max(request.timeout_ms, 0))
