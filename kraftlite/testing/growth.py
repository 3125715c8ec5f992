"""An embedded cluster that grows and shrinks: nodes come, and leave in order. On the cluster's loop.

Source: KIP-853 (voters), KIP-455 (reassignments); DQ-30, DQ-33.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Final, NoReturn

from kraftlite.client.errors import ClientError
from kraftlite.client.moves import planned_moves
from kraftlite.client.voters import Change, cannot_leave
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    UnregisterBrokerRequest,
)
from kraftlite.model.messages.methods import ADD_VOTER, ALTER_PARTITION_REASSIGNMENTS, REMOVE_VOTER, UNREGISTER_BROKER
from kraftlite.model.messages.raft import AddVoterRequest, AddVoterResponse, RemoveVoterRequest, RemoveVoterResponse
from kraftlite.model.method import Method, Req, Res
from kraftlite.runtime.ports import TransportError
from kraftlite.testing.errors import ClusterError, WaitTimeout
from kraftlite.testing.layout import MAX_NODES, NodePlan
from kraftlite.testing.nodes import POLL_S, Nodes
from kraftlite.testing.views import ATTEMPT_MS, Views

DRAIN_LIMIT_S: Final = 60.0


async def add_node(nodes: Nodes, views: Views, role: str, rack: str | None, limit_s: float) -> int:
    """Start a node of this role, which serves, or votes, when it returns; its id."""
    if len(nodes.plans) >= MAX_NODES:
        raise ClusterError(f"the cluster has {len(nodes.plans)} nodes; allowed are at most {MAX_NODES}")
    end_s = time.monotonic() + limit_s
    node_id = max(it.node_id for it in nodes.plans) + 1
    directories = max(it.directories for it in nodes.plans) if role == "broker" else 1
    nodes.join(NodePlan(node_id=node_id, roles=(role,), rack=rack, directories=directories))
    try:
        await nodes.ready([node_id], limit_s)
        if role == "controller":
            await _add_voter(nodes, views, node_id, end_s)
        else:
            await _until(nodes, end_s, f"broker {node_id} is not known everywhere", lambda: _is_known(views, node_id))
    except ClusterError:
        nodes.leave(node_id)
        raise
    return node_id


def _is_known(views: Views, broker: int) -> bool:
    found = [node.loader.image.cluster.brokers.get(NodeId(broker)) for node in views.nodes().values()]
    return all(it is not None and not it.fenced for it in found)


async def remove_node(nodes: Nodes, views: Views, node_id: int, role: str, fewer_replicas: bool, limit_s: float) -> None:
    """Let a node leave in order: its replicas move, the voters forget it, it stops."""
    plan = next(it for it in nodes.plans if it.node_id == node_id)
    if role not in plan.roles:
        raise ClusterError(f"node {node_id} is no {role}: it is {' and '.join(plan.roles)}")
    if role == "controller" and plan.is_broker:
        raise ClusterError(f"node {node_id} is a broker, too: remove_broker({node_id}) removes it with both roles")
    if plan.is_broker and sum(it.is_broker for it in nodes.plans) == 1:
        raise ClusterError(f"node {node_id} is the only broker")
    if plan.is_controller:
        _check_voters_without(nodes, views, node_id)
    if plan.is_broker:
        await _drain(nodes, views, node_id, fewer_replicas)
    end_s = time.monotonic() + limit_s
    if plan.is_controller and node_id in _voters(views):
        await _remove_voter(nodes, views, node_id, end_s)
    if nodes.hosts[node_id].running:
        await nodes.stop([node_id])
    if plan.is_broker:
        request = UnregisterBrokerRequest(broker_id=NodeId(node_id), timeout_ms=ATTEMPT_MS)
        await _at_controller(nodes, views, UNREGISTER_BROKER, request, end_s)
    nodes.leave(node_id)
    await _until(nodes, end_s, f"node {node_id} is still known", lambda: _is_forgotten(views, node_id))


def _is_forgotten(views: Views, node_id: int) -> bool:
    brokers = [node.loader.image.cluster.brokers for node in views.nodes().values()]
    return views.controller() is not None and all(NodeId(node_id) not in it for it in brokers)


# --- voters


def _voters(views: Views) -> tuple[int, ...]:
    """The voters as the active controller knows them; of none is active, as any node does."""
    live, active = views.nodes(), views.controller()
    node = live.get(active) if active is not None else next(iter(live.values()), None)
    return () if node is None else tuple(int(it) for it in node.raft.voter_ids())


def _check_voters_without(nodes: Nodes, views: Views, node_id: int) -> None:
    running = [it.node_id for it in nodes.plans if nodes.state(it.node_id) == "running"]
    if why := cannot_leave(_voters(views), node_id, running):
        raise ClusterError(why)


async def _add_voter(nodes: Nodes, views: Views, node_id: int, end_s: float) -> None:
    endpoint = VoterEndpoint(name="CONTROLLER", host=f"n{node_id}", port=9093)
    request = AddVoterRequest(
        cluster_id=None,
        voter_id=NodeId(node_id),
        voter_directory_id=nodes.directories[node_id],
        listeners=(endpoint,),
        ack_when_committed=True,
    )
    change = Change.adding()
    await _carry_out(
        nodes,
        change,
        lambda: _at_controller(nodes, views, ADD_VOTER, request, end_s, lost=change.lost),
        end_s,
        f"controller {node_id} was not added to the voters",
    )


async def _remove_voter(nodes: Nodes, views: Views, node_id: int, end_s: float) -> None:
    request = RemoveVoterRequest(cluster_id=None, voter_id=NodeId(node_id), voter_directory_id=nodes.directories[node_id])
    change = Change.removing()
    await _carry_out(
        nodes,
        change,
        lambda: _at_controller(nodes, views, REMOVE_VOTER, request, end_s, lost=change.lost),
        end_s,
        f"controller {node_id} was not removed from the voters",
    )


async def _carry_out(
    nodes: Nodes,
    change: Change,
    ask: Callable[[], Coroutine[None, None, AddVoterResponse | RemoveVoterResponse]],
    end_s: float,
    failed: str,
) -> None:
    """Ask until the voters are changed. Raises ClusterError for an answer that is final."""
    while True:
        answer = await ask()
        if change.is_done(answer.error):
            return
        if not change.goes_on(answer.error):
            raise ClusterError(f"{failed}: {answer.message} ({answer.error.name})")
        if time.monotonic() > end_s:
            _late(nodes, f"{failed}: {answer.message}")
        await asyncio.sleep(POLL_S)


# --- replicas


async def _drain(nodes: Nodes, views: Views, leaving: int, fewer_replicas: bool) -> None:
    """Until no partition has a replica on the broker."""
    end_s = time.monotonic() + DRAIN_LIMIT_S
    while True:
        partitions = {
            (name, index): it for name, topic in views.image().topics.by_name.items() for index, it in topic.partitions.items()
        }
        held = {key: it for key, it in partitions.items() if leaving in it.replicas}
        if not held:
            return
        running = [it.node_id for it in nodes.plans if it.is_broker and nodes.state(it.node_id) == "running"]
        settled = {key: it.replicas for key, it in partitions.items() if leaving not in it.removing_replicas}
        try:
            moves = planned_moves(settled, leaving, running, fewer_replicas=fewer_replicas)
        except ClientError as error:
            raise ClusterError(str(error)) from None
        if moves:
            wanted = tuple(
                ReassignablePartition(topic=name, partition=index, replicas=tuple(NodeId(it) for it in replicas))
                for (name, index), replicas in moves.items()
            )
            request = AlterPartitionReassignmentsRequest(
                partitions=wanted, allow_replication_factor_change=True, timeout_ms=ATTEMPT_MS
            )
            answer = await _at_controller(nodes, views, ALTER_PARTITION_REASSIGNMENTS, request, end_s)
            for one in answer.results:
                if one.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise ClusterError(f"{one.topic}-{one.partition} cannot be moved: {ApiError(one.error, one.message)}")
        if time.monotonic() > end_s:
            left = ", ".join(f"{name}-{index}" for name, index in list(held)[:10])
            _late(nodes, f"broker {leaving} still has replicas of {left}")
        await asyncio.sleep(POLL_S)


# --- asking


async def _at_controller(
    nodes: Nodes,
    views: Views,
    method: Method[Req, Res],
    request: Req,
    end_s: float,
    *,
    lost: Callable[[], None] = lambda: None,
) -> Res:
    """Ask the active controller, and whoever is it later where one does not answer, which `lost` is told. Raises ClusterError for
    a refusal."""
    while True:
        active = views.controller()
        try:
            if active is not None:
                return await views.ask(active, method, request, ATTEMPT_MS)
        except TransportError:
            lost()  # it is gone, or slow: the next one is asked
        except ApiError as error:
            if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
                raise ClusterError(f"{method.name} was refused: {error}") from None
            lost()
        if time.monotonic() > end_s:
            _late(nodes, f"no controller answered {method.name}")
        await asyncio.sleep(POLL_S)


async def _until(nodes: Nodes, end_s: float, what: str, condition: Callable[[], bool]) -> None:
    while not condition():
        if time.monotonic() > end_s:
            _late(nodes, what)
        await asyncio.sleep(POLL_S)


def _late(nodes: Nodes, what: str) -> NoReturn:
    raise WaitTimeout(f"{what}{nodes.troubles()}")
