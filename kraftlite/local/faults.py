"""Faults that the nodes of a running local cluster cause to themselves: their network, disks, clocks, and answers to clients.

The nodes must allow it (`kraftlite up --faults`). Every fault is written into the ledger before it is asked for, and lasts for
at most ten minutes; the node ends it, whatever becomes of who asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kraftlite.local import process
from kraftlite.local.client import RPC_MS, ask_nodes
from kraftlite.local.ledger import PYTHON, Ledger, author, read_faults
from kraftlite.local.state import LocalCluster, LocalError, LocalNode, load
from kraftlite.model.errors import ApiError
from kraftlite.model.faults import CLIENTS, FaultState, Injection, UnknownFault, check
from kraftlite.model.messages.faults import EndFaultsRequest, InjectRequest, ListFaultsRequest
from kraftlite.model.messages.methods import END_FAULTS, INJECT_FAULT, LIST_FAULTS
from kraftlite.obs.faults import INJECTED, Author
from kraftlite.runtime.ports import Transport, TransportError


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A fault that a node says it has now."""

    node: int
    state: FaultState

    def to_dict(self) -> dict[str, Any]:
        fault = self.state.fault
        return {
            "id": fault.id,
            "node": self.node,
            "kind": fault.kind,
            "other": fault.other,
            "what": fault.facts,
            "left_ms": self.state.left_ms,
            "hits": self.state.hits,
        }


def inject(data_dir: Path, node_id: int, fault: Injection, *, by: Author | None = None) -> str:
    """Let a node be hit, and the other end of the link, too; returns the id of the fault, which replaces that of `fault`.

    It is there when this returns. Raises LocalError when a node refuses or does not answer; then it is nowhere.
    """
    cluster = load(data_dir)
    halves = _halves(cluster, node_id, fault)
    facts: dict[str, Any] = {"for_ms": fault.for_ms}
    facts |= {"other": fault.other} if fault.other is not None else {}
    facts |= {"what": fault.what} if fault.what else {}
    facts |= {"amount": fault.amount} if fault.amount else {}
    ledger = Ledger(data_dir, by or author(PYTHON))
    identity = ledger.ask(fault.kind, node_id, **facts)
    try:
        ask_nodes(cluster, lambda transport: _begin(transport, cluster, halves, identity))
    except LocalError as error:
        ledger.fail(identity, node_id, str(error))
        raise
    ledger.see(identity, node_id)
    return identity


def prolong(data_dir: Path, node_id: int, fault: Injection, identity: str) -> None:
    """Let a fault that is there last for `fault.for_ms` from now on. Raises LocalError."""
    cluster = load(data_dir)
    halves = _halves(cluster, node_id, fault)
    ask_nodes(cluster, lambda transport: _begin(transport, cluster, halves, identity))


def end(data_dir: Path, ids: Sequence[str] | None = None, *, by: Author | None = None) -> list[str]:
    """End these faults, None: all that the nodes have; returns those that there were. Raises LocalError when a node that runs
    does not answer, after all others have been asked."""
    cluster = load(data_dir)
    wanted = None if ids is None else tuple(ids)
    ledger = Ledger(data_dir, by or author(PYTHON))
    open_ids = {fault.id: fault.node for fault in read_faults(data_dir) if fault.active and fault.kind in INJECTED}
    for identity in open_ids if wanted is None else [it for it in wanted if it in open_ids]:
        ledger.close(identity, open_ids[identity], "end")
    found = ask_nodes(cluster, lambda transport: _of_all(transport, cluster, END_FAULTS, EndFaultsRequest(ids=wanted)))
    return sorted({identity for answer in found.values() for identity in answer.ended})


def listed(data_dir: Path) -> list[Listed]:
    """The faults that the running nodes have now, by their own words. Raises LocalError."""
    cluster = load(data_dir)
    found = ask_nodes(cluster, lambda transport: _of_all(transport, cluster, LIST_FAULTS, ListFaultsRequest()))
    return [Listed(node=node_id, state=state) for node_id in sorted(found) for state in found[node_id].faults]


def forget_links(data_dir: Path, node_ids: Sequence[int], *, by: Author | None = None) -> None:
    """A node that starts has no faults: those of its links end at the other ends, too, so that none is half there."""
    ends = set(node_ids)
    links = [it.id for it in read_faults(data_dir) if it.active and it.family == "network" and {it.node, it.other} & ends]
    if links:
        end(data_dir, links, by=by)


# --- one fault at the nodes that it hits


def _halves(cluster: LocalCluster, node_id: int, fault: Injection) -> dict[int, Injection]:
    """The injections by node, one for each that is told. Raises LocalError for a fault that has no meaning."""
    cluster.node(node_id)
    halves = {node_id: fault}
    if fault.other is not None and fault.other != CLIENTS:
        halves[cluster.node(fault.other).id] = replace(fault, other=node_id, outgoing=fault.incoming, incoming=fault.outgoing)
    try:
        check(replace(fault, id="new"))
        if fault.other == node_id:
            raise UnknownFault(f"node {node_id} has no link to itself")
        if fault.other == CLIENTS and not cluster.node(node_id).is_broker:
            raise UnknownFault(f"node {node_id} is not a broker: it has no clients")
    except UnknownFault as error:
        raise LocalError(str(error)) from None
    return halves


async def _begin(transport: Transport, cluster: LocalCluster, halves: Mapping[int, Injection], identity: str) -> None:
    nodes = [cluster.node(node_id) for node_id in halves]
    running = [node for node in nodes if node.state != process.STOPPED]
    if not running:
        raise LocalError(f"node {' and node '.join(str(node.id) for node in nodes)} is not running")
    asked = [_ask(transport, node, INJECT_FAULT, InjectRequest(fault=replace(halves[node.id], id=identity))) for node in running]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    wrong = [answer for answer in answers if isinstance(answer, BaseException)]
    if wrong:
        undo = EndFaultsRequest(ids=(identity,))
        taken = [node for node, answer in zip(running, answers, strict=True) if not isinstance(answer, BaseException)]
        await asyncio.gather(*(_ask(transport, node, END_FAULTS, undo) for node in taken), return_exceptions=True)
        raise wrong[0]


async def _of_all(transport: Transport, cluster: LocalCluster, method: Any, request: Any) -> dict[int, Any]:
    nodes = [node for node in cluster.nodes if node.state != process.STOPPED]
    answers = await asyncio.gather(*(_ask(transport, node, method, request) for node in nodes), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return {node.id: answer for node, answer in zip(nodes, answers, strict=True)}


async def _ask(transport: Transport, node: LocalNode, method: Any, request: Any) -> Any:
    try:
        return await transport.call(node.endpoint, method, request, RPC_MS)
    except ApiError as error:
        raise LocalError(error.message or str(error)) from None
    except TransportError as error:
        raise LocalError(f"node {node.id} does not answer ({error})") from None
