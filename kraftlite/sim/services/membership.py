"""Changes of the voters that an administrator asks a broker for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers import quorum
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from kraftlite.model.method import Method
from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers, route


@dataclass(frozen=True, slots=True)
class VotersAsk:
    """`kind`: add-voter or remove-voter, for the books."""

    kind: str
    request: AddVoterRequest | RemoveVoterRequest


@dataclass(frozen=True, slots=True)
class VotersAnswer:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class QuorumAsk:
    """DescribeQuorum."""


VOTERS: Final = Method("Client", "Voters", VotersAsk, VotersAnswer)
QUORUM: Final = Method("Client", "Quorum", QuorumAsk, DescribeQuorumResponse)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    ctx = node.broker.context

    async def change(ask: VotersAsk) -> VotersAnswer:
        answered: AddVoterResponse | RemoveVoterResponse
        if isinstance(ask.request, AddVoterRequest):
            answered = await quorum.add_voter(ctx, ask.request)
        else:
            answered = await quorum.remove_voter(ctx, ask.request)
        return VotersAnswer(answered.error)

    async def describe(ask: QuorumAsk) -> DescribeQuorumResponse:
        return await quorum.describe_quorum(ctx)

    return dict((route(VOTERS, change), route(QUORUM, describe)))
