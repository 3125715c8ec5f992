"""The faults that this node may be told to cause to itself: which of its parts can be hit, and where their ends are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from kraftlite.config.server import ServerConfig
from kraftlite.faults.active import Part
from kraftlite.faults.clients import ApiFaults, ClientLinks, Doors
from kraftlite.faults.clock import FaultyClock
from kraftlite.faults.disk import FaultyDisk
from kraftlite.faults.injector import Injector
from kraftlite.faults.network import FaultyTransport
from kraftlite.metadata.image import ClusterImage
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.model.ids import Endpoint
from kraftlite.obs.fault_file import append
from kraftlite.obs.faults import ENDED
from kraftlite.runtime.ports import Ports

_DOOR: Final = "node"
"""The door of an end that nobody asked for at that moment."""


def load_injector(config: ServerConfig, ports: Ports, doors: Doors, loader: MetadataLoader) -> Injector | None:
    """None for a node that does not allow faults. Ports that are not the machine's have no part in it: who makes them has other
    ways."""
    if not config.get_bool("kraftlite.faults.enable"):
        return None
    parts: dict[str, Part] = {"api": ApiFaults(doors, ports.clock)}
    if isinstance(ports.transport, FaultyTransport):
        ports.transport.nodes = Addresses(config, loader)
        parts["network"] = ports.transport
    if isinstance(ports.disk, FaultyDisk):
        parts["disk"] = ports.disk
    if isinstance(ports.clock, FaultyClock):
        parts["clock"] = ports.clock
    ledger = config.get("kraftlite.faults.ledger")
    record: Callable[[str, str], None] = lambda identity, how: None  # noqa: E731
    if ledger is not None:
        record = partial(_record, Path(str(ledger)), config.node_id)
    return Injector(config.node_id, ports.clock, ports.tracer, parts, ClientLinks(doors), record)


def _record(ledger: Path, node_id: int, identity: str, how: str) -> None:
    """The trace tells it, too, so that a ledger which cannot be written costs nobody anything."""
    with suppress(OSError):
        append(ledger, ENDED, node_id, id=identity, how=how, who=f"node {node_id}", door=_DOOR)


class Addresses:
    """The nodes by the addresses at which other nodes reach them: the configured voters, and what the metadata says."""

    def __init__(self, config: ServerConfig, loader: MetadataLoader) -> None:
        self._voters: dict[Endpoint, int] = {it.endpoint: it.node_id for it in config.quorum_voters}
        self._loader = loader
        self._known: ClusterImage | None = None
        self._found: Mapping[Endpoint, int] = self._voters

    def __call__(self) -> Mapping[Endpoint, int]:
        cluster = self._loader.image.cluster
        if cluster is not self._known:
            self._known = cluster
            listeners = [(it, node_id) for node_id in cluster.brokers for it in cluster.brokers[node_id].listeners]
            listeners += [(it, node_id) for node_id in cluster.controllers for it in cluster.controllers[node_id].listeners]
            self._found = {**self._voters, **{Endpoint(it.host, it.port): int(node_id) for it, node_id in listeners}}
        return self._found
