"""AddRaftVoter and RemoveRaftVoter on the wire: asked at any broker, decided by the leader of the metadata quorum.

Source: KIP-853; DQ-30, DQ-33.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.broker.handlers.quorum import add_voter, remove_voter
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.model.messages.raft import AddVoterRequest, RemoveVoterRequest
from kraftlite.wire.apis.call import Call, cold


async def _add_raft_voter(call: Call, request: Any) -> Mapping[str, object]:
    listeners = tuple(
        [VoterEndpoint(name=it.name, host=it.host, port=it.port) async for it in call.ctx.turns.each(request.listeners)]
    )
    try:
        answered = await add_voter(
            call.ctx,
            AddVoterRequest(
                cluster_id=request.cluster_id,
                voter_id=NodeId(request.voter_id),
                voter_directory_id=request.voter_directory_id,
                listeners=listeners,
                ack_when_committed=getattr(request, "ack_when_committed", True),
            ),
        )
    except ApiError as error:
        return _answer(error.code, error.message)
    return _answer(answered.error, answered.message)


async def _remove_raft_voter(call: Call, request: Any) -> Mapping[str, object]:
    try:
        answered = await remove_voter(
            call.ctx,
            RemoveVoterRequest(
                cluster_id=request.cluster_id,
                voter_id=NodeId(request.voter_id),
                voter_directory_id=request.voter_directory_id,
            ),
        )
    except ApiError as error:
        return _answer(error.code, error.message)
    return _answer(answered.error, answered.message)


def _answer(code: ErrorCode, message: str | None) -> Mapping[str, object]:
    return {"throttle_time": 0, "error_code": code, "error_message": message}


VOTER_APIS: Final = (
    cold(80, "AddRaftVoter", versions=(0, 1), flexible_from=0, adapt=_add_raft_voter),
    cold(81, "RemoveRaftVoter", versions=(0, 0), flexible_from=0, adapt=_remove_raft_voter),
)
