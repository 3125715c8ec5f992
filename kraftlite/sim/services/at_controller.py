"""Requests of clients that come to a controller directly (KIP-919): only a node with both roles has a listener for them here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kraftlite.broker.handlers.at_controller import (
    OwnController,
    alter_configs_here,
    describe_controllers,
    list_reassignments_here,
)
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.metadata import CONTROLLERS
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kraftlite.model.method import Method
from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers, route


@dataclass(frozen=True, slots=True)
class ControllersAsk:
    """The controllers that have this listener."""

    listener: str


@dataclass(frozen=True, slots=True)
class ControllersTold:
    controller_id: NodeId | None
    node_ids: tuple[NodeId, ...]


CONTROLLERS_HERE: Final = Method("Client", "DescribeControllers", ControllersAsk, ControllersTold)
MOVES_HERE: Final = Method(
    "Client", "ListReassignmentsHere", ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
)
CONFIGS_HERE: Final = Method("Client", "AlterConfigsHere", IncrementalAlterConfigsRequest, AlterConfigsResponse)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    if node.controller is None:
        return {}
    service = _Service(replace(node.broker.context, controller=OwnController(node.controller.handlers())))
    return dict(
        (
            route(CONTROLLERS_HERE, service.controllers),
            route(MOVES_HERE, service.moves),
            route(CONFIGS_HERE, service.configs),
        )
    )


class _Service:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def controllers(self, ask: ControllersAsk) -> ControllersTold:
        found = describe_controllers(self._context, ask.listener, endpoint_type=CONTROLLERS, include_fenced=False)
        return ControllersTold(found.controller_id, tuple(it.broker_id for it in found.brokers))

    async def moves(self, ask: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        return await list_reassignments_here(self._context, ask)

    async def configs(self, ask: IncrementalAlterConfigsRequest) -> AlterConfigsResponse:
        return await alter_configs_here(self._context, ask)
