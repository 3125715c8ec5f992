"""The introspection service: what a node is and holds."""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.model.messages.introspection import (
    NodeStatusRequest,
    NodeStatusResponse,
    ReplicaState,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
)
from kraftlite.model.messages.methods import NODE_STATUS, REPLICA_STATES
from kraftlite.runtime.ports import Handlers, route


class Introspection:
    """Read-only, answered at once whatever state the node is in. A node without the broker role holds no replicas."""

    def __init__(
        self,
        status: Callable[[], NodeStatusResponse],
        replicas: Callable[[tuple[str, ...] | None], tuple[ReplicaState, ...]],
    ) -> None:
        self._status = status
        self._replicas = replicas

    def handlers(self) -> Handlers:
        return dict((route(NODE_STATUS, self._node_status), route(REPLICA_STATES, self._replica_states)))

    async def _node_status(self, request: NodeStatusRequest) -> NodeStatusResponse:
        return self._status()

    async def _replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse:
        return ReplicaStatesResponse(replicas=self._replicas(request.topics))
