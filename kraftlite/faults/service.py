"""The faults service of every node: refused unless the node's configuration allows it."""

from __future__ import annotations

from kraftlite.faults.injector import Injector
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.faults import UnknownFault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.faults import (
    EndFaultsRequest,
    EndFaultsResponse,
    InjectRequest,
    InjectResponse,
    ListFaultsRequest,
    ListFaultsResponse,
)
from kraftlite.model.messages.methods import END_FAULTS, INJECT_FAULT, LIST_FAULTS
from kraftlite.runtime.ports import Handlers, route


class FaultsService:
    """`injector` None: the node does not allow faults, and says so with POLICY_VIOLATION. Who may act as a node may call it where
    nodes authenticate (`node/authorization.for_nodes`)."""

    def __init__(self, node_id: NodeId, injector: Injector | None) -> None:
        self._node_id = node_id
        self._injector = injector

    def handlers(self) -> Handlers:
        return dict((route(INJECT_FAULT, self._inject), route(END_FAULTS, self._end), route(LIST_FAULTS, self._list)))

    def _allowed(self) -> Injector:
        if self._injector is None:
            why = f"node {self._node_id} does not take faults: kraftlite.faults.enable is false (kraftlite up --faults sets it)"
            raise ApiError(ErrorCode.POLICY_VIOLATION, why)
        return self._injector

    async def _inject(self, request: InjectRequest) -> InjectResponse:
        try:
            self._allowed().inject(request.fault)
        except UnknownFault as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        return InjectResponse(node_id=self._node_id)

    async def _end(self, request: EndFaultsRequest) -> EndFaultsResponse:
        return EndFaultsResponse(ended=self._allowed().end(request.ids))

    async def _list(self, request: ListFaultsRequest) -> ListFaultsResponse:
        return ListFaultsResponse(faults=self._allowed().states())
