"""Whom a page watches: the cluster of a directory of this machine, or nodes at addresses, of which it has their answers alone."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kraftlite.local.client import to_nodes
from kraftlite.local.ledger import LEDGER_NAME
from kraftlite.local.state import LocalCluster, LocalNode, load
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.introspection import NodeStatusRequest, NodeStatusResponse
from kraftlite.model.messages.methods import NODE_STATUS
from kraftlite.model.shown import printable
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import TransportError

if TYPE_CHECKING:
    from kraftlite.tls.source import TlsSource

MAX_ADDRESSES: Final = 100
TIMEOUT_MS: Final = 1_000
AGAIN_S: Final = 1.0
_NOWHERE: Final = os.devnull
"""The directory of a node that has none here: no file can be below it."""
_ROLES: Final = {"broker", "controller"}
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]{2,64})\]|([A-Za-z0-9][A-Za-z0-9._-]{0,252})):(\d{1,5})", re.ASCII)


class Whom(Protocol):
    """The nodes to hear, and the files that tell of them."""

    @property
    def data_dir(self) -> Path | None:
        """The directory by which something may be done to the nodes; None: there is none."""

    @property
    def traces(self) -> bool:
        """Return whether the page can read the traces of the nodes."""

    @property
    def unheard(self) -> str | None:
        """The addresses that are not shown, and why; None when everything is."""

    def look(self) -> LocalCluster:
        """The cluster as it is known now. Raises LocalError when it cannot be read."""

    def files(self, cluster: LocalCluster) -> Sequence[Path]:
        """The files with events."""

    def connect(self) -> AbstractAsyncContextManager[GrpcTransport]:
        """Connections to the nodes."""

    async def find(self, transport: GrpcTransport) -> None:
        """Look for nodes until all are known."""


class InDirectory:
    """A local cluster."""

    traces = True
    unheard = None

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def look(self) -> LocalCluster:
        return load(self.data_dir)

    def files(self, cluster: LocalCluster) -> Sequence[Path]:
        return [*(node.trace_path for node in cluster.nodes), self.data_dir / LEDGER_NAME]

    def connect(self) -> AbstractAsyncContextManager[GrpcTransport]:
        return to_nodes(self.look())

    async def find(self, transport: GrpcTransport) -> None:
        """The directory names them all."""


class AtAddresses:
    """Nodes anywhere, by the addresses at which nodes reach them. Whoever answers first says which cluster it is; a node of
    another one is told, and not shown."""

    data_dir = None

    def __init__(self, addresses: Sequence[Endpoint], tls: TlsSource | None = None, traces: Sequence[Path] = ()) -> None:
        self._tls = tls
        self._traces = list(traces)
        self.traces = bool(traces)
        self._cluster_id = ""
        self._nodes: dict[int, LocalNode] = {}
        self._missing: dict[Endpoint, str] = dict.fromkeys(addresses, "has not answered yet")

    @property
    def unheard(self) -> str | None:
        if not self._missing:
            return None
        return "; ".join(f"{address} {why}" for address, why in self._missing.items())

    def look(self) -> LocalCluster:
        nodes = tuple(self._nodes[node_id] for node_id in sorted(self._nodes))
        return LocalCluster(
            data_dir="",
            cluster_id=self._cluster_id,
            controllers=sum(node.is_controller for node in nodes),
            brokers=sum(node.is_broker for node in nodes),
            combined=any(len(node.roles) > 1 for node in nodes),
            nodes=nodes,
        )

    def files(self, cluster: LocalCluster) -> Sequence[Path]:
        return self._traces

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[GrpcTransport]:
        transport = GrpcTransport()
        transport.protect(lambda _service: self._tls)
        try:
            yield transport
        finally:
            await transport.close()

    async def find(self, transport: GrpcTransport) -> None:
        while self._missing:
            await asyncio.gather(*(self._ask(transport, address) for address in list(self._missing)))
            await asyncio.sleep(AGAIN_S)

    async def _ask(self, transport: GrpcTransport, address: Endpoint) -> None:
        try:
            said = await transport.call(address, NODE_STATUS, NodeStatusRequest(), TIMEOUT_MS)
        except (TransportError, ApiError) as error:
            self._missing[address] = f"has not answered yet: {printable(str(error)[:200])}"
            return
        why = self._refusal(said)
        if why is not None:
            self._missing[address] = why
            return
        del self._missing[address]
        self._cluster_id = said.cluster_id
        self._nodes[said.node_id] = LocalNode(
            id=said.node_id,
            roles=said.roles,
            kafka=None,
            replication=str(address),
            controller=None,
            directory=_NOWHERE,
            contained=True,
        )

    def _refusal(self, said: NodeStatusResponse) -> str | None:
        if not said.roles or not set(said.roles) <= _ROLES:
            return "says of itself what no node says"
        if self._cluster_id not in ("", said.cluster_id):
            return f"belongs to another cluster, {printable(said.cluster_id[:60])}"
        if said.node_id in self._nodes:
            return f"is node {said.node_id}, as {self._nodes[said.node_id].grpc} is"
        return None


def addresses_of(text: str) -> list[Endpoint]:
    """`host:port`, several with commas between them. Raises ValueError."""
    found: dict[Endpoint, None] = {}
    for one in text.split(","):
        match = _ADDRESS.fullmatch(one.strip())
        if match is None or not 0 < int(match[3]) < 65_536:
            raise ValueError(f"{printable(one[:80])!r}: allowed is host:port, several with commas between them")
        found[Endpoint(match[1] or match[2], int(match[3]))] = None
    if len(found) > MAX_ADDRESSES:
        raise ValueError(f"{len(found)} addresses: allowed are {MAX_ADDRESSES}")
    return list(found)
