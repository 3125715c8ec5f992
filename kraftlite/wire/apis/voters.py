"""Changes of the voters on the wire: asked at any node that offers them, decided by the leader of the metadata quorum.

Source: KIP-853; DQ-30, DQ-33, DQ-36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Final

from kraftlite.broker.handlers.quorum import add_voter, remove_voter, update_voter
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
)
from kraftlite.wire.apis.call import Call, cold


async def _add_raft_voter(call: Call, request: Any) -> Mapping[str, object]:
    addition = AddVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=NodeId(request.voter_id),
        voter_directory_id=request.voter_directory_id,
        listeners=await _listeners(call, request),
        ack_when_committed=getattr(request, "ack_when_committed", True),
    )
    return await _changed(add_voter(call.ctx, addition))


async def _remove_raft_voter(call: Call, request: Any) -> Mapping[str, object]:
    removal = RemoveVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=NodeId(request.voter_id),
        voter_directory_id=request.voter_directory_id,
    )
    return await _changed(remove_voter(call.ctx, removal))


async def _update_raft_voter(call: Call, request: Any) -> Mapping[str, object]:
    """A voter tells the leader of itself; only controllers take this (DQ-36)."""
    update = UpdateVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.current_leader_epoch,
        voter_id=NodeId(request.voter_id),
        voter_directory_id=request.voter_directory_id,
        listeners=await _listeners(call, request),
        min_kraft_version=request.k_raft_version_feature.min_supported_version,
        max_kraft_version=request.k_raft_version_feature.max_supported_version,
    )
    try:
        found = await update_voter(call.ctx, update)
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "current_leader": _NO_LEADER}
    leader = _NO_LEADER
    if found.leader_id is not None:
        at = found.leader_endpoint
        where = {} if at is None else {"host": at.host, "port": at.port}
        leader = {**_NO_LEADER, "leader_id": found.leader_id, "leader_epoch": found.leader_epoch, **where}
    return {"throttle_time": 0, "error_code": found.error, "current_leader": leader}


async def _listeners(call: Call, request: Any) -> tuple[VoterEndpoint, ...]:
    each = call.ctx.turns.each(request.listeners)
    return tuple([VoterEndpoint(name=it.name, host=it.host, port=it.port) async for it in each])


async def _changed(change: Awaitable[AddVoterResponse | RemoveVoterResponse]) -> Mapping[str, object]:
    try:
        found = await change
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "error_message": error.message}
    return {"throttle_time": 0, "error_code": found.error, "error_message": found.message}


_NO_LEADER: Final[Mapping[str, object]] = {"leader_id": -1, "leader_epoch": -1, "host": "", "port": 0}
VOTER_APIS: Final = (
    cold(80, "AddRaftVoter", versions=(0, 1), flexible_from=0, adapt=_add_raft_voter),
    cold(81, "RemoveRaftVoter", versions=(0, 0), flexible_from=0, adapt=_remove_raft_voter),
)
UPDATE_RAFT_VOTER: Final = cold(82, "UpdateRaftVoter", versions=(0, 0), flexible_from=0, adapt=_update_raft_voter)
