"""Nodes that have supervisors, which other containers ask: to start again, and who leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from kraftlite.local import door, process
from kraftlite.local.client import RPC_MS, ask_nodes
from kraftlite.local.state import LocalCluster, LocalError, LocalNode
from kraftlite.model.errors import ApiError
from kraftlite.model.messages.introspection import NodeStatusRequest, NodeStatusResponse, ReplicaStatesRequest
from kraftlite.model.messages.methods import NODE_STATUS, REPLICA_STATES
from kraftlite.runtime.ports import Transport, TransportError

EVERY_S: Final = 0.2


def let_start(nodes: Sequence[LocalNode]) -> None:
    """Let the supervisors start their nodes. Raises LocalError for the first that does not."""
    for node in nodes:
        host = node.endpoint.host
        try:
            answer = door.ask(node.door_path, door.START)
        except TimeoutError:
            raise LocalError(f"node {node.id} has a container that does not answer: docker compose unpause {host}") from None
        if answer is None:
            raise LocalError(f"node {node.id} has no container now: docker compose start {host}")
        if answer.get("done") is not True:
            stopped = answer.get("state") == process.STOPPED
            raise LocalError(f"node {node.id} " + (f"was not started: docker compose logs {host}" if stopped else "runs already"))


def wait_answer(cluster: LocalCluster, nodes: Sequence[LocalNode], timeout_s: float) -> None:
    """Wait until each of the nodes says that it is ready: a broker RUNNING, a controller at all. Raises LocalError."""

    async def wait(transport: Transport) -> None:
        deadline = time.monotonic() + timeout_s
        for node in nodes:
            while not _is_ready(await _ask(transport, node, NODE_STATUS, NodeStatusRequest())):
                if node.state == process.STOPPED:
                    raise LocalError(f"node {node.id} ended while starting: docker compose logs {node.endpoint.host}")
                if time.monotonic() > deadline:
                    raise LocalError(f"node {node.id} is started, and not ready after {timeout_s:.0f} s")
                await asyncio.sleep(EVERY_S)

    if nodes:
        ask_nodes(cluster, wait)


def _is_ready(status: NodeStatusResponse | None) -> bool:
    return status is not None and status.broker_state in (None, "RUNNING")


def active_controller(cluster: LocalCluster) -> int:
    """The active controller, by the word of the nodes themselves: other containers have no way to the addresses of clients. Of
    two that both claim to be it, the one with the higher epoch. Raises LocalError when nobody does."""
    found = [(it.raft_epoch, node) for node, it in _said(cluster, NODE_STATUS, NodeStatusRequest()) if it.active_controller]
    if not found:
        raise LocalError("no node says that it is the active controller: name the node by its id")
    return max(found)[1]


def leader_of(cluster: LocalCluster, partition: str) -> int:
    """The node that leads, in the same way. Raises LocalError."""
    topic, _, index = partition.rpartition("-")
    answers = _said(cluster, REPLICA_STATES, ReplicaStatesRequest(topics=(topic,)))
    replicas = [(node, it) for node, answer in answers for it in answer.replicas if it.partition == int(index)]
    found = [(it.leader_epoch, node) for node, it in replicas if it.is_leader]
    if not found:
        raise LocalError(f"no node says that it leads {partition}: name the node by its id")
    return max(found)[1]


def _said(cluster: LocalCluster, method: Any, request: Any) -> list[tuple[int, Any]]:
    """The answers of the nodes that give one, with their ids."""

    async def look(transport: Transport) -> list[tuple[int, Any]]:
        answers = await asyncio.gather(*(_ask(transport, node, method, request) for node in cluster.nodes))
        return [(node.id, it) for node, it in zip(cluster.nodes, answers, strict=True) if it is not None]

    return ask_nodes(cluster, look)


async def _ask(transport: Transport, node: LocalNode, method: Any, request: Any) -> Any:
    """None: it does not answer."""
    try:
        return await transport.call(node.endpoint, method, request, RPC_MS)
    except (ApiError, TransportError):
        return None
